package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func TestOwnKeys(t *testing.T) {
	for _, tt := range []struct {
		kind, request string
		want          []string
	}{
		{"send", `{"system":"lab"}`, []string{"tenant", "user/ann", "kind/send"}},
		{job.KindApp, `{}`, []string{"tenant", "user/ann", "kind/app", "system/local", "system/local/user/ann"}},
		{job.KindApp, `{"system":"lab","resources":{"partition":"a/b"}}`, []string{
			"tenant", "user/ann", "kind/app", "system/lab", "system/lab/user/ann", "system/lab/partition/a%2Fb", "system/lab/partition/a%2Fb/user/ann",
		}},
	} {
		j := job.Job{Kind: tt.kind, Owner: "ann", Request: []byte(tt.request)}
		got := j.OwnKeys()
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s %s stands under %q, want %q", tt.kind, tt.request, got, tt.want)
		}
		for _, key := range got {
			if !job.BuiltIn(key) || job.Family(key) != "" && !job.BuiltIn(job.Family(key)) {
				t.Errorf("%s is built in: false", key)
			}
		}
	}
	if job.BuiltIn("gpu") || job.BuiltIn("systems/lab") {
		t.Error("keys that only specs name are built in")
	}
}

func TestUnder(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	const limited, ahead, turn, kept, met = job.TieLimited, job.TieAhead, job.TieTurn, job.TieKept, job.TieMet
	for name, tt := range map[string]struct {
		j     job.Job
		ties  job.Ties
		line  string
		turns []string
		back  job.Place
	}{
		"a task that is ready": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Pending, Custody: job.Ready}},
			ties: limited, line: "m", back: job.Place{State: job.Waiting, Custody: job.Gate},
		},
		"a task that has other turns, and is ready": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Pending, Custody: job.Ready}, Limits: []string{"a", "z"}, Ties: limited | turn},
			ties: limited, line: "a", back: job.Place{State: job.Waiting, Custody: job.Gate},
		},
		"a task that runs": {
			j: job.Job{Kind: "send", Place: job.Place{State: job.Running, Custody: job.Worker}}, ties: limited | turn | met, turns: []string{"m"},
		},
		"a task that has other turns, and runs": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Running, Custody: job.Worker}, Limits: []string{"a", "z"}, Ties: limited | turn},
			ties: limited | turn | met, turns: []string{"m"},
		},
		"a task that waits for a time": {
			j: job.Job{Kind: "send", Place: job.Place{State: job.Waiting, Custody: job.Gate}, Due: now}, ties: limited,
		},
		"a task that waits for its turn": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Waiting, Custody: job.Gate}, Limits: []string{"a", "z"}, Ties: limited, Line: "z"},
			ties: limited, line: "z",
		},
		"a task that has some of its turns": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Waiting, Custody: job.Gate}, Limits: []string{"a", "z"}, Ties: limited | kept, Line: "z"},
			ties: limited, line: "z", back: job.Place{State: job.Waiting, Custody: job.Gate},
		},
		"a program that waits for the moment of its launch, with its turns": {
			j:    job.Job{Kind: job.KindApp, Place: job.Place{State: job.SubmittingJob, Custody: job.Gate}, Limits: []string{"a", "z"}, Ties: limited | turn, Due: now.Add(time.Hour)},
			ties: limited, back: job.Place{State: job.SubmittingJob, Custody: job.Gate},
		},
		"a program that waits for the moment to begin, with its place": {
			j:    job.Job{Kind: job.KindApp, Place: job.Place{State: job.ProcessingInputs, Custody: job.Gate}, Limits: []string{"a"}, Ties: limited | ahead, Due: now.Add(time.Hour)},
			ties: limited | ahead, turns: []string{"ahead/m"},
		},
		"a task that waits for the first of its turns": {
			j:    job.Job{Kind: "send", Place: job.Place{State: job.Waiting, Custody: job.Gate}, Limits: []string{"a", "z"}, Ties: limited, Line: "a"},
			ties: limited, line: "a",
		},
		"a task that is paused":  {j: job.Job{Kind: "send", Place: job.Place{State: job.Paused, Custody: job.User}}, ties: limited},
		"a task that is blocked": {j: job.Job{Kind: "send", Place: job.Place{State: job.Blocked, Custody: job.Recovery}}, ties: limited},
		"a program that is ready": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.Pending, Custody: job.Ready}}, ties: limited, line: "ahead/m",
			back: job.Place{State: job.Waiting, Custody: job.Gate},
		},
		"a program that is made ready": {
			j:    job.Job{Kind: job.KindApp, Place: job.Place{State: job.StagingInputs, Custody: job.Worker}},
			ties: limited | ahead | turn | met, turns: []string{"ahead/m", "m"},
		},
		"a program that is given back while it is made ready": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.StagingInputs, Custody: job.Ready}}, ties: limited,
		},
		"a program that has a place of another limit, and is made ready": {
			j:    job.Job{Kind: job.KindApp, Place: job.Place{State: job.StagingInputs, Custody: job.Worker}, Limits: []string{"a"}, Ties: limited | ahead},
			ties: limited | ahead | met, turns: []string{"ahead/m"},
		},
		"a program that may be launched": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.SubmittingJob, Custody: job.Ready}}, ties: limited, line: "m",
			back: job.Place{State: job.SubmittingJob, Custody: job.Gate},
		},
		"a program that is about to be launched": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.SubmittingJob, Custody: job.Worker}}, ties: limited | turn | met, turns: []string{"m"},
		},
		"a launch that nobody holds": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.SubmittingJob, Custody: job.Ready}, Live: true}, ties: limited | turn, turns: []string{"m"},
		},
		"a program that runs": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.Running, Custody: job.Monitor}, Live: true}, ties: limited | turn, turns: []string{"m"},
		},
		"a launch that is blocked": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.Blocked, Custody: job.Recovery}, Live: true}, ties: limited | turn, turns: []string{"m"},
		},
		"a program that has ended": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.Archiving, Custody: job.Worker}}, ties: limited,
		},
		"a program whose files are to be kept": {
			j: job.Job{Kind: job.KindApp, Place: job.Place{State: job.Archiving, Custody: job.Ready}}, ties: limited,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tt.j.Limits)
			got, turns, back := tt.j.Under([]string{"m"})
			if want := slices.Sorted(slices.Values(append(slices.Clone(before), "m"))); !slices.Equal(got.Limits, want) || !slices.Equal(tt.j.Limits, before) {
				t.Errorf("it stands under %q, want %q; before: %q", got.Limits, want, tt.j.Limits)
			}
			if (back != nil) != (tt.back != job.Place{}) {
				t.Fatalf("back: %+v", back)
			}
			if back != nil {
				if err := back.Check(); err != nil {
					t.Fatal(err)
				}
				was := got
				epoch := was.Epoch
				if was.Custody != job.Gate {
					epoch++
				}
				if got, _ = got.Apply(*back, now); got.Place != tt.back || got.Epoch != epoch || got.N != was.N+1 {
					t.Errorf("it goes to %s, epoch %d, n %d; want %s, %d", got.Place, got.Epoch, got.N, tt.back, epoch)
				}
				for _, key := range tt.j.Turns() {
					if !slices.Contains(job.Returned(&was, &got), key) {
						t.Errorf("it keeps its turn of %s", key)
					}
				}
			}
			if got.Ties != tt.ties || got.Line != tt.line || !slices.Equal(turns, tt.turns) {
				t.Errorf("it has ties %b, is in the line %q and gets the turns %q; want %b, %q, %q", got.Ties, got.Line, turns, tt.ties, tt.line, tt.turns)
			}
			again, turns, back := got.Under([]string{"m"})
			if !slices.Equal(again.Limits, got.Limits) || again.Ties != got.Ties || again.Line != got.Line || len(turns) > 0 || back != nil && again.Ties&turn == 0 {
				t.Errorf("once more: %+v, %q, %+v", again, turns, back)
			}
		})
	}
}

