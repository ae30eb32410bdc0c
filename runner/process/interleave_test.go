package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// TestEveryInterleaving runs launchers (with their wrappers) and settlers against one launch in
// every order of their steps. A step is what touches a name that others see: a link, a write or a
// read. An order in which one actor does nothing for long is among them, so whoever is frozen, or
// dead until all others are done, is covered. Of the orders that come to the same point one goes on
// from there: an actor does what follows from what it has seen.
func TestEveryInterleaving(t *testing.T) {
	for name, w := range map[string]world{
		"a launcher and a settler":            {launchers: 1, settlers: 1},
		"a launcher and two settlers":         {launchers: 1, settlers: 2},
		"two launchers and a settler":         {launchers: 2, settlers: 1},
		"two launchers and two settlers":      {launchers: 2, settlers: 2},
		"two of each, rebooted":               {launchers: 2, settlers: 2, reboot: true},
		"three launchers":                     {launchers: 3},
		"a launcher and a settler, rebooted":  {launchers: 1, settlers: 1, reboot: true},
		"a launcher, two settlers, rebooted":  {launchers: 1, settlers: 2, reboot: true},
		"two launchers, a settler, rebooted":  {launchers: 2, settlers: 1, reboot: true},
		"three settlers and nobody to settle": {settlers: 3},
	} {
		t.Run(name, func(t *testing.T) {
			if w.launchers+w.settlers > 3 && !testenv.Long() {
				t.Skip("so many orders take a while: make test-long")
			}
			orders, outcomes := 0, map[string]int{}
			s := w.stage(t)
			// order says at each step which actor goes on, of the ones not done. It is counted up like
			// a number whose digits have as many values as there were actors then.
			for order, more := []int{}, true; more; orders++ {
				widths, outcome := s.play(t, order)
				if t.Failed() {
					t.Fatalf("in the order %v", order)
				}
				outcomes[outcome]++
				for len(order) < len(widths) {
					order = append(order, 0)
				}
				more = false
				for i := len(widths) - 1; i >= 0; i-- {
					if order[i]++; order[i] < widths[i] {
						order, more = order[:i+1], true
						break
					}
				}
			}
			t.Logf("%d orders to %d points: %v", orders, len(s.been), outcomes)
		})
	}
}

// world is a set of actors.
type world struct {
	launchers, settlers int
	reboot              bool // the settlers find another boot than the launchers
}

// stage is where the actors of a world play one order after the other.
type stage struct {
	world
	key    runner.Key
	actors []*actor
	last   func()          // settles once more, when all have ended
	been   map[string]bool // the points to which orders came

	// What is there in one play.
	disk  memory
	drawn map[string]int // the actors, by the tokens that they have drawn
	ran   []string       // the tokens of those whose program ran
	fates []runner.Fate
}

type actor struct {
	next func() (ended, more bool) // each call is one step; the last of a play says ended
	saw  strings.Builder           // what came of its steps
}

func (a *actor) sees(op, name, what string) { fmt.Fprintf(&a.saw, "%s %s: %s\n", op, name, what) }

// point says all on which it depends what comes next. It is the same for all launchers, and for all
// settlers, that have changed places with each other.
func (s *stage) point() (point string) {
	for places := range permutations(s.launchers) {
		for others := range permutations(s.settlers) {
			numbers := slices.Clone(places)
			for _, n := range others {
				numbers = append(numbers, s.launchers+n)
			}
			if p := s.numbered(numbers); point == "" || p < point {
				point = p
			}
		}
	}
	return point
}

// numbered says where the stage is, with the actors under these numbers.
func (s *stage) numbered(numbers []int) string {
	var names []string
	for token, i := range s.drawn {
		names = append(names, token, fmt.Sprint("of actor ", numbers[i]))
	}
	var all []string
	for name, content := range s.disk {
		if len(content) > 500 { // a script, which its name tells
			content = ""
		}
		all = append(all, name+": "+content)
	}
	for i, a := range s.actors {
		all = append(all, fmt.Sprintf("actor %d\n%s", numbers[i], a.saw.String()))
	}
	all = append(all, fmt.Sprintf("%v %+v", s.ran, s.fates))
	for i, anonymous := 0, strings.NewReplacer(names...); i < len(all); i++ {
		all[i] = anonymous.Replace(all[i])
	}
	slices.Sort(all)
	return strings.Join(all, "\x00")
}

