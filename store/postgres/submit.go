package postgres

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Submit implements [store.Jobs]. The limits that are set decide which keys a job is under. Submit
// uses the limits that this process read last. If they have changed, the statement that inserts the
// jobs refuses them.
func (s *Store) Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, store.Effects, error) {
	if err := job.CheckTenant(sub.Tenant); err != nil {
		return nil, store.Effects{}, err
	}
	given, asked := sub.Jobs, askedOf(sub.Jobs)
	for try := 1; ; try++ {
		known := s.limitKeys(sub.Tenant)
		sub.Jobs = known.under(given)
		answers, eff, err := s.submit(ctx, sub, checks{asked, known.set(asked)})
		if codeOf(err) == codePassed {
			return nil, store.Effects{}, sub.Advance.Passed()
		}
		if codeOf(err) != codeLimits || try == mostTries {
			return answers, eff, err
		}
		if err := s.learnLimits(ctx, sub.Tenant); err != nil {
			return nil, store.Effects{}, err
		}
	}
}

// submit submits jobs. Those that nothing ties to others are inserted in one piece, in the hope
// that none is there already.
func (s *Store) submit(ctx context.Context, sub store.Submission, limits checks) ([]store.Submitted, store.Effects,
	error,
) {
	var in *insertion
	first := advance(sub.Tenant, sub.Advance)
	if len(sub.Jobs) == 0 && first != nil {
		return nil, store.Effects{}, s.write(ctx, sub.Tenant, func(t *tx) error { return t.commit(first...) })
	}
	if plain(&sub) {
		in = newInsertion(&sub, limits)
		for i := range sub.Jobs {
			in.add(&sub.Jobs[i])
		}
		in.waits = len(in.jobs) >= fewestToWait
		insert := func(t *tx) error { return t.commit(append(first, in.insert()...)...) }
		err := s.write(ctx, sub.Tenant, insert)
		if in.waits && codeOf(err) == codeLockTimeout {
			in.waits = false
			err = s.write(ctx, sub.Tenant, insert)
		}
		if err == nil {
			answers, eff := in.made(len(sub.Jobs))
			return answers, eff, nil
		}
		if !exists(err) {
			return nil, store.Effects{}, err
		}
	}
	var answers []store.Submitted
	var eff store.Effects
	met := false
	err := s.write(ctx, sub.Tenant, func(t *tx) (err error) {
		if met {
			if err := t.taken(&sub); err != nil {
				return err
			}
		}
		if first != nil {
			if err := t.send(first...); err != nil {
				return err
			}
		}
		answers, eff, err = t.submit(&sub, limits)
		if exists(err) { // it was not there when we looked, or not to be seen
			met, err = true, errAgain
		}
		return err
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// plain reports whether nothing has to be looked at before a submission's jobs are inserted.
func plain(sub *store.Submission) bool {
	for _, check := range sub.Queues {
		if check != (store.QueueCheck{}) {
			return false
		}
	}
	return sub.Key == "" && !anyOf(sub.Jobs, func(n *store.New) bool {
		return n.Job.ExternalID != "" || len(n.After) > 0 || len(n.Unique) > 0 || n.Refusal != nil
	})
}

// exists reports whether an insertion met a job that is there already.
func exists(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != codeUnique {
		return false
	}
	switch e.ConstraintName {
	case "specs_pkey", "specs_external", "jobs_pkey", "events_pkey": // whichever was met first
		return true
	}
	return false
}

// taken refuses a submission that gives a job the id of another tenant's. Row security hides that
// job from reads, but not from the insertion, which would meet it each time.
func (t *tx) taken(sub *store.Submission) error {
	ids, id := values(sub.Jobs, func(n *store.New) [16]byte { return n.Job.ID }), job.ID{}
	err := t.send(as(everyone),
		read(`SELECT s.id FROM pawl.specs s WHERE s.id = ANY ($1) AND s.tenant <> $2 ORDER BY s.id LIMIT 1`,
			func(r *reader) error { id = r.id(); return nil }, ids, sub.Tenant),
		as(sub.Tenant))
	if err == nil && !id.IsZero() {
		err = errTaken(id)
	}
	return err
}

func errTaken(id job.ID) error { return job.Errorf(job.Conflict, "job id %s is taken", id) }

// An insertion collects the jobs that a submission makes.
type insertion struct {
	sub    *store.Submission
	now    time.Time // zero: not known
	jobs   []*store.New
	broken map[job.ID]bool // jobs that a prerequisite has failed already: they wait until that is written
	due    map[job.ID]time.Time
	limits checks
	waits  bool // for the turns lock: no job is locked before
	owed   bool // turns are owed
	later  bool // some are that may wait
}

// checks are keys of limits, and those of them that are set, in their order.
type checks struct{ asked, set []string }

func newInsertion(sub *store.Submission, limits checks) *insertion {
	return &insertion{sub: sub, limits: limits, broken: map[job.ID]bool{}, due: map[job.ID]time.Time{}}
}

func (in *insertion) add(n *store.New) { in.jobs = append(in.jobs, n) }

// made returns the answers of a submission all of whose jobs were made.
func (in *insertion) made(n int) ([]store.Submitted, store.Effects) {
	answers, eff := make([]store.Submitted, n), store.Effects{}
	for i, n := range in.jobs {
		answers[i] = in.answer(n, &eff)
	}
	eff.Owed, eff.Later = in.owed, in.later
	return answers, eff
}

// answer returns the answer for a job that was made, and what it means for others.
func (in *insertion) answer(n *store.New, eff *store.Effects) store.Submitted {
	j := job.Job{Kind: n.Job.Kind, Queue: n.Job.Queue, Place: job.Place{State: job.Pending, Custody: job.Ready}}
	if due, gated := in.due[n.Job.ID]; gated {
		j.Place, j.Due = job.Place{State: job.Waiting, Custody: job.Gate}, due
	}
	eff.Add(&j)
	return store.Submitted{ID: n.Job.ID, Place: j.Place}
}

// insert returns the queries that insert the jobs. The last one answers those that are not ready.
func (in *insertion) insert() (qs []*query) {
	js, statement := in.jobs, insertJobs
	if first := in.firstTurns(); len(first) > 0 {
		statement = insertLimited
		switch {
		case len(js) > mostAtOnce:
		case in.waits:
			qs = append(qs, do(turnsLockPatience), do(awaitTurnsLockOf, in.sub.Tenant, first))
		default:
			qs = append(qs, do(tryTurnsLockOf, in.sub.Tenant, first))
		}
	}
	text := func(f func(j *job.Job) string) []string {
		return values(js, func(n **store.New) string { return f(&(*n).Job) })
	}
	some := func(f func(j *job.Job) string) []*string {
		return column(js, func(n **store.New) *string { return nonzero(f(&(*n).Job)) })
	}
	number := func(f func(n *store.New) int) []*int {
		return column(js, func(n **store.New) *int { return nonzero(f(*n)) })
	}
	labels := in.labels()
	args := []any{
		in.sub.Tenant, in.sub.By, values(js, func(n **store.New) [16]byte { return (*n).Job.ID }),
		text(func(j *job.Job) string { return j.Owner }), text(func(j *job.Job) string { return j.Kind }),
		text(func(j *job.Job) string { return j.Name }), text((*job.Job).Stem), some(
			func(j *job.Job) string { return j.App }),
		text(func(j *job.Job) string { return j.Queue }), some(func(j *job.Job) string { return j.Machine }),
		values(js, func(n **store.New) int { return (*n).Job.Priority }), values(js,
			func(n **store.New) int { return (*n).Job.MaxAttempts }),
		some(func(j *job.Job) string { return j.ExternalID }),
		column(js, func(n **store.New) *[]byte {
			if (*n).Job.ExternalID == "" {
				return nil
			}
			b := (*n).Fingerprint[:]
			return &b
		}),
		column(js, func(n **store.New) *[16]byte { return nonzero([16]byte((*n).Job.Parent)) }), some(
			func(j *job.Job) string { return j.Trace }),
		column(js, func(n **store.New) *string { return labelsDocument((*n).Job.Labels) }),
		column(js, func(n **store.New) *string { return document((*n).Job.Notes) }),
		text(func(j *job.Job) string { return string(j.Request) }),
		column(js, func(n **store.New) *time.Duration { return nonzero(max(0, (*n).Delay)) }),
		column(js, func(n **store.New) *time.Time { return instant((*n).Job.Due) }),
		number(func(n *store.New) int { return n.Job.Needs }), number(
			func(n *store.New) int { return int(n.Job.Ties) }),
		column(js, func(n **store.New) *bool { return nonzero(in.broken[(*n).Job.ID]) }),
		labels.keys, labels.values, labels.jobs, instant(in.now),
		in.limits.asked, nonNil(in.limits.set), some(func(j *job.Job) string { return j.Watch }),
	}
	if statement == insertLimited {
		args = append(args, column(js, func(n **store.New) *string { return arrayText((*n).Job.Limits) }),
			column(js, func(n **store.New) *string {
				if (*n).Job.Ties&job.TieLimited == 0 {
					return nil
				}
				j := job.Job{
					Kind: (*n).Job.Kind, Place: job.Place{State: job.Waiting, Custody: job.Gate},
					Ties: (*n).Job.Ties, Limits: (*n).Job.Limits, Order: (*n).Job.Order,
				}
				return nonzero(j.InLine(j.Since).Line)
			}),
			some(func(j *job.Job) string { return j.Order }), some(func(j *job.Job) string { return j.Rank }))
	}
	return append(qs, read(statement, func(r *reader) error {
		in.due[r.id()] = r.time()
		switch owed, later := r.bool(), r.bool(); {
		case owed && later:
			in.later = true
		case owed:
			in.owed = true
		}
		return nil
	}, args...))
}

// mostAtOnce bounds the jobs of a submission that may have their turns at once: while they are
// inserted, no other transaction hands turns on.
const mostAtOnce = 1000

// fewestToWait is from how many jobs on a submission waits for the turns lock, for a second at
// most: its holder may be frozen. To hand turns to so many afterwards takes longer and writes each
// once more. Without the wait 17,000 of 20,000 tasks under 1,000 free keys were left in line.
const fewestToWait = 50

// firstTurns returns the keys of the turns that the jobs need before they go anywhere.
func (in *insertion) firstTurns() (keys []string) {
	seen := map[string]bool{}
	for _, n := range in.jobs {
		for _, key := range n.Job.First() {
			if !seen[key] {
				seen[key], keys = true, append(keys, key)
			}
		}
	}
	return keys
}

// labelRows are rows of the table of labels.
type labelRows struct {
	keys, values []string
	jobs         [][16]byte
}

func (l *labelRows) add(id job.ID, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		l.keys, l.values, l.jobs = append(l.keys, k), append(l.values, labels[k]), append(l.jobs, id)
	}
}

func (in *insertion) labels() (l labelRows) {
	for _, n := range in.jobs {
		l.add(n.Job.ID, n.LabelRows())
	}
	return l
}

// insertJobs inserts the jobs of a submission with their first events. Arrays that are NULL, or end
// early, have NULLs.
//
//	1 tenant  5 kind  9 queue      13 external id  17 labels   21 due     25 keys of labels
//	2 by      6 name  10 machine   14 fingerprint  18 notes    22 needs   26 values of labels
//	3 ids     7 stem  11 priority  15 parent       19 request  23 ties    27 jobs of labels
//	4 owner   8 app   12 attempts  16 trace        20 delay    24 broken
//	28 now, if it has been read already  29 keys of limits  30 those of them that are set  31 watch
//
// The limits are as they are believed to be in the snapshot of this statement, and so in the order
// of transactions: a job that does not know of a limit stands before it. What limits ask of each
// row is left out of its text: a job without one does not pay for it.
var insertJobs = inserting(false, ord)

// insertLimited is insertJobs for jobs some of which are under limits. If this transaction has the
// turns lock, no job waits for a key, and there are enough turns for all its jobs, these have their
// turns at once; jobs of an order only if they need no other turn. IN makes PostgreSQL look up each
// row, where a join might compare all pairs.
//
//	32 keys of its turns  33 the key that it waits for first  34 the key of its order
//	35 its rank there, as [job.Job.RankAt] says
var insertLimited = inserting(true, ord)

// inserting is the statement that inserts jobs. ord is where their events stand in the order of
// all.
func inserting(limited bool, ord string) string {
	microsOf := func(time string) string {
		return `lpad(greatest(0, extract(epoch FROM ` + time + `) * 1000000)::bigint::text, 18, '0')`
	}
	where := func(text string) string { return "" }
	from, owes, later := `given`, `false`, `false`
	if limited {
		from = `(SELECT g.*, g.id IN (SELECT o.id FROM going o) AS goes FROM given g OFFSET 0)`
		where = func(text string) string { return text }
		owes = `n.line IN (SELECT o.key FROM owed o)`
		later = `n.line IN (SELECT l.line FROM lines l WHERE l.later)`
	}
	return store.SQL(`
WITH x AS MATERIALIZED (
	SELECT coalesce($28::timestamptz, pawl.clock()) AS now, ` + ord + ` AS ord
	WHERE CASE WHEN $29::text[] IS NULL THEN true
		WHEN ARRAY(SELECT l.key FROM pawl.limits l WHERE l.tenant = $1 AND l.key = ANY ($29::text[]) ORDER BY l.key)
			= $30::text[] COLLATE "C" THEN true
		ELSE pawl.refuse('the limits have changed', 'PW002') END
), given AS ` + where("MATERIALIZED ") + `(
	SELECT u.*, x.now, x.ord, ` + where("rank.at, ") + `CASE WHEN d.due > x.now
		THEN d.due END AS due, coalesce(d.due > x.now, false) OR coalesce(u.needs > 0, false)
			OR u.broken IS TRUE AS shut
	FROM x CROSS JOIN unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
		$10::text[], $11::int[], $12::int[],
		$13::text[], $14::bytea[], $15::uuid[], $16::text[], $17::json[], $18::json[], $19::json[],
			$20::interval[], $21::timestamptz[],
		$22::int[], $23::int[], $24::bool[], $31::text[]` + where(`, $32::text[], $33::text[], $34::text[], $35::text[]`) + `)
		u(id, owner, kind, name, stem, app, queue, machine, priority, max_attempts, external_id, fingerprint,
			parent, trace, labels, notes,
			request, delay, given, needs, ties, broken, watch` + where(`, limits, first, ordered, rank`) + `)
	CROSS JOIN LATERAL (SELECT CASE WHEN u.delay IS NOT NULL THEN x.now + u.delay ELSE u.given END AS due) d
` + where(`	CROSS JOIN LATERAL (SELECT CASE
		WHEN u.ordered IS NULL OR u.rank <> 'due' THEN u.rank
		WHEN u.rank IS NULL THEN `+microsOf("x.now")+` || u.id::text
		ELSE `+microsOf("coalesce(d.due, x.now)")+` END AS at) rank
), wants AS MATERIALIZED (
	SELECT g.id, g.owner, CASE WHEN g.kind = {KindApp} THEN 'ahead/' ELSE '' END || l.key AS key, true AS enough
	FROM given g CROSS JOIN LATERAL unnest(g.limits::text[]) l(key) WHERE `+payer+` = $1 AND NOT g.shut
		AND g.ordered IS NULL
	UNION ALL
	SELECT g.id, g.owner, g.ordered, g.limits IS NULL FROM given g WHERE `+payer+` = $1 AND NOT g.shut
		AND g.ordered IS NOT NULL
), keys AS MATERIALIZED (
	SELECT k.key, k.n <= k.free AND NOT k.waited AS fits, k.free <= 0 AS full FROM (
		SELECT w.key, count(*) AS n, `+freeOf("w.key")+` AS free,
			EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = w.key) AS waited
		FROM wants w GROUP BY w.key OFFSET 0
	) k
), going AS MATERIALIZED (
	SELECT w.id FROM wants w GROUP BY w.id
		HAVING bool_and(w.enough AND w.key IN (SELECT k.key FROM keys k WHERE k.fits))
`) + `), new AS MATERIALIZED (
	SELECT g.*, g.shut` + where(` OR g.first IS NOT NULL AND NOT g.goes`) + ` AS gated,
		coalesce(g.ties, 0)` + where(` | CASE WHEN NOT g.goes THEN 0 WHEN g.ordered IS NOT NULL THEN {TieOrder}
			WHEN g.kind = {KindApp} THEN {TieAhead} ELSE {TieTurn} END`) + ` AS tied` + where(`,
		CASE WHEN NOT g.shut AND NOT g.goes THEN g.first END AS line`) + `
	FROM ` + from + ` g
), spec AS (
	INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, app, queue, machine, watch, priority, max_attempts,
		created, external_id,
		fingerprint, parent, trace, labels, notes, request)
	SELECT n.id, $1, n.owner, n.kind, n.name, n.stem, coalesce(n.app, ''), n.queue, coalesce(n.machine, ''),
		coalesce(n.watch, ''), n.priority, n.max_attempts, n.now,
		n.external_id, n.fingerprint, n.parent, coalesce(n.trace, ''), n.labels, n.notes, n.request
	FROM new n
), ` + submitHistory(where) + `, label AS (
	INSERT INTO pawl.labels (tenant, key, value, created, job)
	SELECT $1, l.key, l.value, x.now, l.job FROM x, unnest($25::text[], $26::text[], $27::uuid[]) l(key, value, job)
` + where(`), turns AS (
	INSERT INTO pawl.turns (job, key, tenant, owner) SELECT w.id, w.key, $1, w.owner FROM wants w
		WHERE coalesce(w.id IN (SELECT o.id FROM going o), false)
), lines AS MATERIALIZED (
	-- Others stand there, who are owed what is free, or nothing is.
	SELECT l.line, EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = l.line)
		OR l.line IN (SELECT k.key FROM keys k WHERE k.full) AS later
	FROM (SELECT DISTINCT n.line FROM new n WHERE n.line IS NOT NULL OFFSET 0) l
), owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at) SELECT $1, l.line, x.now + CASE WHEN l.later
		THEN interval '`+followUpDelay+`' ELSE interval '0' END FROM x, lines l
	RETURNING key
`) + `)
SELECT n.id, n.due, ` + owes + `, ` + later + ` FROM new n WHERE n.gated`)
}

// submit looks at what is there, decides which jobs are made, and makes them.
func (t *tx) submit(sub *store.Submission, limits checks) (answers []store.Submitted, eff store.Effects, err error) {
	l, err := t.lookUp(sub)
	if err != nil {
		return nil, eff, err
	}
	if l.answered != nil {
		return l.answered, eff, nil // undone, and so are the keys that it has reserved for jobs which are not made
	}
	in := newInsertion(sub, limits)
	in.now = l.now
	ends := changes{cause: job.CausePaid, now: l.now}
	answers = make([]store.Submitted, len(sub.Jobs))
	made := make([]*store.New, len(sub.Jobs))
	for i := range sub.Jobs {
		n := sub.Jobs[i] // a copy: a call that is made again begins from what was given
		a, known, err := l.known(&n)
		if err != nil {
			return nil, eff, err
		}
		if known {
			answers[i] = a
			continue
		}
		failed, err := l.tie(&n)
		if err != nil {
			return nil, eff, err
		}
		if n.Refusal != nil {
			return nil, eff, n.Refusal
		}
		if failed != nil {
			in.broken[n.Job.ID] = true
			j := l.broken(&n)
			if _, err := ends.add(&j, job.Unmet(&j, failed)); err != nil {
				return nil, eff, err
			}
		}
		made[i] = &n
		in.add(&n)
		l.inserts(&n, failed != nil)
	}
	if err := l.admit(in); err != nil {
		return nil, eff, err
	}
	// In the order of external ids: of two bulk calls at once one waits for the other, and never
	// both.
	slices.SortFunc(in.jobs, func(a, b *store.New) int {
		if c := strings.Compare(a.Job.ExternalID, b.Job.ExternalID); c != 0 {
			return c
		}
		return bytes.Compare(a.Job.ID[:], b.Job.ID[:])
	})
	var qs []*query
	if len(in.jobs) > 0 {
		qs = append(qs, in.insert()...)
	}
	qs = append(qs, l.ties()...)
	qs = append(qs, ends.queries()...)
	if sub.Key != "" {
		ids := make([][16]byte, len(sub.Jobs))
		for i, n := range made {
			if n != nil {
				ids[i] = n.Job.ID
			} else {
				ids[i] = answers[i].ID
			}
		}
		qs = append(qs, do(`UPDATE pawl.idempotency SET jobs = $3 WHERE tenant = $1 AND key = $2`, sub.Tenant,
			sub.Key, ids),
			as(everyone), do(forgetKeys, l.now.Add(-store.KeepKey)))
	}
	if err := t.commit(qs...); err != nil {
		return nil, eff, err
	}
	for i, n := range made {
		switch {
		case n == nil:
		case in.broken[n.Job.ID]:
			answers[i] = store.Submitted{ID: n.Job.ID, Place: job.Place{State: job.Canceled, Custody: job.None}}
		default:
			answers[i] = in.answer(n, &eff)
		}
	}
	eff.Owed, eff.Later = in.owed, in.later
	ends.effects(&eff)
	for _, line := range l.lines { // a claim that came by meanwhile passed over them
		eff.Announce(line)
	}
	return answers, eff, nil
}

// forgetKeys deletes idempotency keys older than $1 of all tenants: a call that deleted only its
// own tenant's would read past what the others have left. Each key that is made takes up to ten
// with it, so they never pile up. It waits for nobody, and a call that waits for one of them has
// locked nothing yet.
const forgetKeys = `
DELETE FROM pawl.idempotency i WHERE i.ctid = ANY (ARRAY(
	SELECT k.ctid FROM pawl.idempotency k WHERE k.at < $1 ORDER BY k.at LIMIT 10 FOR UPDATE SKIP LOCKED
))`
