package library

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Schedules are the figures of schedules that are not due.
type Schedules struct {
	Count   int     `json:"count"`
	Each    float64 `json:"statements_per_minute"`
	EachOff float64 `json:"statements_per_minute_none"` // without schedules
}

// yearly is a schedule that is due next year.
const yearly = `{"name": "yearly", "cron": "0 0 1 1 *", "jobs": [{"kind": "number", "args": {"n": 1}}]}`

// Schedules counts the statements of an idle service, without schedules and with so many.
func (b *Bench) Schedules(ctx context.Context, count int, idle time.Duration) (*Schedules, error) {
	f := &Schedules{Count: count}
	err := b.with(ctx, func(svc *pawl.Service, d database) (err error) {
		task.Handle(svc, func(context.Context, *pawl.Job[number]) (number, error) { return number{}, nil })
		if f.EachOff, err = idleFor(ctx, svc, idle); err != nil {
			return err
		}
		if err := planned(ctx, svc); err != nil {
			return err
		}
		if err := d.multiply(ctx, count-1); err != nil {
			return err
		}
		f.Each, err = idleFor(ctx, svc, idle)
		return err
	})
	return f, err
}

// planned applies the schedule, and waits until the service knows when it is due.
func planned(ctx context.Context, svc *pawl.Service) error {
	return while(ctx, svc, func(ctx context.Context) error {
		if _, _, err := svc.Jobs().Schedules().Apply(ctx, []byte(yearly), 0); err != nil {
			return err
		}
		for {
			all, err := svc.Database().Store.Resources(ctx, store.ResourceQuery{Kind: job.KindSchedule, Next: 1})
			if err != nil || len(all) == 1 && all[0].Next.After(all[0].Through) {
				return err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// idleFor returns how many statements a minute a service sends that has nothing to do.
func idleFor(ctx context.Context, svc *pawl.Service, d time.Duration) (perMinute float64, err error) {
	err = while(ctx, svc, func(ctx context.Context) error {
		// It is idle when it has run a task.
		h, err := task.Enqueue(ctx, svc, number{})
		if err == nil {
			_, err = h.Wait(ctx)
		}
		if err != nil {
			return err
		}
		sent := svc.Database().Store.(interface{ Statements() int64 })
		before := sent.Statements()
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		perMinute = float64(sent.Statements()-before) * float64(time.Minute) / float64(d)
		return nil
	})
	return perMinute, err
}

// multiply makes so many copies of the schedule, under names of their own, while nothing else
// writes.
func (d database) multiply(ctx context.Context, copies int) error {
	if d.dsn == "" {
		db, err := sql.Open("sqlite", filepath.Join(d.folder, "pawl.db"))
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO resources (tenant, kind, name, version, updated, doc, through, next)
			SELECT tenant, kind, name || i, version, updated, json_set(doc, '$.name', name || i), through, next
			FROM resources, n WHERE kind = 'schedule'`, copies)
		return err
	}
	conn, err := pgx.Connect(ctx, d.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, fmt.Sprintf(`
		INSERT INTO %[1]s.resources (tenant, kind, name, version, updated, doc, through, next)
		SELECT tenant, kind, name || i, version, updated, jsonb_set(doc::jsonb, '{name}', to_jsonb(name || i)),
			through, next
		FROM %[1]s.resources, generate_series(1, %[2]d) i WHERE kind = 'schedule'`, d.schema, copies))
	return err
}
