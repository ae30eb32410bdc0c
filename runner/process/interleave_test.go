package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// TestEveryInterleaving runs launchers (with their wrappers) and settlers against one launch in every order of their
// steps. A step is what touches a name that others see: a link or a read. An order in which one actor does nothing
// for long is among them, so whoever is frozen, or dead until all others are done, is covered.
func TestEveryInterleaving(t *testing.T) {
	for name, w := range map[string]world{
		"a launcher and a settler":            {launchers: 1, settlers: 1},
		"a launcher and two settlers":         {launchers: 1, settlers: 2},
		"two launchers and a settler":         {launchers: 2, settlers: 1},
		"three launchers":                     {launchers: 3},
		"a launcher and a settler, rebooted":  {launchers: 1, settlers: 1, reboot: true},
		"a launcher, two settlers, rebooted":  {launchers: 1, settlers: 2, reboot: true},
		"two launchers, a settler, rebooted":  {launchers: 2, settlers: 1, reboot: true},
		"three settlers and nobody to settle": {settlers: 3},
	} {
		t.Run(name, func(t *testing.T) {
			orders, outcomes := 0, map[string]int{}
			// choices is the order in hand: at each step which of those who are not done goes on. It is counted up
			// like a number whose digits have as many values as there were actors then.
			for choices, more := []int{}, true; more; orders++ {
				var widths []int
				outcome := w.play(t, func() int {
					i := len(widths)
					if i == len(choices) {
						choices = append(choices, 0)
					}
					return choices[i]
				}, func(width int) { widths = append(widths, width) })
				if t.Failed() {
					t.Fatalf("in the order %v", choices)
				}
				outcomes[outcome]++
				more = false
				for i := len(choices) - 1; i >= 0; i-- {
					if choices[i]++; choices[i] < widths[i] {
						choices, more = choices[:i+1], true
						break
					}
				}
			}
			t.Logf("%d orders: %v", orders, outcomes)
		})
	}
}

// world is a set of actors.
type world struct {
	launchers, settlers int
	reboot              bool // the settlers find another boot than the launchers
}

// play plays one order and checks what must hold in any: at most one program; one answer of all settlers, which says
// what happened; and the same answer when asked again in the end.
func (w world) play(t *testing.T, choose func() int, width func(int)) string {
	disk := memory{}
	k := runner.Key{Job: job.ID{1}, Attempt: 1, Launch: 1}
	plan := runner.Plan{Dir: "/job", Argv: []string{"true"}, Stdout: "o", Stderr: "e"}
	var ran []string // the tokens of those whose program ran
	var fates []runner.Fate

	var actors []func() (struct{}, bool)
	add := func(boot string, act func(*Runner)) {
		next, _ := iter.Pull(func(yield func(struct{}) bool) {
			h := &model{disk: steps{disk, func() { yield(struct{}{}) }}, boot: boot, ran: &ran}
			act(&Runner{host: h, fs: h.disk, spool: "/ends"})
		})
		if _, more := next(); more { // up to, not with, its first step
			actors = append(actors, next)
		}
	}
	for range w.launchers {
		add("first", func(r *Runner) {
			if _, err := r.Launch(t.Context(), k, plan); err != nil && !errors.Is(err, runner.ErrArmed) {
				t.Error(err)
			}
		})
	}
	boot := "first"
	if w.reboot {
		boot = "second"
	}
	settle := func(r *Runner) {
		f, err := r.Settle(t.Context(), k, plan.Dir)
		if err != nil {
			t.Error(err)
		}
		fates = append(fates, f)
	}
	for range w.settlers {
		add(boot, settle)
	}
	for len(actors) > 0 {
		i := choose()
		width(len(actors))
		if _, more := actors[i](); !more {
			actors = append(actors[:i:i], actors[i+1:]...)
		}
	}
	h := &model{disk: steps{disk, func() {}}, boot: boot, ran: &ran}
	settle(&Runner{host: h, fs: h.disk, spool: "/ends"})

	for _, f := range fates {
		if f != fates[0] {
			t.Errorf("settlers do not agree: %+v and %+v", fates[0], f)
		}
	}
	f := fates[0]
	lost := f.Started && f.Handle.Process == host.Process{}
	switch {
	case len(ran) > 1:
		t.Errorf("it ran %d times", len(ran))
	case lost && (!w.reboot || len(ran) > 0):
		t.Errorf("it is lost, and ran %d times", len(ran))
	case !f.Started && len(ran) > 0:
		t.Error("it is revoked, and ran")
	case f.Started && !lost && (len(ran) != 1 || ran[0] != f.Handle.Token):
		t.Errorf("it is started with token %s, and %v ran", f.Handle.Token, ran)
	}
	return fmt.Sprintf("started=%t lost=%t", f.Started, lost)
}

// model is a host whose programs are models of the wrapper.
type model struct {
	host.Host
	disk files.FS
	boot string
	ran  *[]string
}

func (m *model) ID() string                           { return "model" }
func (m *model) Boot(context.Context) (string, error) { return m.boot, nil }

// Start does what the script does until the program begins. It goes on in the launcher's turn: a launcher that is
// frozen after the start, with a wrapper that is not, is the order in which the launcher has nothing more to do.
func (m *model) Start(ctx context.Context, c host.Command) (host.Process, error) {
	_, token, _ := strings.Cut(path.Base(c.Argv[1]), "run.1.1.")
	me := "taken " + token + " 4711 42 " + m.boot
	own, taken := "/job/.pawl/take.1.1."+token, "/job/.pawl/taken.1.1"
	if err := m.disk.Put(ctx, own, strings.NewReader(me+"\n"), files.PutOptions{}); err != nil {
		return host.Process{}, err
	}
	_ = m.disk.Link(ctx, own, taken) // what is there then decides
	if b, err := files.ReadFile(ctx, m.disk, taken); err == nil && string(b) == me+"\n" {
		*m.ran = append(*m.ran, token)
	}
	return host.Process{PID: 4711, Start: 42, Boot: m.boot}, nil
}

// memory is a disk: what runners use of one.
type memory map[string]string

// steps is a memory that announces each step before it is done. A Put is none: its names are its writer's own.
type steps struct {
	memory
	step func()
}

func (m memory) Put(_ context.Context, name string, r io.Reader, _ files.PutOptions) error {
	b, err := io.ReadAll(r)
	m[name] = string(b)
	return err
}

func (s steps) Link(_ context.Context, from, to string) error {
	s.step()
	if _, ok := s.memory[to]; ok {
		return fs.ErrExist
	}
	s.memory[to] = s.memory[from]
	return nil
}

func (s steps) Open(_ context.Context, name string) (io.ReadSeekCloser, error) {
	s.step()
	content, ok := s.memory[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return closer{strings.NewReader(content)}, nil
}

func (memory) Stat(context.Context, string) (fs.FileInfo, error)   { panic("not used") }
func (memory) List(context.Context, string) ([]fs.FileInfo, error) { panic("not used") }
func (memory) Mkdir(context.Context, string) error                 { panic("not used") }
func (memory) Rename(context.Context, string, string) error        { panic("not used") }
func (memory) Remove(context.Context, string) error                { panic("not used") }

type closer struct{ *strings.Reader }

func (closer) Close() error { return nil }
