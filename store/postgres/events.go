package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Events implements [store.Reader].
//
// A page ends below the oldest transaction that is still open and may write events. The events of
// that transaction get an ord that is at or above its own id. See [horizon].
//
// A cursor never goes further than the last committed event. After a crash, a server gives the ids
// of transactions that wrote nothing to other transactions. A cursor as far as the newest id would
// miss these.
func (s *Store) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	var es store.Events
	c, err := store.ReadEventCursor(q.Cursor)
	if err != nil {
		return es, err
	}
	known, err := store.ReadEventCursor(q.Known)
	if err != nil {
		return es, err
	}
	settled := known.Ord // below it everything has been committed
	if !known.Job.IsZero() {
		settled++
	}
	limit := store.Clamp(q.Limit, 1000, 10_000)
	err = s.call(ctx, q.Tenant, func(t *tx) error {
		es = store.Events{Cursor: q.Cursor}
		var next int64 // above all that was ever written
		open := read(horizon, func(r *reader) error {
			es.Unsettled, next = r.bool(), r.int64()
			return nil
		}, t.s.writers(), settled)
		each := func(r *reader) error {
			es.Events = append(es.Events, r.event())
			return nil
		}
		qs := []*query{open}
		switch {
		case q.End:
			es.Cursor = store.EventCursor{}.String()
			qs = append(qs, read(newestEvent, func(r *reader) error {
				es.Cursor = store.EventCursor{Ord: r.int64() + 1}.String()
				return nil
			}, q.Tenant))
		case q.Job.IsZero():
			qs = append(qs, read(eventsOfAll, each, q.Tenant, c.Ord, [16]byte(c.Job), c.N, c.Sub, limit))
		default:
			var seen store.EventCursor // where a reader of a long history goes on, if the cursor names an event of this job
			if c.Job == q.Job {
				seen = c
			}
			if q.Now {
				qs = append(qs, read(eventsOfOneNow, each, [16]byte(q.Job), q.Tenant, seen.N, seen.Sub, limit))
				break
			}
			qs = append(qs, read(eventsOfOne, each, [16]byte(q.Job), q.Tenant, seen.N, seen.Sub, c.Ord,
				[16]byte(c.Job), c.N, c.Sub, limit))
		}
		if err := t.commit(qs...); err != nil {
			return err
		}
		if !q.End && max(c.Ord, settled) > next {
			return store.NewerCursor()
		}
		if n := len(es.Events); n > 0 {
			es.Cursor = es.Events[n-1].Cursor
		} else if es.Cursor == "" {
			es.Cursor = c.String()
		}
		return nil
	})
	return es, err
}

// event reads a row of history.
func (r *reader) event() (e store.Event) {
	var c store.EventCursor
	c.Ord = r.int64()
	e.Job, e.N, e.Sub, e.Epoch, e.State, e.Custody = r.id(), r.int64(), r.int64(), r.int64(), job.State(r.text()),
		job.Custody(r.text())
	e.At, e.Cause = r.time(), job.Cause(r.text())
	session := r.id()
	e.Actor, e.Code, e.Message, e.Data, e.Name = r.text(), job.Code(r.text()), r.text(), r.json(), r.text()
	if !session.IsZero() {
		e.Actor = session.String()
	}
	c.Job, c.N, c.Sub = e.Job, e.N, e.Sub
	e.Cursor = c.String()
	return e
}

