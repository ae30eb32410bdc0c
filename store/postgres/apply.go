package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Apply implements [store.Jobs]. If a change meets a wish that it did not know, package job diverts
// it and it is sent again. If changes take several transactions, the claim goes with the first one.
func (s *Store) Apply(ctx context.Context, cs []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	if along == nil {
		answers, eff, err := s.apply(ctx, cs, nil)
		eff.AfterClaim(nil)
		return answers, nil, eff, err
	}
	claim := newClaiming(*along)
	answers, eff, err := s.apply(ctx, cs, claim)
	if err != nil {
		return nil, nil, eff, err
	}
	eff.AfterClaim(claim.jobs)
	return answers, claim.sorted(), eff, nil
}

func (s *Store) apply(ctx context.Context, cs []job.Change, claim *claiming) ([]store.Applied, store.Effects, error) {
	var eff store.Effects
	asked := make([]asking, len(cs))
	seen := make(map[job.ID]bool, len(cs))
	for i := range cs {
		c := &cs[i]
		if seen[c.Job] {
			return nil, eff, job.Errorf(job.Internal, "two changes of job %s in one call", c.Job)
		}
		if err := c.Check(); err != nil {
			return nil, eff, err
		}
		seen[c.Job] = true
		asked[i] = asking{
			Change: *c, asked: *c, at: i, digest: c.Digest(), cause: job.CauseWork,
			limited: c.From.Limited || c.Set.Block != nil,
		}
	}
	answers := make([]store.Applied, len(cs))
	eff.BeforeClaim()
	asked, reports := reporting(asked)
	for len(asked)+len(reports) > 0 {
		tasks, others := finishing(asked)
		var again []asking
		var done []bool
		err := s.write(ctx, everyone, func(t *tx) error {
			again, done = nil, make([]bool, len(tasks))
			turning, turns := s.turning.Load(), false
			if claim != nil {
				t.last = claim.queries(turning)
			}
			plain, limited := apart(others)
			qs := hold(slices.Concat(asked, reports), len(others)+len(reports) > 0)
			if len(reports) > 0 {
				qs = append(qs, report(reports, answers))
			}
			if len(tasks) > 0 {
				finished := finish(tasks, turning || anyOf(tasks, func(a *asking) bool { return a.limited }),
					func(i int, limited, owed bool) {
						done[i], answers[tasks[i].at] = true, tasks[i].finished()
						turns = turns || limited
						eff.Owed = eff.Owed || owed
					})
				switch {
				case !turning:
					qs = append(qs, finished)
				// whose turns are handed on later, and the claim comes after that
				case claim == nil || len(limited) > 0:
					qs = append(qs, do(tryTurnsLock, finished.args[0]), finished, passing(&eff, nil))
				case claim.Handed:
					if len(others)+len(reports) == 0 {
						qs = nil // of the one session, it does that, too
					}
					qs, t.last = append(qs, claim.handed(finished.args[0]), finished), []*query{passing(&eff, claim)}
				default:
					qs = append(qs, do(tryTurnsLock, finished.args[0]), finished)
					t.last = append(t.last, passing(&eff, claim))
				}
				defer func() { s.turning.Store(turns) }()
			}
			if len(plain) > 0 {
				qs = append(qs, apply(plain, func(a *asking, r *reader) {
					switch a.answer(r, &answers[a.at], &eff) {
					case "turns":
						a.limited = true
						again = append(again, *a)
					case "wish":
						again = append(again, *a)
					}
				}))
			}
			if len(limited) == 0 {
				return t.commit(qs...)
			}
			var made []*asking
			qs = append(qs, judge(limited, func(a *asking, r *reader) {
				switch a.answer(r, &answers[a.at], &eff) {
				case "turns":
					made = append(made, a)
				case "wish":
					again = append(again, *a)
				}
			}))
			return t.applyLimited(qs, limited, &made, answers, &eff)
		})
		if err != nil {
			return nil, store.Effects{}, err
		}
		for i := range tasks {
			if !done[i] {
				tasks[i].tried = true
				again = append(again, tasks[i])
			}
		}
		asked, reports, claim = again, nil, nil
	}
	return answers, eff, nil
}

