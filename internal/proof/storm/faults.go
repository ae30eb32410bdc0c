package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// strikes kills a process each second, or every other where there is only one, which would else
// come to nothing. One that is not there is waited for: on a slow machine it may not be for most of
// the time.
func (s *storm) strikes(ctx context.Context) {
	rnd := s.random("strikes")
	every := time.Second
	if len(s.nodes) == 1 {
		every = 2 * time.Second
	}
	for pause(ctx, between(rnd, every/2, every*3/2)) {
		n := s.nodes[rnd.IntN(len(s.nodes))]
		early := rnd.IntN(3) == 0 // it dies while it is about to begin
		for {
			if p := n.now(); p != nil && (began(p) || early) && p.Signal(syscall.SIGKILL) {
				break
			}
			if !pause(ctx, 50*time.Millisecond) {
				return
			}
		}
		s.mu.Lock()
		s.sum.Kills++
		s.mu.Unlock()
	}
}

// A fault is something that goes wrong until ctx ends, or at once.
type fault struct {
	name        string
	least, most time.Duration
	server      bool // it is one of the database's server
	strike      func(ctx context.Context, s *storm, rnd *rand.Rand) error
}

var faults = []fault{
	{"freeze", lease * 5 / 4, lease * 2, false, freeze},
	{"stop", 0, time.Second, false, stop},
	{"version_next", 0, time.Second, true, versionNext},
	{"clock_wrong", 0, time.Second, false, clockWrong},
	{"clock_steps", time.Second, lease * 3, true, clockSteps},
	{"disk_full", time.Second, 4 * time.Second, false, diskFull},
	{"people_cut_off", time.Second, 5 * time.Second, false, peopleCutOff},

	{"network_slow", 2 * time.Second, 8 * time.Second, true, onWay("slow")},
	{"network_reset", 0, time.Second, true, onWay("reset")},
	{"network_deaf", time.Second, lease * 2, true, onWay("deaf")},
	{"network_mute", time.Second, lease * 2, true, onWay("mute")},
	{"network_black_hole", time.Second, lease * 2, true, onWay("black_hole")},
	{"network_cut", 100 * time.Millisecond, lease * 3 / 2, true, networkCut},

	{"database_killed", 0, time.Second, true, databaseKilled},
	{"database_down", time.Second, lease * 3 / 2, true, databaseKilled},
	{"backends_ended", 0, time.Second, true, backendsEnded},
	{"connections_exhausted", time.Second, 5 * time.Second, true, connectionsExhausted},
	{"read_only", time.Second, 4 * time.Second, true, readOnly},
}

// faultsOf has faults come and go, two at once at most. Each kind comes about as often as the
// others.
func (s *storm) faultsOf(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 2 {
		all.Go(func() {
			rnd := s.random(fmt.Sprint("faults ", i))
			var left []fault
			for ctx.Err() == nil {
				if len(left) == 0 {
					if left = s.possible(); len(left) == 0 {
						return
					}
					rnd.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
				}
				f := left[0]
				left = left[1:]
				s.count(f.name)
				strike, over := context.WithTimeout(ctx, between(rnd, f.least, f.most))
				if err := f.strike(strike, s, rnd); err != nil && ctx.Err() == nil {
					s.breaks("harness: %s: %v", f.name, err)
				}
				over()
				pause(ctx, between(rnd, 0, time.Second))
			}
		})
	}
}

// possible returns the faults that there can be here.
func (s *storm) possible() []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return f.server && s.server == nil || f.name == "disk_full" && s.disks.refused ||
			f.name == "version_next" && s.binaries.next == "" ||
			f.name == "clock_steps" && s.clock == nil || s.only != "" && f.name != s.only ||
			strings.HasPrefix(f.name, "clock_") && s.only == "" && s.rightClocks()
	})
}

// rightClocks reports whether no clock is made wrong, which is so with every other pair of seeds:
// histories then tell all that happened in its order.
func (s *storm) rightClocks() bool { return s.seed/2%2 == 0 }

func (s *storm) anyNode(rnd *rand.Rand) *node { return s.nodes[rnd.IntN(len(s.nodes))] }

// freeze stops a process for longer than its lease, and lets it go on.
func freeze(ctx context.Context, s *storm, rnd *rand.Rand) error {
	p := s.anyNode(rnd).now()
	if p == nil || !began(p) || !p.Signal(syscall.SIGSTOP) {
		return nil
	}
	<-ctx.Done()
	p.Signal(syscall.SIGCONT)
	return nil
}

// stop ends a process in good order.
func stop(_ context.Context, s *storm, rnd *rand.Rand) error {
	n := s.anyNode(rnd)
	if p := n.now(); p != nil && began(p) {
		n.stop(context.Background(), p)
	}
	return nil
}

