package postgres

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Expire implements [store.Jobs].
//
// After trouble it waits, so that no session expires too soon. It waits for a lease after the start
// of the database, and after the start of this process, which does not know what happened before.
// It also waits for a lease after this process was cut off from the database, since others may have
// been cut off too (see cutOff and late). If more than half of the sessions would expire at once,
// they get the time of one more renewal.
func (s *Store) Expire(ctx context.Context, limit int) (int, store.Effects, error) {
	quiet := time.Since(s.opened)
	if failed := s.failed.Load(); failed > 0 {
		quiet -= time.Duration(failed) * time.Microsecond
	} else {
		quiet = 24 * time.Hour // it never failed
	}
	var n int
	var eff store.Effects
	err := s.write(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		closed := false
		c := changes{cause: job.CauseExpired}
		err := t.send(
			do(expireAhead),
			read(expireClose, func(*reader) error { closed = true; return nil }, quiet, s.since),
			read(expireTake, func(r *reader) error { return c.expire(r, &n) }, limit))
		if err != nil {
			return err
		}
		c.effects(&eff)
		qs := c.queries()
		if closed {
			qs = append(qs, left(&eff)...)
		}
		if n < limit {
			qs = append(qs, do(`DELETE FROM pawl.sessions s WHERE s.ended < pawl.clock() - $1::interval
				AND (s.ended < pawl.clock() - $2::interval
					OR NOT (`+lastOfMachine+`))`, store.SessionKept, store.MachineKept))
		}
		return t.commit(qs...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// expire takes a job from a session that has ended.
func (c *changes) expire(r *reader, n *int) error {
	c.now = r.time()
	crashed := r.bool()
	j := r.row()
	*n++
	expired := job.Expired(&j, crashed)
	ch, _ := job.Divert(&j, expired)
	_, err := c.add(&j, ch)
	return err
}

// left are the queries that read into eff what a session may have died before announcing.
func left(eff *store.Effects) []*query {
	return []*query{
		read(readyPairs, func(r *reader) error {
			eff.Announce(job.QueueKind{Queue: r.text(), Kind: r.text()})
			return nil
		}, store.MostUnserved),
		read(`SELECT EXISTS (SELECT FROM pawl.followups) OR EXISTS (SELECT FROM pawl.turns_owed) OR `+anyWalk+
			` OR `+anyLine+`, `+firstDue+`, EXISTS (SELECT FROM pawl.groups)`, func(r *reader) error {
			eff.Owed, eff.Due, eff.Tests = r.bool(), r.time(), r.bool()
			return nil
		}),
	}
}

// End implements [store.Leases].
func (s *Store) End(ctx context.Context, session job.ID) (store.Effects, error) {
	var eff store.Effects
	err := s.write(ctx, everyone, func(t *tx) error {
		eff = store.Effects{}
		c, n := changes{cause: job.CauseExpired}, 0
		err := t.send(
			do(`WITH live AS MATERIALIZED (SELECT s.id FROM pawl.sessions s WHERE s.id = $1 AND s.ended IS NULL
				FOR UPDATE)
				UPDATE pawl.sessions s SET ended = pawl.clock() FROM live WHERE s.id = live.id`, [16]byte(session)),
			read(`SELECT pawl.clock(), coalesce((SELECT d.crashed FROM pawl.sessions d WHERE d.id = $1), true),
				`+columns+`
				FROM (`+living+` WHERE j.id = ANY (ARRAY(SELECT h.id FROM pawl.jobs h WHERE h.session = $1))
					AND j.session = $1
					ORDER BY j.id FOR UPDATE) j `+itsSpec,
				func(r *reader) error { return c.expire(r, &n) }, [16]byte(session)))
		if err != nil {
			return err
		}
		c.effects(&eff)
		return t.commit(c.queries()...)
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

var (
	// expireAhead shortens leases that are longer than a lease can be: the clock of the database
	// was put back since. A live session renews soon. A dead one would otherwise not expire until
	// the clock is where it was.
	expireAhead = `
UPDATE pawl.sessions s SET lease_until = pawl.clock() + s.lease
WHERE s.id = ANY (ARRAY(SELECT a.id FROM pawl.sessions a WHERE a.ended IS NULL
	AND a.lease_until > pawl.clock() + a.lease ORDER BY a.id FOR UPDATE SKIP LOCKED))`

	// expireClose ends the sessions whose lease is over; $1 is for how long this process has
	// reached the database since it last did not, and $2 when it first did. What is to come by now
	// was long ago: the clock was put back. A claim or an apply that holds one is waited for, and
	// what it did is seen by the next statement.
	expireClose = `
WITH began AS MATERIALIZED (
	SELECT max(b.at) AS at FROM (VALUES (pg_postmaster_start_time()), ($2::timestamptz)) b(at)
		WHERE b.at <= pawl.clock()
), over AS MATERIALIZED (
	SELECT s.id, s.lease_until FROM pawl.sessions s
	WHERE s.ended IS NULL AND s.lease_until <= pawl.clock()
		AND s.lease <= $1::interval AND coalesce((SELECT b.at FROM began b) + s.lease <= pawl.clock(), true)
), dead AS MATERIALIZED (
	SELECT s.id FROM pawl.sessions s
	WHERE s.id = ANY (ARRAY(SELECT o.id FROM over o)) AND s.ended IS NULL AND s.lease_until <= pawl.clock()
		AND ((SELECT count(*) FROM over) <= 2
			OR (SELECT count(*) FROM over) * 2 <= (SELECT count(*) FROM pawl.sessions l WHERE l.ended IS NULL)
			OR (SELECT max(o.lease_until) FROM over o) + s.lease / 3 <= pawl.clock())
	ORDER BY s.id FOR UPDATE
)
UPDATE pawl.sessions s SET ended = pawl.clock(), crashed = true FROM dead WHERE s.id = dead.id RETURNING s.id`

	// expireTake locks and answers jobs of every session that is not live, also of sessions that
	// somebody closed or that are not there any more. Sessions are few: the index of held jobs is
	// read from session to session, so those of live sessions cost one probe each.
	expireTake = `
WITH RECURSIVE holders AS (
	(SELECT j.session FROM pawl.jobs j WHERE j.session IS NOT NULL ORDER BY j.session LIMIT 1)
	UNION ALL
	SELECT (SELECT j.session FROM pawl.jobs j WHERE j.session > h.session ORDER BY j.session LIMIT 1)
		FROM holders h WHERE h.session IS NOT NULL
), dead AS MATERIALIZED (
	SELECT h.session, s.id IS NULL OR s.crashed AS crashed FROM holders h LEFT JOIN pawl.sessions s ON s.id = h.session
	WHERE h.session IS NOT NULL AND (s.id IS NULL OR s.ended IS NOT NULL)
), held AS MATERIALIZED (
	SELECT j.id
	FROM dead d CROSS JOIN LATERAL (SELECT j.id FROM pawl.jobs j WHERE j.session = d.session ORDER BY j.claim
		LIMIT $1) j LIMIT $1
), taken AS MATERIALIZED (
	SELECT ` + livingRow + `, (SELECT d.crashed FROM dead d WHERE d.session = j.session) AS crashed FROM pawl.jobs j
	WHERE j.id = ANY (ARRAY(SELECT h.id FROM held h))
		AND j.session = ANY (ARRAY(SELECT d.session FROM dead d)) -- asked again of a row that was waited for
	ORDER BY j.id FOR UPDATE
)
SELECT pawl.clock(), j.crashed, ` + columns + ` FROM taken j ` + itsSpec

	// readyPairs goes along the ready index, a step for each queue and kind, and $1 of them at most.
	readyPairs = store.SQL(`
WITH RECURSIVE pairs AS (
	SELECT '' COLLATE "C" AS queue, '' COLLATE "C" AS kind, 0 AS i
	UNION ALL
	SELECT n.queue, n.kind, l.i + 1 FROM pairs l CROSS JOIN LATERAL (
		SELECT j.queue, j.kind FROM pawl.jobs j WHERE j.custody = {Ready}
			AND (j.queue, j.kind) > (l.queue, l.kind) ORDER BY j.queue, j.kind LIMIT 1
	) n WHERE l.i < $1
)
SELECT l.queue, l.kind FROM pairs l WHERE l.i > 0`)
)
