package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// TestSubmissionWaitsForTheGate: many jobs have their turns at once although somebody hands others
// on when they come. One who is frozen meanwhile keeps them waiting in line, and not from being
// accepted.
func TestSubmissionWaitsForTheGate(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s := open(t, dsn, postgres.Options{})
	if _, err := store.SetLimit(t.Context(), s, acme, job.Limit{Key: "gpu", Most: 1000}); err != nil {
		t.Fatal(err)
	}
	look, holder := connect(t, dsn), connect(t, dsn)
	hold := func() {
		must(t, holder, "BEGIN")
		must(t, holder, `SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))`, acme)
	}
	jobs := func() store.Submission {
		sub := store.Submission{Tenant: acme, By: "ann", Jobs: newTasks(50)}
		for i := range sub.Jobs {
			sub.Jobs[i].Job.Limits = []string{"gpu"}
		}
		return sub
	}
	stand := func(answers []store.Submitted, want job.Place) {
		t.Helper()
		for _, a := range answers {
			if a.Place != want {
				t.Fatalf("job %s is at %s, want %s", a.ID, a.Place, want)
			}
		}
	}

	hold()
	done := make(chan []store.Submitted)
	go func() {
		defer close(done)
		answers, _, err := s.Submit(t.Context(), jobs())
		if err != nil {
			t.Error(err)
		}
		done <- answers
	}()
	untilWaiting(t, look, 1)
	must(t, holder, "COMMIT")
	stand(<-done, job.Place{State: job.Pending, Custody: job.Ready})

	hold()
	answers, eff, err := s.Submit(t.Context(), jobs())
	if err != nil || !eff.Owed {
		t.Fatalf("%v, turns owed: %t", err, eff.Owed)
	}
	stand(answers, job.Place{State: job.Waiting, Custody: job.Gate})
	must(t, holder, "COMMIT")
	for eff.Owed {
		if _, eff, err = s.Pay(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, look, "SELECT count(*) FROM pawl.jobs WHERE custody = 'ready'"); n != 100 {
		t.Errorf("%d jobs are ready, want all 100", n)
	}
}

// TestSubmissionBesideAWalk: a submission waits for the turns lock, and the first step of a walk
// for all submissions, neither for the other one.
func TestSubmissionBesideAWalk(t *testing.T) {
	t.Parallel()
	dsn := clocked(t)
	s := open(t, dsn, postgres.Options{})
	for _, key := range []string{"gpu", "user/*"} { // the second takes in the jobs that are there
		if _, err := store.SetLimit(t.Context(), s, acme, job.Limit{Key: key, Most: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	look, holder := connect(t, dsn), connect(t, dsn)
	must(t, holder, "BEGIN")
	must(t, holder, `SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/'||$1::text, 0))`, acme)
	var all sync.WaitGroup
	all.Go(func() {
		if _, _, err := s.Pay(t.Context(), 1000); err != nil {
			t.Error(err)
		}
	})
	untilWaiting(t, look, 1)
	all.Go(func() {
		jobs := newTasks(50)
		for i := range jobs {
			jobs[i].Job.Limits, jobs[i].Optional = []string{"gpu"}, []string{"user/ann"}
		}
		if _, _, err := s.Submit(t.Context(), store.Submission{Tenant: acme, By: "ann", Jobs: jobs}); err != nil {
			t.Error(err)
		}
	})
	untilWaiting(t, look, 2)
	must(t, holder, "COMMIT")
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
			if value[bool](t, look, `SELECT EXISTS (SELECT FROM pg_stat_activity a, pg_stat_activity b WHERE a.datname = current_database() AND b.datname = current_database()
				AND a.pid = ANY (pg_blocking_pids(b.pid)) AND b.pid = ANY (pg_blocking_pids(a.pid)))`) {
				t.Fatal("each waits for the other")
			}
		}
	}
	for eff := (store.Effects{Owed: true}); eff.Owed || eff.Later; {
		var err error
		if _, eff, err = s.Pay(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := value[int](t, look, "SELECT count(*) FROM pawl.jobs j WHERE j.custody = 'ready' AND j.limits = "+
		"'{gpu,user/ann}'"); n != 50 {
		t.Errorf("%d jobs are ready under both limits, want all 50", n)
	}
}

// TestPlacesAheadAreHandedOnTogether: who launches gives back a place ahead. Where there are plenty
// of these, and others stand in line for their launch, that one may wait. A program that comes to
// stand behind others asks for nothing either.
func TestPlacesAheadAreHandedOnTogether(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		most   int // so many run, and twice as many are made ready
		behind int // so many more wait for their launch
		later  bool
	}{{"plenty", 10, 1, true}, {"few", 9, 1, false}, {"used up", 10, 0, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dsn := clocked(t)
			s := open(t, dsn, postgres.Options{})
			if _, err := store.SetLimit(t.Context(), s, acme, job.Limit{Key: "gpu", Most: test.most}); err != nil {
				t.Fatal(err)
			}
			programs := newTasks(4 * test.most)
			for i := range programs {
				j := &programs[i].Job
				j.Kind, j.Limits = "app", []string{"gpu"}
			}
			submit(t, s, programs...)
			session := begin(t, s, time.Minute)
			pay := func(eff store.Effects) {
				t.Helper()
				for eff.Owed || eff.Later {
					var err error
					if _, eff, err = s.Pay(t.Context(), 1000); err != nil {
						t.Fatal(err)
					}
				}
			}
			pay(store.Effects{Owed: true})
			claim := func(lane job.Lane) []job.Job {
				t.Helper()
				c := asking(session, 0)
				c.Kinds, c.Slots = []string{"app"}, map[job.Lane]int{lane: 1000}
				jobs, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return jobs
			}
			apply := func(jobs []job.Job) store.Effects {
				t.Helper()
				changes := make([]job.Change, len(jobs))
				for i := range jobs {
					changes[i] = job.Change{
						Job: jobs[i].ID, From: jobs[i].Guard(job.Fence{Session: session}), To: job.Ready,
						Path: []job.Entry{
							{State: job.StagingInputs},
							{State: job.StagingJob},
							{State: job.SubmittingJob},
						},
					}
				}
				_, _, eff, err := s.Apply(t.Context(), changes, nil)
				if err != nil {
					t.Fatal(err)
				}
				return eff
			}

			ahead := claim(job.LanePrepare)
			if len(ahead) != 2*test.most {
				t.Fatalf("%d are made ready ahead, want %d", len(ahead), 2*test.most)
			}
			eff := apply(ahead[:test.most+test.behind])
			if eff.Later != test.later || eff.Owed == test.later {
				t.Errorf("places ahead are owed: %t, later: %t", eff.Owed, eff.Later)
			}
			if n := len(claim(job.LaneLaunch)); n != test.most {
				t.Errorf("%d are launched, want %d", n, test.most)
			}
			pay(eff)
			if n := len(claim(job.LanePrepare)); n != test.most {
				t.Errorf("%d more are made ready ahead, want %d", n, test.most)
			}
			crowded := test.behind > 0
			if eff := apply(ahead[test.most+test.behind:]); eff.Owed || eff.Later != crowded {
				t.Errorf("in line, behind others %t: owed: %t, later: %t", crowded, eff.Owed, eff.Later)
			}
			if paid, eff, err := s.Pay(t.Context(), 1000); err != nil || paid > 0 != crowded || eff.Owed || eff.Later {
				t.Errorf("paid %d, %+v, %v", paid, eff, err)
			}
		})
	}
}
