package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// mostHanded bounds the keys that one transaction hands on.
const mostHanded = 200

// mostHeads bounds the jobs that one transaction looks at. The owners share it, but each has two at
// least.
const mostHeads = 2000

// mostHandedOver bounds the jobs to which the changes of a call hand turns on.
const mostHandedOver = 200

// lookAhead is how many more jobs of a line are looked at than there are free places, for their
// owners together: see [turns.PerOwner].
const lookAhead = 2

// handOn gives up to limit owed turns of one tenant to the jobs that wait for them. It is a
// transaction of its own, for it takes the tenant's turns lock before jobs.
func (s *Store) handOn(ctx context.Context, limit int) (paid int, eff store.Effects, err error) {
	err = s.write(ctx, everyone, func(t *tx) error {
		paid, eff = 0, store.Effects{}
		h := handing{limit: limit, known: turns.Keys{}, rows: map[job.ID]*job.Job{}}
		h.cause = job.CauseTurn
		owed := read(takeOwed, func(r *reader) error {
			h.tenant, h.now = r.text(), r.time()
			paid++
			if key := r.text(); r.bool() {
				h.keys = append(h.keys, key)
			}
			return nil
		}, min(limit, mostHanded))
		err := t.send(do(pickTurnsLock), owed)
		if err == nil && paid == 0 {
			err = t.send(do(awaitTurnsLock), owed)
		}
		if err == nil && len(h.keys) > 0 {
			err = h.hand(t, lineHeads)
		}
		if err != nil {
			return err
		}
		paid = max(paid, len(h.after))
		h.effects(&eff)
		return t.commit(append(append(h.queries(), h.served...), read(anyOwed, func(r *reader) error {
			eff.Owed = r.bool() || eff.Owed
			return nil
		}))...)
	})
	if err != nil {
		return 0, store.Effects{}, err
	}
	return paid, eff, nil
}

// A handing hands on keys of a tenant.
type handing struct {
	changes
	tenant string
	limit  int
	keys   []string // that are owed
	known  turns.Keys
	rows   map[job.ID]*job.Job
	served []*query

	closing map[spot]bool // lines through which nobody goes for now
}

// handOver writes changes, and in the same transaction gives the turns that they free to the jobs
// that wait for them. The turns lock is only tried, for it comes after the locks of jobs here. The
// rest stays owed: all without the lock, and otherwise where the next job is locked by another
// transaction, or where a line is about to be closed. The groups, which are locked last, say
// whether it is.
func (t *tx) handOver(c *changes, eff *store.Effects) error {
	h := handing{
		limit: mostHandedOver, known: turns.Keys{},
		rows: map[job.ID]*job.Job{},
	}
	h.cause, h.now = job.CauseTurn, c.now
	h.closing = c.closing()
	h.tenant, h.keys, c.handOn = c.toHandOn(h.closing)
	c.effects(eff)
	if len(h.keys) == 0 {
		return t.join(c, eff, c.queries()...)
	}
	crowded, has := false, false
	try := read(tryTurnsLockFor, func(r *reader) error { crowded, has = r.bool(), r.bool(); return nil }, h.tenant,
		h.keys, c.entering())
	if err := t.send(append(c.queries(), try)...); err != nil {
		return err
	}
	owed := values(h.keys, func(key *string) spot { return spot{h.tenant, *key} })
	switch {
	case crowded:
		h.later = owed
	case !has:
		h.handOn = owed
	default:
		if err := h.hand(t, lineHeadsFree); err != nil {
			return err
		}
	}
	h.effects(eff)
	return t.join(c, eff, append(h.queries(), h.served...)...)
}

// closing returns the lines that those may close whom changes have blocked.
func (c *changes) closing() (lines map[spot]bool) {
	for i := range c.joins {
		if line := c.joins[i].block.Line; line != "" {
			if lines == nil {
				lines = map[spot]bool{}
			}
			lines[spot{c.joins[i].job.Tenant, line}] = true
		}
	}
	return lines
}

// toHandOn returns the keys of a tenant that changes gave back, or whose lines jobs have entered.
// others is what else the changes owe: keys of other tenants, and of lines that are about to be
// closed.
func (c *changes) toHandOn(closing map[spot]bool) (tenant string, keys []string, others []spot) {
	for _, s := range c.handOn {
		switch {
		case len(keys) > 0 && s.tenant != tenant, len(keys) == mostHanded, closing[spot{s.tenant, job.LimitOf(s.key)}]:
			others = append(others, s)
		case !slices.Contains(keys, s.key):
			tenant, keys = s.tenant, append(keys, s.key)
		}
	}
	return tenant, keys, others
}

