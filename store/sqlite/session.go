package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// SetMode implements [store.Leases].
func (s *Store) SetMode(ctx context.Context, session job.ID, c store.Mode) (store.Effects, error) {
	if !slices.Contains(store.Modes, c) {
		return store.Effects{}, job.Errorf(job.Invalid, "%q is no mode of a session", c)
	}
	err := s.do(ctx, func(t *tx) error {
		found, ended, stands := false, false, store.Work
		err := t.query(`SELECT ended IS NOT NULL OR lease_until <= ?, mode FROM sessions WHERE id = ?`,
			func(v []driver.Value) error {
				found, ended, stands = true, integer(v[0]) != 0, store.Mode(text(v[1]))
				return nil
			}, micros(t.lease), blob(session))
		switch {
		case err != nil:
			return err
		case !found:
			return job.Errorf(job.NotFound, "there is no session %s", session)
		case ended:
			return job.Errorf(job.Conflict, "session %s has ended", session)
		case stands == store.Stop && c != store.Stop:
			return job.Errorf(job.Conflict, "session %s was told to stop, which is not taken back", session)
		}
		_, err = t.exec(`UPDATE sessions SET mode = ? WHERE id = ?`, string(c), blob(session))
		return err
	})
	if err != nil {
		return store.Effects{}, err
	}
	return store.Effects{Held: []job.ID{session}}, nil
}

// told writes what a renewal tells of the process; nil where that is nothing.
func told(r store.Renew) (process, used any, err error) {
	if r.Process != nil {
		b, err := json.Marshal(r.Process)
		if err != nil {
			return nil, nil, err
		}
		process = string(b)
	}
	if r.Used != nil {
		b, err := json.Marshal(r.Used)
		if err != nil {
			return nil, nil, err
		}
		used = string(b)
	}
	return process, used, nil
}

// ofTenants narrows a condition on jobs j to tenants, if there are any, which are its parameter
// then; see tenantList.
func ofTenants(tenants []string) string {
	if len(tenants) == 0 {
		return ""
	}
	return ` AND j.tenant IN (SELECT value FROM json_each(?))`
}

func tenantList(tenants []string) []any {
	if len(tenants) == 0 {
		return nil
	}
	b, _ := json.Marshal(tenants) // text is always JSON
	return []any{string(b)}
}

// Sessions implements [store.Reader].
func (s *Store) Sessions(ctx context.Context) (all []store.SessionInfo, err error) {
	now, lease := s.now(), s.lease()
	var broken []error
	err = s.query(ctx, sessionsThere, 13, func(v []driver.Value) {
		i := store.SessionInfo{
			ID: id(v[0]), Mode: store.Mode(text(v[3])), Started: instant(v[4]), Renewed: instant(v[5]),
			Ended: instant(v[7]), Crashed: integer(v[8]) != 0, Held: integer(v[9]),
		}
		until := instant(v[6])
		// leases have a clock of their own
		i.Live, i.Until = i.Ended.IsZero() && until.After(lease), now.Add(until.Sub(lease)).UTC()
		broken = append(broken, json.Unmarshal([]byte(text(v[1])), &i.Process),
			json.Unmarshal([]byte(text(v[2])), &i.Used))
		if i.Held > 0 {
			i.Oldest = store.HeldJob{Job: id(v[10]), Tenant: text(v[11]), Since: instant(v[12])}
		}
		all = append(all, i)
	}, now.Add(-store.SessionKept).UnixMicro(), now.Add(-store.MachineKept).UnixMicro())
	return all, errors.Join(append(broken, err)...)
}

// sessionsThere reads sessions with what they hold. The last condition is for machines that have no
// other session.
const sessionsThere = `SELECT sessions.id, sessions.process, sessions.used, sessions.mode, sessions.started,
	sessions.renewed, sessions.lease_until, sessions.ended, sessions.crashed,
		coalesce(h.n, 0), j.id, j.tenant, h.since
	FROM sessions
	LEFT JOIN (SELECT session, count(*) AS n, min(since) AS since, seq FROM jobs INDEXED BY jobs_session
		WHERE session IS NOT NULL GROUP BY session) h ON h.session = sessions.id
	LEFT JOIN jobs j ON j.seq = h.seq
	WHERE sessions.ended IS NULL OR sessions.ended > ? OR (sessions.ended > ? AND ` + lastOfMachine + `)
	ORDER BY sessions.started DESC, sessions.id DESC`

