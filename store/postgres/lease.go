package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Begin implements [store.Leases].
func (s *Store) Begin(ctx context.Context, n store.Session) error {
	alive := false
	found := func(*reader) error { alive = true; return nil }
	err := s.call(ctx, everyone, func(t *tx) error {
		alive = false
		return t.commit(
			read(`INSERT INTO pawl.sessions (id, process, mode, lease, started, renewed, renewed_ago, lease_until)
				SELECT $1, $2::json, $4, $3::interval, x.now, x.now, x.now, x.now + $3::interval
					FROM (SELECT pawl.clock() AS now) x
				ON CONFLICT (id) DO NOTHING RETURNING id`, found,
				[16]byte(n.ID), encode(n.Process), max(n.Lease, store.MinLease), string(n.Mode)),
			read(`SELECT FROM pawl.sessions s WHERE s.id = $1 AND s.ended IS NULL AND s.lease_until > pawl.clock()`,
				found, [16]byte(n.ID)))
	})
	if err == nil && !alive {
		err = store.NoSession(n.ID)
	}
	return err
}

// Renew implements [store.Leases]. It is one statement. The first ones of a transaction are added
// if the connection does not have the settings of a store; see [Params].
func (s *Store) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	var a store.Renewal
	found := false
	var process, used *string
	if r.Process != nil {
		text := encode(r.Process)
		process = &text
	}
	if r.Used != nil {
		text := encode(r.Used)
		used = &text
	}
	err := s.renewing(ctx, func(t *tx) error {
		a, found = store.Renewal{}, false
		return t.commit(read(renew, func(v *reader) error {
			found = true
			return readRenewal(v, &a)
		}, [16]byte(r.Session), max(r.Lease, store.MinLease), nonNil(r.Queues), nonNil(r.Kinds), r.Machine,
			nonNil(r.Duties), some(r.Tenants), process, used))
	})
	if err == nil && !found {
		err = store.NoSession(r.Session)
	}
	if err != nil {
		return store.Renewal{}, err
	}
	return a, nil
}

// readRenewal reads what [renew] answers.
func readRenewal(v *reader, a *store.Renewal) error {
	a.Now, a.HeldBefore, a.Held = v.time(), v.time(), v.int()
	var wishes []struct {
		Job   job.ID
		Epoch int64
		Wish  job.Wish
	}
	if err := list(v, &wishes); err != nil {
		return err
	}
	for _, w := range wishes {
		a.Wishes = append(a.Wishes, store.StandingWish(w))
	}
	a.NextExpiry = v.time()
	if err := list(v, &a.Ready); err != nil {
		return err
	}
	if err := list(v, &a.Duties); err != nil {
		return err
	}
	a.Unpaid, a.Mode, a.Due = v.bool(), store.Mode(v.text()), v.time()
	return nil
}

// list reads a list that a statement answers as JSON; names of fields match whatever their case.
func list[T any](v *reader, into *[]T) error {
	doc := v.next()
	if doc == nil {
		return nil
	}
	if err := json.Unmarshal(doc, into); err != nil {
		return fmt.Errorf("answer of renewal: %w", err)
	}
	return nil
}

