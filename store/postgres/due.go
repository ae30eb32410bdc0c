package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
)

// Due implements [store.Jobs].
func (s *Store) Due(ctx context.Context, limit int) (int, store.Effects, error) {
	var n int
	var eff store.Effects
	var d dues
	call := s.write
	if limit == 0 { // nothing is moved
		call = s.call
	}
	err := call(ctx, everyone, func(t *tx) error {
		n, eff = 0, store.Effects{}
		var qs []*query
		if limit > 0 {
			qs = append(qs, read(dueJobs, func(r *reader) error {
				n++
				ready, line := r.bool(), job.QueueKind{Queue: r.text(), Kind: r.text()}
				if ready {
					eff.Announce(line)
				}
				eff.Owed = r.bool() || eff.Owed
				return nil
			}, limit))
		}
		return t.commit(append(qs, d.query())...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	// Blocked jobs are locked along with their groups, in transactions of their own.
	then := func(due time.Time, f func(context.Context, int) (int, store.Effects, dues, error)) {
		if err != nil || n >= limit || due.IsZero() || due.After(d.now) {
			return
		}
		var some int
		var more store.Effects
		var left dues
		if some, more, left, err = f(ctx, limit-n); err != nil {
			return
		}
		n, d = n+some, left
		eff.Merge(&more)
	}
	then(d.fails, s.lapse)
	then(d.wakes, s.release)
	if err != nil && n == 0 {
		return 0, store.Effects{}, err
	}
	eff.Due = d.first() // which has passed, where something went wrong
	return n, eff, nil
}

// Dues are the times at which something is due.
type dues struct {
	gate  time.Time // for a job behind a schedule gate
	wakes time.Time // for a group
	fails time.Time // for a job that is blocked
	now   time.Time
}

func (d *dues) query() *query {
	return read(whatIsDue, func(r *reader) error {
		d.gate, d.wakes, d.fails, d.now = r.time(), r.time(), r.time(), r.time()
		return nil
	})
}

// first is the first of them; zero: there is none.
func (d *dues) first() time.Time {
	var eff store.Effects
	for _, at := range [...]time.Time{d.gate, d.wakes, d.fails} {
		eff.Soon(at)
	}
	return eff.Due
}

// When something is due at first: for jobs behind a schedule gate, for groups, and for the jobs of
// these that are to fail, as [groups.Group.Fails] says, which of the jobs of a group is the one
// that is to fail first.
var (
	gateDue   = store.SQL(`(SELECT min(j.due) FROM pawl.jobs j WHERE j.custody = {Gate} AND j.due IS NOT NULL)`)
	groupsDue = `(SELECT min(g.wake) FROM pawl.groups g WHERE g.wake IS NOT NULL)`
	failsDue  = `(SELECT min(CASE WHEN g.next > u.until THEN u.until
		ELSE u.until + interval '` + strconv.Itoa(int(groups.LateTestGrace.Seconds())) + ` seconds' END) FROM pawl.groups g
		CROSS JOIN LATERAL (SELECT ` + firstUntil + ` AS until OFFSET 0) u WHERE g.next IS NOT NULL)`
	firstDue  = `least(` + gateDue + `, ` + groupsDue + `, ` + failsDue + `)`
	whatIsDue = `SELECT ` + gateDue + `, ` + groupsDue + `, ` + failsDue + `, pawl.clock()`
)

// dueJobs moves jobs whose time has come out of their gate, as [job.Next] says. Where another gate
// still holds one, the schedule does not any more. A job under limits, which has no turns while it
// waits for a time, takes its place in line, and one in order that has not kept its turn there: it
// waits for its turn since now, and no history tells of that.
var dueJobs = store.SQL(`
WITH x AS MATERIALIZED (
	SELECT pawl.clock() AS now, ` + ord + ` AS ord
), due AS MATERIALIZED (
	SELECT j.id FROM pawl.jobs j WHERE j.custody = {Gate} AND j.due <= (SELECT now FROM x) ORDER BY j.due
		LIMIT $1 FOR UPDATE SKIP LOCKED
), ` + dueHistory + `, owed AS (
	INSERT INTO pawl.turns_owed (tenant, key, at)
	SELECT DISTINCT m.tenant, m.line, x.now FROM x, moved m WHERE m.line IS NOT NULL
)
SELECT m.goes, m.queue, m.kind, m.line IS NOT NULL FROM moved m`)

// goes says of a job in custody gate whose time has come that it is ready. One that waited for its
// moment has all else that it needs, unless a limit has been set meanwhile: then it has no turn for
// its launch.
var goes = store.SQL(`CASE j.state WHEN {Waiting} THEN j.needs = 0
	AND (j.ties & {TieLimited} = 0 OR j.ties & {TieOrder} <> 0 AND j.limits IS NULL)
	WHEN {SubmittingJob} THEN j.ties & ({TieLimited} | {TieTurn}) <> {TieLimited}
		OR j.limits IS NULL ELSE true END`)
