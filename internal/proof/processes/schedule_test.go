package processes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/proof/crashstore"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

const beat = `{"name": "beat", "every": "1s", "catch_up": "all", "overlap": "allow", "jobs": [{"kind": "tick", "args": {}}]}`

// tick is the handler of the jobs of a schedule.
func tick(context.Context, *service.Task[none]) (none, error) { return none{}, nil }

// TestScheduleSideBySide: two processes submit the jobs of a schedule. Again and again one dies
// when it is about to submit, or when that is committed and it has not heard of it. Each due time
// has its job, and one.
func TestScheduleSideBySide(t *testing.T) {
	if dsn := os.Getenv(processVariable); dsn != "" {
		p := join(t, dsn, service.Config{Options: engine.Options{Lease: time.Second}}, crashstore.Wrap)
		service.Handle(p.Service, "tick", tick)
		p.start(t)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends with whoever started the processes
			t.Error(err)
		}
		return
	}
	t.Parallel()
	dsn := shared(t)
	desk := join(t, dsn, service.Config{}, nil) // it runs nothing
	first, _, err := desk.Schedules().Apply(t.Context(), []byte(beat), 0)
	if err != nil {
		t.Fatal(err)
	}
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	points := []string{"store.submit.after:2", "store.submit.before:2"}
	var deaths, over atomic.Int64
	var seats sync.WaitGroup
	for range 2 {
		seats.Go(func() {
			for over.Load() == 0 {
				c := exec.Command(os.Args[0], "-test.run=^TestScheduleSideBySide$")
				c.Env, c.Stdin = append(os.Environ(), processVariable+"="+dsn), stdin
				if n := deaths.Load(); n < 4 {
					c.Env = append(c.Env, crash.Variable+"="+points[n%2])
				}
				out, err := c.CombinedOutput()
				if err == nil {
					return
				}
				if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Errorf("a process: %v\n%s", err, out)
					return
				}
				deaths.Add(1)
			}
		})
	}
	leave := sync.OnceFunc(func() {
		over.Store(1)
		end.Close()
		seats.Wait()
		stdin.Close()
	})
	t.Cleanup(leave)
	var due []string
	until(t, "four deaths and ten due times", func() (bool, error) {
		due, err = dueTimes(t, desk, "beat")
		return deaths.Load() >= 4 && len(due) >= 10, err
	})
	if _, err := desk.Schedules().Disable(t.Context(), "beat", true, service.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if due, err = dueTimes(t, desk, "beat"); err != nil {
		t.Fatal(err)
	}
	for i, at := range due {
		if want := first.Next.Add(time.Duration(i) * time.Second).Format(time.RFC3339); at != want {
			t.Fatalf("due time %d is %s, want %s: %v", i, at, want, due)
		}
	}
	until(t, "the end of all jobs", func() (bool, error) {
		page, err := desk.List(t.Context(), store.Query{Filter: job.Unended()})
		return len(page.Jobs) == 0, err
	})
	leave()
	storetest.Check(t, desk.store, "default")
}

// dueTimes returns when the jobs of a schedule were due, oldest first.
func dueTimes(t *testing.T, p *process, name string) (due []string, err error) {
	t.Helper()
	page, err := p.List(t.Context(), store.Query{Limit: 1000, Filter: job.Where("label."+job.LabelSchedule, job.Is, name)})
	for _, j := range page.Jobs {
		due = append(due, j.Labels[job.LabelDue])
	}
	slices.Sort(due)
	return due, err
}

