package postgres

import (
	"bytes"
	"context"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// walk makes a step of a walk by which limits of a tenant take in the jobs that are there: it looks
// at up to most jobs. It is a transaction of its own, which takes the tenant's turns lock before
// jobs, and before that waits for submissions, some of which wait for the turns lock.
func (s *Store) walk(ctx context.Context, most int) (n int, turns bool, eff store.Effects, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		n, turns, eff = 0, false, store.Effects{}
		w := walkStep{set: map[string]bool{}}
		w.cause = job.CauseTurn
		err := t.send(read(pickWalk, func(r *reader) error { w.awaited = r.bool(); return nil }), do(lockPayer),
			read(walksOf, func(r *reader) error {
				w.tenant = r.text()
				key, walked := r.text(), r.id()
				w.set[key] = true
				if r.bool() {
					w.walks(key, walked)
				}
				return nil
			}))
		if err == nil && len(w.keys) > 0 {
			n, err = w.step(t, most)
		}
		if err != nil {
			return err
		}
		w.effects(&eff)
		return t.commit(append(w.queries(), read(whatIsOwed, func(r *reader) error {
			eff.Owed = r.bool()
			turns = r.bool()
			walks, lines := r.bool(), r.bool()
			eff.Owed = eff.Owed || turns || walks || lines
			return nil
		}))...)
	})
	if err != nil {
		return 0, false, store.Effects{}, err
	}
	return n, turns, eff, nil
}

// A walkStep is a step of the walk of a tenant's limits.
type walkStep struct {
	changes
	tenant string
	set    map[string]bool // keys of its limits
	keys   []string        // keys of the limits that walk
	last   job.ID          // the last job that all of them have looked at
	done   bool            // no job is left to look at

	awaited bool // it has waited for submissions that were under way

	jobs  []walkedJob
	found []job.Job // jobs that are under more keys from now on
}

// A walkedJob is a job as it was submitted, with the keys that it is to be under and is not yet.
type walkedJob struct {
	job.Job
	missing []string // keys
}

func (w *walkStep) walks(key string, walked job.ID) {
	if len(w.keys) == 0 || bytes.Compare(walked[:], w.last[:]) < 0 {
		w.last = walked
	}
	w.keys = append(w.keys, key)
}

// decides reports whether there is a limit that decides on the turns of a key.
func (w *walkStep) decides(key string) bool { return w.set[key] || w.set[job.Family(key)] }

// walk reports whether the limit that decides on the turns of a key walks.
func (w *walkStep) walk(key string) bool {
	if key = job.LimitOf(key); !w.set[key] {
		key = job.Family(key)
	}
	return slices.Contains(w.keys, key)
}

// step looks at jobs, and returns how many.
func (w *walkStep) step(t *tx, most int) (n int, err error) {
	if w.last.IsZero() && !w.awaited { // a limit was set meanwhile
		w.keys = nil
		return 1, nil
	}
	looked := 0
	err = t.send(read(walkPage, func(r *reader) error {
		looked++
		w.last = r.id()
		if !r.bool() {
			return nil // of another tenant
		}
		n++
		a := walkedJob{Job: job.Job{
			ID: w.last, Owner: r.text(), Kind: r.text(), Limits: r.texts(),
			Ties: job.Ties(r.int()), Live: r.bool(), Request: r.json(),
		}}
		a.Custody = job.Custody(r.text())
		if a.missing = turns.NewKeys(&a.Job, w.decides, w.walk); len(a.missing) > 0 {
			w.jobs = append(w.jobs, a)
		}
		return nil
	}, w.tenant, [16]byte(w.last), most))
	if err == nil && len(w.jobs) > 0 {
		err = w.take(t)
	}
	if w.done = looked < most; err == nil && w.done {
		err = t.send(w.linesUnder(w.tenant,
			func(of string) bool { return slices.Contains(w.keys, of) || slices.Contains(w.keys, job.Family(of)) }))
	}
	return max(1, n), err
}

// take puts jobs under the keys that they miss.
func (w *walkStep) take(t *tx) error {
	l, err := t.lock(values(w.jobs, func(a *walkedJob) job.ID { return a.ID }))
	if err != nil {
		return err
	}
	w.now = l.now
	for _, a := range w.jobs {
		j := l.jobs[a.ID]
		if j == nil || j.State.Terminal() {
			continue
		}
		under, turns, back := j.Under(a.missing)
		for _, key := range turns {
			w.taken = append(w.taken, turn{under.ID, key, under.Tenant, under.Owner})
		}
		w.owe(&under, job.Owes(j, &under))
		if under.Line != j.Line {
			w.inLine = append(w.inLine, under)
		}
		if back != nil {
			if _, err := w.add(&under, *back); err != nil {
				return err
			}
		}
		w.found = append(w.found, under)
	}
	return nil
}

