package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// What bare SQL does for a task: the statements that one would write by hand for this schema and
// these tasks. What is the same for all of them stands in the statements. Parameters have no
// numbers: the driver looks those up one by one.
const (
	sqlSubmitJob = `INSERT INTO jobs (id, tenant, owner, kind, name, queue, machine, priority, max_attempts, created,
		state, custody, epoch, n, lane, attempt, since, stem)
		VALUES (?, 'default', 'pawl', 'noop', ?, 'default', '', 5, 10, ?, 'PENDING', 'ready', 1, 1, 'task', 1,
			?, 'noop-')`
	sqlSubmitSpec   = `INSERT INTO specs (seq, request) VALUES (?, ?)`
	sqlSubmitEvents = `INSERT INTO events (job, n, epoch, state, custody, at, cause, actor)
		SELECT seq, n, 0, state, custody, created, 'submit', owner FROM jobs WHERE seq >= ?`
	sqlClaim = `UPDATE jobs SET state = 'RUNNING', custody = 'worker', epoch = epoch + 1, n = n + 1,
		session = ?, claim = ?, since = ?
		WHERE seq IN (SELECT seq FROM jobs WHERE custody = 'ready' AND queue = 'default' AND kind = 'noop'
			AND machine = '' AND lane = 'task'
			ORDER BY priority, created LIMIT ?)
		RETURNING seq, id, (SELECT request FROM specs WHERE specs.seq = jobs.seq)`
	sqlClaimEvents = `INSERT INTO events (job, n, epoch, state, custody, at, cause, actor)
		SELECT seq, n, epoch - 1, state, custody, since, 'claim', session FROM jobs WHERE session = ? AND claim = ?`
	sqlFinish = `UPDATE jobs SET state = 'FINISHED', custody = 'none', epoch = epoch + 1, n = n + 1,
		session = NULL, claim = NULL,
		since = ?, ended = ?, code = 'NORMAL_COMPLETION', result = ?
			WHERE seq IN (SELECT value FROM json_each(?)) AND epoch = 2 AND session = ?`
	sqlFinishEvents = `INSERT INTO events (job, n, epoch, state, custody, at, cause, actor, code, change)
		SELECT value, 3, 2, 'FINISHED', 'none', ?, 'work', ?, 'NORMAL_COMPLETION', ? FROM json_each(?)`
)

// sql measures bare SQL on a fresh database in dir.
func (b *tasksBench) sql(ctx context.Context, dir string) (r taskRound, err error) {
	if err := b.keep(ctx, dir); err != nil {
		return r, err
	}
	err = withBare(ctx, dir, func(q *bareSQL) error {
		r, err = b.run(ctx, q, b.jobs)
		return err
	})
	return r, err
}

// keep puts the jobs into a fresh database in dir that are to be in it before.
func (b *tasksBench) keep(ctx context.Context, dir string) error {
	if err := node.MigrateFolder(ctx, dir); err != nil || b.kept == 0 {
		return err
	}
	return withBare(ctx, dir, func(q *bareSQL) error {
		_, err := b.run(ctx, q, b.kept)
		return err
	})
}

// withBare calls f with the database in dir.
func withBare(ctx context.Context, dir string, f func(*bareSQL) error) error {
	// The settings under which the store itself writes.
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"journal_mode(wal)", "synchronous(full)", "temp_store(memory)", "cache_size(-8192)",
		"wal_autocheckpoint(4000)", "journal_size_limit(67108864)",
	}}
	path := (&url.URL{Path: filepath.Join(dir, node.FolderDatabase)}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	q, err := prepareBare(ctx, db)
	if err == nil {
		err = f(q)
	}
	return errors.Join(err, db.Close())
}

// A bare is a database in which bare SQL runs tasks.
type bare interface {
	// submit inserts n tasks, the first of which has number from.
	submit(ctx context.Context, from, n int) error
	// drain claims and finishes tasks, as many at a time as there are slots, until none is left.
	drain(ctx context.Context, slots int) error
}

