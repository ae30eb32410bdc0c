package slurm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A moment is when the controller goes.
type moment struct {
	name  string
	step  string        // of sbatch; empty: it has answered
	after time.Duration // of the answer
}

// The controller goes at each step of a launch, and some time after it, and comes back. For some
// seconds it has not yet saved what it has accepted: it may forget a job, run it twice, and give
// its number to the job of somebody else. Pawl starts no launch twice, tells each run that Slurm
// made, and keeps away from others.
func TestTheControllerGoes(t *testing.T) {
	moments := []moment{{name: "before sbatch answers", step: "answers"}}
	if testenv.Every() {
		moments = append(moments,
			moment{name: "before sbatch asks", step: "asks"},
			moment{name: "at once"},
			moment{name: "after 1 s", after: time.Second},
			moment{name: "after 4 s", after: 4 * time.Second})
	}
	if testenv.Long() {
		moments = append(moments, moment{name: "after 16 s", after: 16 * time.Second})
	}
	for _, m := range moments {
		for how, end := range map[string]func(*testenv.Scheduler){
			"stopped": (*testenv.Scheduler).StopController, "killed": (*testenv.Scheduler).KillController,
		} {
			if how == "stopped" && !(testenv.Long() || testenv.Every() && m.step != "") {
				continue // it saves what it knows
			}
			t.Run(m.name+" it is "+how, func(t *testing.T) { m.test(t, end) })
		}
	}
}

func (m moment) test(t *testing.T, end func(*testenv.Scheduler)) {
	s, dir := testenv.OwnSlurm(t), t.TempDir() // others would not find theirs
	b := newBench(t, s, wrapped(t, "sbatch", fmt.Sprintf(`cd %q
at() { ! [ -e $1 ] || { mv $1 $1.reached; until [ -e on ]; do sleep 0.1; done; }; }
at asks
%%s "$@" >out 2>err
code=$?
at answers
cat out
cat err >&2
exit $code`, dir)))
	if m.step != "" {
		touch(t, dir+"/"+m.step)
	}
	const program = `echo ran >>ran; until [ -e ../go ]; do sleep 0.1; done; exit 3`
	ask := job.Resources{Cores: 30} // two of three have room
	launched := make(chan []task, 1)
	go func() { launched <- b.submit(t, ask, program, program, "echo ran >>ran; exit 3") }()
	var list []task
	if m.step != "" {
		until(t, "sbatch is under way", func() bool { return exists(dir + "/" + m.step + ".reached") })
	} else {
		list = <-launched
		answered := time.Now()
		until(t, "it is time", func() bool { return time.Since(answered) >= m.after })
	}
	end(s)
	switch m.step {
	case "asks":
		touch(t, dir+"/on")
		list = <-launched
		s.StartController(t)
	case "answers":
		s.StartController(t)
		touch(t, dir+"/on")
		list = <-launched
	default:
		s.StartController(t)
	}

	// Somebody else may get the numbers that Slurm has forgotten. Their jobs outlast ours.
	var theirs []string
	for i := range list {
		script := fmt.Sprintf("until [ -e %s/free ]; do sleep 0.1; done; echo ended >>%[1]s/their.%d; exit 9", dir, i)
		out := b.do(t, "sbatch", "--parsable", "--output=/dev/null", "--wrap", script)
		theirs = append(theirs, strings.TrimSpace(out))
	}
	for i := range list {
		o := &list[i]
		if o.err == nil {
			continue
		}
		if job.KindOf(o.err) != job.Unavailable {
			t.Errorf("launch %d: %v", i, o.err)
		}
		f, err := b.runner.Settle(t.Context(), o.key, o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if o.handle = f.Handle; !f.Started {
			o.handle = runner.Handle{}
		}
	}
	touch(t, b.Work+"/go")
	for i, o := range list {
		if o.handle.Token == "" {
			t.Logf("launch %d is revoked: %v", i, o.err)
			continue
		}
		b.accounted(t, i, o)
		if err := b.runner.Kill(t.Context(), o.handle, 0); err != nil {
			t.Error(err)
		}
	}
	touch(t, dir+"/free")
	for i, id := range theirs {
		until(t, "the job of somebody else ends", func() bool {
			s.Resume(t.Context())
			_, _ = s.Do(t.Context(), "scontrol", "release", id)
			return strings.HasPrefix(read(fmt.Sprintf("%s/their.%d", dir, i)), "ended\n") // Slurm may run it again
		})
	}
	for i, o := range list {
		if exists(o.Dir+"/ran") && o.handle.Token == "" {
			t.Errorf("launch %d was revoked, and ran", i)
		}
	}
}

// accounted waits until a launch is settled that ends with 3, and compares what is told with what
// ran.
func (b bench) accounted(t *testing.T, i int, o task) {
	t.Helper()
	st := b.settled(t, o.handle)
	runs := strings.Count(read(o.Dir+"/ran"), "ran")
	t.Logf("launch %d: %d runs, %s", i, runs, st.State)
	switch {
	case st.State == runner.Ended && (st.End.Code != 3 || st.End.Run != runs-1),
		st.State == runner.Dropped && runs > 0, st.State == runner.Lost && runs == 0:
		t.Errorf("launch %d ran %d times: %+v %+v", i, runs, st, st.End)
	}
}

func touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