// entering returns the jobs of changes that give nothing back, and so owe only that some of these
// have come to stand in lines; nil: they do give turns back.
func (c *changes) entering() [][16]byte {
	if len(c.returned) > 0 {
		return nil
	}
	id := func(j *job.Job) [16]byte { return j.ID }
	return append(values(c.after, id), values(c.inLine, id)...)
}

// hand reads what the decision needs and, with a statement, the heads of lines; it decides, and
// notes what becomes of them.
func (h *handing) hand(t *tx, heads string) error {
	slices.Sort(h.keys)
	if err := t.send(h.know(h.keys)...); err != nil {
		return err
	}
	var free, orders, closed []string
	var shared []lineHead
	for _, key := range h.keys {
		k := h.known[key]
		switch n := k.Free(key); {
		case n == 0:
			if k.Closed(key) {
				closed = append(closed, key)
			}
			continue
		case job.Ordered(key):
			orders = append(orders, key)
		default:
			l := lineHead{key: key, most: min(n, h.limit) + lookAhead, owners: k.MaxOwners(key) + 1}
			if k.InRound() {
				l.from, _ = k.Last()
			}
			shared = append(shared, l)
		}
		free = append(free, key)
	}
	if len(free)+len(closed) == 0 {
		return nil
	}
	missed, err := h.read(t, heads, shared, orders, closed)
	if err != nil {
		return err
	}
	owners, total := h.owners(shared)
	var around []lineHead
	for i, l := range shared {
		switch last, _ := h.known[l.key].Last(); {
		case l.from != "" && owners[i] < l.owners: // and the first ones
			l.from, l.owners = "", l.owners-owners[i]
		case l.from != last && owners[i] >= l.owners: // they have come to be many
			l.from = last
		default:
			continue
		}
		around = append(around, l)
	}
	if len(around) > 0 {
		more, err := h.read(t, heads, around, nil, nil)
		if err != nil {
			return err
		}
		missed = missed || more
		owners, total = h.owners(shared)
	}
	for i, l := range shared {
		h.known[l.key].Trim(max(1, min(turns.PerOwner(l.most, owners[i]), mostHeads/max(1, total))))
	}
	if others := h.others(); len(others) > 0 {
		if err := t.send(h.know(others)...); err != nil {
			return err
		}
	}
	was := map[string]map[string]float64{}
	for _, key := range free {
		was[key] = maps.Clone(h.known[key].Served)
	}
	all := slices.Concat(free, closed)
	done := h.known.Hand(all, h.limit)
	if missed { // some left the line before they were locked, and the jobs behind them were not read
		done.Again = all
	}
	return h.note(free, was, done)
}

// A lineHead is what is to be read of a line: as many jobs as most may go, of so many owners from
// one on.
type lineHead struct {
	key    string
	most   int
	from   string
	owners int
}

// read reads the first jobs of lines, and reports whether some were missed.
func (h *handing) read(t *tx, heads string, shared []lineHead, orders, closed []string) (missed bool, err error) {
	found, first := 0, 0
	err = t.send(read(heads, func(r *reader) error {
		h.now = r.time() // what it finds may be newer than what is owed
		if first = r.int(); r.values[0] == nil {
			return nil
		}
		j := r.row()
		found++
		if h.rows[j.ID] != nil {
			return nil
		}
		h.rows[j.ID] = &j
		k := h.known[j.Line]
		w := turns.WaiterOf(&j)
		k.Line = append(k.Line, w)
		return nil
	}, h.tenant, values(shared, func(l *lineHead) string { return l.key }), values(
		shared, func(l *lineHead) int { return l.most }), mostHeads,
		nonNil(orders), nonNil(closed), values(shared, func(l *lineHead) string { return l.from }), values(shared,
			func(l *lineHead) int { return l.owners }), turns.MinConsidered))
	return found < first, err
}

