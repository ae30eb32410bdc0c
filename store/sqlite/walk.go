package sqlite

import (
	"database/sql/driver"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// setLimit writes a limit. It owes the walk by which it takes in the jobs that are there, unless
// one decided on its keys before, and has taken in its own, or there can be none.
func (t *tx) setLimit(tenant string, l *job.Limit, doc string, eff *store.Effects) error {
	all, err := t.limitsOf(tenant)
	if err != nil {
		return err
	}
	family := job.Family(l.Key)
	_, walking := all.walks[family]
	_, shut := all.shut[l.Key] // it has taken them in
	walks := all.set[l.Key] == nil && !shut && (all.set[family] == nil || walking)
	if walks && !job.BuiltIn(l.Key) {
		if walks, err = t.anyTurns(tenant, l.Key); err != nil {
			return err
		}
	}
	if walks {
		if err := t.oweWalk(tenant, l.Key, eff); err != nil {
			return err
		}
	}
	_, err = t.exec(`INSERT INTO limits (tenant, key, doc) VALUES (?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE
		SET doc = excluded.doc`, tenant, l.Key, doc)
	return err
}

// oweWalk owes the walk by which a limit, or a line that is closed, takes in the jobs that are
// there.
func (t *tx) oweWalk(tenant, key string, eff *store.Effects) error {
	eff.Owed = true
	_, err := t.exec(`INSERT INTO walks (tenant, key, walked, at) VALUES (?, ?, 0, ?) ON CONFLICT (tenant, key)
		DO UPDATE SET walked = 0, at = excluded.at`,
		tenant, key, micros(t.now))
	return err
}

// anyTurns reports whether a job has a turn on which a limit would decide.
func (t *tx) anyTurns(tenant, limit string) (bool, error) {
	for _, s := range turns.Ranges(limit) {
		if found, err := t.exists(`SELECT 1 FROM turns WHERE tenant = ? AND key >= ? AND key < ? LIMIT 1`, tenant,
			s.From, s.To); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// takesIn reports whether the limit that decides on a key is still taking in the jobs that are
// there.
func (l limits) takesIn(key string) bool {
	limit := l.deciding(key)
	if limit == nil {
		return false
	}
	_, walks := l.walks[limit.Key]
	return walks
}

// walk makes a step of the walk that waits for the longest, and returns how many jobs it looked at:
// one at least, where there is a walk.
func (t *tx) walk(most int, eff *store.Effects) (int, error) {
	tenant, found := "", false
	err := t.query(`SELECT tenant FROM walks ORDER BY at, tenant LIMIT 1`, func(v []driver.Value) error {
		tenant, found = text(v[0]), true
		return nil
	})
	if err != nil || !found || most == 0 {
		return 0, err
	}
	all, err := t.limitsOf(tenant)
	if err != nil {
		return 0, err
	}
	var last int64 = -1
	for _, walked := range all.walks {
		if last < 0 || walked < last {
			last = walked
		}
	}
	seqs, err := t.living(tenant, last, most)
	if err != nil {
		return 0, err
	}
	rs, err := t.asked(seqs)
	if err != nil {
		return 0, err
	}
	for i := range rs {
		if err := t.takeIn(&rs[i], all, eff); err != nil {
			return 0, err
		}
	}
	if len(seqs) == most {
		_, err = t.exec(`UPDATE walks SET walked = max(walked, ?), at = ? WHERE tenant = ?`, seqs[most-1],
			micros(t.now), tenant)
	} else if _, err = t.exec(`DELETE FROM walks WHERE tenant = ?`, tenant); err == nil {
		err = t.oweLines(tenant, all.takesIn, eff)
	}
	delete(t.w.limits, tenant)
	return max(1, len(seqs)), err
}

// living returns the jobs of a tenant behind one that have not ended, in their order. No index has
// just these: they are read state by state, but for those that sessions hold, which are few.
func (t *tx) living(tenant string, after int64, most int) (seqs []int64, err error) {
	each := func(v []driver.Value) error {
		seqs = append(seqs, v[0].(int64))
		return nil
	}
	for _, s := range job.States {
		if s.Terminal() {
			continue
		}
		err := t.query(`SELECT seq FROM jobs INDEXED BY jobs_state WHERE session IS NULL AND hidden = 0
			AND tenant = ? AND state = ? AND seq > ? ORDER BY seq LIMIT ? + 0`,
			each, tenant, string(s), after, int64(most))
		if err != nil {
			return nil, err
		}
	}
	err = t.query(`SELECT seq FROM jobs INDEXED BY jobs_session WHERE session IS NOT NULL AND tenant = ?
		AND seq > ?`, each, tenant, after)
	slices.Sort(seqs)
	return seqs[:min(len(seqs), most)], err
}

// walkedJobs reads jobs in their order, programs with what was asked for.
var walkedJobs = store.SQL(`SELECT ` + columns + `, CASE j.kind WHEN {KindApp}
	THEN (SELECT s.request FROM specs s WHERE s.seq = j.seq) END
	FROM json_each(?) e CROSS JOIN jobs j ON j.seq = e.value`)

func (t *tx) asked(seqs []int64) (rs []row, err error) {
	err = t.query(walkedJobs, func(v []driver.Value) error {
		r := scan(v)
		r.Request = raw(v[nColumns])
		rs = append(rs, r)
		return nil
	}, seqList(seqs))
	return rs, err
}

// takeIn puts a job under the keys on which limits decide by now.
func (t *tx) takeIn(r *row, all limits, eff *store.Effects) error {
	keys := turns.NewKeys(&r.Job, func(key string) bool { return all.deciding(key) != nil }, all.takesIn)
	if len(keys) == 0 {
		return nil
	}
	before := r.Job
	under, turns, back := before.Under(keys)
	_, err := t.exec(`UPDATE jobs SET limit_keys = ?, ties = ?, line = ? WHERE seq = ?`, keysDocument(under.Limits),
		int64(under.Ties), under.Line, r.seq)
	if err != nil {
		return err
	}
	r.Job = under
	r.Request = nil // the rows that are kept have none
	t.w.remember(r)
	if err := t.takeTurns(r, turns); err != nil {
		return err
	}
	if err := t.owe(r, under.Line, job.Owes(&before, &under), eff); err != nil || back == nil {
		return err
	}
	return t.write(r, *back, job.CauseTurn, nil, eff)
}
