package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/fault"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// A cut is a store that can be cut off from the loops that run jobs.
type cut struct {
	store.Store
	faults *fault.Faults
}

func (c *cut) Begin(ctx context.Context, s store.Session) error {
	return fault.Run(ctx, c.faults, "Begin", func() error { return c.Store.Begin(ctx, s) })
}

func (c *cut) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	return fault.Do(ctx, c.faults, "Renew", func() (store.Renewal, error) { return c.Store.Renew(ctx, r) })
}

func (c *cut) End(ctx context.Context, session job.ID) (store.Effects, error) {
	return fault.Do(ctx, c.faults, "End", func() (store.Effects, error) { return c.Store.End(ctx, session) })
}

func (c *cut) Claim(ctx context.Context, q store.Claim) ([]job.Job, error) {
	return fault.Do(ctx, c.faults, "Claim", func() ([]job.Job, error) { return c.Store.Claim(ctx, q) })
}

func (c *cut) Apply(ctx context.Context, cs []job.Change, along *store.Claim) (a []store.Applied, jobs []job.Job,
	eff store.Effects, err error,
) {
	a, err = fault.Do(ctx, c.faults, "Apply", func() ([]store.Applied, error) {
		a, jobs, eff, err = c.Store.Apply(ctx, cs, along)
		return a, err
	})
	return a, jobs, eff, err
}