// owners returns how many owners are known in each of some lines, and in all together.
func (h *handing) owners(lines []lineHead) (each []int, total int) {
	for _, l := range lines {
		seen := map[string]bool{}
		for _, w := range h.known[l.key].Line {
			seen[w.Owner] = true
		}
		each, total = append(each, len(seen)), total+len(seen)
	}
	return each, total
}

// know returns the queries that read limits and turns of keys, and what was served in their lines.
func (h *handing) know(keys []string) []*query {
	of, families := make([]string, len(keys)), make([]string, len(keys))
	implied := []string{}
	for i, key := range keys {
		of[i] = job.LimitOf(key)
		families[i] = job.Family(of[i])
		k := &turns.Key{Held: map[string]int{}, Limit: job.Implied(key)}
		if h.known[key] = k; k.Limit != nil {
			implied = append(implied, key)
		}
	}
	return []*query{
		read(turnsHeld, func(r *reader) error {
			k, owner := h.known[r.text()], r.text()
			k.Held[owner] = r.int()
			return nil
		}, h.tenant, keys, of, families, implied),
		read(turnsLimits, func(r *reader) error {
			key := r.text()
			k, l := h.known[key], r.limit()
			k.Limit = &l
			if closing := r.bool(); closing || h.closing[spot{h.tenant, job.LimitOf(key)}] {
				k.Limit = l.Shut(key, 0)
			}
			return nil
		}, h.tenant, keys, of, families),
		read(`SELECT v.key, v.served FROM pawl.served v WHERE v.tenant = $1 AND v.key = ANY ($2::text[])`,
			func(r *reader) error {
				k := h.known[r.text()]
				return json.Unmarshal(r.next(), &k.Served)
			}, h.tenant, keys),
	}
}

