package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Begin implements [store.Leases].
func (s *Store) Begin(ctx context.Context, n store.Session) error {
	process, err := json.Marshal(n.Process)
	if err != nil {
		return err
	}
	return s.do(ctx, func(t *tx) error {
		until := t.lease.Add(max(n.Lease, store.MinLease))
		_, err := t.exec(`INSERT INTO sessions (id, process, mode, started, renewed, renewed_ago, lease_until)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`, blob(n.ID), string(process), string(n.Mode),
			micros(t.now), micros(t.now), micros(t.now), micros(until))
		if err != nil {
			return err
		}
		return t.alive(n.ID)
	})
}

// Renew implements [store.Leases]. It is one statement, and one more for each duty that is taken or
// given up.
func (s *Store) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	var a store.Renewal
	queues, err := json.Marshal(r.Queues)
	if err != nil {
		return a, err
	}
	kinds, err := json.Marshal(r.Kinds)
	if err != nil {
		return a, err
	}
	process, used, err := told(r)
	if err != nil {
		return a, err
	}
	wanted, err := json.Marshal(r.Duties)
	if err != nil {
		return a, err
	}
	err = s.do(ctx, func(t *tx) error {
		a = store.Renewal{Now: t.now}
		lease := max(r.Lease, store.MinLease)
		overdue := t.now.Add(-lease / 3).UnixMicro()
		found := false
		var free []string // duties that are wanted and that this session can take
		err := t.query(`UPDATE sessions SET renewed_ago = renewed, renewed = ?, lease_until = ?,
				process = coalesce(?, process), used = coalesce(?, used)
			WHERE id = ? AND ended IS NULL AND lease_until > ?
			RETURNING renewed_ago,
				(SELECT count(*) FROM jobs j WHERE j.session = sessions.id AND j.since < sessions.renewed_ago),
				(SELECT json_group_array(json_object('job', hex(j.id), 'epoch', j.epoch, 'wish', j.wish))
					FROM jobs j WHERE j.session = sessions.id AND j.wish <> ''),
				(SELECT min(o.lease_until) FROM sessions o WHERE o.ended IS NULL AND o.id <> sessions.id),
				(SELECT json_group_array(json_object('queue', q.value, 'kind', k.value))
					FROM json_each(?) q, json_each(?) k
					WHERE EXISTS (SELECT 1 FROM jobs j WHERE `+isReady+` AND j.queue = q.value
						AND j.kind = k.value AND j.machine IN ('', ?)`+ofTenants(r.Tenants)+`)),
				(SELECT json_group_array(json_object('name', d.name, 'term', d.term)) FROM duties d
					WHERE d.session = sessions.id),
				(SELECT at FROM followups ORDER BY seq LIMIT 1) < ? OR EXISTS (SELECT 1 FROM walks WHERE at < ?)
					OR EXISTS (SELECT 1 FROM lines WHERE owed < ?), mode,
				`+firstDue+`,
				(SELECT json_group_array(e.value) FROM json_each(?) e WHERE e.value <> ''
					AND NOT EXISTS (SELECT 1 FROM duties d CROSS JOIN sessions o ON o.id = d.session
					WHERE d.name = e.value AND o.ended IS NULL AND o.lease_until > ?
						AND (o.id = sessions.id OR o.mode = '' OR sessions.mode <> '')))`,
			func(v []driver.Value) error {
				found = true
				a.HeldBefore, a.Held = instant(v[0]), integer(v[1])
				if expiry := instant(v[3]); !expiry.IsZero() {
					a.NextExpiry = t.now.Add(expiry.Sub(t.lease)) // leases have a clock of their own
				}
				a.Unpaid, a.Mode, a.Due = integer(v[6]) != 0, store.Mode(text(v[7])), instant(v[8])
				var wishes []struct {
					Job   string
					Epoch int64
					Wish  job.Wish
				}
				if err := errors.Join(decode(v[2], &wishes), decode(v[4], &a.Ready), decode(v[5], &a.Duties),
					decode(v[9], &free)); err != nil {
					return err
				}
				for _, w := range wishes {
					b, err := hex.DecodeString(w.Job)
					if err != nil {
						return err
					}
					a.Wishes = append(a.Wishes, store.StandingWish{Job: job.ID(b), Epoch: w.Epoch, Wish: w.Wish})
				}
				return nil
			},
			slices.Concat([]any{
				micros(t.now), micros(t.lease.Add(lease)), process, used, blob(r.Session), micros(t.lease),
				string(queues), string(kinds), r.Machine,
			}, tenantList(r.Tenants), []any{overdue, overdue, overdue, string(wanted), micros(t.lease)})...)
		if err != nil {
			return err
		}
		if !found {
			return store.NoSession(r.Session)
		}
		a.Duties, err = t.takeDuties(r, a.Mode, a.Duties, free)
		return err
	})
	if err != nil {
		return store.Renewal{}, err
	}
	return a, nil
}

// decode reads a list that a statement answers as JSON; names of fields match whatever their case.
func decode[T any](v driver.Value, list *[]T) error {
	if s := text(v); s != "" && s != "[]" {
		if err := json.Unmarshal([]byte(s), list); err != nil {
			return fmt.Errorf("answer of renewal: %w", err)
		}
	}
	return nil
}

