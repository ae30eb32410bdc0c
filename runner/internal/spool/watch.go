package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// How the ends of launches are heard of: wrappers leave messages in the spool, and the host tells
// of children that died without one.

// The times of a wrapper that has told its end.
const (
	// parting is how long such a wrapper may take to go. Meanwhile it is looked at every lookAgain.
	// What is left of it then is no longer waited for.
	parting   = 200 * time.Millisecond
	lookAgain = 2 * time.Millisecond
	// A message that is not whole after that time is read again every tornAgain.
	tornAgain = time.Second
)

// A watch is one watch over the spool.
type watch struct {
	*Spool
	caution *caution
	out     chan []runner.Notice
	woken   chan struct{} // there are exits

	names map[string]bool     // messages that have not been read
	open  map[string]*message // messages that were read and not told
	ready []runner.Notice     // to be told
	again *time.Timer         // when to look again at those of open

	exits []runner.Key     // guarded by the spool's mu: of scripts that ended since the watch looked
	given map[string]given // guarded by the spool's mu: what was told and is not acknowledged
}

// A given is what a watch has told.
type given struct {
	end  *runner.End
	gone bool // its script is
}

// A message tells an end. While it is not whole it has none: its writer is at work, or is gone.
type message struct {
	name   string
	key    runner.Key
	end    *runner.End
	taken  Words     // who tells it
	gone   bool      // its script is
	since  time.Time // when it was read first
	retold time.Time // when it was told last that it is not whole
}

// Watch implements [runner.Runner]. It begins to watch before it lists.
func (s *Spool) Watch(ctx context.Context) (<-chan []runner.Notice, error) {
	if sh := s.Shell(); sh != nil { // where no pipe can be made, the host looks often
		script := "mkfifo -m 600 " + Quote(path.Join(s.Dir, host.Bell)) + " 2>/dev/null"
		if _, _, err := sh.Run(ctx, script, nil); err != nil {
			return nil, fmt.Errorf("watch %s: %w", s.Dir, err)
		}
	}
	under, stop := context.WithCancel(ctx)
	events, err := s.Host.Watch(under, s.Dir)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch %s: %w", s.Dir, err)
	}
	w := &watch{
		Spool: s, out: make(chan []runner.Notice), woken: make(chan struct{}, 1), names: map[string]bool{},
		open: map[string]*message{}, given: map[string]given{}, again: time.NewTimer(0),
	}
	if err := w.list(ctx); err != nil {
		stop()
		return nil, err
	}
	w.caution = s.beCautious(ctx)
	s.mu.Lock()
	s.watches[w] = true
	s.mu.Unlock()
	go func() {
		defer close(w.out)
		defer w.end(ctx)
		defer stop()
		if err := w.run(under, events); err != nil && ctx.Err() == nil {
			s.Log.Warn("messages of ends cannot be read", "spool", s.Dir, "error", err)
		}
	}()
	return w.out, nil
}

// end ends a watch. One that was lost keeps its caution for the next.
func (w *watch) end(ctx context.Context) {
	w.again.Stop()
	w.mu.Lock()
	delete(w.watches, w)
	w.mu.Unlock()
	if ctx.Err() != nil {
		w.relax(ctx, w.caution)
	}
}