// others returns the keys of waiting jobs that are not known yet.
func (h *handing) others() (keys []string) {
	seen := map[string]bool{}
	for _, j := range h.rows {
		for _, key := range turns.WaiterOf(j).Keys {
			if h.known[key] == nil && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// note records what becomes of the jobs in the lines of keys, and of the shares that were served
// there before.
func (h *handing) note(keys []string, was map[string]map[string]float64, done turns.Decision) error {
	for _, id := range done.Grant {
		j := h.rows[id]
		if _, err := h.add(j, job.Granted(j)); err != nil {
			return err
		}
		h.take(j, turns.WaiterOf(j).Lacks())
	}
	h.putOff(done)
	for _, m := range done.Move {
		j := h.rows[m.Job]
		h.inLine = append(h.inLine, j.Moved(m.Line, len(m.Keep) > 0))
		h.take(j, m.Keep)
		for _, key := range m.Drop {
			h.returned = append(h.returned, turn{j.ID, key, j.Tenant, j.Owner})
			h.changes.handOn = append(h.changes.handOn, spot{h.tenant, key})
		}
	}
	for _, key := range done.Again {
		h.changes.handOn = append(h.changes.handOn, spot{h.tenant, key})
	}
	for _, key := range keys {
		switch now := h.known[key].Served; {
		case maps.Equal(now, was[key]):
		case now == nil:
			h.served = append(h.served, do(`DELETE FROM pawl.served v WHERE v.tenant = $1 AND v.key = $2`, h.tenant,
				key))
		default:
			h.served = append(h.served, do(`INSERT INTO pawl.served (tenant, key, served) VALUES ($1, $2, $3::json)
				ON CONFLICT (tenant, key) DO UPDATE SET served = excluded.served`, h.tenant, key, encode(now)))
		}
	}
	return nil
}

// plenty is how many places ahead a key has where those that were given back are handed on some at
// a time. Fewer are used up too soon.
const plenty = 20

// putOff delays the hand-off of places ahead that were given back, while other jobs in line are
// ready for their turn. To make jobs ready in batches takes fewer transactions, and nothing waits
// for them yet.
func (h *handing) putOff(done turns.Decision) {
	gone := map[job.ID]bool{}
	for _, id := range done.Grant {
		gone[id] = true
	}
	for _, m := range done.Move {
		gone[m.Job] = true
	}
	h.handOn = slices.DeleteFunc(h.handOn, func(s spot) bool {
		k := h.known[job.LimitOf(s.key)]
		waits := k != nil && k.Limit != nil && s.key != job.LimitOf(s.key) && k.Limit.Places(s.key) >= plenty &&
			slices.ContainsFunc(k.Line, func(w turns.Waiter) bool { return !gone[w.Job] })
		if waits {
			h.later = append(h.later, s)
		}
		return waits
	})
}

func (h *handing) take(j *job.Job, keys []string) {
	for _, key := range keys {
		h.taken = append(h.taken, turn{j.ID, key, j.Tenant, j.Owner})
	}
}

// pickTurnsLock takes the turns lock of a tenant to which turns are owed: of those whose lock is
// free, the one that has waited the longest. It tells the next statements which tenant that is.
// They begin after that: see lockTurns.
const pickTurnsLock = `
SELECT set_config('job.payer', d.tenant, true) FROM (
	WITH RECURSIVE tenants AS (
		(SELECT o.tenant, o.seq FROM pawl.turns_owed o ORDER BY o.tenant, o.seq LIMIT 1)
		UNION ALL
		SELECT n.tenant, n.seq FROM tenants t CROSS JOIN LATERAL (
			SELECT o.tenant, o.seq FROM pawl.turns_owed o WHERE o.tenant > t.tenant ORDER BY o.tenant, o.seq LIMIT 1) n
	)
	SELECT t.tenant FROM tenants t ORDER BY t.seq OFFSET 0
) d WHERE pg_try_advisory_xact_lock(hashtextextended('pawl.turns/'||d.tenant, 0)) LIMIT 1`

// awaitTurnsLock waits for a turns lock that others have: they hold it for no longer than a
// transaction.
const awaitTurnsLock = `
SELECT set_config('job.payer', o.tenant, true),
	pg_advisory_xact_lock(hashtextextended('pawl.turns/'||o.tenant, 0)) FROM (
	SELECT o.tenant FROM pawl.turns_owed o ORDER BY o.seq LIMIT 1
) o`

var (
	// takeOwed takes what is owed of up to $1 keys, those that are owed for the longest, and says
	// whether anybody waits for them. A debt that it sees was committed with its reason, so later
	// statements see that reason, too.
	takeOwed = `
WITH keys AS MATERIALIZED (
	SELECT o.key FROM (
		SELECT o.key, o.seq FROM pawl.turns_owed o WHERE o.tenant = (SELECT current_setting('job.payer', true))
			ORDER BY o.tenant, o.seq LIMIT 1000
	) o GROUP BY o.key ORDER BY min(o.seq) LIMIT $1
), gone AS (
	DELETE FROM pawl.turns_owed o WHERE o.tenant = (SELECT current_setting('job.payer', true))
		AND coalesce(o.key IN (SELECT k.key FROM keys k), false) -- looked up, and not joined
), waited AS MATERIALIZED (
	SELECT k.key, EXISTS (SELECT FROM pawl.jobs j WHERE j.tenant = (SELECT current_setting('job.payer', true))
		AND j.line = k.key) AS waits FROM keys k
), unserved AS (
	DELETE FROM pawl.served v WHERE v.tenant = (SELECT current_setting('job.payer', true))
		AND v.key = ANY (ARRAY(SELECT w.key FROM waited w WHERE NOT w.waits))
)
SELECT current_setting('job.payer', true), pawl.clock(), w.key, w.waits FROM waited w`

	// turnsHeld counts the turns of keys that are under a limit, which is set or, of those in $5,
	// implied.
	turnsHeld = `
SELECT k.key, t.owner, t.n FROM (
	SELECT k.key FROM unnest($2::text[], $3::text[], $4::text[]) k(key, own, family)
	WHERE k.key = ANY ($5::text[]) OR EXISTS (SELECT FROM pawl.limits l WHERE l.tenant = $1
		AND l.key = ANY (ARRAY[k.own, k.family])) OFFSET 0
) k CROSS JOIN LATERAL (SELECT t.owner, count(*) AS n FROM pawl.turns t WHERE t.tenant = $1 AND t.key = k.key
	GROUP BY t.owner OFFSET 0) t`

	// anyOwed says whether debts are left. If the oldest may wait, the calls that owe the others
	// have said so.
	anyOwed = `SELECT EXISTS (SELECT FROM pawl.followups)
	OR EXISTS (SELECT FROM (SELECT o.at FROM pawl.turns_owed o ORDER BY o.seq LIMIT 100) o
		WHERE o.at <= pawl.clock()) OR ` + anyWalk + ` OR ` + anyLine
)

// turnsLimits answers under which limits keys are, their own or those of their families, and
// whether their lines are about to be closed. It comes after turnsHeld: of a block whose turns that
// has not counted any more, this has seen what its line is owed. 2 are keys, 3 those of their
// limits, 4 those of the families.
var turnsLimits = `
SELECT k.key, ` + limitColumns + `, ` + isClosing("$1", "k.own") + `
	FROM unnest($2::text[], $3::text[], $4::text[]) k(key, own, family) CROSS JOIN LATERAL (
	SELECT l.* FROM pawl.limits l WHERE l.tenant = $1 AND l.key = ANY (ARRAY[k.own, k.family])
		ORDER BY l.key = k.own DESC LIMIT 1) l`

// isClosing holds of the line of a limit to which it is owed what groups leave it: until that is
// paid nobody goes through it.
func isClosing(tenant, of string) string {
	return of + ` = ANY (ARRAY(SELECT o.key FROM pawl.lines_owed o WHERE o.tenant = ` + tenant + `))`
}

// lineHeads locks and answers the first jobs in line for keys: of each owner some more than its
// share, and all jobs that keep turns, wherever they stand. These have an index of their own, which
// is nearly always empty. It goes from owner to owner, from one on, and never along a line. In an
// order only the first job goes, of any owner, so it looks at that one alone. Each row says how
// many jobs it has found, and the time; some of the jobs may have left the line before they were
// locked.
//
//	1 tenant  2 keys  3 how many may go  4 how many are looked at  5 keys of orders
//	6 keys of which only jobs that keep turns are wanted
//	7 the owners from whom on  8 how many owners  9 how many jobs of a line however few may go
//
// lineHeadsFree passes over jobs that are locked.
var lineHeads, lineHeadsFree = headsOfLines(`FOR UPDATE`), headsOfLines(`FOR UPDATE SKIP LOCKED`)

// keeping is said of a job that keeps turns while it waits in the line of another key.
var keeping = store.SQL(`j.ties & {TieKept} <> 0`)

func headsOfLines(lock string) string {
	return `
WITH RECURSIVE walk AS (
	SELECT k.key, k.most, k.many, 1 AS n,
		(SELECT j.owner FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key AND j.owner >= k.start
			ORDER BY j.owner LIMIT 1) AS owner
	FROM unnest($2::text[], $3::int[], $7::text[], $8::int[]) k(key, most, start, many)
	UNION ALL
	SELECT w.key, w.most, w.many, w.n + 1,
		(SELECT j.owner FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = w.key AND j.owner > w.owner
		ORDER BY j.owner LIMIT 1)
	FROM walk w WHERE w.owner IS NOT NULL AND w.n < w.many
), owners AS MATERIALIZED (
	SELECT w.key, w.most, w.owner, count(*) OVER (PARTITION BY w.key) AS here, count(*) OVER () AS total
		FROM walk w WHERE w.owner IS NOT NULL
), heads AS MATERIALIZED (
	SELECT h.id FROM owners o CROSS JOIN LATERAL (
		SELECT j.id FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = o.key AND j.owner = o.owner
			ORDER BY j.priority, j.created, j.id
		LIMIT greatest(1, least(o.most, 1 + greatest(2 * o.most, $9::int) / o.here, $4::int / o.total)) + 1
	) h
	UNION
	SELECT h.id FROM unnest($2::text[] || $6::text[]) k(key) CROSS JOIN LATERAL (
		SELECT j.id FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key AND ` + keeping + ` LIMIT $4::int
	) h
	UNION
	SELECT h.id FROM unnest($5::text[]) k(key) CROSS JOIN LATERAL (
		SELECT j.id FROM pawl.jobs j WHERE j.tenant = $1 AND j.line = k.key AND starts_with(j.line, 'order/')
		ORDER BY j.rank, j.priority, j.created, j.id LIMIT 1
	) h
), taken AS MATERIALIZED (
	SELECT ` + livingRow + ` FROM pawl.jobs j
	WHERE j.id = ANY (ARRAY(SELECT h.id FROM heads h))
		AND coalesce(j.line, '') = ANY ($2::text[] || $5::text[] || $6::text[])
	ORDER BY j.id ` + lock + `
)
SELECT pawl.clock(), (SELECT count(*) FROM heads), ` + columns + ` FROM (SELECT) one
	LEFT JOIN (taken j ` + itsSpec + `) ON true`
}