// queries returns what writes the step.
func (w *walkStep) queries() (qs []*query) {
	if len(w.found) > 0 {
		qs = append(qs, do(takeIn, values(w.found, func(j *job.Job) [16]byte { return j.ID }),
			values(w.found, func(j *job.Job) int { return int(j.Ties) }), values(w.found,
				func(j *job.Job) string { return j.Owner }),
			column(w.found, func(j *job.Job) *string { return arrayText(j.Limits) })))
	}
	qs = append(qs, w.changes.queries()...)
	switch {
	case len(w.keys) == 0:
	case w.done:
		qs = append(qs, do(endWalk, w.tenant), do(closeLimits, w.tenant))
	default:
		qs = append(qs, do(walkOn, w.tenant, [16]byte(w.last)))
	}
	return qs
}

var (
	// pickWalk says to the statements that follow which tenant's walk waits for the longest. Before
	// its first step it waits for open transactions that write for the tenant: they may contain
	// jobs that were submitted when no limit was set. A later transaction waits for this one, and
	// sees the limit. See [Store.prelude].
	pickWalk = `
SELECT CASE WHEN w.first THEN pg_advisory_xact_lock(hashtextextended('pawl.submissions/'||w.tenant,
	0)) IS NOT NULL ELSE false END, set_config('job.payer', w.tenant, true) FROM (
	SELECT l.tenant, EXISTS (SELECT FROM pawl.limits f WHERE f.tenant = l.tenant
		AND f.walked = '00000000-0000-0000-0000-000000000000') AS first
	FROM pawl.limits l WHERE l.walked IS NOT NULL ORDER BY l.walked_at LIMIT 1
) w`

	// lockPayer takes the turns lock of the tenant: see lockTurns. It waits for the lock: a walk
	// that goes on only while nobody else works might never do so.
	lockPayer = `SELECT pg_advisory_xact_lock(hashtextextended('pawl.turns/'||p.tenant, 0))
		FROM (SELECT nullif(current_setting('job.payer', true), '') AS tenant) p WHERE p.tenant IS NOT NULL`

	walksOf = `SELECT l.tenant, l.key, l.walked, l.walked IS NOT NULL FROM pawl.limits l
		WHERE l.tenant = (SELECT current_setting('job.payer', true))`

	// shareSubmissions takes the lock that writers for a tenant $1 share: see pickWalk.
	shareSubmissions = `SELECT pg_advisory_xact_lock_shared($2),
		pg_advisory_xact_lock_shared(hashtextextended('pawl.submissions/'||$1::text, 0))`

	// walkPage reads the $3 jobs that come after $2. Those of other tenants are passed over: the
	// walk goes along the only index that has all jobs in an order which does not change. A request
	// with \u0000, or with half a pair of surrogates, cannot be taken apart by PostgreSQL.
	walkPage = store.SQL(`
SELECT p.id, p.mine, s.owner, s.kind, p.limits, p.ties, p.live, CASE WHEN s.kind <> {KindApp} THEN NULL
	WHEN strpos(s.request::text, '\u') > 0 THEN s.request ELSE json_build_object('system', s.request -> 'system', 'resources',
		json_build_object('partition', s.request #> '{resources,partition}')) END, p.custody
FROM (SELECT j.id, j.tenant = $1 AS mine, j.limits, j.ties, j.live, j.custody FROM pawl.jobs j WHERE j.id > $2
	ORDER BY j.id LIMIT $3) p
LEFT JOIN LATERAL (SELECT s.owner, s.kind, s.request FROM pawl.specs s WHERE p.mine AND s.id = p.id OFFSET 0) s ON true
ORDER BY p.id`)

	takeIn = `UPDATE pawl.jobs j SET ties = ($2::int[])[array_position($1::uuid[], j.id)],
		owner = ($3::text[])[array_position($1::uuid[], j.id)],
	limits = ($4::text[])[array_position($1::uuid[], j.id)]::text[] WHERE j.id = ANY ($1::uuid[])`

	walkOn = `UPDATE pawl.limits l SET walked = greatest(l.walked, $2::uuid), walked_at = pawl.clock()
		WHERE l.tenant = $1 AND l.walked IS NOT NULL`

	endWalk = `UPDATE pawl.limits l SET walked = NULL, walked_at = NULL, most = l.then_most,
		ahead = l.then_ahead, then_most = NULL, then_ahead = NULL
	WHERE l.tenant = $1 AND l.walked IS NOT NULL`

	// whatIsOwed says of debts of each class whether there are some.
	whatIsOwed = `SELECT EXISTS (SELECT FROM pawl.followups), EXISTS (SELECT FROM pawl.turns_owed), ` + anyWalk +
		`, ` + anyLine
	anyWalk = `EXISTS (SELECT FROM pawl.limits l WHERE l.walked IS NOT NULL)`
	anyLine = `EXISTS (SELECT FROM pawl.lines_owed)`
)