// lastOfMachine holds of a session that has ended, where it is the newest one of its machine.
const lastOfMachine = `(sessions.process ->> '$.machine') IS NOT NULL
	AND NOT EXISTS (SELECT 1 FROM sessions o WHERE o.process ->> '$.machine' = sessions.process ->> '$.machine'
	AND (o.ended IS NULL OR (o.ended, o.id) > (sessions.ended, sessions.id)))`

// Unattended implements [store.Reader].
func (s *Store) Unattended(ctx context.Context) (found store.Unattended, err error) {
	if found.Unserved, err = s.unserved(ctx); err != nil {
		return store.Unattended{}, err
	}
	err = s.query(ctx, unwatched, 2, func(v []driver.Value) {
		found.Unwatched = append(found.Unwatched, store.Unwatched{Watch: text(v[0]), Jobs: integer(v[1])})
	}, int64(store.MostUnserved), int64(store.MostUnserved), job.WatchDuty(""), micros(s.lease()))
	return found, err
}

// unserved goes along the ready index, a step for each line.
func (s *Store) unserved(ctx context.Context) (found []store.Unserved, err error) {
	var live []store.Process
	var broken []error
	err = s.query(ctx, `SELECT process FROM sessions WHERE ended IS NULL AND lease_until > ? AND mode = ''`, 1,
		func(v []driver.Value) {
			var p store.Process
			broken = append(broken, json.Unmarshal([]byte(text(v[0])), &p))
			live = append(live, p)
		}, micros(s.lease()))
	if err := errors.Join(append(broken, err)...); err != nil {
		return nil, err
	}
	var u store.Unserved
	for range store.MostUnserved {
		more := false
		err := s.query(ctx, nextReady, 3, func(v []driver.Value) {
			more, u = true, store.Unserved{QueueKind: job.QueueKind{Queue: text(v[0]), Kind: text(v[1])}, Machine: text(v[2])}
		}, u.QueueKind.Queue, u.QueueKind.Kind, u.Machine)
		if err != nil || !more {
			return found, err
		}
		tenants, all := tenantsOf(live, u)
		if all {
			continue
		}
		err = s.query(ctx, notServed, 2, func(v []driver.Value) { u.Jobs, u.Since = integer(v[0]), instant(v[1]) },
			u.QueueKind.Queue, u.QueueKind.Kind, u.Machine, int64(store.MostUnserved), tenants)
		if err != nil {
			return nil, err
		}
		if u.Jobs > 0 {
			found = append(found, u)
		}
	}
	return found, nil
}

var (
	nextReady = store.SQL(`SELECT queue, kind, machine FROM jobs INDEXED BY jobs_ready WHERE custody = {Ready}
		AND (queue, kind, machine) > (?, ?, ?)
		ORDER BY queue, kind, machine LIMIT 1`)

	notServed = store.SQL(`SELECT count(*), min(since) FROM (SELECT since, tenant FROM jobs INDEXED BY jobs_ready
		WHERE custody = {Ready} AND queue = ? AND kind = ? AND machine = ? LIMIT ? + 0)
			WHERE tenant NOT IN (SELECT value FROM json_each(?))`)
)

// unwatched goes along the index of what is watched, a step for each watch.
var unwatched = store.SQL(`WITH RECURSIVE watches (watch) AS (
		SELECT min(watch) FROM jobs INDEXED BY jobs_monitor WHERE custody = {Monitor} AND watch > ''
		UNION ALL
		SELECT (SELECT min(j.watch) FROM jobs j INDEXED BY jobs_monitor WHERE j.custody = {Monitor}
			AND j.watch > w.watch)
			FROM watches w WHERE w.watch IS NOT NULL
		LIMIT ? + 0
	)
	SELECT w.watch, (SELECT count(*) FROM (SELECT 1 FROM jobs INDEXED BY jobs_monitor
		WHERE custody = {Monitor} AND watch = w.watch LIMIT ? + 0))
	FROM watches w WHERE w.watch IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM duties d JOIN sessions s ON s.id = d.session
			WHERE d.name = ? || w.watch AND s.ended IS NULL AND s.lease_until > ?)`)

// tenantsOf returns the tenants, as a JSON list, whose jobs of a line some process claims; or that
// it claims those of all.
func tenantsOf(live []store.Process, u store.Unserved) (list string, all bool) {
	tenants := []string{}
	for i := range live {
		if !live[i].Serves(u.QueueKind, u.Machine) {
			continue
		}
		if len(live[i].Tenants) == 0 {
			return "", true
		}
		tenants = append(tenants, live[i].Tenants...)
	}
	b, _ := json.Marshal(tenants) // text is always JSON
	return string(b), false
}
