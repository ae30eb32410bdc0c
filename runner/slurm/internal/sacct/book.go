package sacct

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrNone says that Slurm keeps no accounts here.
var ErrNone = errors.New("Slurm keeps no accounts") //nolint:staticcheck // Slurm is a name

const (
	maxNames = 512       // asked about at once
	again    = time.Hour // it is asked again where there were no accounts, and a job is forgotten
)

// A Book keeps what accounting says of jobs that squeue has forgotten. Many may use it at once.
type Book struct {
	// Ask asks for jobs by name, of those that were submitted since a moment. The error is [ErrNone]
	// where there are no accounts. Required.
	Ask func(ctx context.Context, names []string, since time.Time) (Answer, error)
	// Interval is how rarely it is asked.
	Interval time.Duration
	// Delay is how long an end may take to arrive in the accounts.
	Delay time.Duration
	Log   *slog.Logger

	turn sync.Mutex // whose holder asks

	mu     sync.Mutex
	wanted map[string]*want // guarded by mu, by name
	asked  time.Time        // guarded by mu
	none   time.Time        // guarded by mu: when it was found that there are no accounts
	silent bool             // guarded by mu: the last answer was an error
}

// A want is a job that somebody wants to know of.
type want struct {
	submitted   time.Time
	since, last time.Time // when it was wanted first and last
	record      Record
	found       bool
	// missed is when accounting was asked last of those times at which it did not know the job.
	missed time.Time
}

// Find tells what the accounts say of a job that squeue has forgotten. open says that they may yet
// tell: call Refresh, and then Find again. An error of sacct leaves it open, and for [Book.Delay]
// an answer without the job does, too. With a patience it is open no longer than that; 0: as long
// as it takes.
func (b *Book) Find(name string, submitted time.Time, patience time.Duration) (r Record, found, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.none.IsZero() && now.Sub(b.none) < again {
		return r, false, false
	}
	w := b.wanted[name]
	if w == nil {
		if b.wanted == nil {
			b.wanted = map[string]*want{}
		}
		w = &want{submitted: submitted, since: now}
		b.wanted[name] = w
	}
	w.last = now
	open = !w.found && (w.missed.IsZero() || w.missed.Sub(w.since) < b.Delay)
	return w.record, w.found, open && (patience == 0 || now.Sub(w.since) < patience)
}

// Decide decides something. If that is open until accounting tells more, that is asked, and it
// decides again.
func (b *Book) Decide(ctx context.Context, decide func() (open bool)) {
	if decide() {
		b.Refresh(ctx)
		decide()
	}
}

// Refresh asks about the jobs that Find has told nothing of yet, by one query. It does not ask
// again within [Book.Interval].
func (b *Book) Refresh(ctx context.Context) {
	b.turn.Lock()
	defer b.turn.Unlock()
	at := time.Now()
	names, since := b.due(at)
	if len(names) == 0 {
		return
	}
	a, err := b.Ask(ctx, names, since)
	if ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = at
	if errors.Is(err, ErrNone) {
		b.none = at
		clear(b.wanted)
		return
	}
	if err != nil && !b.silent {
		b.Log.Warn("Slurm's accounting does not tell what became of jobs", "jobs", len(b.wanted), "error", err)
	}
	b.silent = err != nil
	if err != nil {
		return
	}
	for name, w := range b.wanted {
		if _, asked := slices.BinarySearch(names, base(name)); !asked || w.found {
			continue
		}
		if w.record, w.found = a[name]; !w.found {
			w.missed = at
		}
	}
}

// due returns what is to be asked now, sorted, and since when that was submitted.
func (b *Book) due(now time.Time) (names []string, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.wanted, func(_ string, w *want) bool { return now.Sub(w.last) > again })
	if !b.asked.IsZero() && now.Sub(b.asked) < b.Interval {
		return nil, since
	}
	open := slices.DeleteFunc(slices.Collect(maps.Keys(b.wanted)), func(name string) bool { return b.wanted[name].found })
	slices.SortFunc(open, func(x, y string) int { return b.wanted[x].missed.Compare(b.wanted[y].missed) })
	for _, name := range open {
		if slices.Contains(names, base(name)) {
			continue
		}
		if len(names) == maxNames {
			break
		}
		names = append(names, base(name))
		if at := b.wanted[name].submitted; since.IsZero() || at.Before(since) {
			since = at
		}
	}
	slices.Sort(names)
	return names, since
}

// base returns the name of the array of a task, or that of a job itself.
func base(name string) string {
	name, _, _ = strings.Cut(name, "_")
	return name
}
