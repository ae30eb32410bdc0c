package job_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// The two tables as the design tells them, in its own words and not in the form of the code.
var (
	working = []job.State{
		job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Queued, job.Running, job.Archiving,
	}
	terminal = []job.State{job.Finished, job.Failed, job.Canceled}

	// Where a worker picks work up again: the working states, less those in which something runs by
	// itself.
	steps = []job.State{job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Archiving}

	lives = `
		WAITING PENDING PROCESSING_INPUTS STAGING_INPUTS STAGING_JOB SUBMITTING_JOB QUEUED RUNNING ARCHIVING FINISHED
		PENDING RUNNING FINISHED
		SUBMITTING_JOB ARCHIVING
		QUEUED ARCHIVING
		SUBMITTING_JOB RUNNING
		RUNNING QUEUED
		RUNNING PENDING
		RUNNING WAITING`

	standings = `
		WAITING gate
		PENDING ready
		PROCESSING_INPUTS gate ready worker
		STAGING_INPUTS ready worker
		STAGING_JOB ready worker
		ARCHIVING ready worker
		SUBMITTING_JOB gate ready worker
		QUEUED monitor
		RUNNING monitor worker
		BLOCKED recovery
		PAUSED user
		FINISHED none
		FAILED none
		CANCELED none`
)

func legalEdges() map[[2]job.State]bool {
	legal := map[[2]job.State]bool{}
	for line := range strings.Lines(lives) {
		life := strings.Fields(line)
		for i := 1; i < len(life); i++ {
			legal[[2]job.State{job.State(life[i-1]), job.State(life[i])}] = true
		}
	}
	for _, s := range working {
		legal[[2]job.State{s, job.Blocked}] = true
		legal[[2]job.State{s, job.Waiting}] = true // retry
		legal[[2]job.State{s, job.Pending}] = true
	}
	for _, s := range steps {
		legal[[2]job.State{job.Blocked, s}] = true
		legal[[2]job.State{job.Paused, s}] = true
		legal[[2]job.State{s, s}] = true // a change of custody alone
	}
	legal[[2]job.State{job.Running, job.Running}] = true      // from a worker to a monitor
	legal[[2]job.State{job.Queued, job.Queued}] = true        // for another reason
	legal[[2]job.State{job.Queued, job.SubmittingJob}] = true // it was forgotten there
	legal[[2]job.State{job.Blocked, job.Pending}] = true      // a task goes on there
	legal[[2]job.State{job.Blocked, job.Waiting}] = true      // or waits for its turn
	legal[[2]job.State{job.Paused, job.Pending}] = true
	legal[[2]job.State{job.Pending, job.Waiting}] = true // for a limit that was set
	legal[[2]job.State{job.Waiting, job.Waiting}] = true // it is the one that goes of its order, and waits for another turn
	legal[[2]job.State{job.Paused, job.Waiting}] = true
	for _, s := range job.States {
		if !slices.Contains(terminal, s) {
			legal[[2]job.State{s, job.Failed}] = true
			legal[[2]job.State{s, job.Canceled}] = true
			legal[[2]job.State{s, job.Paused}] = s != job.Paused
		}
	}
	return legal
}

func TestEveryPairOfStates(t *testing.T) {
	legal := legalEdges()
	for _, from := range job.States {
		for _, to := range job.States {
			want := legal[[2]job.State{from, to}]
			if got := job.Edge(from, to); got != want {
				t.Errorf("Edge(%s, %s) = %v, want %v", from, to, got, want)
			}
			if got := slices.Contains(job.Edges(from), to); got != want {
				t.Errorf("Edges(%s) has %s: %v, want %v", from, to, got, want)
			}
		}
	}
}

func TestEveryPlace(t *testing.T) {
	legal := map[job.Place]bool{}
	for line := range strings.Lines(standings) {
		if f := strings.Fields(line); len(f) > 0 {
			for _, c := range f[1:] {
				legal[job.Place{State: job.State(f[0]), Custody: job.Custody(c)}] = true
			}
		}
	}
	for _, s := range job.States {
		for _, c := range job.Custodies {
			p := job.Place{State: s, Custody: c}
			if got := p.Legal(); got != legal[p] {
				t.Errorf("%s: legal %v, want %v", p, got, legal[p])
			}
			if got := slices.Contains(job.Places(s), c); got != legal[p] {
				t.Errorf("Places(%s) has %s: %v, want %v", s, c, got, legal[p])
			}
		}
	}
	for _, p := range []job.Place{{}, {State: "LOST", Custody: job.Gate}, {State: job.Waiting}} {
		if p.Legal() {
			t.Errorf("%s is legal", p)
		}
	}
}

func TestKindsOfStates(t *testing.T) {
	for _, s := range job.States {
		if got, want := s.Terminal(), slices.Contains(terminal, s); got != want {
			t.Errorf("%s is terminal: %v, want %v", s, got, want)
		}
		if got, want := s.Working(), slices.Contains(working, s); got != want {
			t.Errorf("%s is working: %v, want %v", s, got, want)
		}
		want := slices.Contains(steps, s) || s == job.Waiting || s == job.Pending
		if got := job.Resumable(s); got != want {
			t.Errorf("%s is resumable: %v, want %v", s, got, want)
		}
		if len(job.Edges(s)) == 0 != s.Terminal() {
			t.Errorf("%s: terminal %v, and its edges are %v", s, s.Terminal(), job.Edges(s))
		}
	}
}