// permutations yields the orders of the numbers below n. A yielded one is not to be kept.
func permutations(n int) iter.Seq[[]int] {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return func(yield func([]int) bool) {
		var from func(k int) bool
		from = func(k int) bool {
			if k == n {
				return yield(all)
			}
			for i := k; i < n; i++ {
				all[k], all[i] = all[i], all[k]
				if !from(k + 1) {
					return false
				}
				all[k], all[i] = all[i], all[k]
			}
			return true
		}
		from(0)
	}
}

func (w world) stage(t *testing.T) *stage {
	k := runner.Key{Job: job.ID{1}, Attempt: 1, Launch: 1}
	s := &stage{world: w, key: k, been: map[string]bool{}}
	plan := runner.Plan{Dir: "/job", Argv: []string{"true"}, Stdout: "o", Stderr: "e"}
	open := func(boot string, a *actor, step func()) *Runner {
		h := &model{stage: s, disk: steps{s, a, step}, boot: boot}
		return &Runner{Spool: spool.New(spool.Config{Host: h, Dir: "/ends"})}
	}
	launch := func(r *Runner) {
		if _, err := r.Launch(t.Context(), k, plan); err != nil && !errors.Is(err, runner.ErrArmed) {
			t.Error(err)
		}
	}
	settle := func(r *Runner) {
		f, err := r.Settle(t.Context(), k, plan.Dir)
		if err != nil {
			t.Error(err)
		}
		s.fates = append(s.fates, f)
	}
	add := func(boot string, act func(*Runner)) {
		a := &actor{}
		next, stop := iter.Pull(func(yield func(bool) bool) {
			r := open(boot, a, func() { yield(false) })
			for ok := true; ok; ok = yield(true) {
				act(r)
			}
		})
		t.Cleanup(stop)
		a.next = next
		s.actors = append(s.actors, a)
	}
	boot := "first"
	for range w.launchers {
		add(boot, launch)
	}
	if w.reboot {
		boot = "second"
	}
	for range w.settlers {
		add(boot, settle)
	}
	s.last = func() { settle(open(boot, &actor{}, func() {})) }
	return s
}

// play plays an order, and goes on with whoever comes first. It returns how many could have gone on
// at each step up to where another order has been, and what came of it. It checks what must hold in
// any order: at most one program; one answer of all settlers, which says what happened; and the
// same answer when asked again in the end.
func (s *stage) play(t *testing.T, order []int) (widths []int, outcome string) {
	s.disk, s.drawn, s.ran, s.fates = memory{}, map[string]int{}, nil, nil
	for _, a := range s.actors {
		a.saw.Reset()
		a.next() // up to, not with, its first step
	}
	there := false // where another order has been
	for i, actors := 0, slices.Clone(s.actors); len(actors) > 0; i++ {
		chosen := 0
		if i < len(order) {
			chosen = order[i]
		}
		if !there {
			widths = append(widths, len(actors))
		}
		if ended, _ := actors[chosen].next(); ended {
			actors[chosen].sees("end", "", "")
			actors = slices.Delete(actors, chosen, chosen+1)
		}
		if i >= len(order)-1 && !there {
			point := s.point()
			there = s.been[point]
			s.been[point] = true
		}
	}
	s.last()

	f := s.fates[0]
	for _, other := range s.fates {
		if f != other {
			t.Errorf("settlers do not agree: %+v and %+v", f, other)
		}
	}
	lost := false
	if f.Started {
		l, err := (&Runner{Spool: spool.New(spool.Config{Host: &model{}})}).find(f.Handle)
		if err != nil {
			t.Fatal(err)
		}
		lost = l.Process == host.Process{}
	}
	switch {
	case len(s.ran) > 1:
		t.Errorf("it ran %d times", len(s.ran))
	case lost && (!s.reboot || len(s.ran) > 0):
		t.Errorf("it is lost, and ran %d times", len(s.ran))
	case !f.Started && len(s.ran) > 0:
		t.Error("it is revoked, and ran")
	case f.Started && !lost && (len(s.ran) != 1 || s.ran[0] != f.Handle.Token):
		t.Errorf("it is started with token %s, and %v ran", f.Handle.Token, s.ran)
	}
	return widths, fmt.Sprintf("started=%t lost=%t", f.Started, lost)
}

