package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A stage is where one scenario happens. After the first error nothing more happens there.
type stage struct {
	ctx    context.Context
	system system
	args   []string // of the processes
	dsn    string
	dir    string
	actors map[string]*process
	err    error
}

func (st *stage) try(f func() error) {
	if st.err == nil {
		st.err = f()
	}
}

// clear ends the processes that are left.
func (st *stage) clear() {
	for _, p := range st.actors {
		p.kill()
	}
}

// start starts a process.
func (st *stage) start(name string) {
	st.try(func() error {
		p, err := start(name, filepath.Join(st.dir, name+".log"), st.args)
		if err == nil {
			st.actors[name] = p
		}
		return err
	})
}

// freeze stops a process as it stands.
func (st *stage) freeze(name string) {
	st.try(func() error { return st.actors[name].freeze() })
}

// wake has a frozen process go on.
func (st *stage) wake(name string) {
	st.try(func() error { return st.actors[name].signal(syscall.SIGCONT) })
}

// stop ends a process in good order.
func (st *stage) stop(name string) {
	st.try(func() error { return st.actors[name].stop(st.ctx) })
}

// let lets a call go on that waits half way.
func (st *stage) let(call string) {
	st.try(func() error { return os.WriteFile(filepath.Join(st.dir, call), nil, 0o666) })
}

// look reads the row of the job.
func (st *stage) look() (r Row) {
	st.try(func() (err error) {
		r, err = st.system.look(st.ctx, st.dsn)
		return err
	})
	return r
}

// pollEvery is how often conditions are looked at.
const pollEvery = 20 * time.Millisecond

// await asks again and again until the answer is yes.
func (st *stage) await(what string, ask func() bool) {
	for st.err == nil && !ask() {
		st.try(func() error {
			for _, p := range st.actors {
				if err := p.died(); err != nil {
					return fmt.Errorf("waiting until %s: %w", what, err)
				}
			}
			select {
			case <-time.After(pollEvery):
				return nil
			case <-st.ctx.Done():
				return fmt.Errorf("waiting until %s: %w", what, context.Cause(st.ctx))
			}
		})
	}
}

func (st *stage) ledger() (lines []line) {
	st.try(func() (err error) {
		lines, err = readLedger(st.dir)
		return err
	})
	return lines
}

// seen asks whether a call has done a step.
func (st *stage) seen(call, step string) func() bool {
	return func() bool {
		return slices.ContainsFunc(st.ledger(), func(l line) bool { return l.Call == call && l.Step == step })
	}
}

// final asks whether the job has ended.
func (st *stage) final() bool { return st.look().Final }

// another asks whether the job has ended after a third call.
func (st *stage) another() bool {
	return st.final() && slices.ContainsFunc(st.ledger(), func(l line) bool {
		return l.Step == "returns" && l.Call != "A1" && l.Call != "B1"
	})
}

// told asks whether the process of a call that has returned was told what became of that. It need
// not be: after a while the answer is yes.
func (st *stage) told(call string) func() bool {
	enough := time.Now().Add(3 * time.Second)
	return func() bool {
		process, returned := "", false
		for _, l := range st.ledger() {
			switch {
			case l.Call == call && l.Step == "returns":
				process, returned = l.Process, true
			case returned && l.Process == process && l.Step == toldStep:
				return true
			}
		}
		return time.Now().After(enough)
	}
}
