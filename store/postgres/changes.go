package postgres

import (
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Changes are made of rows that the transaction has locked: package job decides what becomes of
// them, and one query writes it. It is the one way in which a job is changed but for claims and
// applies, which say the same in SQL.
type changes struct {
	cause job.Cause
	actor string // a principal; empty: nobody
	now   time.Time

	before, after []job.Job
	paths         [][]step
	makers        []maker
	freed         []key
	owed          []debt

	joins    []joining
	inLine   []job.Job // that stand in another line: no change, and no history
	returned []turn
	taken    []turn
	handOn   []spot // keys whose free turns are owed to waiting jobs
	later    []spot // the same, where that may wait for [store.FollowUpDelay]
}

// A maker is what makes a change, if that is not the same for all changes.
type maker struct {
	session job.ID
	duty    string
	cause   job.Cause
	digest  int64
}

// A step is an entry of a path with its custody. Its data is a text for PostgreSQL, which could not
// take a list apart that has \u0000 in it.
type step struct {
	job.Entry
	Custody job.Custody `json:"custody,omitempty"`
	Data    string      `json:"data,omitempty"`
}

func stepsOf(path []job.Entry) []step {
	steps := make([]step, len(path))
	for i, e := range path {
		steps[i] = step{Entry: e, Data: string(e.Data)}
	}
	return steps
}

type key struct {
	job  job.ID
	mode job.UniqueMode
}

type debt struct {
	job  job.ID
	debt job.Debt
}

// add makes a change of a row, and returns the row as it will be. c has been diverted.
func (c *changes) add(before *job.Job, ch job.Change) (after job.Job, err error) {
	if err := ch.Check(); err != nil {
		return after, err
	}
	from := *before
	after, path := from.Apply(ch, c.now)
	if after.Live && (after.State.Terminal() || after.Custody == job.User) {
		return after, job.Errorf(job.Internal, "change of job %s: %s with a launch whose end is not known", ch.Job,
			after.Place)
	}
	steps := stepsOf(path)
	for i := range steps {
		steps[i].Custody = before.Custody
	}
	steps[len(path)-1].Custody = after.Custody
	c.before, c.after, c.paths = append(c.before, *before), append(c.after, after), append(c.paths, steps)
	c.makers = append(c.makers, maker{})
	for _, m := range job.Releases(before, &after) {
		c.freed = append(c.freed, key{after.ID, m})
	}
	for _, key := range job.Returned(before, &after) {
		c.returned = append(c.returned, turn{after.ID, key, after.Tenant, after.Owner})
	}
	if ch.Set.Block != nil {
		c.joins = append(c.joins, joining{after, ch.Set.Block})
	}
	c.owe(&after, job.Owes(before, &after))
	return after, nil
}

// owe writes down what a change of a job owes to others.
func (c *changes) owe(j *job.Job, owed []job.Owed) {
	for _, o := range owed {
		if o.Debt == job.DebtTurns {
			c.handOn = append(c.handOn, spot{j.Tenant, o.Key})
		} else {
			c.owed = append(c.owed, debt{j.ID, o.Debt})
		}
	}
}

// open moves a job on that waits at a gate which has opened.
func (c *changes) open(j *job.Job) error {
	if j.State != job.Waiting {
		return nil // paused: the gate is asked again when it is resumed
	}
	p := job.Next(j, job.Pending, c.now)
	if p == j.Place {
		if next := j.InLine(c.now); next.Line != j.Line {
			c.inLine = append(c.inLine, next)
			c.owe(&next, job.Owes(j, &next))
		}
		return nil
	}
	_, err := c.add(j, job.Change{
		Job: j.ID, From: j.Guard(job.Fence{}), To: p.Custody,
		Path: []job.Entry{{State: p.State}},
	})
	return err
}

// effects adds to eff what the changes mean for others.
func (c *changes) effects(eff *store.Effects) {
	for i := range c.after {
		eff.Add(&c.after[i])
		eff.Passed(&c.before[i], &c.after[i])
	}
	eff.Owed, eff.Later = eff.Owed || len(c.owed)+len(c.handOn) > 0, eff.Later || len(c.later) > 0
}

// queries returns what writes the changes.
func (c *changes) queries() []*query {
	if len(c.after) == 0 {
		return c.turns()
	}
	number := func(f func(j *job.Job) int) []int { return values(c.after, f) }
	text := func(f func(j *job.Job) string) []*string {
		return column(c.after, func(j *job.Job) *string { return nonzero(f(j)) })
	}
	times := func(f func(j *job.Job) time.Time) []*time.Time {
		return column(c.after, func(j *job.Job) *time.Time { return instant(f(j)) })
	}
	ids := func(f func(j *job.Job) job.ID) []*[16]byte {
		return column(c.after, func(j *job.Job) *[16]byte { return nonzero([16]byte(f(j))) })
	}
	statement := writeRows
	if anyOf(c.after, func(j *job.Job) bool { return j.State.Terminal() }) {
		statement = writeEnds
	}
	qs := []*query{do(statement, c.now, string(c.cause), nonzero(c.actor),
		values(c.before, func(j *job.Job) [16]byte { return j.ID }),
		values(c.before, func(j *job.Job) int64 { return j.Epoch }), values(c.before,
			func(j *job.Job) int64 { return j.N }),
		values(c.after, func(j *job.Job) string { return string(j.State) }), values(c.after,
			func(j *job.Job) string { return string(j.Custody) }),
		values(c.after, func(j *job.Job) int64 { return j.Epoch }), values(c.after,
			func(j *job.Job) int64 { return j.N }),
		values(c.after, func(j *job.Job) string { return string(j.Lane) }),
		ids(func(j *job.Job) job.ID { return j.Session }), ids(func(j *job.Job) job.ID { return j.Claim }),
		number(func(j *job.Job) int { return j.Attempt }), number(func(j *job.Job) int { return j.Recoveries }),
		number(func(j *job.Job) int { return j.Suspect }), number(func(j *job.Job) int { return j.Launch }),
		values(c.after, func(j *job.Job) bool { return j.Live }),
		times(func(j *job.Job) time.Time { return j.Since }), times(func(j *job.Job) time.Time { return j.Due }),
		times(func(j *job.Job) time.Time { return j.Ended }),
		text(func(j *job.Job) string { return string(j.Wish) }), text(func(j *job.Job) string { return j.WishedBy }),
		text(func(j *job.Job) string { return string(j.Resume) }), text(
			func(j *job.Job) string { return string(j.Code) }),
		text(func(j *job.Job) string { return j.Message }),
		column(c.after, func(j *job.Job) *string { return document(j.Work) }), column(c.after,
			func(j *job.Job) *string { return document(j.Result) }),
		values(c.paths, func(p *[]step) string { return encode(*p) }),
		number(func(j *job.Job) int { return int(j.Ties) }), text(func(j *job.Job) string { return j.Line }),
		column(c.after, func(j *job.Job) *int { return nonzero(j.Passed) }),
		column(c.makers, func(m *maker) *[16]byte { return nonzero([16]byte(m.session)) }),
		column(c.makers, func(m *maker) *string { return nonzero(m.duty) }), column(c.makers,
			func(m *maker) *string { return nonzero(string(m.cause)) }),
		column(c.makers, func(m *maker) *int64 { return nonzero(m.digest) }),
		text(func(j *job.Job) string { return j.Group }), times(func(j *job.Job) time.Time { return j.Until }),
		column(c.after, func(j *job.Job) *string { // of others it is there where it is needed
			if j.Group == "" {
				return nil
			}
			return &j.Owner
		}))}
	if len(c.freed) > 0 {
		qs = append(qs, do(freeKeys, values(c.freed, func(k *key) [16]byte { return k.job }),
			values(c.freed, func(k *key) string { return string(k.mode) })))
	}
	if len(c.owed) > 0 {
		qs = append(qs, do(`INSERT INTO pawl.followups (debt, job, at) SELECT o.debt, o.job, $3
			FROM unnest($1::uuid[], $2::text[]) o(job, debt)`,
			values(c.owed, func(d *debt) [16]byte { return d.job }), values(c.owed,
				func(d *debt) string { return string(d.debt) }), c.now))
	}
	if resolved := c.resolved(); len(resolved) > 0 {
		qs = append(qs, do(`UPDATE pawl.specs s
			SET resolved = coalesce(s.resolved, ($2::json[])[array_position($1::uuid[], s.id)])
			WHERE s.id = ANY ($1::uuid[])`,
			values(resolved, func(j **job.Job) [16]byte { return (*j).ID }), column(resolved,
				func(j **job.Job) *string { return document((*j).Resolved) })))
	}
	return append(qs, c.turns()...)
}

// resolved returns the jobs that say what they have chosen.
func (c *changes) resolved() (jobs []*job.Job) {
	for i := range c.after {
		if c.after[i].Resolved != nil {
			jobs = append(jobs, &c.after[i])
		}
	}
	return jobs
}

// encode writes v as JSON. What cannot be written is for the database to refuse.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// writeRows writes rows as package job made them from those that are locked: the guard is for
// defects only. writeEnds is the same where some of them have ended.
//
//	1 now    5 epoch    9 epoch    13 claim       17 launch  21 ended      25 code     29 paths
//	2 cause  6 n        10 n       14 attempt     18 live    22 wish       26 message  30 ties
//	3 actor  7 state    11 lane    15 recoveries  19 since   23 wished by  27 work     31 line
//	4 ids    8 custody  12 session 16 suspect     20 due     24 resume     28 result   32 passed
//	33 session, 34 duty, 35 cause and 36 digest of the events  37 group  38 until
//	39 owner of the jobs in a group
//
// 5 and 6 are those of the row before; a path is a JSON list of {state, custody, code, message,
// data}.
var writeRows, writeEnds = writing(false), writing(true)

// freeKeys takes from jobs $1 the unique keys of modes $2.
const freeKeys = `
DELETE FROM pawl.unique_keys u WHERE u.job = ANY ($1::uuid[])
	AND (u.job, u.mode || '') IN (SELECT f.job, f.mode FROM unnest($1::uuid[], $2::text[]) f(job, mode))`

func writing(ends bool) string {
	return store.SQL(`
WITH x AS MATERIALIZED (
	SELECT ` + ord + ` AS ord
), a AS MATERIALIZED (
	SELECT a.*, greatest(j.ord, x.ord) AS ord, j.tenant, j.kind, j.queue, j.priority, j.created,
		j.needs, j.told, j.limits, j.ordered,
		a.custody = {None} AS over
	FROM x CROSS JOIN unnest($4::uuid[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::bigint[],
		$10::bigint[], $11::text[], $12::uuid[],
		$13::uuid[], $14::int[], $15::int[], $16::int[], $17::int[], $18::bool[], $19::timestamptz[],
			$20::timestamptz[], $21::timestamptz[],
		$22::text[], $23::text[], $24::text[], $25::text[], $26::text[], $27::json[], $28::json[], $29::json[],
		$30::int[], $31::text[], $32::int[], $33::uuid[], $34::text[], $35::text[], $36::bigint[], $37::text[],
			$38::timestamptz[], $39::text[])
		a(id, was_epoch, was_n, state, custody, epoch, n, lane, session, claim, attempt, recoveries, suspect,
			launch, live, since, due, ended,
		wish, wished_by, resume, code, message, work, result, path, ties, line, passed, maker, duty, made,
			digest, grp, until, owner)
	CROSS JOIN LATERAL (SELECT * FROM pawl.jobs j WHERE j.id = a.id AND j.epoch = a.was_epoch AND j.n = a.was_n
		OFFSET 0) j
), ` + changeHistory(ends) + `
SELECT count(*) = cardinality($4::uuid[]) OR pawl.refuse('a job moved under the lock') FROM a`)
}
