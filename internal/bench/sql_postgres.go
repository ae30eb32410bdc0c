package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// What bare SQL does for a task on PostgreSQL. What is the same for all tasks stands in the
// statements; search_path leads to the schema.
const (
	pgSubmit = `WITH new AS MATERIALIZED (
			SELECT * FROM unnest($1::uuid[], $2::text[], $3::json[]) n(id, name, request)
		), spec AS (
			INSERT INTO specs (id, tenant, owner, kind, name, stem, queue, priority, max_attempts, created, request)
			SELECT id, 'default', 'pawl', 'noop', name, 'noop-', 'default', 5, 10, now(), request FROM new
		), job AS (
			INSERT INTO jobs (id, tenant, kind, queue, machine, priority, created, state, custody, epoch, n,
				ord, lane, attempt, since)
			SELECT id, 'default', 'noop', 'default', '', 5, now(), 'PENDING', 'ready', 1, 1,
				pg_current_xact_id()::text::bigint, 'task', 1, now() FROM new
		)
		INSERT INTO events (job, n, tenant, ord, epoch, state, custody, at, cause, actor)
		SELECT id, 1, 'default', pg_current_xact_id()::text::bigint, 0, 'PENDING', 'ready', now(), 'submit',
			'pawl' FROM new`
	pgClaim = `WITH took AS (
			UPDATE jobs SET state = 'RUNNING', custody = 'worker', epoch = epoch + 1, n = n + 1, session = $1,
				claim = $2, since = now()
			WHERE id = ANY (ARRAY(SELECT id FROM jobs WHERE custody = 'ready' AND queue = 'default'
				AND kind = 'noop' AND machine = '' AND lane = 'task'
				ORDER BY priority, created, id LIMIT $3 FOR UPDATE SKIP LOCKED))
			RETURNING id
		), history AS (
			INSERT INTO events (job, n, tenant, ord, epoch, state, custody, at, cause, session)
			SELECT id, 2, 'default', pg_current_xact_id()::text::bigint, 1, 'RUNNING', 'worker', now(), 'claim',
				$1 FROM took
		)
		SELECT s.id, s.request FROM took t
		CROSS JOIN LATERAL (SELECT id, request FROM specs WHERE id = t.id OFFSET 0) s`
	pgFinish = `WITH gone AS (
			DELETE FROM jobs WHERE id = ANY ($1) AND epoch = 2 AND session = $2 RETURNING id, created
		), kept AS (
			INSERT INTO ended (id, tenant, state, epoch, n, ord, attempt, recoveries, suspect, launch, created,
				since, ended, needs, ties, told, wished_by, code, message)
			SELECT id, 'default', 'FINISHED', 3, 3, pg_current_xact_id()::text::bigint, 1, 0, 0, 0, created,
				now(), now(), 0, 0, 0, '', 'NORMAL_COMPLETION', '' FROM gone
		)
		INSERT INTO events (job, n, tenant, ord, epoch, state, custody, at, cause, session, code)
		SELECT id, 3, 'default', pg_current_xact_id()::text::bigint, 2, 'FINISHED', 'none', now(), 'work', $2,
			'NORMAL_COMPLETION' FROM gone`
)

// postgres measures bare SQL in a fresh schema of a PostgreSQL database.
func (b *tasksBench) postgres(ctx context.Context, dsn string) (r taskRound, err error) {
	schema := "pawl_bench_" + job.NewID().Short()
	m, err := node.OpenMigrator(dsn, schema)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Drop(context.WithoutCancel(ctx)), m.Close()) }()
	if err := m.Up(ctx); err != nil {
		return r, err
	}
	err = withBarePostgres(ctx, dsn, schema, func(q *barePostgres) error {
		if err := q.keep(ctx, b); err != nil {
			return err
		}
		r, err = b.run(ctx, q, b.jobs)
		return err
	})
	return r, err
}

// barePostgres is two connections that work side by side.
type barePostgres [2]*pgx.Conn

// withBarePostgres calls f with a schema of a database.
func withBarePostgres(ctx context.Context, dsn, schema string, f func(*barePostgres) error) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	for name, v := range map[string]string{
		"search_path": schema, "plan_cache_mode": "force_generic_plan",
		"enable_seqscan": "off", "jit": "off",
	} {
		config.RuntimeParams[name] = v
	}
	q := &barePostgres{}
	for i := range q {
		if q[i], err = pgx.ConnectConfig(ctx, config); err != nil {
			return err
		}
		defer q[i].Close(context.WithoutCancel(ctx))
	}
	return f(q)
}

// keep makes the jobs that have ended before, and does at once what autovacuum would do beside the
// jobs that are measured.
func (q *barePostgres) keep(ctx context.Context, b *tasksBench) error {
	if b.kept == 0 {
		return nil
	}
	if _, err := b.run(ctx, q, b.kept); err != nil {
		return err
	}
	_, err := q[0].Exec(ctx, "VACUUM ANALYZE specs, jobs, ended, events")
	return err
}

func (q *barePostgres) submit(ctx context.Context, from, n int) error {
	ids, names, requests := make([][16]byte, n), make([]string, n), make([]string, n)
	for i := range n {
		id := job.NewID()
		ids[i], names[i], requests[i] = id, noop+"-"+id.Short(), fmt.Sprintf(`{"kind":"noop","args":{"n":%d}}`, from+i)
	}
	_, err := q[0].Exec(ctx, pgSubmit, ids, names, requests)
	return err
}

func (q *barePostgres) drain(ctx context.Context, slots int) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, conn := range q {
		g.Go(func() error { return drainBare(ctx, conn, max(1, slots/len(q))) })
	}
	return g.Wait()
}

// drainBare claims and finishes tasks until none is left.
func drainBare(ctx context.Context, conn *pgx.Conn, n int) error {
	session := [16]byte(job.NewID())
	for {
		rows, err := conn.Query(ctx, pgClaim, session, [16]byte(job.NewID()), n)
		if err != nil {
			return err
		}
		var ids [][16]byte
		var id [16]byte
		var request json.RawMessage
		if _, err := pgx.ForEachRow(rows, []any{&id, &request},
			func() error { ids = append(ids, id); return nil }); err != nil {
			return err
		}
		if len(ids) == 0 {
			return nil
		}
		if _, err := conn.Exec(ctx, pgFinish, ids, session); err != nil {
			return err
		}
	}
}
