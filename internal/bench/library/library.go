// Package library measures what a Go program meets that has Pawl as a library: tasks that it
// enqueues in transactions of its own, typed handlers, and schedules that are not due.
package library

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/postgres"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
)

// A Bench is where to measure: each part on a fresh database.
type Bench struct {
	Dir string // an empty folder
	DB  string // PostgreSQL; empty: embedded databases in folders
	// Schema makes a schema in DB, and removes it.
	Schema func(ctx context.Context) (name string, remove func() error, err error)
	Log    *slog.Logger

	opened int
}

// A database is a fresh one, and how a service opens it.
type database struct {
	at     pawl.Source
	dsn    string
	schema string
	folder string // without a dsn
	remove func() error
}

func (b *Bench) database(ctx context.Context) (d database, err error) {
	d.remove = func() error { return nil }
	b.opened++
	if b.DB == "" {
		d.folder = filepath.Join(b.Dir, strconv.Itoa(b.opened))
		d.at = sqlite.At(d.folder)
		return d, nil
	}
	d.dsn = b.DB
	if d.schema, d.remove, err = b.Schema(ctx); err == nil {
		d.at = postgres.At(b.DB, postgres.Schema(d.schema))
	}
	return d, err
}

// with calls f with a service on a fresh database.
func (b *Bench) with(ctx context.Context, f func(*pawl.Service, database) error, options ...pawl.Option) error {
	d, err := b.database(ctx)
	if err != nil {
		return err
	}
	svc, err := pawl.Open(ctx, d.at, append(options, pawl.Log(b.Log))...)
	if err == nil {
		err = errors.Join(f(svc, d), svc.Close())
	}
	return errors.Join(err, d.remove())
}

// while runs the service as long as f takes.
func while(ctx context.Context, svc *pawl.Service, f func(context.Context) error) error {
	running, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := svc.Run(running)
		ended <- err
		stop(err) // nobody waits for a service that is gone
	}()
	err := f(running)
	stop(nil)
	return errors.Join(err, <-ended)
}

// A number is the arguments of the tasks that are measured.
type number struct {
	N int `json:"n"`
}

var task = pawl.Task[number, number]{Kind: "number"}

// Typed returns how fast typed handlers are beside raw ones, which get a job and return what they
// like: the median of rounds. In a round both run so many tasks that were enqueued before.
func (b *Bench) Typed(ctx context.Context, tasks, rounds int) (ratio float64, err error) {
	var ratios []float64
	for i := range rounds {
		var took [2]time.Duration
		for k := range took {
			typed := (i+k)%2 == 0 // what drifts weighs on both
			d, err := b.handle(ctx, tasks, typed)
			if err != nil {
				return 0, err
			}
			took[map[bool]int{true: 0, false: 1}[typed]] = d
		}
		ratios = append(ratios, took[1].Seconds()/took[0].Seconds())
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2], nil
}

// handle returns how long so many tasks take that are there when the service begins.
func (b *Bench) handle(ctx context.Context, tasks int, typed bool) (took time.Duration, err error) {
	err = b.with(ctx, func(svc *pawl.Service, _ database) error {
		var handled atomic.Int64
		all := make(chan struct{})
		done := func() {
			if handled.Add(1) == int64(tasks) {
				close(all)
			}
		}
		if typed {
			task.Handle(svc, func(_ context.Context, j *pawl.Job[number]) (number, error) {
				defer done()
				return number{j.Args.N + 1}, nil
			})
		} else {
			svc.Jobs().Handle(task.Kind, func(context.Context, *service.TaskRun) (any, error) {
				defer done()
				return nil, nil
			})
		}
		for from := 0; from < tasks; from += 1000 {
			args := make([]number, min(1000, tasks-from))
			for i := range args {
				args[i].N = from + i
			}
			if _, err := task.EnqueueAll(ctx, svc, args); err != nil {
				return err
			}
		}
		begin := time.Now()
		return while(ctx, svc, func(ctx context.Context) error {
			select {
			case <-all:
				took = time.Since(begin)
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}, pawl.Slots(200))
	return took, err
}

func p50(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