// An asking is a change on its way into the database.
type asking struct {
	job.Change            // diverted by the wish that it has met
	asked      job.Change // as it was given
	digest     int64      // of that
	at         int        // its place in the call
	wish       job.Wish   // that it has met
	cause      job.Cause
	tried      bool // as one that finishes a task, and no more
	limited    bool // its job is under limits, or joins a group: package job makes it
}

func flags(p *job.Patch) (n int) {
	for i, set := range [...]bool{p.Intent, p.Over, p.Retry, p.Recovery, p.Crash, p.Clear} {
		if set {
			n |= 1 << i
		}
	}
	return n
}

// hold returns the queries that lock what changes look at: the jobs, too, unless the only statement
// that follows does it.
func hold(cs []asking, jobs bool) []*query {
	sessions, duties := map[job.ID]bool{}, map[string]bool{}
	var resolves [][16]byte
	for i := range cs {
		if cs[i].Set.Resolved != nil {
			resolves = append(resolves, cs[i].Job)
		}
		if f := cs[i].From.Fence; !f.Session.IsZero() {
			sessions[f.Session] = true
		} else if f.Duty != "" {
			duties[f.Duty] = true
		}
	}
	qs := []*query{do(applyFences, uuids(keysIn(sessions)), keysIn(duties))}
	if jobs {
		qs = append(qs, do(applyLock, values(cs, func(c *asking) [16]byte { return c.Job })))
	}
	if len(resolves) > 0 {
		qs = append(qs, do(applySpecs, resolves))
	}
	return qs
}

// apart puts the changes of jobs first that are not known to be under limits.
func apart(cs []asking) (plain, limited []asking) {
	n := 0
	for i := range cs {
		if !cs[i].limited {
			cs[n], cs[i] = cs[i], cs[n]
			n++
		}
	}
	return cs[:n], cs[n:]
}

// judge is the query that says of changes of jobs under limits which of them are to be made;
// answered is called with each and its answer.
func judge(cs []asking, answered func(a *asking, r *reader)) *query {
	return read(judgeChanges, func(r *reader) error { answered(&cs[r.int()-1], r); return nil }, asks(cs)...)
}

// asks are the first parameters of applyChanges.
func asks(cs []asking) []any {
	numbers := func(f func(c *asking) int64) []int64 { return values(cs, f) }
	texts := func(f func(c *asking) string) []string { return values(cs, f) }
	some := func(f func(c *asking) string) []*string {
		return column(cs, func(c *asking) *string { return nonzero(f(c)) })
	}
	return []any{
		values(cs, func(c *asking) [16]byte { return c.Job }),
		numbers(func(c *asking) int64 { return c.From.Epoch }), numbers(func(c *asking) int64 { return c.From.N }),
		texts(func(c *asking) string { return string(c.From.Place.State) }), texts(
			func(c *asking) string { return string(c.From.Place.Custody) }),
		column(cs, func(c *asking) *[16]byte { return nonzero([16]byte(c.From.Fence.Session)) }),
		some(func(c *asking) string { return c.From.Fence.Duty }),
		column(cs, func(c *asking) *int64 { return nonzero(c.From.Fence.Term) }),
		some(func(c *asking) string { return string(c.wish) }),
		numbers(func(c *asking) int64 { return int64(len(c.Path)) }),
		texts(func(c *asking) string { return string(c.To) }),
		numbers(func(c *asking) int64 { return c.digest }),
	}
}

