package sqlite_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/sqlite"
)

// A process dies in the transaction that decides the end of a job, or soon after its commit. The
// order and the end are there together, or not at all.
func TestFinishInAndDie(t *testing.T) {
	const in, when = "PAWL_TEST_FOLDER", "PAWL_TEST_DIES"
	at := func(dir string) *pawl.Service {
		svc, err := pawl.Open(t.Context(), sqlite.At(dir), pawl.Log(slog.New(slog.NewTextHandler(io.Discard, nil))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { svc.Close() })
		return svc
	}
	die := func(at string) {
		if os.Getenv(when) == at {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	calls := 0
	handle := func(svc *pawl.Service) {
		plain.Handle(svc, func(ctx context.Context, j *pawl.Job[order]) (int, error) {
			calls++
			err := sqlite.WithTx(ctx, svc, func(ctx context.Context, tx *sqlite.Tx) error {
				if err := insert(ctx, tx, j.Args.N); err != nil {
					return err
				}
				err := j.FinishIn(ctx, sqlite.In(tx), 7)
				die("before the commit")
				return err
			})
			die("after the commit")
			return 0, err
		})
	}
	if dir := os.Getenv(in); dir != "" {
		svc := at(dir)
		handle(svc)
		t.Fatal(svc.Run(t.Context()))
	}
	for dies, want := range map[string]int{"before the commit": 1, "after the commit": 0} {
		dir := t.TempDir()
		svc := at(dir)
		table(t, svc)
		h, err := plain.Enqueue(t.Context(), svc, order{1})
		if err != nil {
			t.Fatal(err)
		}
		svc.Close() // a folder has one process at a time
		c := exec.Command(os.Args[0], "-test.run=^TestFinishInAndDie$")
		c.Env = append(os.Environ(), in+"="+dir, when+"="+dies)
		out, err := c.CombinedOutput()
		if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the process ended with %v: %s", err, out)
		}
		svc, calls = at(dir), 0
		handle(svc)
		run(t, svc)
		if got, err := plain.Find(svc, h.ID).Wait(t.Context()); got != 7 || err != nil {
			t.Errorf("%s: its result is %d, %v", dies, got, err)
		}
		if n := orders(t, svc); n != 1 || calls != want {
			t.Errorf("%s: %d orders, after %d more calls; want 1 and %d", dies, n, calls, want)
		}
	}
}