// run looks on until ctx ends or the watch is lost.
func (w *watch) run(ctx context.Context, events <-chan host.Event) error {
	first := true
	var relist <-chan time.Time
	if w.Relist > 0 {
		t := time.NewTicker(w.Relist)
		defer t.Stop()
		relist = t.C
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	for {
		var out chan []runner.Notice
		if first || len(w.ready) > 0 {
			out = w.out
		}
		select {
		case <-ctx.Done():
			return nil
		case out <- w.ready:
			w.ready = nil
			if first {
				first = false
				w.caution.catchUp()
			}
			continue
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if err := w.drain(ctx, e, events); err != nil {
				return err
			}
		case <-w.woken:
		case <-w.again.C:
		case <-relist:
			if err := w.list(ctx); err != nil {
				return err
			}
		}
		if err := w.look(ctx); err != nil {
			return err
		}
	}
}

// drain notes an event and the events that wait behind it.
func (w *watch) drain(ctx context.Context, e host.Event, more <-chan host.Event) error {
	for ok := true; ok; {
		if e.Overflow {
			if err := w.list(ctx); err != nil {
				return err
			}
		} else {
			w.names[e.Name] = true
		}
		select {
		case e, ok = <-more:
		default:
			return nil
		}
	}
	return nil
}

// list notes everything in the spool.
func (w *watch) list(ctx context.Context) error {
	names, err := files.Names(ctx, w.FS, w.Dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", w.Dir, err)
	}
	for _, name := range names {
		w.names[name] = true
	}
	return nil
}

// look reads new messages, and readies what can be told of them.
func (w *watch) look(ctx context.Context) error {
	w.mu.Lock()
	exits := w.exits
	w.exits = nil
	w.mu.Unlock()
	gone := map[runner.Key]bool{}
	for _, k := range exits { // the message may be there before its event is
		gone[k] = true
		w.names[runner.EndName(k, 0)] = true
	}
	for name, m := range w.open {
		if m.end == nil {
			w.names[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(w.names))
	seen, err := w.peek(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.read(ctx, name, seen[name]); err != nil {
			return err
		}
		delete(w.names, name)
	}
	if err := w.judge(ctx, gone); err != nil {
		return err
	}
	for _, k := range exits {
		name := runner.EndName(k, 0)
		if was, _ := w.notified(name); was.end == nil && w.open[name] == nil {
			w.ready = append(w.ready, runner.Notice{Key: k})
		}
	}
	return nil
}

// read reads a message, unless it was seen. If it cannot be read for good, its launch is to be
// looked at.
func (w *watch) read(ctx context.Context, name string, at *Seen) error {
	key, _, err := runner.ParseEndName(name)
	if err != nil {
		if k, ok := begun(name); ok {
			w.begin(ctx, k, name)
		} else {
			w.stray(ctx, name)
		}
		return nil
	}
	if _, given := w.notified(name); given {
		return nil
	}
	m := w.open[name]
	if at == nil {
		if m != nil && m.end != nil { // it was whole before
			return nil
		}
		at = &Seen{}
		err = w.caution.look(ctx, key, func() (err error) {
			at.Content, err = files.ReadFile(ctx, w.FS, path.Join(w.Dir, name), runner.MaxEnd)
			return err
		})
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		delete(w.open, name)
		return nil
	case job.KindOf(err) == job.Unavailable:
		return err
	case err != nil:
		w.Log.Error("a message of an end cannot be read; looking at the program instead", "job", key.Job, "error", err)
		delete(w.open, name)
		w.notify(runner.Notice{Key: key, Name: name}, false)
		return nil
	}
	if m == nil {
		m = &message{name: name, key: key, since: time.Now()}
		w.open[name] = m
	}
	taken, end, err := parse(name, at.Content)
	if err == nil {
		m.end, m.taken, m.gone = end, taken, at.Gone
	}
	return nil
}

// Begun is what the name of a message begins with that says that a program has begun.
const Begun = "begun."

// begun reads the name of a message that says that a program has begun.
func begun(name string) (k runner.Key, ok bool) {
	rest, ok := strings.CutPrefix(name, Begun)
	if ok {
		k, _, err := runner.ParseEndName(rest)
		return k, err == nil
	}
	return k, false
}

// begin tells that a launch has begun. If the message cannot be removed, it is told again.
func (w *watch) begin(ctx context.Context, k runner.Key, name string) {
	if w.Config.Begun != nil {
		w.Config.Begun(k)
	}
	w.ready = append(w.ready, runner.Notice{Key: k})
	_ = w.FS.Remove(ctx, path.Join(w.Dir, name))
}

// stray removes what is no message of an end. A file on its way has a hidden name.
func (w *watch) stray(ctx context.Context, name string) {
	if strings.HasPrefix(name, ".") {
		return
	}
	w.Log.Warn("what is in the spool and is no message of an end is removed", "name", name)
	if err := w.FS.Remove(ctx, path.Join(w.Dir, name)); err != nil && ctx.Err() == nil {
		w.Log.Warn("it stays there", "name", name, "error", err)
	}
}

// judge tells the messages that are whole and whose wrapper is gone, and of those that stay half.
// gone are the launches whose wrapper has just ended.
func (w *watch) judge(ctx context.Context, gone map[runner.Key]bool) error {
	if len(w.open) == 0 {
		return nil
	}
	all := slices.SortedFunc(maps.Values(w.open), func(a, b *message) int { return strings.Compare(a.name, b.name) })
	if err := w.part(ctx, all); err != nil {
		return err
	}
	next := tornAgain
	for _, m := range all {
		if past, err := w.outrun(ctx, m); err != nil {
			return err
		} else if past {
			delete(w.open, m.name)
			continue
		}
		late := time.Since(m.since) >= parting
		if m.end != nil {
			late = time.Since(m.since) >= w.Parting
		}
		switch {
		case m.end != nil && (late || m.gone):
			delete(w.open, m.name)
			w.notify(runner.Notice{Key: m.key, Name: m.name, End: m.end, Look: w.Look == nil || w.Look(m.end)}, m.gone)
			continue
		case m.end == nil && (late && time.Since(m.retold) >= tornAgain || gone[m.key]):
			m.retold = time.Now()
			w.ready = append(w.ready, runner.Notice{Key: m.key, Name: m.name})
		}
		if !late {
			next = w.LookAgain
		}
	}
	if len(w.open) > 0 {
		w.again.Reset(next)
	}
	return nil
}

// outrun reports whether a message is of a run after which the launch was run again. Then it goes.
func (w *watch) outrun(ctx context.Context, m *message) (bool, error) {
	if !w.Scheduled || m.end == nil {
		return false, nil
	}
	run, err := w.Newest(ctx, m.key)
	if err != nil || run <= m.end.Run {
		return false, err
	}
	return true, w.FS.Remove(ctx, path.Join(w.Dir, m.name))
}

// part finds out which scripts are gone that have told all.
func (w *watch) part(ctx context.Context, all []*message) error {
	all = slices.DeleteFunc(slices.Clone(all), func(m *message) bool { return m.end == nil || m.gone })
	if len(all) == 0 {
		return nil
	}
	ends, takers, alive := make([]*runner.End, len(all)), make([]Words, len(all)), make([]bool, len(all))
	for i, m := range all {
		ends[i], takers[i] = m.end, m.taken
	}
	if w.Alive != nil {
		var err error
		if alive, err = w.Alive(ctx, ends, takers); err != nil {
			return err
		}
	}
	for i, m := range all {
		m.gone = !alive[i]
	}
	return nil
}

// notify readies a notice that is told once in a watch. gone says that the script is.
func (w *watch) notify(n runner.Notice, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given[n.Name] = given{n.End, gone}
	w.ready = append(w.ready, n)
}

// notified reports whether the message of a name was told, and returns what was told.
func (w *watch) notified(name string) (was given, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, ok = w.given[name]
	return was, ok
}

// Notified returns the end of a run of a launch if a watch has told it, and whether its script was
// gone then; nil: none has.
func (s *Spool) Notified(k runner.Key, run int, token string) (end *runner.End, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if was := w.given[runner.EndName(k, run)]; was.end != nil && was.end.Token == token {
			own := *was.end
			return &own, was.gone
		}
	}
	return nil, false
}

// Exited tells the watches that the script of a launch has ended. Where there is none, whoever
// begins to watch looks at all programs.
func (s *Spool) Exited(k runner.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.exits = append(w.exits, k)
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}