// apply is the query that makes changes of all kinds; answered is called with each and its answer.
func apply(cs []asking, answered func(a *asking, r *reader)) *query {
	for i := range cs {
		cs[i].Path = job.Plain(cs[i].Path)
	}
	some := func(f func(c *asking) string) []*string {
		return column(cs, func(c *asking) *string { return nonzero(f(c)) })
	}
	docs := func(f func(c *asking) json.RawMessage) []*string {
		return column(cs, func(c *asking) *string { return document(f(c)) })
	}
	return read(applyChanges, func(r *reader) error { answered(&cs[r.int()-1], r); return nil }, append(asks(cs),
		values(cs, func(c *asking) string { return string(c.Last().State) }),
		values(cs, func(c *asking) string { return string(job.LaneOf(c.Last().State, true, 0)) }),
		some(func(c *asking) string { return string(c.Last().Code) }), some(
			func(c *asking) string { return c.Last().Message }),
		docs(func(c *asking) json.RawMessage { return c.Last().Data }),
		some(func(c *asking) string { return string(c.Set.Resume) }),
		column(cs, func(c *asking) *int { return nonzero(flags(&c.Set)) }),
		column(cs, func(c *asking) *time.Duration { return nonzero(max(0, c.Set.Delay)) }),
		docs(func(c *asking) json.RawMessage { return c.Set.Resolved }), docs(
			func(c *asking) json.RawMessage { return c.Set.Result }),
		docs(func(c *asking) json.RawMessage { return c.Work }),
		values(cs, func(c *asking) string { return string(c.cause) }),
		column(cs, func(c *asking) *string { // what stands before the last entry
			if len(c.Path) < 2 {
				return nil
			}
			s := encode(stepsOf(c.Path[:len(c.Path)-1]))
			return &s
		}))...)
}

