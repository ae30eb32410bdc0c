package postgres

import (
	"context"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Recount implements [store.Jobs]. What looks wrong is read again under the locks that protect it.
func (s *Store) Recount(ctx context.Context, limit int) (n store.Recounted, eff store.Effects, err error) {
	needs, groups := false, false
	var tenants []string // whose turns or lines look wrong
	err = s.call(ctx, everyone, func(t *tx) error {
		needs, groups, tenants = false, false, nil
		return t.commit(read(lookForWrong, func(r *reader) error {
			switch tenant, line := r.text(), r.text(); {
			case line == emptyGroup:
				groups = true
			case tenant == "":
				needs = true
			case !slices.Contains(tenants, tenant):
				held, l := r.int(), r.limit()
				if hasFree(line, held, l) {
					tenants = append(tenants, tenant)
				}
			}
			return nil
		}))
	})
	if err != nil {
		return n, eff, err
	}
	if needs {
		if n.Needs, eff, err = s.recount(ctx, limit); err != nil {
			return store.Recounted{}, store.Effects{}, err
		}
	}
	for _, tenant := range tenants {
		turns, lines, err := s.mend(ctx, tenant, limit)
		if err != nil {
			break // what was corrected is to be told of, and what was not is found again
		}
		n.Turns, n.Lines = n.Turns+turns, n.Lines+lines
	}
	eff.Owed = eff.Owed || n.Turns+n.Lines > 0
	if groups {
		if trimmed, err := s.trim(ctx, limit); err == nil { // else they are found again
			eff.Owed = eff.Owed || trimmed.Owed
		}
	}
	return n, eff, nil
}

// hasFree reports whether one more could have a turn of the key of a line; without a line, it is
// said of a turn that is wrong.
func hasFree(line string, held int, l job.Limit) bool {
	if line == "" {
		return true
	}
	k := turns.Key{Limit: job.Implied(line), Held: map[string]int{"": held}}
	if l.Key != "" {
		k.Limit = &l
	}
	return k.Free(line) > 0
}

// recount corrects numbers of prerequisites.
func (s *Store) recount(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		c := changes{cause: job.CausePaid}
		err := t.send(read(recount, func(r *reader) error {
			n++
			c.now = r.time()
			j := r.row()
			return c.open(&j)
		}, limit))
		if err != nil {
			return err
		}
		c.effects(&eff)
		return t.commit(c.queries()...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return n, eff, nil
}

// mend gives back turns of a tenant that no job uses, and owes free turns to the jobs that wait for
// them. While it holds the turns lock nobody gets turns and nothing that is owed is paid: so it
// reads first what is free, and then what is owed.
func (s *Store) mend(ctx context.Context, tenant string, limit int) (useless, unowed int, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		useless, unowed = 0, 0
		h := handing{tenant: tenant, known: turns.Keys{}}
		err := t.send(do(lockTurns, tenant), read(takeUseless, func(r *reader) error {
			useless++
			h.changes.handOn = append(h.changes.handOn, spot{tenant, r.text()})
			return nil
		}, tenant, limit), read(linesOf, func(r *reader) error { h.keys = append(h.keys, r.text()); return nil },
			tenant))
		if err == nil && len(h.keys) > 0 {
			err = t.send(append(h.know(h.keys), read(linesUnowed, func(r *reader) error {
				key := r.text()
				given := slices.Contains(h.changes.handOn, spot{tenant, key})
				if unowed < limit && !given && h.known[key].Free(key) > 0 {
					unowed++
					h.changes.handOn = append(h.changes.handOn, spot{tenant, key})
				}
				return nil
			}, tenant, h.keys))...)
		}
		if err != nil {
			return err
		}
		return t.commit(h.turns()...)
	})
	if err != nil {
		return 0, 0, err
	}
	return useless, unowed, nil
}

