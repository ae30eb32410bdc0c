package process

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/runner/runnertest"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_CHILD") != "" {
		child()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"))
}

func Test(t *testing.T) { runnertest.Run(t, bench) }

func bench(t *testing.T) runnertest.Bench {
	t.Helper()
	h, err := local.Open(local.Config{ID: "test-machine"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	b := runnertest.Bench{Host: h, Work: t.TempDir(), Spool: t.TempDir() + "/it's ends"}
	if b.Runner, err = Open(t.Context(), Config{Host: h, Spool: b.Spool}); err != nil {
		t.Fatal(err)
	}
	return b
}
func child() {}