// versionNext replaces a process by one of a next version, in good order, and the next time by one
// of this version. The first that comes migrates the database, while the others work.
func versionNext(_ context.Context, s *storm, rnd *rand.Rand) error {
	n := s.anyNode(rnd)
	n.mu.Lock()
	n.later = !n.later
	n.mu.Unlock()
	if p := n.now(); p != nil && began(p) {
		n.stop(context.Background(), p)
	}
	return nil
}

// clockWrong starts a process anew with a clock that is wrong by an hour, or is right again.
func clockWrong(_ context.Context, s *storm, rnd *rand.Rand) error {
	n := s.anyNode(rnd)
	n.mu.Lock()
	if n.awry != 0 {
		n.awry = 0
	} else {
		n.awry = []int{-3600, 3600}[rnd.IntN(2)]
	}
	n.mu.Unlock()
	if p := n.now(); p != nil {
		p.Signal(syscall.SIGKILL)
	}
	return nil
}

func diskFull(ctx context.Context, s *storm, rnd *rand.Rand) error {
	all := s.machines()
	return s.disks.full(ctx, all[rnd.IntN(len(all))])
}

// peopleCutOff has something wrong between people and what serves them.
func peopleCutOff(ctx context.Context, s *storm, rnd *rand.Rand) error {
	servers := s.servers()
	return something(ctx, rnd, servers[rnd.IntN(len(servers))].api)
}

func something(ctx context.Context, rnd *rand.Rand, w *way) error {
	switch rnd.IntN(4) {
	case 0:
		return w.cut(ctx)
	case 1:
		return w.trouble(ctx, "mute")
	case 2:
		return w.trouble(ctx, "reset")
	default:
		return w.trouble(ctx, "slow")
	}
}

// onWay has something wrong between a process and the database.
func onWay(what string) func(context.Context, *storm, *rand.Rand) error {
	return func(ctx context.Context, s *storm, rnd *rand.Rand) error {
		return s.anyNode(rnd).db.trouble(ctx, what)
	}
}

func networkCut(ctx context.Context, s *storm, rnd *rand.Rand) error {
	return s.anyNode(rnd).db.cut(ctx)
}

// databaseKilled kills the server, and starts it again when ctx ends.
func databaseKilled(ctx context.Context, s *storm, _ *rand.Rand) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	s.server.Kill()
	<-ctx.Done()
	return s.server.Start(context.WithoutCancel(ctx))
}

// backendsEnded ends the connections of others, of all or of about half.
func backendsEnded(ctx context.Context, s *storm, rnd *rand.Rand) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	return s.admin(context.WithoutCancel(ctx), "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = 'storm' AND pid <> pg_backend_pid() AND random() < $1`, []float64{0.5, 1}[rnd.IntN(2)])
}

// connectionsExhausted takes all connections that the server still has.
func connectionsExhausted(ctx context.Context, s *storm, _ *rand.Rand) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	var taken []*pgx.Conn
	defer func() {
		for _, c := range taken {
			c.Close(context.WithoutCancel(ctx))
		}
	}()
	for ctx.Err() == nil {
		c, err := pgx.Connect(ctx, s.dsn)
		if err != nil {
			break
		}
		taken = append(taken, c)
	}
	// What ends meanwhile is taken as well: processes that come back find no place.
	for pause(ctx, 100*time.Millisecond) {
		if c, err := pgx.Connect(ctx, s.dsn); err == nil {
			taken = append(taken, c)
		}
	}
	return nil
}

// readOnly has the server be a standby, which takes no writes, until ctx ends.
func readOnly(ctx context.Context, s *storm, _ *rand.Rand) error {
	s.databases.Lock()
	defer s.databases.Unlock()
	if err := s.server.Demote(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return s.admin(context.WithoutCancel(ctx), "postgres", "SELECT pg_promote()")
}

// clear has everything right again, for the time after the storm. Where the database had a wrong
// clock, that of its process or of its machine, this is put forward: what was to wait until some
// time by a clock that was fast would else wait for an hour.
func (s *storm) clear() {
	const forward = 2 * time.Hour
	if s.wrongTimes() && s.clock != nil {
		s.printf("the clock steps by %s", forward)
		if err := s.clock.set(forward); err != nil {
			s.breaks("harness: %v", err)
		}
	}
	for _, n := range s.nodes {
		n.mu.Lock()
		n.awry, n.later = 0, false
		if s.wrongTimes() && s.server == nil {
			n.awry = int(forward / time.Second)
			n.proc.Signal(syscall.SIGKILL)
		}
		n.mu.Unlock()
	}
}