// takeDuties keeps the wanted ones of the held duties, gives up the others, and takes free ones. A
// duty is free if no live session holds it, or if its holder drains or stops and this session does
// not.
func (t *tx) takeDuties(r store.Renew, c store.Mode, held []store.Duty, free []string) ([]store.Duty, error) {
	var duties []store.Duty
	for _, d := range held {
		if slices.Contains(r.Duties, d.Name) {
			duties = append(duties, d)
			continue
		}
		if _, err := t.exec(`UPDATE duties SET session = zeroblob(16) WHERE name = ?`, d.Name); err != nil {
			return nil, err
		}
	}
	for _, name := range free {
		err := t.query(`INSERT INTO duties (name, term, session) VALUES (?, 1, ?)
			ON CONFLICT (name) DO UPDATE SET term = term + 1, session = excluded.session
			WHERE session NOT IN (SELECT id FROM sessions WHERE ended IS NULL AND lease_until > ?
				AND (mode = '' OR ?))
			RETURNING term`,
			func(v []driver.Value) error {
				duties = append(duties, store.Duty{Name: name, Term: v[0].(int64)})
				return nil
			}, name, blob(r.Session), micros(t.lease), c != store.Work)
		if err != nil {
			return nil, err
		}
	}
	return duties, nil
}

// End implements [store.Leases].
func (s *Store) End(ctx context.Context, session job.ID) (store.Effects, error) {
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		eff = store.Effects{}
		if _, err := t.exec(`UPDATE sessions SET ended = ? WHERE id = ? AND ended IS NULL`, micros(t.now),
			blob(session)); err != nil {
			return err
		}
		rs, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE j.session = ? ORDER BY j.seq`, blob(session))
		if err != nil {
			return err
		}
		return t.expire(rs, func(job.ID) bool { return false }, &eff)
	})
	if err != nil {
		return store.Effects{}, err
	}
	return eff, nil
}

// Expire implements [store.Jobs].
func (s *Store) Expire(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	err := s.do(ctx, func(t *tx) error {
		n, eff = 0, store.Effects{}
		died, err := t.exec(`UPDATE sessions SET ended = ?, crashed = 1 WHERE ended IS NULL AND lease_until <= ?`,
			micros(t.now), micros(t.lease))
		if err != nil {
			return err
		}
		rs, err := t.rows(`SELECT `+columns+` FROM jobs j INDEXED BY jobs_session WHERE j.session IS NOT NULL
			AND j.session NOT IN (SELECT id FROM sessions WHERE ended IS NULL) LIMIT ? + 0`, int64(limit))
		if err != nil {
			return err
		}
		closed := map[job.ID]bool{}
		err = t.query(`SELECT id FROM sessions WHERE ended IS NOT NULL AND crashed = 0`, func(v []driver.Value) error {
			closed[id(v[0])] = true
			return nil
		})
		if err != nil {
			return err
		}
		n = len(rs)
		if err := t.expire(rs, func(s job.ID) bool { return !closed[s] }, &eff); err != nil {
			return err
		}
		if died > 0 {
			if err := t.left(&eff); err != nil {
				return err
			}
		}
		if n == limit {
			return nil
		}
		_, err = t.exec(`DELETE FROM sessions WHERE ended < ? AND (ended < ? OR NOT (`+lastOfMachine+`))`,
			t.now.Add(-store.SessionKept).UnixMicro(), t.now.Add(-store.MachineKept).UnixMicro())
		return err
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

var isReady = store.SQL(`j.custody = {Ready}`)

// nextReadyLine is the first line with ready jobs after another one.
var nextReadyLine = store.SQL(`SELECT queue, kind FROM jobs INDEXED BY jobs_ready WHERE custody = {Ready}
	AND (queue, kind) > (?, ?) ORDER BY queue, kind LIMIT 1`)

// left reads into eff what a session may have died before announcing. It goes along the ready
// index, a step for each line.
func (t *tx) left(eff *store.Effects) error {
	var l job.QueueKind
	for range store.MostUnserved {
		more := false
		err := t.query(nextReadyLine,
			func(v []driver.Value) error {
				more, l = true, job.QueueKind{Queue: strings.Clone(text(v[0])), Kind: strings.Clone(text(v[1]))}
				return nil
			}, l.Queue, l.Kind)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		eff.Announce(l)
	}
	return t.query(`SELECT `+unpaid+`, `+firstDue+`, EXISTS (SELECT 1 FROM groups)`,
		func(v []driver.Value) error {
			eff.Owed, eff.Due, eff.Tests = integer(v[0]) != 0, instant(v[1]), integer(v[2]) != 0
			return nil
		})
}

// expire takes jobs from a session that has ended.
func (t *tx) expire(rs []row, crashed func(session job.ID) bool, eff *store.Effects) error {
	for i := range rs {
		r := &rs[i]
		expired := job.Expired(&r.Job, crashed(r.Session))
		c, _ := job.Divert(&r.Job, expired)
		if err := t.write(r, c, job.CauseExpired, nil, eff); err != nil {
			return err
		}
	}
	return nil
}

// endSessions ends the sessions of earlier processes: the lock on the folder proves that they are
// dead. Workers elsewhere live on. They could not renew their leases meanwhile, so these begin
// anew.
func (s *Store) endSessions(ctx context.Context) error {
	return s.do(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE sessions SET ended = ?, crashed = 1 WHERE ended IS NULL
			AND (process ->> '$.worker') IS NULL`, micros(t.now))
		if err != nil {
			return err
		}
		// If the machine has slept, the clock of leases was behind that of the wall.
		_, err = t.exec(`UPDATE sessions SET lease_until = ? + CASE WHEN lease_until > renewed
			THEN min(lease_until - renewed, ?) ELSE ? END WHERE ended IS NULL`, micros(t.lease), time.Hour.Microseconds(),
			(15 * time.Second).Microseconds())
		return err
	})
}

// actor reads who an event names.
func actor(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return id(b).String()
	}
	return strings.Clone(text(v))
}