func keysIn[K comparable](m map[K]bool) []K {
	list := make([]K, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	return list
}

// answer reads what became of a change, and returns the verdict on it. A change that met a wish is
// not made yet: the caller diverts it by the wish.
func (a *asking) answer(r *reader, out *store.Applied, eff *store.Effects) string {
	outcome := r.text()
	j := job.Job{ID: a.Job}
	j.State, j.Custody, j.Epoch, j.N = job.State(r.text()), job.Custody(r.text()), r.int64(), r.int64()
	j.Wish, j.WishedBy, j.Live, j.Kind, j.Queue, j.Watch = job.Wish(r.text()), r.text(), r.bool(), r.text(),
		r.text(), r.text()
	j.Due = r.time()
	owed := r.bool()
	if outcome == "wish" {
		j.Session = a.From.Fence.Session
		diverted, bent := job.Divert(&j, a.asked)
		a.Change, a.wish, a.cause = diverted, j.Wish, job.CauseWork
		if bent {
			a.cause = job.CauseDiverted
		}
		return outcome
	}
	if outcome == "turns" {
		return outcome
	}
	*out = store.Applied{Outcome: store.Outcome(outcome), Wish: j.Wish}
	if j.State != "" {
		out.Now = j.Guard(a.From.Fence)
	}
	if out.Outcome == store.OK || out.Outcome == store.Diverted {
		eff.Add(&j)
		eff.Owed = eff.Owed || owed
	}
	return outcome
}

// applyLimited sends queries, and makes those of the changes of jobs under limits on which they
// have decided that they are made. What becomes of turns and groups package job says, as it does
// for all that is not an apply.
func (t *tx) applyLimited(qs []*query, cs []asking, made *[]*asking, answers []store.Applied,
	eff *store.Effects,
) error {
	c := changes{cause: job.CauseWork}
	rows := map[job.ID]*job.Job{}
	err := t.send(append(qs, read(lockedJobs, func(r *reader) error {
		c.now = r.time()
		j := r.row()
		rows[j.ID] = &j
		return nil
	}, values(cs, func(a *asking) [16]byte { return a.Job })))...)
	if err != nil {
		return err
	}
	for _, a := range *made {
		before := rows[a.Job]
		after, err := c.add(before, a.Change)
		if err != nil {
			return err
		}
		c.makers[len(c.makers)-1] = maker{a.From.Fence.Session, a.From.Fence.Duty, a.cause, a.digest}
		answer := store.Applied{Outcome: store.OK, Now: after.Guard(a.From.Fence), Wish: before.Wish}
		if a.cause == job.CauseDiverted {
			answer.Outcome = store.Diverted
		}
		answers[a.at] = answer
	}
	return t.handOver(&c, eff)
}

// lockedJobs are jobs that this transaction has locked.
var lockedJobs = `SELECT pawl.clock(), ` + columns + ` FROM (` + living + ` WHERE j.id = ANY ($1::uuid[])) j ` + itsSpec

// applyFences keeps the holders from being ended until the commit, and so the duties from changing
// hands. Expiry and a takeover of a duty lock the session FOR UPDATE; a renewal, which changes no
// key, passes. An ended session is not locked: its changes are refused, and expiry removes it with
// jobs locked.
const applyFences = `SELECT FROM pawl.sessions s
	WHERE (s.id = ANY ($1::uuid[]) OR s.id = ANY (ARRAY(SELECT d.session FROM pawl.duties d
		WHERE d.name = ANY ($2::text[])))) AND s.ended IS NULL
	ORDER BY s.id FOR KEY SHARE`

// applyLock is a statement of its own: a statement sees the rows as they were when it began, so
// only one that begins after the locks were granted sees what stands.
const applyLock = `SELECT count(*) FROM (SELECT FROM pawl.jobs j WHERE j.id = ANY ($1::uuid[]) ORDER BY j.id FOR
	UPDATE) held`

// applySpecs keeps annotations out of an apply: both lock the same rows.
const applySpecs = `SELECT count(*) FROM (SELECT FROM pawl.specs s WHERE s.id = ANY ($1::uuid[]) ORDER BY s.id
	FOR NO KEY UPDATE) held`

// judged is the beginning of a statement that judges changes, whose last verdict is that they are
// to be made. What it needs for that are the parameters 1 to 12 of applyChanges.
func judged(types, names, columns, verdict string) string {
	return store.SQL(`
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now, ` + ord + ` AS ord
), sessions_alive AS MATERIALIZED (
	SELECT s.id FROM pawl.sessions s WHERE s.id = ANY ($6::uuid[]) AND s.ended IS NULL AND s.lease_until > pawl.clock()
), duties_alive AS MATERIALIZED (
	SELECT d.name, d.term FROM pawl.duties d JOIN pawl.sessions s ON s.id = d.session
	WHERE d.name = ANY ($7::text[]) AND s.ended IS NULL AND s.lease_until > pawl.clock()
), judged AS (
	SELECT c.*, ` + columns + `coalesce(c.met, '') AS wish, j.id, j.tenant, j.state AS at_state,
		j.custody AS at_custody,
		j.epoch AS at_epoch, j.n AS at_n, j.wish AS at_wish, j.wished_by, j.live, j.queue, j.kind, j.watch,
		e.id AS ended, e.state AS ended_state, e.epoch AS ended_epoch, e.n AS ended_n,
		m.state AS made_state, m.custody AS made_custody, m.cause AS made_cause,
		CASE
		WHEN m.change = c.digest THEN 'made'
		WHEN j.id IS NULL OR j.epoch <> c.epoch THEN 'fenced'
		WHEN c.session IS NOT NULL AND c.session NOT IN (SELECT a.id FROM sessions_alive a) THEN 'fenced'
		WHEN c.session IS NULL
			AND ((c.duty, coalesce(c.term, 0)) IN (SELECT a.name, a.term FROM duties_alive a)) IS NOT TRUE THEN 'fenced'
		-- A session decides on the jobs that it holds, a duty on those that run or are blocked.
		WHEN j.custody = {Worker} AND j.session IS DISTINCT FROM c.session THEN 'fenced'
		WHEN j.custody <> {Worker} AND (c.duty IS NULL OR j.custody NOT IN ({Monitor}, {Recovery})) THEN 'fenced'
		WHEN j.n <> c.n OR j.state <> c.from_state OR j.custody <> c.from_custody THEN 'conflict'
		WHEN j.custody IN ({Worker}, {Monitor}) AND c.custody <> j.custody AND j.wish <> coalesce(c.met, '') THEN 'wish'
		` + verdict + `
		END AS verdict, x.now, x.ord AS tx_ord
	FROM x CROSS JOIN unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::uuid[],
		$7::text[], $8::bigint[], $9::text[],
		$10::int[], $11::text[], $12::bigint[]` + types + `)
		WITH ORDINALITY c(job, epoch, n, from_state, from_custody, session, duty, term, met, steps, custody,
			digest` + names + `, i)
	LEFT JOIN LATERAL (SELECT * FROM pawl.jobs j WHERE j.id = c.job OFFSET 0) j ON true
	LEFT JOIN LATERAL (SELECT * FROM pawl.ended e WHERE e.id = CASE WHEN j.id IS NULL THEN c.job END OFFSET 0) e ON true
	LEFT JOIN LATERAL (
		SELECT v.state, v.custody, v.cause, v.change FROM pawl.events v
		WHERE (j.id IS NULL OR j.epoch <> c.epoch OR j.n <> c.n) AND v.job = c.job AND v.n = c.n + c.steps
			AND v.sub = 0 AND v.epoch = c.epoch
		OFFSET 0
	) m ON true
	OFFSET 0 -- what is computed once is not computed again by everyone who asks for it; the same below
)`)
}

// judgeChanges is applyChanges for jobs that are known to be under limits: where the guard holds it
// answers the verdict turns, and it makes no change.
var judgeChanges = store.SQL(judged(``, ``, ``, `ELSE 'turns'`) + `
SELECT m.i, CASE m.verdict WHEN 'made' THEN CASE m.made_cause WHEN {CauseDiverted} THEN 'diverted' ELSE 'applied' END
	ELSE m.verdict END,
	CASE m.verdict WHEN 'made' THEN m.made_state ELSE coalesce(m.at_state, m.ended_state) END,
	CASE m.verdict WHEN 'made' THEN m.made_custody ELSE coalesce(m.at_custody, {None}) END,
	CASE m.verdict WHEN 'made' THEN m.epoch + (m.made_custody <> m.from_custody)::int
		ELSE coalesce(m.at_epoch, m.ended_epoch) END,
	CASE m.verdict WHEN 'made' THEN m.n + m.steps ELSE coalesce(m.at_n, m.ended_n) END,
	m.at_wish, m.wished_by, m.live, m.kind, m.queue, m.watch, NULL::timestamptz, false
FROM judged m`)

// applyChanges makes each change whose guard holds, as [job.Job.Apply] says, and answers each:
//
//	applied, diverted   made now, or made before (its last history row has its digest)
//	fenced, conflict  refused; the row stands as answered
//	wish              not made: a wish stands on the row that the change had not met
//	turns             not made: the job is under limits, and turns may come of it
//
//	1 job    4 state    7 duty  10 steps    13 state    17 data    21 resolved  25 all entries but
//	2 epoch  5 custody  8 term  11 custody  14 lane     18 resume  22 result       the last
//	3 n      6 session  9 wish  12 digest   15 code     19 flags   23 work
//	                                        16 message  20 delay   24 cause
//
// 2 to 5 are where the change goes out from, 10 to 23 what it makes. flags: 1 intent, 2 over, 4
// retry, 8 recovery, 16 crash, 32 clear. lane: that of a program which is no suspect.
var applyChanges = store.SQL(judged(`, $13::text[], $14::text[], $15::text[], $16::text[], $17::json[], $18::text[],
	$19::int[], $20::interval[],
		$21::json[], $22::json[], $23::json[], $24::text[], $25::json[]`,
	`, state, lane, code, message, data, resume, set_flags, delay, resolved, result, work, cause, path`,
	`coalesce(c.set_flags, 0) AS flags, CASE WHEN c.delay IS NOT NULL THEN x.now + c.delay ELSE j.due END AS new_due,
		j.ord, j.needs, j.ties, j.limits, j.told, j.priority, j.created, j.claim, j.attempt, j.recoveries,
			j.suspect, j.launch, j.since, j.work AS at_work, j.result AS at_result, `,
	`WHEN j.ties & {TieLimited} <> 0
			AND (j.kind = {KindApp} OR c.custody <> {Worker} OR coalesce(c.set_flags, 0) & 4 <> 0)
		THEN 'turns'
		ELSE 'go'`) + `, gated AS (
	SELECT g.*, g.custody IN ({Gate}, {Ready}) AND g.state IN ({Waiting}, {Pending}) AS asks,
		coalesce(g.new_due > g.now, false) OR g.needs > 0 AS shut,
		g.flags & 2 = 0 AND (g.live OR g.flags & 1 <> 0) AS new_live
	FROM judged g OFFSET 0
), placed AS (
	-- The gate has the last word on where a job waits.
	SELECT g.*, g.verdict = 'go' AS go,
		CASE WHEN NOT g.asks THEN g.state WHEN g.shut THEN {Waiting} ELSE {Pending} END AS new_state,
		CASE WHEN g.custody NOT IN ({Gate}, {Ready}) THEN g.custody WHEN g.asks AND g.shut THEN {Gate}
			WHEN g.new_due > g.now AND g.state IN ({ProcessingInputs}, {SubmittingJob}) AND NOT g.new_live
				THEN {Gate} -- it waits for its moment
			ELSE {Ready} END AS new_custody
	FROM gated g OFFSET 0
), made AS MATERIALIZED (
	-- It is read many times. To take a column from a row, those before it have to be walked
	-- through: what is asked of every row stands first, and what few need last.
	SELECT p.go AND p.new_custody = {None} AS ends, p.go AND p.new_custody <> {None} AS goes_on,
		p.go AND p.resolved IS NOT NULL AS resolves, p.go AND p.path IS NOT NULL AS walks,
		p.go AND p.new_live AND p.new_custody IN ({None}, {User}) AS astray, p.ties, p.id, p.go,
		p.new_custody <> p.at_custody AS moved, p.n, p.steps, p.tenant, greatest(p.ord, p.tx_ord) AS new_ord,
			p.epoch, p.new_state, p.new_custody, p.now,
		p.cause, p.session, p.duty, p.code, p.message, p.data, p.digest,
		p.attempt + (p.flags >> 2 & 1) AS new_attempt, p.recoveries + (p.flags >> 3 & 1) AS new_recoveries,
		CASE WHEN p.flags & 32 <> 0 THEN 0
			ELSE p.suspect + (p.flags >> 4 & 1) END AS new_suspect, p.launch + (p.flags & 1) AS new_launch,
		p.created, p.needs, p.told, p.wished_by, coalesce(p.work, p.at_work) AS new_work,
			coalesce(p.result, p.at_result) AS new_result,
		p.i, p.verdict, p.at_wish, p.live, p.kind, p.queue, p.watch, CASE WHEN p.new_custody = {Gate}
			OR p.new_state = {Paused} AND p.resume = {Waiting} THEN p.new_due END AS new_due,
		p.new_live, p.priority, p.lane, p.claim, p.since, p.resume, p.path, p.at_custody,
		p.at_state, p.at_epoch, p.at_n, p.from_custody, p.made_state, p.made_custody, p.made_cause,
			p.ended_state, p.ended_epoch, p.ended_n, p.limits
	FROM placed p
), checked AS MATERIALIZED (
	SELECT count(*) AS n FROM made m WHERE m.astray
		AND pawl.refuse('job ' || m.id || ': ' || m.new_state || ' with a launch whose end is not known')
), ` + applyHistory + `, freed AS (
	DELETE FROM pawl.unique_keys u WHERE u.job = ANY (ARRAY(SELECT m.id FROM made m
		WHERE m.ends AND m.ties & ({TieUniqueStart} | {TieUniqueDone}) <> 0))
), owed AS (
	INSERT INTO pawl.followups (debt, job, at)
	SELECT {DebtDependants}, m.id, m.now FROM made m WHERE m.ends AND m.ties & {TieDependants} <> 0 ORDER BY m.id
)
SELECT m.i,
	CASE m.verdict WHEN 'go' THEN CASE m.cause WHEN {CauseDiverted} THEN 'diverted' ELSE 'applied' END
		WHEN 'made' THEN CASE m.made_cause WHEN {CauseDiverted} THEN 'diverted' ELSE 'applied' END ELSE m.verdict END,
	CASE m.verdict WHEN 'go' THEN m.new_state WHEN 'made' THEN m.made_state
		ELSE coalesce(m.at_state, m.ended_state) END,
	CASE m.verdict WHEN 'go' THEN m.new_custody WHEN 'made' THEN m.made_custody ELSE coalesce(m.at_custody, {None}) END,
	CASE m.verdict WHEN 'go' THEN m.epoch + m.moved::int WHEN 'made'
		THEN m.epoch + (m.made_custody <> m.from_custody)::int
		ELSE coalesce(m.at_epoch, m.ended_epoch) END,
	CASE WHEN m.verdict IN ('go', 'made') THEN m.n + m.steps ELSE coalesce(m.at_n, m.ended_n) END,
	m.at_wish, m.wished_by, m.live, m.kind, m.queue, m.watch, CASE WHEN m.new_custody = {Gate} THEN m.new_due END,
	m.ends AND m.ties & {TieDependants} <> 0
FROM made m, checked`)
