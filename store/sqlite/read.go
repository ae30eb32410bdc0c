package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Find implements [store.Reader].
func (s *Store) Find(ctx context.Context, q store.FindQuery) ([]job.Job, error) {
	switch {
	case !q.Session.IsZero():
		return s.jobs(ctx, `j.session = ?`, blob(q.Session))
	case q.Watch != "":
		return s.watched(ctx, q.Watch, q.Since)
	case q.Tenant != "":
		return s.jobs(ctx, byID+` AND j.tenant = ?`, idList(q.IDs), q.Tenant)
	case len(q.IDs) == 1: // more than twice as fast
		return s.jobs(ctx, `j.id = ?`, blob(q.IDs[0]))
	}
	return s.jobs(ctx, byID, idList(q.IDs))
}

const byID = `j.id IN (SELECT unhex(value, '-') FROM json_each(?))`

// Events implements [store.Reader]. One connection writes, so the order of seq is the order of
// commits, and a cursor is a seq.
func (s *Store) Events(ctx context.Context, q store.EventQuery) (es store.Events, err error) {
	after := int64(0)
	if q.End {
		err := s.query(ctx, newestEvent, 1, func(v []driver.Value) { after = v[0].(int64) })
		return store.Events{Cursor: store.EventCursor{Ord: after}.String()}, err
	}
	if after, err = store.ReadOrd(q.Cursor); err != nil {
		return es, err
	}
	limit := int64(store.Clamp(q.Limit, 1000, 10_000))
	sql, args := eventsOfAll, []any{q.Tenant, after, limit}
	if !q.Job.IsZero() {
		sql, args = eventsOfOne, []any{blob(q.Job), q.Tenant, after, after, after, limit}
	}
	err = s.query(ctx, sql, 14, func(v []driver.Value) {
		after = v[0].(int64)
		es.Events = append(es.Events, eventOf(v))
	}, args...)
	es.Cursor = store.EventCursor{Ord: after}.String()
	if err == nil && len(es.Events) == 0 && after > 0 {
		newest := int64(0)
		err = s.query(ctx, newestEvent, 1, func(v []driver.Value) { newest = v[0].(int64) })
		if err == nil && after > newest {
			return store.Events{}, store.NewerCursor()
		}
	}
	return es, err
}

// eventOf reads a row of history.
func eventOf(v []driver.Value) store.Event {
	return store.Event{Cursor: store.EventCursor{Ord: v[0].(int64)}.String(), Event: job.Event{
		Job: id(v[1]), N: v[2].(int64), Sub: v[3].(int64), Epoch: v[4].(int64), State: job.State(text(v[5])),
		Custody: job.Custody(text(v[6])),
		At:      instant(v[7]), Cause: job.Cause(text(v[8])), Actor: actor(v[9]), Code: job.Code(text(v[10])),
		Message: text(v[11]), Data: raw(v[12]),
		Name: text(v[13]),
	}}
}

const (
	eventColumns = `e.seq, j.id, e.n, e.sub, e.epoch, e.state, e.custody, e.at, e.cause, e.actor, e.code,
		e.message, e.data, e.name`

	eventOfKey = `SELECT ` + eventColumns + ` FROM events e JOIN jobs j ON j.seq = e.job WHERE e.job = ? AND e.key = ?`

	newestEvent = `SELECT coalesce(max(seq), 0) FROM events`

	eventsOfAll = `SELECT ` + eventColumns +
		` FROM events e JOIN jobs j ON j.seq = e.job WHERE j.tenant = ? AND e.seq > ? ORDER BY e.seq LIMIT ? + 0`

	// The events of one job are found by their numbers, so that a reader who follows a long history
	// goes on where it is: behind the event that its cursor names, if that is one of the job.
	eventsOfOne = `SELECT ` + eventColumns + ` FROM jobs j JOIN events e ON e.job = j.seq WHERE j.id = ?
		AND j.tenant = ? AND e.seq > ?
		AND (e.n, e.sub) > (coalesce((SELECT n FROM events WHERE seq = ? AND job = j.seq), 0),
			coalesce((SELECT sub FROM events WHERE seq = ? AND job = j.seq), 0))
		ORDER BY e.n, e.sub LIMIT ? + 0`
)

func (s *Store) watched(ctx context.Context, watch string, since time.Time) (jobs []job.Job, err error) {
	err = s.query(ctx, `SELECT `+columns+` FROM jobs j WHERE `+watched, nColumns, func(v []driver.Value) {
		j := scan(v).Job
		j.Result = nil
		jobs = append(jobs, j)
	}, watch, since.UnixMicro(), watch)
	return jobs, err
}

// watched finds what is new and what is wished by an index each: most programs are neither.
var watched = store.SQL(`j.seq IN (SELECT seq FROM jobs WHERE custody = {Monitor} AND watch = ? AND since >= ?
	UNION ALL SELECT seq FROM jobs WHERE custody = {Monitor} AND watch = ? AND wish <> '')`)

func (s *Store) jobs(ctx context.Context, where string, args ...any) (jobs []job.Job, err error) {
	err = s.query(ctx, `SELECT `+withSpec+` FROM jobs j JOIN specs s ON s.seq = j.seq WHERE `+where, nWithSpec,
		func(v []driver.Value) {
			jobs = append(jobs, scanSpec(v).Job)
		}, args...)
	return jobs, err
}

// query runs a statement on a connection that reads.
func (s *Store) query(ctx context.Context, sql string, columns int, each func(row []driver.Value), args ...any) error {
	s.statements.Add(1)
	if s.closed.Load() {
		return errClosed
	}
	rows, err := s.reads.query(ctx, s.read, sql, args)
	if err != nil {
		return classify(err)
	}
	defer rows.Close()
	values := make([]any, columns)
	into := make([]any, columns)
	for i := range values {
		into[i] = &values[i]
	}
	row := make([]driver.Value, columns)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range values {
			row[i] = v
		}
		each(row)
	}
	return classify(rows.Err())
}
