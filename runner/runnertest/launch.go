package runnertest

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

func once(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo ran >>ran")
	b.run(t, k, p)
	for range 3 {
		if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) ||
			job.KindOf(err) != job.Conflict {
			t.Errorf("launched again: %v", err)
		}
	}
	if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
}

func onceConcurrently(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo ran >>ran")
	w := b.hear(t)
	var mu sync.Mutex
	var handles []runner.Handle
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			h, err := b.Runner.Launch(t.Context(), k, p)
			if err != nil {
				if !errors.Is(err, runner.ErrArmed) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			handles = append(handles, h)
		})
	}
	wg.Wait()
	if len(handles) != 1 {
		t.Fatalf("%d launches", len(handles))
	}
	w.end(t, k)
	if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
	b.settled(t, handles[0])
}

func revoked(t *testing.T, b Bench) {
	k, p := b.newJob(t, "touch ran")
	for range 3 {
		f, err := b.Runner.Settle(t.Context(), k, p.Dir)
		must(t, err)
		if diff := gocmp.Diff(runner.Fate{}, f); diff != "" {
			t.Fatalf("Settle (-want +got):\n%s", diff)
		}
	}
	if _, err := b.Runner.Launch(t.Context(), k, p); !errors.Is(err, runner.ErrArmed) {
		t.Errorf("a revoked launch was launched: %v", err)
	}
	if b.exists(t, p.Dir+"/ran") {
		t.Error("it ran")
	}
	// The next number is free.
	k.Launch++
	if _, e := b.run(t, k, p); e.Code != 0 || !b.exists(t, p.Dir+"/ran") {
		t.Errorf("the next launch: %+v", e)
	}
}

func started(t *testing.T, b Bench) {
	k, p := b.newJob(t, ": >up; exec sleep 1000")
	wait := b.watch(t, p.Dir)
	h := b.launch(t, k, p)
	wait("up")
	check := func() {
		t.Helper()
		f, err := b.Runner.Settle(t.Context(), k, p.Dir)
		must(t, err)
		if diff := gocmp.Diff(runner.Fate{Started: true, Handle: h}, f); diff != "" {
			t.Errorf("Settle (-want +got):\n%s", diff)
		}
	}
	check()
	check()
	if s := b.state(t, h); s != runner.Active {
		t.Errorf("state %s", s)
	}
	b.kill(t, h)
	check()
}

func settlers(t *testing.T, b Bench) {
	const n = 20
	rounds := cmp.Or(b.Rounds, 200)
	w := b.hear(t)
	outcomes := map[bool]int{}
	for round := range rounds {
		k, p := b.newJob(t, "echo ran >>ran")
		var launched *runner.Handle
		fates := make([]runner.Fate, n)
		var wg sync.WaitGroup
		wg.Go(func() {
			h, err := b.Runner.Launch(t.Context(), k, p)
			if err == nil {
				launched = &h
			} else if !errors.Is(err, runner.ErrArmed) {
				t.Error(err)
			}
		})
		// They come at every step: when the launch has left so many files, or has run.
		left := func() int {
			if _, err := b.Host.Files().Stat(t.Context(), path.Join(p.Dir, "ran")); err == nil {
				return n
			}
			infos, err := b.Host.Files().List(t.Context(), path.Join(p.Dir, runner.Folder))
			if err != nil {
				t.Error(err)
			}
			return len(infos)
		}
		come := make(chan struct{})
		wg.Go(func() {
			defer close(come)
			for left() < round%7 && !t.Failed() {
			}
		})
		for i := range n {
			wg.Go(func() {
				<-come
				var err error
				if fates[i], err = b.Runner.Settle(t.Context(), k, p.Dir); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for i := range fates {
			if diff := gocmp.Diff(fates[0], fates[i]); diff != "" {
				t.Fatalf("settlers do not agree (-first +other):\n%s", diff)
			}
		}
		f := fates[0]
		outcomes[f.Started]++
		if f.Started {
			if launched == nil || *launched != f.Handle {
				t.Fatalf("launched %+v, settled %+v", launched, f.Handle)
			}
			w.end(t, k)
			if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
				t.Fatalf("it ran: %q", got)
			}
			continue
		}
		if launched != nil {
			if s := b.settled(t, *launched); s != runner.Lost {
				t.Fatalf("a revoked launch is %s", s)
			}
		}
		if b.exists(t, p.Dir+"/ran") || b.told(t, k) {
			t.Fatal("a revoked launch ran")
		}
	}
	t.Logf("started %d, revoked %d", outcomes[true], outcomes[false])
}

func attempts(t *testing.T, b Bench) {
	k, p := b.newJob(t, "echo $PAWL_ATTEMPT >>ran")
	for i := range 3 {
		k.Attempt = i + 1
		p.Env = map[string]string{"PAWL_ATTEMPT": fmt.Sprint(k.Attempt)}
		b.run(t, k, p)
	}
	if got := b.read(t, p.Dir+"/ran"); got != "1\n2\n3\n" {
		t.Errorf("they ran: %q", got)
	}
}
