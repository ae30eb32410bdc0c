package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// A variant is one way in which the frozen process comes back.
type variant struct {
	Name string
	Text string
	// Finished is whether the second call has ended when the frozen process wakes up. Otherwise it
	// ends after what the frozen process makes of it.
	Finished bool
	// Note is whether the frozen call, instead of returning a result, writes about its job while it
	// runs.
	Note bool
	// Fails is whether the frozen call returns an error.
	Fails bool
}

var variants = []variant{
	{Name: "finished-result", Text: "B has finished the job; A returns a result", Finished: true},
	{Name: "finished-error", Text: "B has finished the job; A returns an error", Finished: true, Fails: true},
	{Name: "finished-note", Text: "B has finished the job; A writes a note, waits for the end of its context, " +
		"writes another, and returns nothing", Finished: true, Note: true},
	{Name: "running-result", Text: "B still runs the job; A returns a result; then B returns one"},
	{Name: "running-error", Text: "B still runs the job; A returns an error; then B returns a result", Fails: true},
	{Name: "running-note", Text: "B still runs the job; A writes a note, waits for the end of its context, " +
		"writes another, and returns nothing; then B returns a result", Note: true},
}

// variantOf returns the variant of a name.
func variantOf(name string) (variant, error) {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.Name == name })
	if i < 0 {
		return variant{}, fmt.Errorf("there is no variant %q", name)
	}
	return variants[i], nil
}

// A system is a job service that is looked at.
type system interface {
	// prepare makes the tables of the system in an empty database.
	prepare(ctx context.Context, dsn string) error
	// submit makes the one job.
	submit(ctx context.Context, dsn string) error
	// look reads the row of the job.
	look(ctx context.Context, dsn string) (Row, error)
	// work runs jobs until ctx ends, and then stops in good order.
	work(ctx context.Context, dsn string, s *seat) error
}

var systems = map[string]system{"pawl": pawlSystem{}, "river": riverSystem{}}

// play has one variant of the scenario happen in a database of its own, with files in dir.
func play(ctx context.Context, name string, v variant, dsn, dir string) (Story, error) {
	s := Story{System: name, Variant: v.Name, Text: v.Text}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return s, err
	}
	st := &stage{
		ctx: ctx, system: systems[name], args: []string{name, v.Name, dsn, dir}, dsn: dsn, dir: dir,
		actors: map[string]*process{},
	}
	defer st.clear()
	st.try(func() error { return st.system.prepare(ctx, dsn) })
	st.try(func() error { return st.system.submit(ctx, dsn) })

	// A takes the job, and freezes in the middle of it.
	st.start("A")
	st.await("A1 is half way", st.seen("A1", "half way"))
	frozen := time.Now()
	st.freeze("A")
	st.let("A1") // go on when it is woken up

	// B finds the job, and runs it.
	st.start("B")
	st.await("B1 is half way", st.seen("B1", "half way"))
	if v.Finished {
		st.let("B1")
		st.await("B has finished", st.final)
	}
	s.Before = st.look()

	// A wakes up, and does what it does.
	s.Frozen = time.Since(frozen).Round(100 * time.Millisecond).String()
	st.wake("A")
	st.await("A1 returns", st.seen("A1", "returns"))
	st.await("A is told what became of it", st.told("A1"))
	st.stop("A") // which sends whatever it has not sent yet
	s.After = st.look()
	if s.After.Waits {
		st.await("the job is run once more", st.another)
	}
	if !v.Finished {
		st.let("B1")
		st.await("B1 returns", st.seen("B1", "returns"))
		st.await("B is told what became of it", st.told("B1"))
	}
	st.stop("B")
	s.End = st.look()
	st.try(func() error {
		lines, err := readLedger(dir)
		s.tell(lines)
		return err
	})
	if st.err != nil {
		return s, fmt.Errorf("%s, %s: %w (logs and ledger are in %s)", name, v.Name, st.err, dir)
	}
	return s, nil
}