// TestCauses: a handler sees why it has to stop, and what it returns then is worth what it should
// be.
func TestCauses(t *testing.T) {
	nothing := func(*testing.T, *service.Service, *cut, context.CancelFunc, job.ID) {}
	wish := func(f func(*service.Service, context.Context, ...job.ID) ([]store.Wished, error)) func(*testing.T, *service.Service, *cut, context.CancelFunc, job.ID) {
		return func(t *testing.T, svc *service.Service, _ *cut, _ context.CancelFunc, id job.ID) {
			if a, err := f(svc, context.Background(), id); err != nil || a[0].Err != nil {
				t.Errorf("%v, %v", a, err)
			}
		}
	}
	for _, tt := range []struct {
		name  string
		cause error
		limit time.Duration
		meet  func(*testing.T, *service.Service, *cut, context.CancelFunc, job.ID) // makes the handler stop
		want  job.Place                                                            // soon after
		again int                                                                  // attempt that follows; 0: none
	}{
		{
			"the process stops", service.ErrInterrupted, 0,
			func(_ *testing.T, _ *service.Service, _ *cut, stop context.CancelFunc, _ job.ID) { stop() },
			job.Place{State: job.Pending, Custody: job.Ready},
			0,
		},
		{
			"the job is canceled", service.ErrCanceled, 0, wish((*service.Service).Cancel),
			job.Place{State: job.Canceled, Custody: job.None},
			0,
		},
		{
			"the job is paused", service.ErrPaused, 0, wish((*service.Service).Pause),
			job.Place{State: job.Paused, Custody: job.User},
			0,
		},
		{
			"the lease is lost", service.ErrLeaseLost, 0,
			func(_ *testing.T, _ *service.Service, c *cut, _ context.CancelFunc, _ job.ID) {
				c.faults.DieAfter(0)
				time.AfterFunc(time.Minute, c.faults.Revive)
			},
			job.Place{State: job.Running, Custody: job.Worker},
			1,
		},
		{
			"its time is over", service.ErrTimedOut, time.Minute, nothing,
			job.Place{State: job.Waiting, Custody: job.Gate},
			2,
		},
		{
			"the process stops before its time is over", service.ErrInterrupted, time.Hour,
			func(_ *testing.T, _ *service.Service, _ *cut, stop context.CancelFunc, _ job.ID) { stop() },
			job.Place{State: job.Pending, Custody: job.Ready},
			0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			virtual.Test(t, func(t *testing.T) {
				st, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer st.Close()
				c := &cut{st, fault.New("Begin", "Renew", "End", "Claim", "Apply")}
				svc := service.New(service.Config{
					Store: c, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
					Options: engine.Options{Grace: -1},
				})
				causes := make(chan error, 1)
				attempts := make(chan int, 1)
				var runs atomic.Int64
				service.Handle(svc, "wait", func(ctx context.Context, task *service.Task[int]) (string, error) {
					if runs.Add(1) > 1 {
						attempts <- task.Job.Attempt
						return "done", nil
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return "", fmt.Errorf("stopped: %w", ctx.Err())
				}, service.TimeLimit(tt.limit))
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- svc.Run(ctx) }()
				id := submit(t, svc, task("wait", 0))[0].ID
				synctest.Wait()
				tt.meet(t, svc, c, stop, id)
				cause := <-causes
				if !errors.Is(cause, tt.cause) {
					t.Errorf("cause %v, want %v", cause, tt.cause)
				}
				for _, other := range []error{
					service.ErrInterrupted, service.ErrCanceled, service.ErrPaused,
					service.ErrLeaseLost, service.ErrTimedOut,
				} {
					if !errors.Is(tt.cause, other) && errors.Is(cause, other) {
						t.Errorf("cause %v is %v, too", cause, other)
					}
				}
				synctest.Wait()
				j, err := svc.Job(context.Background(), id)
				if err != nil || j.Place != tt.want {
					t.Errorf("%s, %v; want %s", j.Place, err, tt.want)
				}
				if tt.again > 0 {
					if n := <-attempts; n != tt.again {
						t.Errorf("then attempt %d runs, want %d", n, tt.again)
					}
				}
				stop()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// said are the lines of a log.
type said chan string

func (s said) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}

// A handler that ignores the end of its context is named in the log, each minute until it returns.
func TestHandlerThatGoesOn(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(context.Background(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		log := make(said, 1000)
		svc := service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.NewTextHandler(log, nil))})
		service.Handle(svc, "deaf", func(context.Context, *service.Task[int]) (int, error) {
			time.Sleep(4*time.Minute + 30*time.Second)
			return 7, nil
		}, service.TimeLimit(time.Minute))
		service.Handle(svc, "quick", func(ctx context.Context, _ *service.Task[int]) (int, error) {
			<-ctx.Done()
			time.Sleep(59 * time.Second)
			return 8, nil
		}, service.TimeLimit(time.Minute))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		ids := submit(t, svc, task("deaf", 0), task("quick", 0))
		time.Sleep(10 * time.Minute)
		for i, want := range []string{"7", "8"} {
			if j, err := svc.Job(ctx, ids[i].ID); err != nil || string(j.Result) != want {
				t.Errorf("result %s, %v", j.Result, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		var said []string
		for range len(log) {
			if _, of, ok := strings.Cut(<-log, `it keeps its job and its slot until it returns" `); ok {
				said = append(said, strings.TrimSpace(of))
			}
		}
		var want []string
		for i := range 3 {
			want = append(want, fmt.Sprintf(`kind=deaf job=%s cause=%q ended="%dm0s ago"`, ids[0].ID, service.ErrTimedOut, i+1))
		}
		if !slices.Equal(said, want) {
			t.Errorf("the log says\n%q, want\n%q", said, want)
		}
	})
}

func TestTimeLimit(t *testing.T) {
	three := func(kind string) service.Request {
		r := task(kind, 0)
		r.Spec.Retry = &job.RetryPolicy{MaxAttempts: 3}
		return r
	}
	t.Run("the last attempt ends the job with TIME_LIMIT", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "slow", func(ctx context.Context, _ *service.Task[int]) (none, error) {
				<-ctx.Done()
				return none{}, errors.New("half done")
			}, service.TimeLimit(90*time.Second))
			run()
			j := one(t, svc, three("slow"))
			if j.State != job.Failed || j.Code != job.TimeLimit || j.Attempt != 3 {
				t.Errorf("%s %s at attempt %d", j.State, j.Code, j.Attempt)
			}
			if want := "the handler was told to stop after 1m30s, which is all that kind slow gives it: half done"; j.Message != want {
				t.Errorf("message %q, want %q", j.Message, want)
			}
			history, err := svc.History(context.Background(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			failures := 0
			for _, e := range history {
				if e.Code == job.TimeLimit {
					failures++
				}
			}
			if failures != 3 {
				t.Errorf("%d attempts failed with %s, want 3", failures, job.TimeLimit)
			}
		})
	})

	t.Run("each attempt has all of it", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "slow", func(_ context.Context, task *service.Task[int]) (none, error) {
				time.Sleep(time.Minute - 1)
				if task.Job.Attempt < 3 {
					return none{}, errors.New("again")
				}
				return none{}, nil
			}, service.TimeLimit(time.Minute))
			run()
			if j := one(t, svc, three("slow")); j.State != job.Finished {
				t.Errorf("%s %s %s", j.State, j.Code, j.Message)
			}
		})
	})

	t.Run("a result that is late counts", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "slow", func(context.Context, *service.Task[int]) (int, error) {
				time.Sleep(time.Hour)
				return 7, nil
			}, service.TimeLimit(time.Minute))
			run()
			if j := one(t, svc, three("slow")); j.State != job.Finished || string(j.Result) != "7" || j.Attempt != 1 {
				t.Errorf("%s, result %s, attempt %d", j.State, j.Result, j.Attempt)
			}
		})
	})

	t.Run("an error for good is one after it, too", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "slow", func(ctx context.Context, _ *service.Task[int]) (none, error) {
				<-ctx.Done()
				return none{}, service.Permanent(errors.New("never"))
			}, service.TimeLimit(time.Minute))
			run()
			if j := one(t, svc, three("slow")); j.Code != job.TaskFailed || j.Attempt != 1 {
				t.Errorf("%s at attempt %d", j.Code, j.Attempt)
			}
		})
	})

	t.Run("an error in time is a plain one", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			service.Handle(svc, "quick", func(context.Context, *service.Task[int]) (none, error) {
				return none{}, errors.New("no")
			}, service.TimeLimit(time.Minute))
			run()
			if j := one(t, svc, three("quick")); j.Code != job.TaskFailed ||
				strings.Contains(j.Message, "told to stop") {
				t.Errorf("%s: %s", j.Code, j.Message)
			}
		})
	})
}

type none = struct{}