// TestSchedulePausedSideBySide: while two processes run, a schedule is paused and resumed, which a
// third one wishes. Nothing of the pause is submitted, then or later, and all else once.
func TestSchedulePausedSideBySide(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := shared(t)
	for range 2 {
		p := join(t, dsn, service.Config{}, nil)
		service.Handle(p.Service, "tick", tick)
		p.start(t)
	}
	desk := join(t, dsn, service.Config{}, nil)
	other := strings.Replace(beat, "beat", "other", 1)
	var firsts []time.Time // of beat: one for each time it began
	for _, doc := range []string{beat, other} {
		r, _, err := desk.Schedules().Apply(t.Context(), []byte(doc), 0)
		if err != nil {
			t.Fatal(err)
		}
		if doc == beat {
			firsts = append(firsts, r.Next)
		}
	}
	var want []string
	for range 2 {
		var before, due []string
		until(t, "two due times", func() (_ bool, err error) {
			due, err = dueTimes(t, desk, "beat")
			return len(due) >= len(want)+2, err
		})
		r, err := desk.Schedules().Disable(t.Context(), "beat", true, service.AnyVersion)
		if err != nil || !r.Next.IsZero() {
			t.Fatalf("paused, it is due at %v: %v", r.Next, err)
		}
		if due, err = dueTimes(t, desk, "beat"); err != nil {
			t.Fatal(err)
		}
		for i := range len(due) - len(want) {
			want = append(want, firsts[len(firsts)-1].Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		}
		if before, err = dueTimes(t, desk, "other"); err != nil {
			t.Fatal(err)
		}
		until(t, "two due times of the other one", func() (bool, error) {
			now, err := dueTimes(t, desk, "other")
			return len(now) >= len(before)+2, err
		})
		if due, err = dueTimes(t, desk, "beat"); err != nil || !slices.Equal(due, want) {
			t.Fatalf("paused: %s (-want +got), %v", cmp.Diff(want, due), err)
		}
		if r, err = desk.Schedules().Disable(t.Context(), "beat", false, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		firsts = append(firsts, r.Next)
	}
}

// TestScheduleAfterAllWereDown: both processes of a database die, and others come when due times
// were missed. Each of these has the jobs that its schedule says, once, and so have those after it.
func TestScheduleAfterAllWereDown(t *testing.T) {
	testenv.Aside(t)
	if dsn := os.Getenv(processVariable); dsn != "" {
		p := join(t, dsn, service.Config{Options: engine.Options{Lease: 3 * time.Second}}, nil)
		service.Handle(p.Service, "tick", tick)
		p.start(t)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
		return
	}
	t.Parallel()
	testenv.Postgres(t) // skips where there is none
	testenv.Faketime(t)
	server, err := testenv.StartPostgresWithClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	hour := time.Now().Truncate(time.Hour).Add(time.Hour).UTC()
	clock := func(minute int) {
		at := hour.Add(time.Duration(minute)*time.Minute + time.Second) // SetClock drops what is less than a second
		if err := server.SetClock(time.Until(at)); err != nil {
			t.Fatal(err)
		}
	}
	clock(5)
	dsn := sharedOn(t, server)
	desk := join(t, dsn, service.Config{}, nil) // it runs nothing
	for _, s := range []string{
		`"name": "none", "catch_up": "none"`, `"name": "one", "catch_up": "one"`,
		`"name": "all", "catch_up": "all", "overlap": "allow"`, `"name": "paused", "catch_up": "all", "overlap": "allow"`,
	} {
		doc := `{` + s + `, "cron": "*/10 * * * *", "jobs": [{"kind": "tick", "args": {}}]}`
		if _, _, err := desk.Schedules().Apply(t.Context(), []byte(doc), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		minute int              // when two processes come
		pause  bool             // one schedule, before they die
		due    map[string][]int // minutes, by the names of schedules
	}{
		{10, true, map[string][]int{"none": {10}, "one": {10}, "all": {10}, "paused": {10}}},
		{45, false, map[string][]int{"none": {10}, "one": {10, 40}, "all": {10, 20, 30, 40}, "paused": {10}}},
		{50, false, map[string][]int{"none": {10, 50}, "one": {10, 40, 50}, "all": {10, 20, 30, 40, 50}, "paused": {10, 50}}},
	} {
		clock(c.minute)
		kill := startTwo(t, dsn, "TestScheduleAfterAllWereDown")
		for name, minutes := range c.due {
			var got []int
			until(t, fmt.Sprintf("at minute %d, that nothing of schedule %s is due", c.minute, name), func() (bool, error) {
				r, err := desk.Schedules().Resource(t.Context(), name)
				if err != nil || !r.Next.IsZero() && r.Next.Before(hour.Add(time.Duration(c.minute+1)*time.Minute)) {
					return false, err
				}
				due, err := dueTimes(t, desk, name)
				got = nil
				for _, text := range due {
					at, _ := time.Parse(time.RFC3339, text)
					got = append(got, int(at.Sub(hour)/time.Minute))
				}
				return true, err
			})
			if !slices.Equal(got, minutes) {
				t.Errorf("at minute %d, schedule %s was due at %d, want %d", c.minute, name, got, minutes)
			}
		}
		until(t, "two processes, and the end of all jobs", func() (bool, error) {
			n, err := counted(t, desk, service.WorkerLive)
			page, err2 := desk.List(t.Context(), store.Query{Filter: job.Unended()})
			return n == 2 && len(page.Jobs) == 0, errors.Join(err, err2)
		})
		if _, err := desk.Schedules().Disable(t.Context(), "paused", c.pause, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		kill()
	}
	storetest.Check(t, desk.store, "default")
}

// startTwo starts two processes of a test. They end with the test, or when kill is called.
func startTwo(t *testing.T, dsn, test string) (kill func()) {
	t.Helper()
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var both []*exec.Cmd
	kill = sync.OnceFunc(func() {
		for _, c := range both {
			if err := c.Process.Kill(); err != nil {
				t.Errorf("a process has ended before it was killed: %v", err)
			}
			c.Wait() // that it was killed
		}
		end.Close()
		stdin.Close()
	})
	t.Cleanup(kill)
	for range 2 {
		c := exec.Command(os.Args[0], "-test.run=^"+test+"$")
		c.Env, c.Stdin = append(os.Environ(), processVariable+"="+dsn), stdin
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		both = append(both, c)
	}
	return kill
}