const (
	eventColumns = `v.ord, v.job, v.n, v.sub, v.epoch, v.state, v.custody, v.at, v.cause, v.session, v.actor,
		v.code, v.message, v.data, v.name`

	committed = `v.ord + 0 < current_setting('job.horizon')::bigint`

	// horizon finds the ord below which everything has been committed, and keeps it for the
	// statement that reads the events, which must begin later.
	//
	// The oldest of all open transactions of the cluster would do, but any long transaction would
	// hold up the events. So a writer of events first takes a shared lock, before it has a
	// transaction id: the transactions to wait for are those that hold it now, and a later one gets
	// an id that is not below xmax. Ids in pg_locks have 32 bits; they are near xmax. A transaction
	// has its id for a moment before its lock on the id is visible, and longer while it waits for
	// readers of the locks: as long as only its first lock is visible, its id may be any open one.
	//
	// So the horizon may fall, when a transaction comes of which less is known: what was read
	// before is settled all the same ($2).
	//
	// The answer is whether there is a transaction to wait for, and the ord that no event has
	// reached.
	horizon = `
WITH s AS MATERIALIZED (
	SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
), l AS MATERIALIZED (
	SELECT locktype, virtualtransaction, transactionid, classid, objid, objsubid, database FROM pg_locks, s
	WHERE s.xmin < s.xmax AND granted AND (locktype = 'advisory' OR locktype = 'transactionid'
		AND mode = 'ExclusiveLock')
), writers AS (
	SELECT w.virtualtransaction, min(s.xmax - ((s.xmax - t.transactionid::text::bigint) & 4294967295))
			FILTER (WHERE (s.xmax - t.transactionid::text::bigint) & 4294967295 < 2147483648) AS below,
				-- others are above xmax
		count(t.transactionid) > 0 AS known
	FROM s, l w LEFT JOIN l t ON t.locktype = 'transactionid' AND t.virtualtransaction = w.virtualtransaction
	WHERE w.locktype = 'advisory' AND w.classid = 0 AND w.objid = $1::bigint AND w.objsubid = 1
		AND w.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
	GROUP BY w.virtualtransaction
), oldest AS (
	SELECT least(s.xmax, min(CASE WHEN w.known THEN w.below ELSE s.xmin END) FILTER (WHERE w.known IS NOT NULL)) AS xid
	FROM s LEFT JOIN writers w ON true GROUP BY s.xmin, s.xmax
)
SELECT o.xid < s.xmax, e.base + s.xmax FROM pawl.era e, s, oldest o,
	LATERAL set_config('job.horizon', greatest(e.base + o.xid, $2::bigint)::text, true)`

	// eventsOfAll finds the ord of the last event of a page by the index alone, and then reads up
	// to that: the events of one ord have no order in the index, and a plan made while there were
	// few would sort all that follow.
	eventsOfAll = `
WITH last AS MATERIALIZED (
	SELECT coalesce((SELECT v.ord FROM pawl.events v WHERE ` + eventsBehind + ` ORDER BY v.ord
		OFFSET $6::int - 1 LIMIT 1), 9223372036854775807) AS ord
)
SELECT ` + eventColumns + ` FROM pawl.events v
WHERE ` + eventsBehind + ` AND v.ord <= (SELECT l.ord FROM last l)
ORDER BY v.ord, v.job, v.n, v.sub LIMIT $6`

	newestEvent = `SELECT v.ord FROM pawl.events v WHERE v.tenant = $1 AND ` + committed +
		` ORDER BY v.ord DESC LIMIT 1`

	eventOfKey = `SELECT ` + eventColumns + ` FROM pawl.events v
		WHERE v.job = $1 AND v.key = $2 AND v.tenant || '' = $3`

	eventsBehind = `v.tenant = $1 AND v.ord >= $2 AND (v.ord, v.job, v.n, v.sub) > ($2, $3, $4, $5) AND ` + committed

	eventsOfOne = `SELECT ` + eventColumns + ` FROM pawl.events v
		WHERE v.job = $1 AND v.tenant || '' = $2 AND (v.n, v.sub) > ($3, $4)
			AND (v.ord + 0, v.job, v.n, v.sub) > ($5, $6, $7, $8) AND ` + committed + `
		ORDER BY v.n, v.sub LIMIT $9`

	// eventsOfOneNow needs no horizon: who writes an event of a job has its row, so they are committed
	// one after the other.
	eventsOfOneNow = `SELECT ` + eventColumns + ` FROM pawl.events v
		WHERE v.job = $1 AND v.tenant || '' = $2 AND (v.n, v.sub) > ($3, $4)
		ORDER BY v.n, v.sub LIMIT $5`
)