func TestTablesCannotBeChangedFromOutside(t *testing.T) {
	job.Edges(job.Waiting)[0] = job.Finished
	job.Places(job.Waiting)[0] = job.None
	if job.Edge(job.Waiting, job.Finished) || (job.Place{State: job.Waiting, Custody: job.None}).Legal() {
		t.Error("a caller has written into the tables")
	}
}

func TestLanes(t *testing.T) {
	for _, s := range job.States {
		want := job.LanePrepare
		switch s {
		case job.Archiving:
			want = job.LaneFinish
		case job.SubmittingJob:
			want = job.LaneLaunch
		}
		for suspect := range job.AloneAt {
			if got := job.LaneOf(s, true, suspect); got != want {
				t.Errorf("a program in %s, suspected %d times, is in lane %s, want %s", s, suspect, got, want)
			}
			if got := job.LaneOf(s, false, suspect); got != job.LaneTask {
				t.Errorf("a task in %s, suspected %d times, is in lane %s", s, suspect, got)
			}
		}
		for _, program := range []bool{true, false} {
			for suspect := job.AloneAt; suspect <= job.PoisonAt; suspect++ {
				if got := job.LaneOf(s, program, suspect); got != job.LaneAlone {
					t.Errorf("a job (program: %v) in %s, suspected %d times, is in lane %s", program, s, suspect, got)
				}
			}
		}
	}
}

// A claim looks in no lane for jobs of a kind that are never there, and misses none that are.
func TestLaneTakes(t *testing.T) {
	for _, kind := range []string{job.KindApp, "mail"} {
		seen := map[job.Lane]bool{}
		for _, s := range job.States {
			for suspect := range job.PoisonAt {
				seen[job.LaneOf(s, kind == job.KindApp, suspect)] = true
			}
		}
		for _, l := range job.Lanes {
			if l.Takes(kind) != seen[l] {
				t.Errorf("lane %s takes jobs of kind %s: %v", l, kind, l.Takes(kind))
			}
		}
	}
}

// A claim is itself the change to the first working state.
func TestClaimIsALegalChange(t *testing.T) {
	for _, s := range job.States {
		if !(job.Place{State: s, Custody: job.Ready}).Legal() {
			continue
		}
		for _, program := range []bool{true, false} {
			to := job.Claimed(s, program)
			if !to.Working() || !job.Edge(s, to) || !(job.Place{State: to, Custody: job.Worker}).Legal() {
				t.Errorf("a claim takes a job (program: %v) from %s to %s", program, s, to)
			}
			if s != job.Pending && to != s {
				t.Errorf("a claim moves a job on from %s to %s", s, to)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	seen := map[job.Code]bool{}
	for _, c := range job.Codes {
		if seen[c.Code] {
			t.Errorf("%s is listed twice", c.Code)
		}
		seen[c.Code] = true
		if !c.Code.Known() || c.Raised == "" || c.Remedy == "" {
			t.Errorf("%s is not documented: %+v", c.Code, c)
		}
	}
	for _, c := range []job.Code{"", "NO_SUCH_CODE"} {
		if c.Known() {
			t.Errorf("%q is known", c)
		}
	}
	// Each constant is in the list.
	for value := range constants(t, "code.go") {
		if !seen[job.Code(value)] {
			t.Errorf("%s has no entry in Codes", value)
		}
	}
}

// A program begins once on each way through the states, however much of it is seen.
func TestBegins(t *testing.T) {
	for _, c := range []struct {
		way  string
		want int
	}{
		{"SUBMITTING_JOB RUNNING ARCHIVING FINISHED", 1},
		{"SUBMITTING_JOB QUEUED RUNNING ARCHIVING FINISHED", 1},
		{"SUBMITTING_JOB QUEUED ARCHIVING FINISHED", 1},
		{"SUBMITTING_JOB ARCHIVING FAILED", 1},
		{"SUBMITTING_JOB QUEUED CANCELED", 1},
		{"QUEUED SUBMITTING_JOB QUEUED ARCHIVING", 1},
		{"QUEUED RUNNING QUEUED RUNNING ARCHIVING", 2},
		{"SUBMITTING_JOB RUNNING RUNNING PENDING", 1},
		{"PENDING RUNNING FINISHED", 1},
		{"STAGING_JOB BLOCKED STAGING_JOB FAILED", 0},
		{"STAGING_JOB SUBMITTING_JOB SUBMITTING_JOB QUEUED", 0},
	} {
		n, was := 0, job.State("")
		for s := range strings.FieldsSeq(c.way) {
			if job.Begins(was, job.State(s)) {
				n++
			}
			was = job.State(s)
		}
		if n != c.want {
			t.Errorf("%s: it begins %d times, want %d", c.way, n, c.want)
		}
	}
}
