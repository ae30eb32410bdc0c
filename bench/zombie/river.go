package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// riverTimeout and riverRescue are how long an attempt may take, and when river takes it for stuck;
// 1 minute and 1 hour by default. The second must not be less than the first. Stuck jobs are looked
// for when a process becomes the leader, and every 30 seconds from then on, which is no setting.
const (
	riverTimeout = 5 * time.Second
	riverRescue  = 5 * time.Second
)

type riverSystem struct{}

// freezing is the arguments of the job.
type freezing struct{}

func (freezing) Kind() string { return "freezing" }

func (riverSystem) prepare(ctx context.Context, dsn string) error {
	return withPool(ctx, dsn, func(pool *pgxpool.Pool) error {
		m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err != nil {
			return err
		}
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		return err
	})
}

func (riverSystem) submit(ctx context.Context, dsn string) error {
	return withPool(ctx, dsn, func(pool *pgxpool.Pool) error {
		c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
		if err != nil {
			return err
		}
		_, err = c.Insert(ctx, freezing{}, nil)
		return err
	})
}

func (riverSystem) look(ctx context.Context, dsn string) (Row, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return Row{}, err
	}
	defer conn.Close(ctx)
	var r Row
	var errs []json.RawMessage
	err = conn.QueryRow(ctx, `
		SELECT state, attempt, attempted_by, finalized_at, coalesce(to_json(errors), '[]'), metadata -> 'output',
			coalesce((metadata ->> 'river:rescue_count')::int, 0)
		FROM river_job`).Scan(&r.State, &r.Attempt, &r.By, &r.Ended, &errs, &r.Output, &r.Rescues)
	if err != nil {
		return Row{}, err
	}
	for _, text := range errs {
		var e rivertype.AttemptError
		if err := json.Unmarshal(text, &e); err != nil {
			return Row{}, err
		}
		r.Errors = append(r.Errors, fmt.Sprintf("attempt %d: %s", e.Attempt, e.Error))
	}
	switch rivertype.JobState(r.State) {
	case rivertype.JobStateCompleted, rivertype.JobStateCancelled, rivertype.JobStateDiscarded:
		r.Final = true
	case rivertype.JobStateAvailable, rivertype.JobStateRetryable, rivertype.JobStateScheduled:
		r.Waits = true
	}
	return r, nil
}

type freezer struct {
	river.WorkerDefaults[freezing]
	seat *seat
}

func (w *freezer) Work(ctx context.Context, j *river.Job[freezing]) error {
	result, err := w.seat.handle(ctx, try{
		attempt: j.Attempt,
		note: func(text string) error {
			c := river.ClientFromContext[pgx.Tx](ctx)
			_, err := c.JobUpdate(context.WithoutCancel(ctx), j.ID, &river.JobUpdateParams{Output: text})
			return err
		},
	})
	if result != "" {
		err = errors.Join(err, river.RecordOutput(ctx, result))
	}
	return err
}

func (riverSystem) work(ctx context.Context, dsn string, s *seat) error {
	return withPool(ctx, dsn, func(pool *pgxpool.Pool) error {
		workers := river.NewWorkers()
		river.AddWorker(workers, &freezer{seat: s})
		c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			ID: s.name, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
			JobTimeout: riverTimeout, RescueStuckJobsAfter: riverRescue,
		})
		if err != nil {
			return err
		}
		events, cancel := c.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed,
			river.EventKindJobCancelled)
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for e := range events {
				s.write(line{Step: toldStep, Answer: fmt.Sprintf("%s, state %s", e.Kind, e.Job.State)})
			}
		}()
		if err := c.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		<-ctx.Done()
		stopping, giveUp := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer giveUp()
		err = c.Stop(stopping)
		cancel()
		<-heard
		return err
	})
}

// withPool runs f with connections to a database.
func withPool(ctx context.Context, dsn string, f func(*pgxpool.Pool) error) error {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	cfg.MaxConns = 5
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(pool)
}
