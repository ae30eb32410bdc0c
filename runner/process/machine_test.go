package process

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// named is a host that calls itself by another name, in another boot.
type named struct {
	host.Host
	name, boot string
}

func (n named) Machine(context.Context) (string, error) { return n.name, nil }
func (n named) Boot(ctx context.Context) (string, error) {
	if n.boot == "" {
		return n.Host.Boot(ctx)
	}
	return n.boot, nil
}

// Alive and Members know nobody of another boot, as hosts do.
func (n named) Alive(ctx context.Context, ps []host.Process) ([]bool, error) {
	if n.boot == "" {
		return n.Host.Alive(ctx, ps)
	}
	return make([]bool, len(ps)), nil
}

func (n named) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	if n.boot == "" {
		return n.Host.Members(ctx, fs)
	}
	return make([][]host.Member, len(fs)), nil
}

// A name may lead to another machine with the same home: there nothing of a launch is seen, and
// nothing is proven by that.
func TestAnotherMachine(t *testing.T) {
	const second = "00000000-0000-0000-0000-000000000002"
	b := newBench(t)
	on := func(name, boot string) *Runner {
		r, err := Open(t.Context(), Config{Host: named{b.Host, name, boot}, Spool: b.Spool})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	b.runner = on("login1 1f", "")
	k, p := b.newJob(t, "exec sleep 1000")
	h := b.launch(t, k, p)

	other := on("login2 2f", second)
	all, err := other.Probe(t.Context(), []runner.Handle{h})
	if err != nil || all[0].State != runner.Active || !strings.Contains(all[0].Reason, "on login1, and this is login2") {
		t.Errorf("seen from the other machine: %+v, %v", all, err)
	}
	for what, err := range map[string]error{
		"kill":    other.Kill(t.Context(), h, time.Hour),
		"suspend": other.Suspend(t.Context(), h),
		"resume":  other.Resume(t.Context(), h),
	} {
		if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), "on login1, and this is login2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := b.state(t, h); s != runner.Active {
		t.Errorf("seen from its own machine: %s", s)
	}

	// One that was armed there may start there still.
	armed, plan := b.newJob(t, "true")
	m, err := spool.NewNames(armed, plan.Dir)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := b.Host.Boot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.Arming(), "armed "+m.Token+" "+boot+"\n", 0o600)
	if f, err := other.Settle(t.Context(), armed, plan.Dir); job.KindOf(err) != job.Unavailable || f.Started {
		t.Errorf("settled on the other machine: %+v, %v", f, err)
	}
	if _, err := os.Stat(m.Taken()); err == nil {
		t.Error("the other machine has decided about a launch that may run")
	}
	if f, err := b.runner.Settle(t.Context(), armed, plan.Dir); err != nil || f.Started {
		t.Errorf("settled on its own machine: %+v, %v", f, err)
	}

	// The same machine, started anew.
	again := on("login1 1f", second)
	for range 2 {
		if all, err := again.Probe(t.Context(), []runner.Handle{h}); err != nil || all[0].State != runner.Lost {
			t.Errorf("after a boot: %+v, %v", all, err)
		}
	}
	if err := b.runner.Kill(t.Context(), h, 0); err != nil {
		t.Error(err)
	}
}

// finishing is a host on which a program takes its time to end, and its wrapper a moment to tell.
type finishing struct {
	host.Host
	begun   time.Time
	program host.Member
	killed  []host.Process
}

func (f *finishing) Alive(context.Context, []host.Process) ([]bool, error) {
	return []bool{time.Since(f.begun) < 3100*time.Millisecond}, nil
}

func (f *finishing) Members(context.Context, []host.Family) ([][]host.Member, error) {
	if at := time.Since(f.begun); at == 0 || at > 3*time.Second { // it is not there yet, or over
		return [][]host.Member{nil}, nil
	}
	return [][]host.Member{{f.program}}, nil
}

func (f *finishing) Signal(_ context.Context, ps []host.Process, sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		f.killed = append(f.killed, ps...)
	}
	return nil
}

// A wrapper that was seen alone before it began its program has the whole grace afterwards.
func TestKillLetsTheWrapperTell(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		h := &finishing{begun: time.Now(), program: host.Member{Process: host.Process{PID: 8, Start: 2, Boot: "b"}}}
		r := &Runner{Spool: spool.New(spool.Config{Host: named{Host: newBench(t).Host}, Dir: "/ends"})}
		r.Host = h
		l := launch{place: place{Process: host.Process{PID: 7, Start: 1, Boot: "b"}, Locks: 42}}
		if err := r.end(t.Context(), &l, time.Hour); err != nil || len(h.killed) > 0 {
			t.Errorf("killed %+v, %v", h.killed, err)
		}
	})
}
