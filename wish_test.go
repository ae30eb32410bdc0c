package pawl_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// launcher is a kind whose jobs run somewhere else.
type launcher struct{}

func (launcher) Step(_ context.Context, r *engine.Run) engine.Outcome {
	switch r.Job.State {
	case job.ProcessingInputs:
		return engine.Next(job.StagingInputs)
	case job.StagingInputs:
		return engine.Next(job.StagingJob)
	case job.StagingJob:
		return engine.Next(job.SubmittingJob)
	}
	return engine.Launched(job.Running)
}

func TestObeyed(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		ctx, stop := context.WithCancel(context.Background())
		say := make(chan func(*job.Job, job.Fence) job.Change)
		var id job.ID
		watch := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			for {
				select {
				case change := <-say:
					j, err := db.Job(ctx, "default", id)
					if err != nil {
						return err
					}
					answers, err := h.Apply(ctx, []job.Change{change(&j, h.Fence())})
					if err != nil || answers[0].Outcome != store.OK && answers[0].Outcome != store.Turned {
						t.Errorf("%+v, %v", answers, err)
					}
				case <-ctx.Done():
					return nil
				}
			}
		}}
		svc := pawl.New(pawl.Config{
			Store: db, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Kinds: map[string]engine.Kind{"far": launcher{}}, Duties: []engine.Duty{watch},
		})
		id = submit(t, svc, task("far", 0))[0].ID
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if j, err := svc.Job(ctx, id); err != nil || j.Custody != job.Monitor {
			t.Fatalf("%s, %v", j.Place, err)
		}
		// obeyed asks within a minute. What the watcher has to say in that time is said in the middle of it.
		obeyed := func(w job.Wish, want bool, changes ...func(*job.Job, job.Fence) job.Change) {
			t.Helper()
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			answer := make(chan bool, 1)
			go func() {
				done, err := svc.Obeyed(ctx, id, w)
				if err != nil {
					t.Error(err)
				}
				answer <- done
			}()
			synctest.Wait()
			for _, c := range changes {
				say <- c
			}
			if got := <-answer; got != want {
				t.Errorf("%s is obeyed: %t, want %t", w, got, want)
			}
		}
		wish := func(f func(context.Context, ...job.ID) ([]store.Wished, error)) {
			t.Helper()
			if answers, err := f(ctx, id); err != nil || answers[0].Err != nil {
				t.Fatalf("%+v, %v", answers, err)
			}
		}
		stays := func(message string) func(*job.Job, job.Fence) job.Change {
			return func(j *job.Job, f job.Fence) job.Change {
				return job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: j.State, Message: message}}, To: job.Monitor}
			}
		}
		over := func(j *job.Job, f job.Fence) job.Change {
			return job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{{State: job.Pending}}, To: job.Ready, Set: job.Patch{Over: true}}
		}

		wish(svc.Pause)
		gone, leave := context.WithCancel(ctx)
		leave()
		if done, err := svc.Obeyed(gone, id, job.WishPause); done || err != nil {
			t.Errorf("nobody waits any more: %t, %v", done, err)
		}
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, false, stays("half way"))
		if _, err := svc.AddEvent(ctx, id, job.Note{Name: "note", Message: "suspended, says the program"}); err != nil {
			t.Fatal(err)
		}
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, true, stays("suspended by ada"))
		obeyed(job.WishPause, true)
		wish(svc.Resume)
		obeyed(job.WishResume, false)
		obeyed(job.WishResume, true, stays("goes on after 1m"))
		obeyed(job.WishResume, true)
		wish(svc.Pause)
		obeyed(job.WishPause, false)
		obeyed(job.WishPause, true, over) // PAUSED instead
		if j, err := svc.Job(ctx, id); err != nil || j.State != job.Paused {
			t.Fatalf("%s, %v", j.Place, err)
		}
		obeyed(job.WishResume, false)
		wish(svc.Cancel)
		obeyed(job.WishCancel, true)
		obeyed(job.WishPause, true) // it has ended
	})
}