// TestUnderInAWorkersHands follows a program that meets a limit while a worker makes it ready who
// knows nothing of it.
func TestUnderInAWorkersHands(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	at := job.Job{Kind: job.KindApp, Place: job.Place{State: job.StagingInputs, Custody: job.Worker}, Attempt: 1, MaxAttempts: 3}
	const ahead, turn = job.TieAhead, job.TieTurn
	for name, tt := range map[string]struct {
		to   job.Place
		set  job.Patch
		path []job.State
		want job.Ties
	}{
		"it is staged on":           {to: job.Place{State: job.StagingJob, Custody: job.Worker}, want: ahead | turn},
		"it is about to be started": {to: job.Place{State: job.SubmittingJob, Custody: job.Worker}, path: []job.State{job.StagingJob}, want: turn},
		"it is launched": {
			to: job.Place{State: job.SubmittingJob, Custody: job.Worker}, path: []job.State{job.StagingJob}, set: job.Patch{Intent: true}, want: turn,
		},
		"it is given back":               {to: job.Place{State: job.StagingInputs, Custody: job.Ready}, want: ahead},
		"it is given back at its launch": {to: job.Place{State: job.SubmittingJob, Custody: job.Ready}, path: []job.State{job.StagingJob}, want: turn},
		"it is tried again":              {to: job.Place{State: job.Waiting, Custody: job.Gate}, set: job.Patch{Retry: true, Delay: time.Hour}},
		"it is blocked":                  {to: job.Place{State: job.Blocked, Custody: job.Recovery}, set: job.Patch{Resume: job.StagingInputs, Block: block()}, want: ahead},
		"it fails":                       {to: job.Place{State: job.Failed, Custody: job.None}},
	} {
		t.Run(name, func(t *testing.T) {
			j, _, _ := at.Under([]string{"m"})
			c := job.Change{From: j.Guard(job.Fence{}), To: tt.to.Custody, Set: tt.set}
			for _, s := range append(tt.path, tt.to.State) {
				c.Path = append(c.Path, job.Entry{State: s})
			}
			if tt.to.Custody == job.None {
				c.Last().Code = job.TaskFailed
			}
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
			after, _ := j.Apply(c, now)
			if after.Place != tt.to || after.Ties&^job.TieLimited != tt.want {
				t.Errorf("it is at %s with ties %b, want %s, %b", after.Place, after.Ties, tt.to, tt.want)
			}
		})
	}
}
