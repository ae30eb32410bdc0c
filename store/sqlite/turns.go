package sqlite

import (
	"cmp"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Limits are those of a tenant by key, as they are set, and what groups leave of them.
type limits struct {
	set   map[string]*job.Limit
	shut  map[string]int   // how many places groups leave the lines that they close
	walks map[string]int64 // the limits that take in jobs, and the last job that each has looked at
	owed  map[string]bool  // lines to which it is owed what groups leave them
}

// limitsOf returns the limits of a tenant. They are read once; from then on they are known, for
// nobody else writes.
func (t *tx) limitsOf(tenant string) (limits, error) {
	if all, known := t.w.limits[tenant]; known {
		return all, nil
	}
	all := limits{map[string]*job.Limit{}, map[string]int{}, map[string]int64{}, map[string]bool{}}
	err := t.query(`SELECT 'set', '', doc, 0 FROM limits WHERE tenant = ?1
		UNION ALL SELECT 'shut', key, '', places FROM lines WHERE tenant = ?1 AND places IS NOT NULL
		UNION ALL SELECT 'walks', key, '', walked FROM walks WHERE tenant = ?1
		UNION ALL SELECT 'owed', key, '', 0 FROM lines WHERE tenant = ?1
			AND owed IS NOT NULL`, func(v []driver.Value) (err error) {
		switch key := text(v[1]); text(v[0]) {
		case "set":
			var l job.Limit
			l, err = limit(v[2])
			all.set[l.Key] = &l
		case "shut":
			all.shut[key] = integer(v[3])
		case "walks":
			all.walks[key] = v[3].(int64)
		case "owed":
			all.owed[key] = true
		}
		return err
	}, tenant)
	if err == nil {
		t.w.limits[tenant] = all
	}
	return all, err
}

func limit(v driver.Value) (l job.Limit, err error) {
	err = json.Unmarshal([]byte(text(v)), &l)
	return l, err
}

// deciding returns the limit that decides on the turns of a key, as groups leave it; nil: there is
// none.
func (l limits) deciding(key string) *job.Limit {
	limit := deciding(l.set, key)
	if places, shut := l.shut[job.LimitOf(key)]; shut {
		limit = limit.Shut(key, places)
	}
	return limit
}

// deciding returns the limit that is set for a key, or for its family, or is implied; nil: there is
// none.
func deciding(all map[string]*job.Limit, key string) *job.Limit {
	key = job.LimitOf(key)
	if l := all[key]; l != nil {
		return l
	}
	if l := all[job.Family(key)]; l != nil {
		return l
	}
	return job.Implied(key)
}

// under returns the keys under which a new job stands.
func (t *tx) under(tenant string, n *store.New) ([]string, error) {
	if len(n.Job.Limits)+len(n.Optional) == 0 {
		return nil, nil
	}
	keys := slices.Clone(n.Job.Limits)
	if len(n.Optional) > 0 {
		all, err := t.limitsOf(tenant)
		if err != nil {
			return nil, err
		}
		for _, key := range n.Optional {
			if all.deciding(key) != nil {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// oweTurns records that free turns of a key are owed to the jobs that wait for them. There is one
// row for a key, and a call writes it once. Changes that wait to be written do not touch these rows
// and need not be written first.
func (t *tx) oweTurns(tenant, key string) error {
	at := spot{tenant, key}
	if t.owing[at] {
		return nil
	}
	t.owing[at] = true
	_, err := t.run(`INSERT INTO followups (debt, job, at, tenant, key) VALUES (?, 0, ?, ?, ?)
		ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING`,
		string(job.DebtTurns), micros(t.now), tenant, key)
	return err
}

// A turnBatch is turns of one key that jobs of one owner get or give back. They are written
// together.
type turnBatch struct {
	spot
	owner string
	taken bool
	jobs  []int64 // seq
}

// takeTurns gives a job turns of keys.
func (t *tx) takeTurns(r *row, keys []string) error { return t.turn(r, keys, true) }

// giveBack takes the turns of keys from a job.
func (t *tx) giveBack(r *row, keys []string) error { return t.turn(r, keys, false) }

func (t *tx) turn(r *row, keys []string, taken bool) error {
	for _, key := range keys {
		at, w := spot{r.Tenant, key}, &t.turning
		if w.spot != at || w.owner != r.Owner || w.taken != taken {
			if err := t.flushTurns(); err != nil {
				return err
			}
			*w = turnBatch{at, r.Owner, taken, w.jobs}
		}
		w.jobs = append(w.jobs, r.seq)
	}
	return nil
}

// flushTurns writes the turns that wait to be written.
func (t *tx) flushTurns() error {
	w := &t.turning
	if len(w.jobs) == 0 {
		return nil
	}
	form, jobs := which(w.jobs)
	q := `DELETE FROM turns WHERE tenant = ? AND key = ? AND owner = ? AND ` + form.where("job")
	if w.taken {
		q = `INSERT OR FAIL INTO turns (tenant, key, owner, job) ` + form.rows(3)
	}
	_, err := t.run(q, append([]any{w.tenant, w.key, w.owner}, jobs...)...)
	w.jobs = w.jobs[:0]
	return err
}

// inLine lets a job, all of whose other gates are open, enter the line for its turn if it is to
// wait for one.
func (t *tx) inLine(r *row, eff *store.Effects) error {
	before := r.Job
	after := before.InLine(t.now)
	if after.Line == before.Line {
		return nil
	}
	if _, err := t.exec(`UPDATE jobs SET line = ?, since = ? WHERE seq = ?`, after.Line, micros(after.Since),
		r.seq); err != nil {
		return err
	}
	r.Job = after
	return t.owe(r, after.Line, job.Owes(&before, &after), eff)
}

// A spot is a key of a tenant.
type spot struct{ tenant, key string }

func (s spot) compare(o spot) int {
	return cmp.Or(strings.Compare(s.tenant, o.tenant), strings.Compare(s.key, o.key))
}

// mostPassedOn bounds the turns that an apply hands on.
const mostPassedOn = 1000

// passOn hands on at once what the changes of an apply have given back, and owes what is more than
// it may.
func (t *tx) passOn(eff *store.Effects) error {
	left, returned := mostPassedOn, map[string][]string{}
	for at := range t.returned {
		returned[at.tenant] = append(returned[at.tenant], at.key)
	}
	t.returned = nil // what the jobs that get a turn give back is owed
	for _, tenant := range slices.Sorted(maps.Keys(returned)) {
		keys := returned[tenant]
		waited, err := t.waited(tenant, keys)
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return waited[key] })
		if len(keys) > 0 { // later calls see that they are free
			if _, err := t.run(`DELETE FROM served WHERE tenant = ? AND key IN (SELECT value FROM json_each(?))`,
				tenant, keysDocument(keys)); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(waited)) {
			if left <= 0 {
				eff.Owed = true
				if err := t.oweTurns(tenant, key); err != nil {
					return err
				}
				continue
			}
			n, err := t.handOn(spot{tenant, key}, left, eff)
			if err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// waited returns those of some keys that have waiting jobs.
func (t *tx) waited(tenant string, keys []string) (map[string]bool, error) {
	waited := map[string]bool{}
	err := t.query(`SELECT k.value FROM json_each(?2) k
		WHERE EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?1 AND line = k.value)`,
		func(v []driver.Value) error {
			waited[text(v[0])] = true
			return nil
		}, tenant, keysDocument(keys))
	return waited, err
}

// fitting returns the keys with enough free turns for all jobs of a submission that want one, and
// without waiting jobs.
func (t *tx) fitting(sub *store.Submission) (fits map[string]bool, err error) {
	var wanted map[string]int
	for i := range sub.Jobs {
		j := sub.Jobs[i].Job
		if j.Limits, err = t.under(sub.Tenant, &sub.Jobs[i]); err != nil {
			return nil, err
		}
		for _, key := range j.First() {
			if wanted == nil {
				wanted, fits = map[string]int{}, map[string]bool{}
			}
			wanted[key]++
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	g := turns.Keys{}
	keys := slices.Sorted(maps.Keys(wanted))
	if err := t.know(g, sub.Tenant, keys); err != nil {
		return nil, err
	}
	waited, err := t.waited(sub.Tenant, keys)
	if err != nil {
		return nil, err
	}
	for key, n := range wanted {
		fits[key] = !waited[key] && n <= g[key].Free(key)
	}
	return fits, nil
}

// handOn gives the free turns of a key to the jobs that wait for them, and returns how many got
// one. There is one writer, so nobody else does at the same time.
func (t *tx) handOn(d spot, most int, eff *store.Effects) (int, error) {
	g := turns.Keys{}
	if err := t.know(g, d.tenant, []string{d.key}); err != nil {
		return 0, err
	}
	k := g[d.key]
	free := k.Free(d.key)
	if free == 0 && !k.Closed(d.key) {
		return 0, nil
	}
	was, err := t.served(k, d)
	if err != nil {
		return 0, err
	}
	rs, err := t.keeping(d)
	each := len(rs)
	if err == nil && free > 0 {
		rs, each, err = t.firsts(k, d, min(free, most)+lookAhead, rs)
	}
	if err != nil {
		return 0, err
	}
	waiting := make(map[job.ID]*row, len(rs))
	var keys []string
	for i := range rs {
		r := &rs[i]
		waiting[r.ID] = r
		w := turns.WaiterOf(&r.Job)
		k.Line, keys = append(k.Line, w), append(keys, w.Keys...)
	}
	k.Trim(each)
	if err := t.know(g, d.tenant, keys); err != nil {
		return 0, err
	}
	h := g.Hand([]string{d.key}, most)
	for _, id := range h.Grant {
		r := waiting[id]
		lacks := turns.WaiterOf(&r.Job).Lacks()
		if err := t.write(r, job.Granted(&r.Job), job.CauseTurn, nil, eff); err != nil {
			return 0, err
		}
		if err := t.takeTurns(r, lacks); err != nil {
			return 0, err
		}
	}
	for _, m := range h.Move {
		r := waiting[m.Job]
		r.Job = r.Moved(m.Line, len(m.Keep) > 0)
		t.w.kept = t.w.kept || len(m.Keep) > 0
		if _, err := t.run(`UPDATE jobs SET line = ?, passed = ?, ties = ? WHERE seq = ?`, r.Line, int64(r.Passed),
			int64(r.Ties), r.seq); err != nil {
			return 0, err
		}
		if err := errors.Join(t.takeTurns(r, m.Keep), t.giveBack(r, m.Drop)); err != nil {
			return 0, err
		}
		for _, key := range m.Drop {
			eff.Owed = true
			if err := t.oweTurns(d.tenant, key); err != nil {
				return 0, err
			}
		}
	}
	for _, key := range h.Again {
		eff.Owed = true
		if err := t.oweTurns(d.tenant, key); err != nil {
			return 0, err
		}
	}
	return len(h.Grant), t.serve(k, d, was)
}

// know reads the limits of keys, and the turns that jobs have of them, into g. Without a limit the
// turns are not needed.
func (t *tx) know(g turns.Keys, tenant string, keys []string) error {
	all, err := t.limitsOf(tenant)
	if err != nil {
		return err
	}
	var limited []string
	for _, key := range keys {
		if g[key] == nil {
			if g[key] = all.turnsKey(key); g[key].Limit != nil {
				limited = append(limited, key)
			}
		}
	}
	if len(limited) == 0 {
		return nil
	}
	return t.query(`SELECT key, owner, count(*) FROM turns WHERE tenant = ?
		AND key IN (SELECT value FROM json_each(?)) GROUP BY key, owner`, func(v []driver.Value) error {
		g[text(v[0])].Held[text(v[1])] = integer(v[2])
		return nil
	}, tenant, keysDocument(limited))
}

// turnsKey returns all that is known of a key except the turns that jobs have.
func (l limits) turnsKey(key string) *turns.Key {
	k := &turns.Key{Limit: l.deciding(key), Held: map[string]int{}}
	switch {
	case l.takesIn(key):
		k.Limit = &job.Limit{}
	case l.owed[job.LimitOf(key)]:
		k.Limit = k.Limit.Shut(key, 0) // until that is paid
	}
	return k
}

// lookAhead is how many more jobs of a line are looked at than there are free places, for their
// owners together: see [turns.PerOwner]. Where that is not enough the key is owed again.
const lookAhead = 8

// mostKept is how many jobs that keep turns are read of a line at once.
const mostKept = 5000

// ownersInLine goes along the line of a key, a step for each owner, from one on.
const ownersInLine = `WITH RECURSIVE o (owner) AS (
		SELECT min(owner) FROM jobs INDEXED BY jobs_line WHERE line <> '' AND tenant = ?1 AND line = ?2 AND owner >= ?3
		UNION ALL
		SELECT (SELECT min(j.owner) FROM jobs j INDEXED BY jobs_line WHERE j.line <> '' AND j.tenant = ?1
			AND j.line = ?2 AND j.owner > o.owner)
			FROM o WHERE o.owner IS NOT NULL LIMIT ?4 + 0
	)
	SELECT owner FROM o WHERE owner IS NOT NULL`

// firstOfOwners reads the first jobs of some owners in the line of a key, so many of each.
var firstOfOwners = `SELECT ` + columns + ` FROM json_each(?3) o CROSS JOIN jobs j ON j.seq IN (
		SELECT h.seq FROM jobs h INDEXED BY jobs_line WHERE h.line <> '' AND h.tenant = ?1 AND h.line = ?2
			AND h.owner = o.value ORDER BY h.priority, h.created, h.seq LIMIT ?4 + 0
	)`

// firstInOrder reads the first job in the line of an order, of any owner.
const firstInOrder = `SELECT ` + columns + ` FROM jobs j INDEXED BY jobs_order
	WHERE j.line <> '' AND j.line GLOB 'order/*' AND j.tenant = ? AND j.line = ?
	ORDER BY j.rank, j.priority, j.created, j.seq LIMIT 1`

var keptJobs = store.SQL(` FROM jobs j INDEXED BY jobs_kept WHERE j.line <> '' AND j.ties & {TieKept} <> 0`)

// keeping reads the jobs that keep turns of other keys in the line of one.
func (t *tx) keeping(d spot) (rs []row, err error) {
	if !t.w.kept {
		return nil, nil
	}
	rs, err = t.rows(`SELECT `+columns+keptJobs+` AND j.tenant = ? AND j.line = ? LIMIT ? + 0`, d.tenant, d.key,
		int64(mostKept))
	if err == nil && len(rs) == 0 {
		t.w.kept, err = t.exists(`SELECT 1` + keptJobs + ` AND j.tenant > '' LIMIT 1`)
	}
	return rs, err
}

// firsts reads the first jobs of each owner in the line of a key, up to most, and returns how many
// it read of each. Jobs that keep turns are among them, wherever they stand. If there are many
// owners, it reads those whose turn it is, and one more. In the line of an order there is one
// place, and it is for the first of all. LIMIT is of an expression everywhere: see [tx.heads].
func (t *tx) firsts(k *turns.Key, d spot, most int, keeping []row) (firsts []row, each int, err error) {
	if job.Ordered(d.key) {
		firsts, err = t.rows(firstInOrder, d.tenant, d.key)
		return firsts, most, err
	}
	owners, err := t.owners(k, d)
	if err != nil {
		return nil, 0, err
	}
	each = turns.PerOwner(most, len(owners))
	if firsts, err = t.rows(firstOfOwners, d.tenant, d.key, keysDocument(owners), int64(each+1)); err != nil {
		return nil, 0, err
	}
	for i := range keeping {
		if !slices.ContainsFunc(firsts, func(r row) bool { return r.seq == keeping[i].seq }) {
			firsts = append(firsts, keeping[i])
		}
	}
	return firsts, each, nil
}

// owners returns the owners in the line of a key: all, or if there are many, those that are
// considered, and one more.
func (t *tx) owners(k *turns.Key, d spot) ([]string, error) {
	many := k.MaxOwners(d.key) + 1
	from := func(first string, most int) (owners []string, err error) {
		err = t.query(ownersInLine, func(v []driver.Value) error {
			owners = append(owners, text(v[0]))
			return nil
		}, d.tenant, d.key, first, int64(most))
		return owners, err
	}
	last, _ := k.Last()
	if !k.InRound() {
		if owners, err := from("", many); err != nil || len(owners) < many {
			return owners, err
		}
	}
	owners, err := from(last, many)
	if err != nil || last == "" || len(owners) == many {
		return owners, err
	}
	before, err := from("", many-len(owners))
	end, _ := slices.BinarySearch(before, last)
	return append(owners, before[:end]...), err
}

// served reads into k what was given to each owner of its line, and returns it as it stands in the
// database.
func (t *tx) served(k *turns.Key, d spot) (doc string, err error) {
	err = t.query(`SELECT doc FROM served WHERE tenant = ? AND key = ?`, func(v []driver.Value) error {
		doc = text(v[0])
		return json.Unmarshal([]byte(doc), &k.Served)
	}, d.tenant, d.key)
	return doc, err
}

// serve writes how much each owner has been given.
func (t *tx) serve(k *turns.Key, d spot, was string) error {
	doc := ""
	if k.Served != nil {
		b, err := json.Marshal(k.Served)
		if err != nil {
			return err
		}
		doc = string(b)
	}
	var err error
	switch doc {
	case was:
	case "":
		_, err = t.run(`DELETE FROM served WHERE tenant = ? AND key = ?`, d.tenant, d.key)
	default:
		_, err = t.run(`INSERT INTO served (tenant, key, doc) VALUES (?, ?, ?) ON CONFLICT (tenant, key) DO
			UPDATE SET doc = excluded.doc`, d.tenant, d.key, doc)
	}
	return err
}
