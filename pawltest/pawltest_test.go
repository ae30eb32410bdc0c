package pawltest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/sqlite"
)

type letter struct {
	To string `json:"to"`
}

var mail = pawl.Task[letter, string]{Kind: "mail"}

// welcome is the code under test.
func welcome(ctx context.Context, svc *pawl.Service, names ...string) error {
	for _, n := range names {
		if _, err := mail.Enqueue(ctx, svc, letter{n}, pawl.After(24*time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

func TestEnqueued(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		if err := welcome(t.Context(), svc, "ada", "bob"); err != nil {
			t.Fatal(err)
		}
		if got := pawltest.Enqueued(t, svc, mail); !slices.Equal(got, []letter{{"ada"}, {"bob"}}) {
			t.Errorf("enqueued is %v", got)
		}
		other := pawl.Task[letter, string]{Kind: "other"}
		if got := pawltest.Enqueued(t, svc, other); got != nil {
			t.Errorf("of another task, enqueued is %v", got)
		}
	})
}

// Work runs one job, with its backoff, at once.
func TestWork(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		mail.Handle(svc, func(_ context.Context, j *pawl.Job[letter]) (string, error) {
			switch {
			case j.Args.To == "nobody":
				return "", pawl.Fail(errors.New("there is nobody"))
			case j.Attempt() < 5:
				return "", errors.New("not yet")
			}
			return "to " + j.Args.To, nil
		})
		for range 2 { // it can be called again
			if got, err := pawltest.Work(t, svc, mail, letter{"ada"}); got != "to ada" || err != nil {
				t.Errorf("it returned %q: %v", got, err)
			}
		}
		_, err := pawltest.Work(t, svc, mail, letter{"nobody"})
		if e := (*pawl.Ended)(nil); !errors.As(err, &e) || e.State != job.Failed {
			t.Errorf("it returned %v", err)
		}
	})
}

// Drain waits for jobs that wait for a day, and for jobs that these enqueue.
func TestDrain(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		var sent []string
		mail.Handle(svc, func(ctx context.Context, j *pawl.Job[letter]) (string, error) {
			sent = append(sent, j.Args.To)
			if j.Args.To == "ada" {
				return "", welcome(ctx, svc, "friend of ada")
			}
			return "", nil
		})
		pawltest.Start(t, svc)
		begin := time.Now()
		if err := welcome(t.Context(), svc, "ada"); err != nil {
			t.Fatal(err)
		}
		pawltest.Drain(t, svc)
		if took := time.Since(begin); took < 48*time.Hour || took > 49*time.Hour || !slices.Equal(sent, []string{"ada", "friend of ada"}) {
			t.Errorf("after %s it was sent to %v", took, sent)
		}
	})
}

// A fatal is a test that keeps what it failed with.
type fatal struct {
	*testing.T
	said string
}

func (f *fatal) Fatal(args ...any) {
	f.said = fmt.Sprint(args...)
	panic(f)
}

// failing returns with what call fails.
func failing(t *testing.T, call func(*fatal)) (f *fatal) {
	f = &fatal{T: t}
	defer func() {
		if p := recover(); p != nil && p != any(f) {
			panic(p)
		}
	}()
	call(f)
	return f
}

// Drain fails with what jobs wait for.
func TestDrainOfWhatWaits(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		mail.Handle(svc, func(context.Context, *pawl.Job[letter]) (string, error) { return "", nil })
		pawltest.Start(t, svc)
		other := pawl.Task[letter, string]{Kind: "unhandled"}
		if _, err := other.Enqueue(t.Context(), svc, letter{"ada"}); err != nil {
			t.Fatal(err)
		}
		f := failing(t, func(f *fatal) { pawltest.Drain(f, svc) })
		if !strings.Contains(f.said, "these jobs do not end") || !strings.Contains(f.said, "kind unhandled, is PENDING: ") {
			t.Errorf("it said %q", f.said)
		}
		t.Log(f.said)
	})
}

// Work fails with what its job waits for, be it a handler, a turn or a task with a newer version.
func TestWorkOfWhatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		task  pawl.Task[letter, string]
		limit int // of the kind
		want  string
	}{
		"no handler": {pawl.Task[letter, string]{Kind: "unhandled"}, 1, "no live process claims jobs of kind unhandled"},
		"no turn":    {mail, 0, "waits for its turn of kind/mail"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				svc := pawltest.Open(t)
				mail.Handle(svc, func(context.Context, *pawl.Job[letter]) (string, error) { return "", nil })
				if err := svc.Jobs().SetLimit(t.Context(), job.Limit{Key: "kind/mail", Most: c.limit}); err != nil {
					t.Fatal(err)
				}
				f := failing(t, func(f *fatal) { _, _ = pawltest.Work(f, svc, c.task, letter{"ada"}) })
				if !strings.Contains(f.said, "these jobs do not end") || !strings.Contains(f.said, c.want) {
					t.Errorf("it said %q", f.said)
				}
			})
		})
	}
}

// Work runs a job with a queue of its own, one whose condition takes a day to clear, and one behind
// another job.
func TestWorkWaits(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.Open(t)
		begin := time.Now()
		svc.Tester("post", func(context.Context, map[string]string) error {
			if time.Since(begin) < 24*time.Hour {
				return errors.New("the post office is closed")
			}
			return nil
		})
		parcel := pawl.Task[letter, string]{Kind: "parcel", Queue: "parcels", Order: pawl.InOrder("to")}
		parcel.Handle(svc, func(_ context.Context, j *pawl.Job[letter]) (string, error) {
			if time.Since(begin) < 24*time.Hour {
				return "", pawl.Block("the post office is closed", "post", nil)
			}
			return "to " + j.Args.To, nil
		})
		for range 2 {
			if got, err := pawltest.Work(t, svc, parcel, letter{"ada"}); got != "to ada" || err != nil {
				t.Errorf("it returned %q: %v", got, err)
			}
		}
		if _, err := parcel.Enqueue(t.Context(), svc, letter{"bob"}, pawl.After(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got, err := pawltest.Work(t, svc, parcel, letter{"bob"}); got != "to bob" || err != nil {
			t.Errorf("it returned %q: %v", got, err)
		}
	})
}

// Outside of a bubble time is real.
func TestRealTime(t *testing.T) {
	t.Parallel()
	svc := pawltest.Open(t)
	mail.Handle(svc, func(_ context.Context, j *pawl.Job[letter]) (string, error) { return j.Args.To, nil })
	if got, err := pawltest.Work(t, svc, mail, letter{"ada"}); got != "ada" || err != nil {
		t.Errorf("it returned %q: %v", got, err)
	}
	pawltest.Start(t, svc)
	if _, err := mail.Enqueue(t.Context(), svc, letter{"bob"}); err != nil {
		t.Fatal(err)
	}
	pawltest.Drain(t, svc)
}

// Code with a transaction is tested in a folder, in virtual time, too.
func TestOpenAt(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := pawltest.OpenAt(t, sqlite.At(t.TempDir()))
		mail.Handle(svc, func(ctx context.Context, j *pawl.Job[letter]) (string, error) {
			return "", sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
				return j.FinishIn(ctx, sqlite.In(tx), "sent to "+j.Args.To)
			})
		})
		start := time.Now()
		answer, err := pawltest.Work(t, svc, mail, letter{"ada"}, pawl.After(time.Hour))
		if answer != "sent to ada" || err != nil || time.Since(start) < time.Hour {
			t.Errorf("%q, %v after %s", answer, err, time.Since(start))
		}
	})
}
