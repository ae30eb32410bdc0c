package hosttest

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
)

// killAll ends a family, and the leader with it.
func (f fixture) killAll(t *testing.T, family host.Family) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	Until(t, "killed processes are gone", func() bool {
		ps := []host.Process{family.Leader}
		for _, m := range f.members(t, family) {
			ps = append(ps, m.Process)
		}
		must(t, f.host.Signal(ctx, ps, syscall.SIGKILL))
		return len(ps) == 1 && !f.alive(t, family.Leader)
	})
}

// members returns the members of a family. On a busy machine a look may have to be repeated.
func (f fixture) members(t *testing.T, family host.Family) []host.Member {
	t.Helper()
	var all [][]host.Member
	Until(t, "a look has read all processes", func() bool {
		var err error
		all, err = f.host.Members(context.WithoutCancel(t.Context()), []host.Family{family})
		if _, busy := errors.AsType[*host.Trouble](err); !busy {
			must(t, err)
			return true
		}
		t.Log(err)
		return false
	})
	return all[0]
}

// bySession: an orphan, and one that went to a group of its own.
func bySession(t *testing.T, f fixture) {
	wait := f.appears(t)
	p := f.sh(t, `(trap '' TERM; : >ready; while :; do sleep 1000; done) & timeout 1000 sleep 1000 & exit`)
	wait("ready")
	family := host.Family{Leader: p}
	Until(t, "the leader is dead", func() bool { return !f.alive(t, p) })
	Until(t, "all are found", func() bool { return len(f.members(t, family)) == 4 })
	other := family
	other.Leader.Boot = "00000000-0000-0000-0000-000000000000"
	if ms := f.members(t, other); len(ms) != 0 {
		t.Errorf("members of another boot: %+v", ms)
	}
	other = family
	other.Leader.Start++
	if ms := f.members(t, other); len(ms) > 4 {
		t.Errorf("%+v", ms)
	}
}

// number is one below the limit of the host.
func (f fixture) number(t *testing.T) uint64 {
	t.Helper()
	most, err := f.host.LockLimit(t.Context())
	must(t, err)
	if most < 1<<20 {
		t.Skipf("the limit of file locks is %d", most)
	}
	return 1<<19 + rand.Uint64N(1<<19)
}

// mark is a shell's way to take the number $1.
const mark = `ulimit -w "$1" 2>/dev/null || ulimit -x "$1" || exit; `

func byNumber(t *testing.T, f fixture) {
	family := host.Family{Locks: f.number(t)}
	p := f.sh(t, mark+`env -i setsid sleep 1000 & exit`, strconv.FormatUint(family.Locks, 10))
	family.Leader = p
	t.Cleanup(func() { f.killAll(t, family) })
	Until(t, "the leader is dead", func() bool { return !f.alive(t, p) })
	Until(t, "it is found", func() bool {
		ms := f.members(t, family)
		return len(ms) == 1 && ms[0].Name == "sleep" && ms[0].Numbered && ms[0].Boot == p.Boot && !ms[0].Kept
	})
	for what, other := range map[string]host.Family{"another number": {Locks: family.Locks + 1}, "no mark": {}} {
		if ms := f.members(t, other); len(ms) != 0 {
			t.Errorf("members by %s: %+v", what, ms)
		}
	}
}

func byVariable(t *testing.T, f fixture) {
	family := host.Family{Launch: cryptorand.Text()}
	p := f.sh(t, `export `+host.LaunchVariable+`="$1"; setsid sleep 1000 & exit`, family.Launch)
	family.Leader = p
	t.Cleanup(func() { f.killAll(t, family) })
	Until(t, "the leader is dead", func() bool { return !f.alive(t, p) })
	Until(t, "it is found", func() bool {
		ms := f.members(t, family)
		return len(ms) == 1 && ms[0].Name == "sleep" && !ms[0].Numbered
	})
	if ms := f.members(t, host.Family{Launch: family.Launch + "x"}); len(ms) != 0 {
		t.Errorf("members of another launch: %+v", ms)
	}
}

// leaver: it gets its number late, and leaves its session without a fork.
func leaver(t *testing.T, f fixture) {
	family := host.Family{Locks: f.number(t)}
	must(t, f.fs.Mkdir(t.Context(), f.dir))
	wait := f.appears(t)
	p := f.sh(t, `(: >begun; until [ -e go ]; do sleep 0.01; done; `+mark+`exec env -i setsid sleep 1000) & wait`,
		strconv.FormatUint(family.Locks, 10))
	family.Leader = p
	t.Cleanup(func() { f.killAll(t, family) })
	wait("begun")
	f.members(t, family) // whoever looks now sees it without the number
	must(t, f.fs.Put(t.Context(), path.Join(f.dir, "go"), strings.NewReader(""), files.PutOptions{}))
	Until(t, "it has left", func() bool {
		ms := f.members(t, family)
		return len(ms) == 1 && ms[0].Name == "sleep" && f.stat(t, ms[0].PID).session == ms[0].PID
	})
	if !f.alive(t, p) {
		t.Error("the leader is dead")
	}
}

// runners: a process that forks and ends all the time is found by each look.
func runners(t *testing.T, f fixture) {
	family := host.Family{Locks: f.number(t)}
	// It counts down, so that it ends even if the test is killed.
	hop := mark + `: >hop; echo '[ -e hop ] && [ $1 -gt 0 ] && setsid sh ./hopper $(($1 - 1)) & exit' >hopper; sh ./hopper 100000`
	family.Leader = f.sh(t, hop, strconv.FormatUint(family.Locks, 10))
	t.Cleanup(func() {
		must(t, f.fs.Remove(context.WithoutCancel(t.Context()), path.Join(f.dir, "hop")))
		f.killAll(t, family)
	})
	Until(t, "it is under way", func() bool { return len(f.members(t, family)) > 0 })
	looks := 50
	if f.polls {
		looks = 10 // each takes many requests
	}
	for i := range looks {
		if len(f.members(t, family)) == 0 {
			t.Fatalf("look %d found nobody", i+1)
		}
	}
}

func kept(t *testing.T, f fixture) {
	p := f.sh(t, host.KeepVariable+`=1 sleep 1000 & `+host.KeepVariable+`=0 sleep 1000 & wait`)
	Until(t, "both are found, and one is kept", func() bool {
		ms := f.members(t, host.Family{Leader: p})
		return len(ms) == 2 && ms[0].Kept != ms[1].Kept && ms[0].Parent == p.PID
	})
}

// oldestFirst: who started others stands before them.
func oldestFirst(t *testing.T, f fixture) {
	const nested = `nested() { [ "$1" = 0 ] && exec sleep 1000; (nested $(($1 - 1))) & wait; }; nested 7`
	family := host.Family{Launch: cryptorand.Text()}
	family.Leader = f.sh(t, `export `+host.LaunchVariable+`="$1"; setsid sh -c '`+nested+`' & exit`, family.Launch)
	t.Cleanup(func() { f.killAll(t, family) })
	var ms []host.Member
	Until(t, "all are found", func() bool {
		ms = f.members(t, family)
		return len(ms) == 8 && !f.alive(t, family.Leader)
	})
	for i, m := range ms[1:] {
		if m.Parent != ms[i].PID {
			t.Fatalf("after process %d stands a child of %d: %+v", ms[i].PID, m.Parent, ms)
		}
	}
}