var (
	// emptyGroup is in the place of a line.
	emptyGroup = "/"

	// miscounted finds jobs that wait for another number of prerequisites than they have.
	miscounted = store.SQL(`
	SELECT j.id FROM pawl.jobs j
	WHERE j.custody = {Gate} AND j.needs <> 0
		AND j.needs <> (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	ORDER BY j.id LIMIT $1`)

	// recount corrects the number of prerequisites of jobs that wait, and answers these. What it
	// finds wrong at first sight is locked and counted again: a payment counts and deletes in one
	// transaction.
	recount = `
WITH wrong AS MATERIALIZED (` + miscounted + ` FOR UPDATE SKIP LOCKED
), corrected AS (
	UPDATE pawl.jobs j SET needs = (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id)
	WHERE j.id = ANY (ARRAY(SELECT w.id FROM wrong w)) RETURNING ` + livingRow + `
)
SELECT pawl.clock(), ` + columns + ` FROM corrected j ` + itsSpec

	// useless holds of a turn t whose job is not there, or has not the tie that stands for it and
	// keeps none before its place in line.
	useless = store.SQL(`NOT EXISTS (SELECT FROM pawl.jobs j WHERE j.id = t.job
		AND (j.ties & CASE WHEN t.key LIKE 'order/%' THEN {TieOrder}
			WHEN t.key LIKE 'ahead/%' THEN {TieAhead} ELSE {TieTurn} END <> 0
		OR j.ties & {TieKept} <> 0 AND t.key NOT LIKE 'order/%' AND (t.key LIKE 'ahead/%') = (j.line LIKE 'ahead/%')
			AND t.key < j.line) OFFSET 0)`)

	// lookForWrong finds all that may be wrong, in one snapshot: with no tenant, that a job waits
	// for another number of prerequisites than it has, or with a line that is none, that groups
	// have nobody any more; with no line, turns that nobody has a use for; and, going from line to
	// line, those to which nothing is owed, with how many turns of the key there are and its limit.
	// Most of these are full.
	lookForWrong = `
WITH RECURSIVE lines AS (
	SELECT '' COLLATE "C" AS tenant, '' COLLATE "C" AS line, 0 AS i
	UNION ALL
	SELECT n.tenant, n.line, l.i + 1 FROM lines l CROSS JOIN LATERAL (
		SELECT j.tenant, j.line FROM pawl.jobs j WHERE j.line IS NOT NULL
			AND (j.tenant, j.line) > (l.tenant, l.line) ORDER BY j.tenant, j.line LIMIT 1) n
), unowed AS MATERIALIZED (
	SELECT l.tenant, l.line, CASE WHEN l.line LIKE 'ahead/%' THEN substr(l.line, 7) ELSE l.line END AS of FROM lines l
	WHERE l.i > 0 AND NOT EXISTS (SELECT FROM pawl.turns_owed o WHERE o.tenant = l.tenant AND o.key = l.line OFFSET 0)
)
SELECT '' AS tenant, '' AS line, 0::bigint AS held, NULL::text AS key, NULL::int AS most, NULL::int AS ahead,
	NULL::json AS weights, NULL::bigint AS per FROM (` + miscountedOnce + `) wrong
UNION ALL
SELECT '', '` + emptyGroup + `', 0::bigint, NULL::text, NULL::int, NULL::int, NULL::json, NULL::bigint
	FROM (SELECT FROM pawl.groups g WHERE ` + bare + ` LIMIT 1) empty
UNION ALL
SELECT w.tenant, '', 0::bigint, NULL::text, NULL::int, NULL::int, NULL::json, NULL::bigint FROM (
	SELECT t.tenant FROM (SELECT t.job, t.key, t.tenant FROM pawl.turns t ORDER BY t.job, t.key OFFSET 0) t
		WHERE ` + useless + ` LIMIT 1) w
UNION ALL
SELECT u.tenant, u.line, held.n, ` + limitColumns + ` FROM unowed u
	CROSS JOIN LATERAL (SELECT count(*) AS n FROM pawl.turns t WHERE t.tenant = u.tenant AND t.key = u.line
		OFFSET 0) held
	LEFT JOIN LATERAL (SELECT l.* FROM pawl.limits l WHERE l.tenant = u.tenant
		AND l.key = ANY (ARRAY[u.of, regexp_replace(u.of, '/[^/]*$', '/*')])
		ORDER BY l.key = u.of DESC LIMIT 1) l ON true`

	miscountedOnce = store.SQL(`SELECT j.id FROM pawl.jobs j
	WHERE j.custody = {Gate} AND j.needs <> 0
		AND j.needs <> (SELECT count(*) FROM pawl.prerequisites p WHERE p.job = j.id) LIMIT 1`)

	takeUseless = `
DELETE FROM pawl.turns t WHERE (t.job, t.key || '') IN (
	SELECT t.job, t.key FROM pawl.turns t WHERE t.tenant = $1 AND ` + useless + ` ORDER BY t.tenant, t.key
		LIMIT $2) RETURNING t.key`

	// linesUnowed returns the lines with waiting jobs to which nothing is owed.
	linesUnowed = `
SELECT k.key FROM unnest($2::text[]) k(key)
WHERE EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key)
	AND NOT EXISTS (SELECT FROM pawl.turns_owed o WHERE o.tenant = $1 AND o.key = k.key)`
)
