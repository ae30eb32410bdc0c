package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// payLines gives up to limit lines of a tenant the places that groups leave them: see
// [groups.Group]. It takes the tenant's turns lock before these.
func (s *Store) payLines(ctx context.Context, limit int) (n int, eff store.Effects, err error) {
	var l owedLines
	err = s.call(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		l = owedLines{of: map[string]*owedLine{}}
		err := t.send(do(pickLine), do(lockPayer), read(takeLines, func(r *reader) error {
			l.tenant = r.text()
			key := r.text()
			l.keys, l.of[key] = append(l.keys, key), &owedLine{places: -1}
			return nil
		}, min(limit, mostHanded)))
		if err != nil {
			return err
		}
		n = len(l.keys)
		var qs []*query
		if n > 0 {
			if qs, err = l.pay(t, &eff); err != nil {
				return err
			}
		}
		return t.commit(append(qs, read(whatIsOwed, func(r *reader) error {
			for range 4 {
				eff.Owed = r.bool() || eff.Owed
			}
			return nil
		}))...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	s.limited.Delete(l.tenant)
	return n, eff, nil
}

// owedLines are lines of a tenant whose groups have changed, so that their places may have, too.
type owedLines struct {
	tenant string
	keys   []string
	of     map[string]*owedLine
}

type owedLine struct {
	groups []groups.Group // that close it
	places int            // that they leave; negative: none closes it
	most   int            // of the limit that is set
	set    bool           // there is one
	closed bool
	walks  bool // its limit takes in jobs that are there
	waits  bool // jobs wait in it
}

// pay looks at lines, and returns what writes what becomes of them.
func (l *owedLines) pay(t *tx, eff *store.Effects) ([]*query, error) {
	err := t.send(read(lineGroups, func(r *reader) error {
		g, err := r.group()
		at := l.of[g.Block.Line]
		at.groups = append(at.groups, g)
		if at.places < 0 || g.Places < at.places {
			at.places = g.Places
		}
		return err
	}, l.tenant, l.keys), read(lineLimits, func(r *reader) error {
		at := l.of[r.text()]
		at.most, at.set, at.closed, at.walks, at.waits = r.int(), r.bool(), r.bool(), r.bool(), r.bool()
		return nil
	}, l.tenant, l.keys, values(l.keys, func(key *string) string { return job.Family(*key) })))
	if err != nil {
		return nil, err
	}
	var p grouping
	var shut, open []string
	var places []int
	var walks []bool
	for _, key := range l.keys {
		at := l.of[key]
		if implied := job.Implied(key); implied != nil && !at.set {
			at.most, at.set = implied.Most, true
		}
		if at.places > 0 && (at.set && at.most <= at.places || !at.waits && !at.walks) {
			for i := range at.groups {
				at.groups[i].Places = -1
			}
			p.groups, at.places = append(p.groups, at.groups...), -1
		}
		switch {
		case at.places >= 0:
			shut, places, walks = append(shut, key), append(places, at.places), append(walks, !at.set && !at.closed)
		case at.closed:
			open = append(open, key)
		}
	}
	qs := p.queries()
	if len(shut) > 0 {
		qs = append(qs, do(closeLines, l.tenant, shut, places, walks), do(closeLimits, l.tenant))
	}
	if len(open) > 0 {
		qs = append(qs, do(dropLimits, l.tenant, open), do(openLines, l.tenant, open))
	}
	var c changes
	if err := t.send(append(qs, c.linesUnder(l.tenant,
		func(of string) bool { return l.of[of] != nil || l.of[job.Family(of)] != nil }))...); err != nil {
		return nil, err
	}
	c.effects(eff)
	return c.turns(), nil
}

var (
	// pickLine tells the statements that follow whose lines have waited for the longest.
	pickLine = `SELECT set_config('job.payer', o.tenant, true)
		FROM (SELECT o.tenant FROM pawl.lines_owed o ORDER BY o.seq LIMIT 1) o`

	// takeLines takes the debts of up to $1 lines. The transaction that owed one has committed how
	// its group stands.
	takeLines = `
WITH keys AS MATERIALIZED (
	SELECT o.key FROM (
		SELECT o.key, o.seq FROM pawl.lines_owed o WHERE o.tenant = (SELECT current_setting('job.payer', true))
			ORDER BY o.tenant, o.seq LIMIT 1000
	) o GROUP BY o.key ORDER BY min(o.seq) LIMIT $1
), gone AS (
	DELETE FROM pawl.lines_owed o WHERE o.tenant = (SELECT current_setting('job.payer', true))
		AND coalesce(o.key IN (SELECT k.key FROM keys k), false) -- looked up, and not joined
)
SELECT current_setting('job.payer', true), k.key FROM keys k`

	// lineGroups locks the groups that close lines, and returns them.
	lineGroups = `SELECT ` + groupColumns +
		` FROM pawl.groups g WHERE g.tenant = $1 AND g.line = ANY ($2::text[]) AND g.places >= 0 ORDER BY g.key
			FOR UPDATE`

	// isSet is the condition that a limit was set: a closed line has one of its own.
	isSet = `(l.places IS NULL OR l.set_most IS NOT NULL)`

	// lineLimits returns how lines stand: the limit that is set for each, or for its family in $3,
	// whether it is closed, whether its limit takes in jobs, and whether a job waits there.
	lineLimits = `
SELECT k.key, s.most, s.most IS NOT NULL, o.places IS NOT NULL, o.walked IS NOT NULL,
	EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = ANY (ARRAY[k.key, 'ahead/' || k.key]) OFFSET 0)
FROM unnest($2::text[], $3::text[]) k(key, family)
LEFT JOIN LATERAL (SELECT o.places, o.walked FROM pawl.limits o WHERE o.tenant = $1 AND o.key = k.key
	OFFSET 0) o ON true
LEFT JOIN LATERAL (SELECT coalesce(l.set_most, l.then_most, l.most) AS most FROM pawl.limits l
	WHERE l.tenant = $1 AND l.key = ANY (ARRAY[k.key, k.family]) AND ` + isSet + ` ORDER BY l.key = k.key DESC
		LIMIT 1) s ON true`

	// closeLines closes lines: $2 are keys, $3 the places that are left, $4 whether to take in the
	// jobs whose own key it is. closeLimits sets the limits.
	closeLines = `
INSERT INTO pawl.limits AS l (tenant, key, most, places, walked, walked_at, then_most, then_ahead)
SELECT $1, s.key, 0, s.places, CASE WHEN s.walks THEN '00000000-0000-0000-0000-000000000000'::uuid END, CASE
	WHEN s.walks THEN pawl.clock() END,
	CASE WHEN s.walks THEN 0 END, CASE WHEN s.walks THEN 0 END
FROM unnest($2::text[], $3::int[], $4::bool[]) s(key, places, walks)
ON CONFLICT (tenant, key) DO UPDATE SET places = excluded.places,
	set_most = CASE WHEN l.places IS NULL THEN coalesce(l.then_most, l.most) ELSE l.set_most END,
	set_ahead = CASE WHEN l.places IS NULL THEN coalesce(l.then_ahead, l.ahead) ELSE l.set_ahead END`

	// closeLimits sets the limits of closed lines to what groups leave of the limit set for each,
	// or for its family, as [job.Limit.Shut] says. A limit lets no job go while it, or that of its
	// family, takes in jobs.
	closeLimits = `
UPDATE pawl.limits l SET most = CASE WHEN l.walked IS NULL THEN e.most ELSE 0 END, ahead = CASE
	WHEN l.walked IS NULL THEN e.ahead ELSE 0 END,
	then_most = CASE WHEN l.walked IS NOT NULL THEN e.most END, then_ahead = CASE WHEN l.walked IS NOT NULL
		THEN e.ahead END,
	weights = CASE WHEN l.set_most IS NULL THEN e.weights ELSE l.weights END
FROM (
	SELECT s.key, least(b.most, s.places) AS most,
		least(CASE WHEN b.ahead > 0 THEN b.ahead ELSE 2 * b.most END, 2 * s.places) AS ahead, b.weights
	FROM (SELECT * FROM pawl.limits s WHERE s.tenant = $1 AND s.places IS NOT NULL OFFSET 0) s LEFT JOIN LATERAL (
		SELECT s.set_most AS most, s.set_ahead AS ahead, s.weights WHERE s.set_most IS NOT NULL
		UNION ALL
		SELECT f.most, f.ahead, f.weights FROM pawl.limits f
		WHERE s.set_most IS NULL AND f.tenant = $1 AND f.key = regexp_replace(s.key, '/[^/]*$', '/*') AND f.key <> s.key
	) b ON true
) e WHERE l.tenant = $1 AND l.key = e.key`

	// openLines opens lines: their limits are what was set. dropLimits removes limits that nobody
	// has set.
	openLines = `
UPDATE pawl.limits l SET most = CASE WHEN l.walked IS NULL THEN l.set_most ELSE 0 END, ahead = CASE
	WHEN l.walked IS NULL THEN l.set_ahead ELSE 0 END,
	then_most = CASE WHEN l.walked IS NOT NULL THEN l.set_most END, then_ahead = CASE WHEN l.walked IS NOT NULL
		THEN l.set_ahead END,
	places = NULL, set_most = NULL, set_ahead = NULL
WHERE l.tenant = $1 AND l.key = ANY ($2::text[]) AND l.places IS NOT NULL`
	dropLimits = `DELETE FROM pawl.limits l WHERE l.tenant = $1 AND l.key = ANY ($2::text[]) AND NOT ` + isSet

	// closedLines are the lines that are closed, and the places that are left.
	closedLines = `SELECT l.key, l.places FROM pawl.limits l WHERE l.tenant = $1 AND l.places IS NOT NULL`
)
