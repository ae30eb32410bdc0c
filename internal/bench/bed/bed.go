// Package bed holds what the benchmarks of programs share: a service that runs programs, programs
// that end when they are let go, a private SSH server, and what the system says of this process.
package bed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A Bed is a service that runs programs, wired as pawl run does it, on a fresh folder.
type Bed struct {
	*node.Node
	ctx    context.Context // ends when the service does
	cancel context.CancelCauseFunc
	ended  chan error
	warm   int
}

// Open starts a service in dir and waits until it has run a program.
func Open(ctx context.Context, dir string, o node.Options) (_ *Bed, err error) {
	o.Unlimited = true // what a benchmark limits it sets itself
	n, err := node.Open(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	b := &Bed{Node: n, ended: make(chan error, 1)}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	go func() {
		err := n.Run(b.ctx)
		if err == nil {
			err = b.ctx.Err()
		}
		b.cancel(err) // whoever waits for the service hears that it is gone
		b.ended <- err
	}()
	if err := b.warmUp(""); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// warmUp waits until a system has run a program. Empty stands for the local one.
func (b *Bed) warmUp(system string) error {
	warm, err := b.Submit(b.ctx, service.Request{Spec: job.Spec{Command: []string{"true"}, System: system}})
	if err != nil {
		return err
	}
	b.warm++
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	j, err := b.Wait(ctx, warm[0].ID)
	if ctx.Err() != nil && b.ctx.Err() == nil {
		j, err = b.Job(b.ctx, warm[0].ID) // it says why it waits
	}
	if err == nil && j.State != job.Finished {
		err = fmt.Errorf("the program true is %s: %s", j.State, j.Message)
	}
	return err
}

// AddSystem makes a system and waits until it has run a program.
func (b *Bed) AddSystem(doc *job.System) error {
	text, err := job.Encode(doc)
	if err == nil {
		_, _, err = b.Systems().Apply(b.ctx, text, service.AnyVersion)
	}
	if err == nil {
		err = b.warmUp(doc.Name)
	}
	if err != nil {
		return fmt.Errorf("system %s: %w", doc.Name, err)
	}
	return nil
}

// Warm is how many jobs of the bed itself have run.
func (b *Bed) Warm() int { return b.warm }

// Context ends when the service does.
func (b *Bed) Context() context.Context { return b.ctx }

// Close stops the service in good order. Programs go on.
func (b *Bed) Close() error {
	b.cancel(nil)
	err := <-b.ended
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, b.Node.Close())
}

// SubmitAll submits n jobs that spec describes, as a batch job would be.
func (b *Bed) SubmitAll(n int, spec func(i int) job.Spec) (ids []job.ID, err error) {
	const batch = 1000
	for from := 0; from < n; from += batch {
		reqs := make([]service.Request, min(batch, n-from))
		for i := range reqs {
			reqs[i].Spec = spec(from + i)
		}
		answers, err := b.Submit(b.ctx, reqs...)
		if err != nil {
			return nil, err
		}
		for _, a := range answers {
			ids = append(ids, a.ID)
		}
	}
	return ids, nil
}

// Counted waits until done is true of the numbers of jobs in each state, and returns the moment at
// which the question that found it so was asked. It asks when there is news, and so rarely that
// this takes a twentieth of a core at the most.
func (b *Bed) Counted(done func(map[job.State]int) bool) (time.Time, error) {
	news, err := b.Bus.Subscribe(b.ctx, engine.NewsTopic)
	if err != nil {
		return time.Time{}, err
	}
	defer news.Close()
	for {
		asked := time.Now()
		count, err := b.Count(b.ctx, nil)
		if err != nil {
			return asked, err
		}
		counts := count.States
		if counts[job.Failed] > 0 {
			return asked, fmt.Errorf("%d of the jobs of the benchmark failed; the first: %w", counts[job.Failed],
				b.Failure())
		}
		if done(counts) {
			return asked, nil
		}
		if err := bench.Wait(b.ctx, max(10*time.Millisecond, 20*time.Since(asked))); err != nil {
			return asked, err
		}
		select {
		case <-news.Messages():
			for len(news.Messages()) > 0 {
				<-news.Messages()
			}
		case <-news.Lost():
		case <-b.ctx.Done():
			return asked, context.Cause(b.ctx)
		}
	}
}

// AllEnded waits until all jobs have ended, and returns how many are in each state and when that
// was asked; at the latest when patience ends. It asks so rarely that this takes a twentieth of a
// core at the most.
func (b *Bed) AllEnded(patience time.Time) (time.Time, map[job.State]int, error) {
	for {
		asked := time.Now()
		count, err := b.Count(b.ctx, nil)
		if err != nil {
			return asked, nil, err
		}
		open := 0
		for s, n := range count.States {
			if !s.Terminal() {
				open += n
			}
		}
		if open == 0 || asked.After(patience) {
			return asked, count.States, nil
		}
		if err := bench.Wait(b.ctx, max(20*time.Millisecond, 20*time.Since(asked))); err != nil {
			return asked, nil, err
		}
	}
}

// Failure returns why a job failed.
func (b *Bed) Failure() error {
	page, err := b.List(b.ctx, store.Query{Filter: job.WhereState(job.Failed), Limit: 1})
	if err != nil {
		return err
	}
	for _, j := range page.Jobs {
		return fmt.Errorf("%s: %s", j.Code, j.Message)
	}
	return errors.New("gone")
}
