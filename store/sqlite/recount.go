package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs]. It looks on a connection that reads, so that a million waiting
// jobs do not hold up the writer. It looks again before it writes.
func (s *Store) Recount(ctx context.Context, limit int) (store.Recounted, store.Effects, error) {
	var w wrongs
	var n store.Recounted
	var eff store.Effects
	err := s.query(ctx, lookForWrong, 6, func(v []driver.Value) {
		switch text(v[0]) {
		case "needs":
			w.needs = append(w.needs, id(v[1]))
		case "turn":
			w.turns = append(w.turns, heldTurn{text(v[2]), text(v[3]), text(v[4]), v[5].(int64)})
		case "group":
			w.groups = append(w.groups, spot{text(v[2]), text(v[3])})
		case "line":
			w.lines = append(w.lines, owed{tenant: text(v[2]), key: text(v[3])})
		}
	}, int64(limit))
	if err != nil || len(w.needs)+len(w.turns)+len(w.lines)+len(w.groups) == 0 {
		return n, eff, err
	}
	err = s.do(ctx, func(t *tx) (err error) {
		n, eff = store.Recounted{}, store.Effects{}
		if n.Needs, err = t.recount(w.needs, &eff); err != nil {
			return err
		}
		if n.Turns, err = t.takeAway(w.turns); err != nil {
			return err
		}
		n.Lines, err = t.oweUnowed(w.lines, limit)
		eff.Owed = eff.Owed || n.Turns+n.Lines > 0
		if err != nil {
			return err
		}
		return t.trimGroups(w.groups, limit, &eff)
	})
	if err != nil {
		return store.Recounted{}, store.Effects{}, err
	}
	return n, eff, nil
}

// wrongs are what may be wrong, and groups that may be there for nothing.
type wrongs struct {
	needs  []job.ID
	turns  []heldTurn
	lines  []owed
	groups []spot
}

// A heldTurn is a row of turns.
type heldTurn struct {
	tenant, key, owner string
	job                int64
}

var (
	// useless holds of a turn t whose job is not there, or has not the tie that stands for it and
	// keeps none before its place in line. That of an order is kept in no line.
	useless = store.SQL(`NOT EXISTS (SELECT 1 FROM jobs j WHERE j.seq = t.job AND (
		j.ties & CASE WHEN t.key GLOB 'order/*' THEN {TieOrder}
			WHEN t.key GLOB 'ahead/*' THEN {TieAhead} ELSE {TieTurn} END <> 0
		OR j.ties & {TieKept} <> 0 AND t.key NOT GLOB 'order/*' AND (t.key GLOB 'ahead/*') = (j.line GLOB 'ahead/*')
			AND t.key < j.line))`)

	// lookForWrong finds jobs that wait for another number of prerequisites than they have, turns
	// that nobody has a use for, groups that have nobody, and, a step for each key, lines to which
	// nothing is owed. Most of these are of keys that are full; of orders, which may be as many as
	// customers, those are left out whose one place is taken.
	lookForWrong = store.SQL(`WITH RECURSIVE
	e (tenant) AS (
		SELECT min(tenant) FROM jobs INDEXED BY jobs_line WHERE line <> ''
		UNION ALL
		SELECT (SELECT min(j.tenant) FROM jobs j INDEXED BY jobs_line WHERE j.line <> ''
			AND j.tenant > e.tenant) FROM e WHERE e.tenant IS NOT NULL
	),
	k (tenant, key) AS (
		SELECT e.tenant, (SELECT min(j.line) FROM jobs j INDEXED BY jobs_line WHERE j.line <> ''
			AND j.tenant = e.tenant) FROM e WHERE e.tenant IS NOT NULL
		UNION ALL
		SELECT k.tenant, (SELECT min(j.line) FROM jobs j INDEXED BY jobs_line WHERE j.line <> ''
			AND j.tenant = k.tenant AND j.line > k.key) FROM k WHERE k.key IS NOT NULL
	)
	SELECT * FROM (SELECT 'needs', j.id, '', '', '', 0 FROM jobs j INDEXED BY jobs_needs
		WHERE j.custody = {Gate} AND j.needs <> 0
			AND j.needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = j.seq) LIMIT ?1 + 0)
	UNION ALL
	SELECT * FROM (SELECT 'turn', x'', t.tenant, t.key, t.owner, t.job FROM turns t WHERE ` + useless + ` LIMIT ?1 + 0)
	UNION ALL
	SELECT 'group', x'', g.tenant, g.key, '', 0 FROM groups g WHERE NOT ` + somebody + `
	UNION ALL
	SELECT 'line', x'', k.tenant, k.key, '', 0 FROM k WHERE k.key IS NOT NULL
		AND NOT EXISTS (SELECT 1 FROM followups f WHERE f.tenant = k.tenant AND f.key = k.key)
		AND NOT (k.key GLOB 'order/*' AND EXISTS (SELECT 1 FROM turns o WHERE o.tenant = k.tenant AND o.key = k.key))`)
)

// countNeeds corrects the number of prerequisites of a job.
var countNeeds = store.SQL(`UPDATE jobs SET needs = (SELECT count(*) FROM prerequisites p WHERE p.job = jobs.seq)
	WHERE id = ? AND custody = {Gate} AND needs <> (SELECT count(*) FROM prerequisites p WHERE p.job = jobs.seq)`)

// recount corrects numbers of prerequisites.
func (t *tx) recount(wrong []job.ID, eff *store.Effects) (n int, err error) {
	for _, id := range wrong {
		changed, err := t.exec(countNeeds, blob(id))
		if err != nil {
			return 0, err
		}
		if changed == 0 {
			continue // it has moved on meanwhile
		}
		n++
		rs, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE id = ?`, blob(id))
		if err != nil {
			return 0, err
		}
		if err := t.open(&rs[0], job.CausePaid, eff); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// takeAway takes turns that nobody has a use for.
func (t *tx) takeAway(wrong []heldTurn) (n int, err error) {
	for _, h := range wrong {
		gone, err := t.exec(`DELETE FROM turns AS t WHERE tenant = ? AND key = ? AND owner = ? AND job = ? AND `+
			useless, h.tenant, h.key, h.owner, h.job)
		if err != nil {
			return 0, err
		}
		if gone == 0 {
			continue
		}
		n++
		if err := t.oweTurns(h.tenant, h.key); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// oweUnowed owes free turns to the jobs that wait for them.
func (t *tx) oweUnowed(lines []owed, limit int) (n int, err error) {
	for _, l := range lines {
		g := turns.Keys{}
		if err := t.know(g, l.tenant, []string{l.key}); err != nil {
			return 0, err
		}
		if n == limit || g[l.key].Free(l.key) == 0 {
			continue
		}
		forgotten, err := t.exists(`SELECT 1 FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?1
			AND line = ?2
			AND NOT EXISTS (SELECT 1 FROM followups f WHERE f.tenant = ?1 AND f.key = ?2) LIMIT 1`, l.tenant, l.key)
		if err != nil {
			return 0, err
		}
		if !forgotten {
			continue
		}
		n++
		if err := t.oweTurns(l.tenant, l.key); err != nil {
			return 0, err
		}
	}
	return n, nil
}
