package postgres_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
)

// often is tried three times, without waiting.
func often(kind string) pawl.Task[order, int] {
	return pawl.Task[order, int]{Kind: kind, Retry: &job.RetryPolicy{
		MaxAttempts: 3, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: job.Duration(time.Millisecond)},
	}}
}

// orders returns how many orders there are.
func (a *app) orders() (n int) {
	a.Helper()
	a.must(a.db.QueryRow(a.Context(), "SELECT count(*) FROM orders").Scan(&n))
	return n
}

// The effects of a handler and the end of its job are one, whatever the handler returns.
func TestFinishIn(t *testing.T) {
	a := start(t)
	boom := errors.New("boom")
	begin := func(ctx context.Context, j *pawl.Job[order]) (pgx.Tx, error) {
		tx, err := a.db.Begin(ctx)
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", j.Args.N)
		}
		return tx, err
	}
	for i, c := range []struct {
		about   string
		handler func(ctx context.Context, j *pawl.Job[order]) error
		calls   int32 // -1: it fails
	}{
		{"pgx", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := begin(ctx, j)
			if err != nil {
				return err
			}
			if err := j.FinishIn(ctx, postgres.In(tx), 7); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}, 1},
		{"database/sql", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := a.sql.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := tx.Exec("INSERT INTO orders VALUES ($1)", j.Args.N); err != nil {
				return err
			}
			if err := j.FinishIn(ctx, postgres.InSQL(tx), 7); err != nil {
				return err
			}
			return tx.Commit()
		}, 1},
		{"it commits and says that it failed", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := begin(ctx, j)
			if err != nil {
				return err
			}
			if err := j.FinishIn(ctx, postgres.In(tx), 7); err != nil {
				return err
			}
			return errors.Join(tx.Commit(ctx), pawl.Fail(boom))
		}, 1},
		{"it says that it failed, at the second call it commits", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := begin(ctx, j)
			if err != nil {
				return err
			}
			if err := j.FinishIn(ctx, postgres.In(tx), 7); err != nil {
				return err
			}
			if j.Attempt() == 1 {
				return boom // and leaves it open
			}
			return tx.Commit(ctx)
		}, 2},
		{"it forgets to commit", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := begin(ctx, j)
			if err != nil {
				return err
			}
			return j.FinishIn(ctx, postgres.In(tx), 7)
		}, -1},
		{"it has something to say afterwards", func(ctx context.Context, j *pawl.Job[order]) error {
			tx, err := begin(ctx, j)
			if err != nil {
				return err
			}
			j.Progress(1, 2, "half")
			if err := j.FinishIn(ctx, postgres.In(tx), 7); err != nil {
				return err
			}
			j.Progress(2, 2, "whole")
			if err := j.Log(ctx, "done"); job.KindOf(err) != job.Conflict {
				t.Errorf("Log answers %v", err)
			}
			if err := j.Checkpoint(ctx, 1); job.KindOf(err) != job.Conflict {
				t.Errorf("Checkpoint answers %v", err)
			}
			return tx.Commit(ctx)
		}, 1},
	} {
		kind := "finish." + string(rune('a'+i))
		var calls atomic.Int32
		often(kind).Handle(a.svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
			calls.Add(1)
			return 0, c.handler(ctx, j)
		})
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			h, err := often(kind).Enqueue(t.Context(), a.svc, order{N: 100 + i})
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Wait(t.Context())
			var there int
			if err := a.db.QueryRow(t.Context(), "SELECT count(*) FROM orders WHERE n = $1", 100+i).Scan(&there); err != nil {
				t.Fatal(err)
			}
			if c.calls < 0 {
				if e := (*pawl.Ended)(nil); !errors.As(err, &e) || e.Code != job.TaskFailed || there != 0 || calls.Load() != 3 {
					t.Errorf("it ended with %v after %d calls; %d orders", err, calls.Load(), there)
				}
				return
			}
			if got != 7 || err != nil || there != 1 || calls.Load() != c.calls {
				t.Errorf("its result is %d (%v) after %d calls; %d orders", got, err, calls.Load(), there)
			}
		})
	}
	a.run()
}

