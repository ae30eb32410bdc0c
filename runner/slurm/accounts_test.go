package slurm

import (
	"context"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// What Slurm's queue has forgotten is told by its accounts: an end without a message, why an end
// came, and that a launch was canceled while it waited. While the accounts are away nothing is
// decided.
func TestTheQueueHasForgotten(t *testing.T) {
	testenv.Aside(t)
	s := testenv.Accounted(t)
	b := newBench(t, s)
	const hungry = `: >up; x=$(head -c 50000000 /dev/zero | tr '\0' x); while :; do sleep 0.1; done; echo "$x"`
	launch := func(q job.Resources) runner.Handle {
		k, p := b.newJob(t, hungry)
		p.Resources = q
		h, err := b.runner.Launch(t.Context(), k, p)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	dir := func(h runner.Handle) string { return b.Work + "/" + h.Key.Job.String() }
	told, untold, waits := launch(job.Resources{}), launch(job.Resources{}), launch(job.Resources{Cores: 64})
	for _, h := range []runner.Handle{told, untold} {
		until(t, "it runs", func() bool { _, err := os.Stat(dir(h) + "/up"); return err == nil })
		id := idOf(t, b, h)
		until(t, "its memory is known", func() bool {
			out, _ := b.slurm.Do(t.Context(), "sstat", "-n", "-P", "-a", "-o", "MaxRSS", "--noconvert", "-j", id)
			return slices.ContainsFunc(strings.Fields(out), func(n string) bool { return len(n) > 8 || len(n) == 8 && n > "50000000" })
		})
	}
	until(t, "the last one waits", func() bool { return b.status(t, waits).Reason != "" })
	until(t, "the accounts know of it", func() bool { // before, they forget one that is canceled
		out := b.do(t, "sacct", "-n", "-P", "-X", "-S", "now-1hours", "-o", "JobID")
		return slices.Contains(strings.Fields(out), idOf(t, b, waits))
	})
	canceled, withMemory := regexp.MustCompile(`\|CANCELLED by 0\|`), regexp.MustCompile(`\.batch\|[A-QS-Z][A-Z]+\|\d{8}`)
	for _, h := range []runner.Handle{waits, told, untold} {
		id := idOf(t, b, h)
		b.do(t, "scancel", id)
		until(t, "the accounts have its end", func() bool {
			out := b.do(t, "sacct", "-n", "-P", "--noconvert", "-o", "JobID,State,MaxRSS", "-j", id)
			return canceled.MatchString(out) && (h == waits || withMemory.MatchString(out))
		})
	}
	for _, h := range []runner.Handle{told, untold} {
		until(t, "its script is over", func() bool {
			return !b.Lives(t, h) && strings.Contains(read(b.runner.RoomName(h.Key, 0)), "\nend\n")
		})
	}
	for _, name := range []string{
		b.runner.RoomName(untold.Key, 0), path.Join(b.Spool, runner.EndName(untold.Key, 0)),
	} { // no message of it is left
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s.Forget(t)
	s.StopAccounts()
	for h, want := range map[runner.Handle]runner.State{told: runner.Active, untold: runner.Active, waits: runner.Queued} {
		var st runner.Status
		until(t, "it says that the accounts are away", func() bool {
			st = b.status(t, h)
			return st.End != nil || strings.Contains(st.Reason, "accounting")
		})
		for range 3 {
			if st = b.status(t, h); st.State != want {
				t.Errorf("without accounts it is %+v", st)
			}
		}
	}
	s.StartAccounts(t)
	for h, want := range map[runner.Handle]runner.State{
		told: runner.Ended, untold: runner.Lost, waits: runner.Lost,
	} {
		var st runner.Status
		t.Cleanup(func() {
			if t.Failed() {
				queue, err := b.runner.queue.Look(t.Context(), time.Hour)
				out, _ := b.slurm.Do(context.Background(), "sacct", "-n", "-P", "-X", "-o", "JobID,State,JobName")
				t.Logf("%s: %+v, %+v\nsqueue: %+v, %v\nsacct: %s\n%s", h.Token, st, st.End, queue, err, out, b.slurm.Log())
			}
		})
		until(t, "it is over", func() bool { st = b.status(t, h); return st.State != runner.Active && st.State != runner.Queued })
		if st.State != want || st.Cause != job.SchedulerCanceled || !strings.Contains(st.Said, "is CANCELLED (by 0)") {
			t.Errorf("%+v", st)
		}
		if h == waits {
			if st.Usage != nil {
				t.Errorf("it waited, and used %+v", st.Usage)
			}
		} else if st.Usage == nil || st.Usage.MaxRSS < 50_000_000 || !strings.Contains(st.Said, " MiB of memory at most") ||
			!strings.Contains(st.Said, ", after ") {
			t.Errorf("it used %+v: %s", st.Usage, st.Said)
		}
	}
}