// model is a host whose programs are models of the wrapper.
type model struct {
	host.Host
	stage *stage
	disk  steps
	boot  string
}

func (m *model) ID() string                              { return "model" }
func (m *model) Files() files.FS                         { return m.disk }
func (m *model) Machine(context.Context) (string, error) { return "", nil }
func (m *model) Boot(context.Context) (string, error)    { return m.boot, nil }

// Uptime is that of a host that was booted at one moment for all orders, for a launch has that in
// its script, in milliseconds.
func (m *model) Uptime(context.Context) (time.Duration, error) {
	return time.Since(time.Unix(1e9, int64(time.Millisecond/2))), nil
}

// LockLimit leaves no room for numbers: one would make each play another one.
func (m *model) LockLimit(context.Context) (uint64, error) { return 0, nil }

// Start does what the script does until the program begins. It goes on in the launcher's turn: a
// launcher that is frozen after the start, with a wrapper that is not, is the order in which the
// launcher has nothing more to do.
func (m *model) Start(ctx context.Context, c host.Command) (host.Process, error) {
	_, token, _ := strings.Cut(path.Base(c.Argv[1]), "run.1.1.")
	me := "taken " + token + " " + m.boot + " 4711 42 0\n"
	m.stage.disk["/job/.pawl/take.1.1."+token] = me
	room := "/ends/.rooms/" + runner.EndName(m.stage.key, 0)
	m.disk.step()
	m.stage.disk[room] = "   "
	for _, content := range []string{"", me} { // the name comes first, and then what it holds
		m.disk.step()
		was, ok := m.stage.disk["/job/.pawl/taken.1.1"]
		m.disk.actor.sees("take", "taken.1.1", was)
		if ok && content == "" || was != "" {
			m.disk.step()
			delete(m.stage.disk, room)
			return host.Process{PID: 4711, Start: 42, Boot: m.boot}, nil
		}
		m.stage.disk["/job/.pawl/taken.1.1"] = content
	}
	m.disk.step()
	m.stage.disk[room] = me
	m.disk.step()
	m.stage.ran = append(m.stage.ran, token)
	return host.Process{PID: 4711, Start: 42, Boot: m.boot}, nil
}

// memory is a disk: what names hold.
type memory map[string]string

// steps is the stage's disk, as far as launching and settling use one. It announces each step
// before it is done. A Put is none: its names are its writer's own.
type steps struct {
	stage *stage
	actor *actor
	step  func()
}

func (s steps) Put(_ context.Context, name string, r io.Reader, _ files.PutOptions) error {
	b, err := io.ReadAll(r)
	s.stage.disk[name] = string(b)
	s.stage.drawn[strings.TrimPrefix(path.Ext(name), ".")] = slices.Index(s.stage.actors, s.actor)
	return err
}

func (s steps) Link(_ context.Context, from, to string) error {
	s.step()
	_, ok := s.stage.disk[to]
	s.actor.sees("link", to, fmt.Sprint(ok))
	if ok {
		return fs.ErrExist
	}
	s.stage.disk[to] = s.stage.disk[from]
	return nil
}

func (s steps) Open(_ context.Context, name string) (io.ReadSeekCloser, error) {
	s.step()
	content, ok := s.stage.disk[name]
	s.actor.sees("open", name, fmt.Sprint(ok, content))
	if !ok {
		return nil, fs.ErrNotExist
	}
	return closer{strings.NewReader(content)}, nil
}

// Stat looks for a mark. Nothing is cleaned here.
func (steps) Stat(context.Context, string) (fs.FileInfo, error)   { return nil, fs.ErrNotExist }
func (steps) List(context.Context, string) ([]fs.FileInfo, error) { panic("not used") }
func (steps) Mkdir(context.Context, string) error                 { panic("not used") }
func (steps) Rename(context.Context, string, string) error        { panic("not used") }
func (steps) Remove(context.Context, string) error                { panic("not used") }

type closer struct{ *strings.Reader }

func (closer) Close() error { return nil }