// A run that has lost its job, or whose job was canceled, decides nothing.
func TestFinishInRefused(t *testing.T) {
	a := start(t)
	task := often("refused")
	task.Handle(a.svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
		if j.Args.N == 1 {
			j.TaskRun.Job.Epoch-- // as one that was frozen, and does not know
		} else if _, err := a.svc.Jobs().Cancel(ctx, j.ID()); err != nil {
			return 0, err
		}
		tx := a.begin(j.Args.N)
		defer tx.Rollback(context.WithoutCancel(ctx))
		err := j.FinishIn(context.WithoutCancel(ctx), postgres.In(tx), 7)
		if job.KindOf(err) != job.Fenced {
			t.Errorf("order %d: the answer is %v", j.Args.N, err)
		}
		return 0, pawl.Fail(err)
	})
	a.run()
	for n := 1; n <= 2; n++ {
		if _, err := a.enqueue(task, order{N: n}).Wait(t.Context()); err == nil {
			t.Errorf("order %d finished", n)
		}
	}
	if n := a.orders(); n != 0 {
		t.Errorf("there are %d orders", n)
	}
}

// A process commits and dies before anybody has heard of it. The job ends with the result, and its
// handler is not called again.
func TestFinishInAndDie(t *testing.T) {
	const variable = "PAWL_TEST_FINISH_DSN"
	task := often("die")
	if dsn := os.Getenv(variable); dsn != "" {
		svc, err := pawl.Open(t.Context(), postgres.At(dsn), pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))),
			pawl.Configure(func(c *service.Config) { c.Options.Lease = 2 * time.Second }))
		if err != nil {
			t.Fatal(err)
		}
		task.Handle(svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return 0, err
			}
			tx, err := conn.Begin(ctx)
			if err != nil {
				return 0, err
			}
			if _, err = tx.Exec(ctx, "INSERT INTO orders VALUES ($1)", j.Args.N); err != nil {
				return 0, err
			}
			if err = j.FinishIn(ctx, postgres.In(tx), 7); err != nil {
				return 0, err
			}
			if err = tx.Commit(ctx); err != nil {
				return 0, err
			}
			return 0, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		})
		t.Fatal(svc.Run(t.Context()))
	}
	a := start(t)
	h := a.enqueue(task, order{N: 1})
	c := exec.Command(os.Args[0], "-test.run=^TestFinishInAndDie$")
	c.Env = append(os.Environ(), variable+"="+a.db.Config().ConnString())
	out, err := c.CombinedOutput()
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended with %v: %s", err, out)
	}
	task.Handle(a.svc, func(context.Context, *pawl.Job[order]) (int, error) {
		t.Error("the handler was called again")
		return 0, nil
	})
	a.run()
	if got, err := h.Wait(t.Context()); got != 7 || err != nil || a.orders() != 1 {
		t.Errorf("its result is %d (%v), and there are %d orders", got, err, a.orders())
	}
}

// What a handler may return, FinishIn takes too.
func TestFinishInWithAnyText(t *testing.T) {
	const odd = "a\x00b\u2028\"\\é"
	task := pawl.Task[bool, string]{Kind: "odd", Retry: &job.RetryPolicy{MaxAttempts: 1}}
	a := start(t)
	task.Handle(a.svc, func(ctx context.Context, j *pawl.Job[bool]) (string, error) {
		if j.Args {
			tx, err := a.sql.BeginTx(ctx, nil)
			if err != nil {
				return "", err
			}
			defer tx.Rollback()
			return "", errors.Join(j.FinishIn(ctx, postgres.InSQL(tx), odd), tx.Commit())
		}
		tx, err := a.db.Begin(ctx)
		if err != nil {
			return "", err
		}
		defer tx.Rollback(ctx)
		return "", errors.Join(j.FinishIn(ctx, postgres.In(tx), odd), tx.Commit(ctx))
	})
	a.run()
	for _, standard := range []bool{false, true} {
		h, err := task.Enqueue(t.Context(), a.svc, standard)
		a.must(err)
		if got, err := h.Wait(t.Context()); got != odd || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// Who waits no longer hears why, also if that was so before.
func TestWaitTellsTheCause(t *testing.T) {
	a := start(t)
	h, err := plain.Enqueue(t.Context(), a.svc, order{"a", 1})
	a.must(err)
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	if _, err := h.Wait(ctx); !errors.Is(err, mine) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
