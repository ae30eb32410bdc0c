package postgres

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// SetMode implements [store.Leases].
func (s *Store) SetMode(ctx context.Context, session job.ID, c store.Mode) (store.Effects, error) {
	if !slices.Contains(store.Modes, c) {
		return store.Effects{}, job.Errorf(job.Invalid, "%q is no mode of a session", c)
	}
	found, ended, stands := false, false, store.Work
	err := s.call(ctx, everyone, func(t *tx) error {
		found = false
		return t.commit(read(tell, func(r *reader) error {
			found, ended, stands = true, r.bool(), store.Mode(r.text())
			return nil
		}, [16]byte(session), string(c), string(store.Stop)))
	})
	switch {
	case err != nil:
		return store.Effects{}, err
	case !found:
		err = job.Errorf(job.NotFound, "there is no session %s", session)
	case ended:
		err = job.Errorf(job.Conflict, "session %s has ended", session)
	case stands == store.Stop && c != store.Stop:
		err = job.Errorf(job.Conflict, "session %s was told to stop, which is not taken back", session)
	}
	if err != nil {
		return store.Effects{}, err
	}
	return store.Effects{Held: []job.ID{session}}, nil
}

// tell sets the mode of a session that lives, and answers how it stood before.
const tell = `
WITH s AS MATERIALIZED (
	SELECT s.id, s.ended IS NOT NULL OR s.lease_until <= pawl.clock() AS over, s.mode FROM pawl.sessions s
		WHERE s.id = $1 FOR NO KEY UPDATE
), told AS (
	UPDATE pawl.sessions t SET mode = $2 FROM s WHERE t.id = s.id AND NOT s.over AND (s.mode <> $3 OR $2 = $3)
)
SELECT s.over, s.mode FROM s`

// Sessions implements [store.Reader].
func (s *Store) Sessions(ctx context.Context) (all []store.SessionInfo, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		all = nil
		return t.commit(read(sessionsThere, func(r *reader) error {
			var i store.SessionInfo
			i.ID = r.id()
			if err := json.Unmarshal(r.next(), &i.Process); err != nil {
				return err
			}
			if err := json.Unmarshal(r.next(), &i.Used); err != nil {
				return err
			}
			i.Mode, i.Live, i.Started, i.Renewed, i.Until = store.Mode(r.text()), r.bool(), r.time(),
				r.time(), r.time()
			i.Ended, i.Crashed, i.Held = r.time(), r.bool(), r.int()
			i.Oldest = store.HeldJob{Job: r.id(), Tenant: r.text(), Since: r.time()}
			all = append(all, i)
			return nil
		}, store.SessionKept, store.MachineKept))
	})
	return all, err
}

const (
	// sessionsThere reads sessions with what they hold. The last condition is for machines that
	// have no other session.
	sessionsThere = `
SELECT s.id, s.process, s.used, s.mode, s.ended IS NULL
	AND s.lease_until > pawl.clock(), s.started, s.renewed, s.lease_until, s.ended, s.crashed,
	(SELECT count(*) FROM pawl.jobs j WHERE j.session = s.id), h.id, h.tenant, h.since
FROM pawl.sessions s LEFT JOIN LATERAL (
	SELECT j.id, j.tenant, j.since FROM pawl.jobs j WHERE j.session = s.id ORDER BY j.since, j.id LIMIT 1
) h ON true
WHERE s.ended IS NULL OR s.ended > pawl.clock() - $1::interval
	OR (s.ended > pawl.clock() - $2::interval AND ` + lastOfMachine + `)
ORDER BY s.started DESC, s.id DESC`

	// lastOfMachine holds of a session that has ended, where it is the newest one of its machine.
	lastOfMachine = `(s.process ->> 'machine') IS NOT NULL
		AND NOT EXISTS (SELECT FROM pawl.sessions o WHERE o.process ->> 'machine' = s.process ->> 'machine'
	AND (o.ended IS NULL OR (o.ended, o.id) > (s.ended, s.id)))`
)

