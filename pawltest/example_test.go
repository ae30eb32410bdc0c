package pawltest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
)

// These are tests of a program, to be read as examples. Where they say virtual.Test, a program says
// synctest.Test of testing/synctest.

type Letter struct {
	To string `json:"to"`
}

var Mail = pawl.Task[Letter, string]{Kind: "mail", Stall: time.Minute}

// signUp is code that enqueues.
func signUp(ctx context.Context, svc *pawl.Service, name string) error {
	_, err := Mail.Enqueue(ctx, svc, Letter{To: name})
	return err
}

// What the code enqueues, with no handler.
func TestSignUp(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		if err := signUp(t.Context(), svc, "ada"); err != nil {
			t.Fatal(err)
		}
		if got := pawltest.Enqueued(t, svc, Mail); !slices.Equal(got, []Letter{{To: "ada"}}) {
			t.Errorf("enqueued is %v", got)
		}
	})
}

// One job, with its backoffs, which take no time.
func TestMailIsTriedAgain(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		Mail.Handle(svc, func(_ context.Context, j *pawl.Job[Letter]) (string, error) {
			if j.Attempt() < 3 {
				return "", errors.New("the server is away")
			}
			return "sent to " + j.Args.To, nil
		})
		if got, err := pawltest.Work(t, svc, Mail, Letter{To: "ada"}); got != "sent to ada" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// A run of an hour, which lives on because it says in each minute that it does. One that says
// nothing is told to stop.
func TestLongRun(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		Mail.Handle(svc, func(ctx context.Context, j *pawl.Job[Letter]) (string, error) {
			for range 120 {
				select {
				case <-time.After(30 * time.Second):
				case <-ctx.Done():
					return "", pawl.Fail(context.Cause(ctx))
				}
				if j.Args.To == "nobody" {
					continue
				}
				if err := j.Heartbeat(ctx); err != nil {
					return "", err
				}
			}
			return "sent to " + j.Args.To, nil
		})
		if got, err := pawltest.Work(t, svc, Mail, Letter{To: "everybody"}); got != "sent to everybody" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		_, err := pawltest.Work(t, svc, Mail, Letter{To: "nobody"})
		if ended, ok := errors.AsType[*pawl.Ended](err); !ok || ended.Message != pawl.ErrStalled.Error() {
			t.Errorf("%v", err)
		}
	})
}

// A schedule, for two days. The time of a bubble begins at midnight.
func TestNewsletter(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		Mail.Handle(svc, func(_ context.Context, j *pawl.Job[Letter]) (string, error) {
			return "sent at " + j.Due().Format(time.TimeOnly), nil
		})
		daily := pawl.Cron("0 9 * * *")
		if err := Mail.Schedule(t.Context(), svc, "newsletter", daily, Letter{To: "everybody"}); err != nil {
			t.Fatal(err)
		}
		pawltest.Start(t, svc)
		<-time.After(48 * time.Hour)
		synctest.Wait()
		count, err := svc.Jobs().Count(t.Context(), job.Where("kind", job.Is, "mail"))
		if err != nil || count.States[job.Finished] != 2 {
			t.Errorf("%v, %v", count.States, err)
		}
	})
}