// renew is the heartbeat. No row: the session is not alive.
//
//	1 session  2 lease  3 queues  4 kinds  5 machine  6 duties  7 tenants, NULL: all
//	8 process and 9 slots in use, NULL: as told last
//
// Duties that are not wanted any more are given up. A duty is taken from a holder whose lease is
// over; that holder's row is locked, and passed over when it is locked by another: it may be in the
// middle of a renewal that this statement's snapshot does not show.
//
// A lease that is longer than it can be, for the clock was put back, is one for expiry to look at:
// see expireAhead.
//
// A line of other tenants is not read to its end, however long it is, for the lease depends on the
// answer: whether there is work behind its first thousand is for a claim to find out.
var renew = store.SQL(`
WITH me AS MATERIALIZED (
	UPDATE pawl.sessions s SET renewed_ago = s.renewed, renewed = x.now, lease = $2::interval,
		lease_until = x.now + $2::interval,
		process = coalesce($8::json, s.process), used = coalesce($9::json, s.used)
	FROM (SELECT pawl.clock() AS now) x
	WHERE s.id = $1 AND s.ended IS NULL AND s.lease_until > x.now
	RETURNING s.renewed, s.renewed_ago, s.mode
), wanted AS MATERIALIZED (
	SELECT w.name, d.session, d.term FROM me, unnest($6::text[]) w(name) LEFT JOIN pawl.duties d ON d.name = w.name
), dead AS MATERIALIZED (
	SELECT s.id FROM pawl.sessions s
	WHERE s.id = ANY (ARRAY(SELECT w.session FROM wanted w WHERE w.session <> $1))
		AND (s.ended IS NOT NULL OR s.lease_until <= pawl.clock() OR s.mode <> ''
			AND (SELECT me.mode FROM me) = '')
	FOR UPDATE SKIP LOCKED
), dropped AS (
	UPDATE pawl.duties d SET session = '00000000-0000-0000-0000-000000000000' FROM me WHERE d.session = $1
		AND d.name <> ALL ($6::text[])
), taken AS (
	INSERT INTO pawl.duties AS d (name, term, session)
	SELECT w.name, 1, $1 FROM wanted w
	WHERE w.session IS NULL OR w.session IN (SELECT dead.id FROM dead)
		OR w.session <> $1 AND NOT EXISTS (SELECT FROM pawl.sessions s WHERE s.id = w.session)
	ORDER BY w.name
	ON CONFLICT (name) DO UPDATE SET term = d.term + 1, session = excluded.session
		WHERE (d.session, d.term) IN (SELECT w.session, w.term FROM wanted w WHERE w.name = d.name)
	RETURNING d.name, d.term
)
SELECT me.renewed, me.renewed_ago,
	(SELECT count(*) FROM pawl.jobs j WHERE j.session = $1 AND j.since < me.renewed_ago),
	(SELECT json_agg(json_build_object('job', j.id, 'epoch', j.epoch, 'wish', j.wish)) FROM pawl.jobs j
		WHERE j.session = $1 AND j.wish <> ''),
	(SELECT min(CASE WHEN s.lease_until <= me.renewed + s.lease THEN s.lease_until ELSE me.renewed END)
		FROM pawl.sessions s WHERE s.ended IS NULL AND s.id <> $1),
	(SELECT json_agg(json_build_object('queue', q.queue, 'kind', k.kind))
		FROM unnest($3::text[]) q(queue), unnest($4::text[]) k(kind)
		WHERE EXISTS (SELECT FROM (VALUES (''), ($5::text)) m(machine) CROSS JOIN LATERAL (
			SELECT bool_or($7::text[] IS NULL OR head.tenant = ANY ($7::text[])) OR count(*) = 1000 AS ready FROM (
				SELECT j.tenant FROM pawl.jobs j WHERE j.custody = {Ready} AND j.queue = q.queue
					AND j.kind = k.kind AND j.machine = m.machine
				ORDER BY j.lane, j.priority, j.created, j.id LIMIT CASE WHEN $7::text[] IS NULL THEN 1
					ELSE 1000 END) head) line
			WHERE line.ready)),
	(SELECT json_agg(json_build_object('name', d.name, 'term', d.term)) FROM (
		SELECT w.name, w.term FROM wanted w WHERE w.session = $1 UNION ALL SELECT t.name, t.term FROM taken t) d),
	least((SELECT f.at FROM pawl.followups f ORDER BY f.seq LIMIT 1),
		(SELECT o.at FROM pawl.turns_owed o ORDER BY o.seq LIMIT 1),
		(SELECT o.at FROM pawl.lines_owed o ORDER BY o.seq LIMIT 1),
			(SELECT min(l.walked_at) FROM pawl.limits l WHERE l.walked IS NOT NULL)) < pawl.clock() - $2::interval / 3,
	me.mode,
	` + firstDue + `
FROM me`)