// Unattended implements [store.Reader].
func (s *Store) Unattended(ctx context.Context) (found store.Unattended, err error) {
	err = s.call(ctx, everyone, func(t *tx) error {
		found = store.Unattended{}
		return t.commit(read(unserved, func(r *reader) error {
			found.Unserved = append(found.Unserved, store.Unserved{
				QueueKind: job.QueueKind{Queue: r.text(), Kind: r.text()}, Machine: r.text(), Jobs: r.int(), Since: r.time(),
			})
			return nil
		}, store.MostUnserved), read(unwatched, func(r *reader) error {
			found.Unwatched = append(found.Unwatched, store.Unwatched{Watch: r.text(), Jobs: r.int()})
			return nil
		}, store.MostUnserved, job.WatchDuty("")), read(longOpen, func(r *reader) error {
			found.Open = append(found.Open, store.OpenTransaction{PID: r.int(), Application: r.text(), Since: r.time()})
			return nil
		}, s.writers(), store.LongOpen, store.MostUnserved))
	})
	return found, err
}

// longOpen looks at the locks ($1: see [Store.writers]) of transactions that are old ($2) and have
// written something. Mostly there are none. Of other roles it sees those that this one may see.
const longOpen = `
SELECT a.pid, coalesce(a.application_name, ''), a.xact_start FROM (
	SELECT s.pid, s.application_name, s.xact_start FROM pg_stat_activity s
	WHERE s.datname = current_database() AND s.backend_xid IS NOT NULL AND s.xact_start < pawl.clock() - $2::interval
	OFFSET 0
) a
WHERE EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.classid = 0
	AND l.objid = $1::bigint AND l.objsubid = 1 AND l.granted)
ORDER BY a.xact_start, a.pid LIMIT $3`

// unwatched goes along the index of what is watched, a step for each watch; $1 is how many of them,
// and how many jobs of each, are looked at, and $2 how the names of their duties begin.
var unwatched = store.SQL(`
WITH RECURSIVE watches AS (
	(SELECT j.watch, 1 AS i FROM pawl.jobs j WHERE j.custody = {Monitor} AND j.watch > '' ORDER BY j.watch LIMIT 1)
	UNION ALL
	SELECT n.watch, w.i + 1 FROM watches w CROSS JOIN LATERAL (
		SELECT j.watch FROM pawl.jobs j WHERE j.custody = {Monitor} AND j.watch > w.watch ORDER BY j.watch LIMIT 1
	) n WHERE w.i < $1
)
SELECT w.watch, (SELECT count(*) FROM (SELECT FROM pawl.jobs j WHERE j.custody = {Monitor}
	AND j.watch = w.watch LIMIT $1) h)
FROM watches w WHERE NOT EXISTS (SELECT FROM pawl.duties d JOIN pawl.sessions s ON s.id = d.session
	WHERE d.name = $2 || w.watch AND s.ended IS NULL AND s.lease_until > pawl.clock())`)

// unserved goes along the ready index, a step for each queue, kind and machine; $1 is how
// many of those, and how many jobs of each, are looked at.
var unserved = store.SQL(`
WITH RECURSIVE live AS MATERIALIZED (
	SELECT s.process::jsonb AS p FROM pawl.sessions s WHERE s.ended IS NULL AND s.lease_until > pawl.clock()
		AND s.mode = ''
), parts AS (
	SELECT '' COLLATE "C" AS queue, '' COLLATE "C" AS kind, '' COLLATE "C" AS machine, 0 AS i
	UNION ALL
	SELECT n.queue, n.kind, n.machine, l.i + 1 FROM parts l CROSS JOIN LATERAL (
		SELECT j.queue, j.kind, j.machine FROM pawl.jobs j WHERE j.custody = {Ready}
			AND (j.queue, j.kind, j.machine) > (l.queue, l.kind, l.machine)
		ORDER BY j.queue, j.kind, j.machine LIMIT 1
	) n WHERE l.i < $1
), serving AS MATERIALIZED (
	SELECT l.queue, l.kind, l.machine, v.p -> 'tenants' AS tenants FROM parts l JOIN live v
		ON v.p -> 'queues' ? l.queue AND v.p -> 'kinds' ? l.kind AND (l.machine = '' OR v.p ->> 'machine' = l.machine)
)
SELECT l.queue, l.kind, l.machine, w.jobs, w.since FROM parts l CROSS JOIN LATERAL (
	SELECT count(*) AS jobs, min(h.since) AS since FROM (
		SELECT j.tenant, j.since FROM pawl.jobs j
		WHERE j.custody = {Ready} AND j.queue = l.queue AND j.kind = l.kind AND j.machine = l.machine LIMIT $1
	) h
	WHERE NOT EXISTS (SELECT FROM serving v WHERE (v.queue, v.kind, v.machine) = (l.queue, l.kind, l.machine)
		AND (v.tenants IS NULL OR v.tenants ? h.tenant))
) w
WHERE w.jobs > 0 ORDER BY l.queue, l.kind, l.machine`)