// run submits and runs so many tasks.
func (b *tasksBench) run(ctx context.Context, q bare, jobs int) (r taskRound, err error) {
	begin, used := time.Now(), UsedCPU()
	for from := 0; from < jobs; from += b.batch {
		if err := q.submit(ctx, from, min(b.batch, jobs-from)); err != nil {
			return r, err
		}
	}
	r.submit = time.Since(begin)
	err = q.drain(ctx, b.slots)
	r.whole, r.cpu = time.Since(begin), UsedCPU()-used
	return r, err
}

// bareSQL is a database with its statements prepared.
type bareSQL struct {
	db                                     *sql.DB
	submitJob, submitSpec, submitEvents    *sql.Stmt
	claimJobs, claimEvents, end, endEvents *sql.Stmt
}

func prepareBare(ctx context.Context, db *sql.DB) (*bareSQL, error) {
	q := &bareSQL{db: db}
	for _, p := range []struct {
		into **sql.Stmt
		text string
	}{
		{&q.submitJob, sqlSubmitJob},
		{&q.submitSpec, sqlSubmitSpec},
		{&q.submitEvents, sqlSubmitEvents},
		{&q.claimJobs, sqlClaim},
		{&q.claimEvents, sqlClaimEvents},
		{&q.end, sqlFinish},
		{&q.endEvents, sqlFinishEvents},
	} {
		var err error
		if *p.into, err = db.PrepareContext(ctx, p.text); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// within runs f in a transaction.
func (q *bareSQL) within(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (q *bareSQL) submit(ctx context.Context, from, n int) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		submitJob, submitSpec := tx.Stmt(q.submitJob), tx.Stmt(q.submitSpec)
		now := time.Now().UnixMicro()
		var first int64
		for i := range n {
			id := job.NewID()
			r, err := submitJob.Exec(id[:], noop+"-"+id.Short(), now, now)
			if err != nil {
				return err
			}
			seq, err := r.LastInsertId()
			if err != nil {
				return err
			}
			if i == 0 {
				first = seq
			}
			if _, err := submitSpec.Exec(seq, fmt.Sprintf(`{"kind":"noop","args":{"n":%d}}`, from+i)); err != nil {
				return err
			}
		}
		_, err := tx.Stmt(q.submitEvents).Exec(first)
		return err
	})
}

func (q *bareSQL) drain(ctx context.Context, slots int) error {
	session := job.NewID()
	for {
		claimed, err := q.claim(ctx, session, slots)
		if err != nil || len(claimed) == 0 {
			return err
		}
		if err := q.finish(ctx, session, claimed); err != nil {
			return err
		}
	}
}

// claim takes up to n jobs, with what a handler would need of them, and returns their rows'
// numbers.
func (q *bareSQL) claim(ctx context.Context, session job.ID, n int) (claimed []int64, err error) {
	err = q.within(ctx, func(tx *sql.Tx) error {
		claim, now := job.NewID(), time.Now().UnixMicro()
		rows, err := tx.Stmt(q.claimJobs).Query(session[:], claim[:], now, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var seq int64
			var id, request []byte
			if err := rows.Scan(&seq, &id, &request); err != nil {
				return err
			}
			claimed = append(claimed, seq)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		_, err = tx.Stmt(q.claimEvents).Exec(session[:], claim[:])
		return err
	})
	return claimed, err
}

func (q *bareSQL) finish(ctx context.Context, session job.ID, claimed []int64) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		end, endEvents := tx.Stmt(q.end), tx.Stmt(q.endEvents)
		now := time.Now().UnixMicro()
		list, err := json.Marshal(claimed)
		if err != nil {
			return err
		}
		if _, err := end.Exec(now, now, nil, string(list), session[:]); err != nil {
			return err
		}
		_, err = endEvents.Exec(now, session[:], rand.Int64(), string(list))
		return err
	})
}
