package postgres

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A standing is a job as far as a submission needs it: where it stands, and what it was made from.
type standing struct {
	job.Job
	fingerprint []byte
}

const standings = `s.id, s.tenant, s.name, s.kind, s.queue, s.external_id, s.fingerprint, j.state, j.custody`

func (r *reader) standing() (st standing) {
	st.ID, st.Tenant, st.Name, st.Kind, st.Queue, st.ExternalID = r.id(), r.text(), r.text(), r.text(), r.text(),
		r.text()
	st.fingerprint = bytes.Clone(r.next())
	st.State, st.Custody = job.State(r.text()), job.Custody(r.text())
	return st
}

func (st *standing) existed() store.Submitted {
	return store.Submitted{ID: st.ID, Place: st.Place, Existed: true}
}

// A uniqueKey is a unique key of a tenant.
type uniqueKey struct {
	kind string
	mode job.UniqueMode
	key  string
}

// existing is what a submission finds in the database: jobs, unique keys, queues. What must not
// change before the new jobs are made is locked. Jobs that this call makes are added, for those
// that follow.
type existing struct {
	sub      *store.Submission
	now      time.Time
	answered []store.Submitted // the call was made before, under its idempotency key

	jobs     map[job.ID]standing // the jobs of this call, and their prerequisites
	made     map[job.ID]bool     // by this call
	external map[string]standing // by external id
	holders  map[uniqueKey]job.ID
	reserved map[uniqueKey]job.ID // by this call, before anything was decided
	queues   map[string]bool      // those that have a document
	waiting  map[string]int       // jobs in each queue that has a bound

	lines []job.QueueKind // of ready jobs that were locked
	needs []job.ID        // prerequisites; the lists run side by side
	after []job.ID        // the job that waits for it
	need  []string        // how it must end
}

// keysOf returns the unique keys of a job in their order, each once.
func keysOf(n *store.New) []uniqueKey {
	keys := make([]uniqueKey, len(n.Unique))
	for i, u := range n.Unique {
		keys[i] = uniqueKey{n.Job.Kind, u.Mode, u.Key}
	}
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func compareKeys(a, b uniqueKey) int {
	return strings.Compare(a.kind+"\x00"+string(a.mode)+"\x00"+a.key, b.kind+"\x00"+string(b.mode)+"\x00"+b.key)
}

// lookUp reads what a submission depends on, and locks it.
func (t *tx) lookUp(sub *store.Submission) (*existing, error) {
	l := &existing{
		sub: sub, jobs: map[job.ID]standing{}, made: map[job.ID]bool{}, external: map[string]standing{},
		holders: map[uniqueKey]job.ID{}, reserved: map[uniqueKey]job.ID{},
		queues: map[string]bool{}, waiting: map[string]int{},
	}
	qs := []*query{read(`SELECT pawl.clock()`, func(r *reader) error { l.now = r.time(); return nil })}
	mine := false
	var was []byte
	var made []job.ID
	if sub.Key != "" {
		// A call at work under the same key is waited for, and seen by the second statement.
		qs = append(qs, read(`INSERT INTO pawl.idempotency AS i (tenant, key, fingerprint, jobs, at)
			VALUES ($1, $2, $3, '{}', pawl.clock())
				ON CONFLICT (tenant, key) DO UPDATE
					SET fingerprint = excluded.fingerprint, jobs = '{}', at = excluded.at
					WHERE i.at < excluded.at - $4::interval RETURNING true`,
			func(r *reader) error { mine = r.bool(); return nil }, sub.Tenant, sub.Key, sub.Digest(), store.KeepKey),
			read(`SELECT fingerprint, jobs FROM pawl.idempotency WHERE tenant = $1 AND key = $2`,
				func(r *reader) error {
					was, made = bytes.Clone(r.next()), r.ids()
					return nil
				}, sub.Tenant, sub.Key))
	}
	qs = append(qs, l.lockQueues()...)
	qs = append(qs, l.lockJobs()...)
	qs = append(qs, l.reserveKeys()...)
	if err := t.send(qs...); err != nil {
		return nil, err
	}
	if sub.Key == "" || mine {
		return l, nil
	}
	if !bytes.Equal(was, sub.Digest()) {
		return nil, job.Errorf(job.Conflict, "idempotency key %q was used for another request: use a new key", sub.Key)
	}
	l.answered = make([]store.Submitted, len(made))
	for i, id := range made {
		l.answered[i] = store.Submitted{ID: id, Existed: true}
	}
	return l, t.send(read(`SELECT `+standings+` FROM pawl.specs s `+itsJob+` WHERE s.id = ANY ($1)`,
		func(r *reader) error {
			st := r.standing()
			for i := range l.answered {
				if l.answered[i].ID == st.ID {
					l.answered[i].Place = st.Place
				}
			}
			return nil
		}, uuids(made)))
}

// lockQueues locks the queues that are checked. Their documents cannot be deleted, and calls that
// submit to a queue with a bound follow one another.
func (l *existing) lockQueues() (qs []*query) {
	var documents, bounded []string
	for name, check := range l.sub.Queues {
		if check.Document {
			documents = append(documents, name)
		}
		if check.Most > 0 {
			bounded = append(bounded, name)
		}
	}
	slices.Sort(bounded)
	for _, name := range bounded {
		qs = append(qs, do(`SELECT pg_advisory_xact_lock(hashtextextended('pawl.'||$1||'/'||$2, 0))`, l.sub.Tenant,
			name))
	}
	if len(documents) > 0 {
		qs = append(qs, read(`SELECT name FROM pawl.resources WHERE tenant = $1 AND kind = $2
			AND name = ANY ($3) FOR SHARE`,
			func(r *reader) error { l.queues[r.text()] = true; return nil }, l.sub.Tenant, job.KindQueue, documents))
	}
	for _, name := range bounded {
		qs = append(qs, read(`SELECT count(*) FROM (`+waiting+` LIMIT $3) w`,
			func(r *reader) error { l.waiting[name] = r.int(); return nil }, l.sub.Tenant, name,
			l.sub.Queues[name].Most+1))
	}
	return qs
}

// lockJobs finds the jobs of the call that exist already, and the prerequisites of the new ones. A
// prerequisite cannot end before the commit, so its end finds the new jobs.
func (l *existing) lockJobs() []*query {
	var ids, needs [][16]byte
	var externals []string
	for i := range l.sub.Jobs {
		n := &l.sub.Jobs[i]
		ids = append(ids, n.Job.ID)
		for _, a := range n.After {
			needs = append(needs, a.Job)
		}
		if n.Job.ExternalID != "" {
			externals = append(externals, n.Job.ExternalID)
		}
	}
	found := func(r *reader) error {
		st := r.standing()
		l.jobs[st.ID] = st
		return nil
	}
	byID := `SELECT ` + standings + ` FROM pawl.specs s ` + itsJob + ` WHERE s.id = ANY ($1)`
	var qs []*query
	if len(needs) > 0 {
		qs = append(qs, do(lockNeeds, needs, int(job.TieDependants)), read(byID, found, needs))
	}
	qs = append(qs, read(byID, found, ids))
	if len(externals) > 0 {
		qs = append(qs, read(`SELECT `+standings+` FROM pawl.specs s `+itsJob+`
			WHERE s.tenant = $1 AND s.external_id = ANY ($2)`,
			func(r *reader) error {
				st := r.standing()
				l.external[st.ExternalID] = st
				return nil
			}, l.sub.Tenant, externals))
	}
	return qs
}

// reserveKeys takes every unique key of the call that is free, in the order of keys. Only here does
// a call wait for keys of another call. If two of its jobs have the same key, the first gets it.
func (l *existing) reserveKeys() []*query {
	type reservation struct {
		uniqueKey
		job job.ID
	}
	var rs []reservation
	for i := range l.sub.Jobs {
		n := &l.sub.Jobs[i]
		for _, k := range keysOf(n) {
			rs = append(rs, reservation{k, n.Job.ID})
		}
	}
	if len(rs) == 0 {
		return nil
	}
	slices.SortStableFunc(rs, func(a, b reservation) int { return compareKeys(a.uniqueKey, b.uniqueKey) })
	kinds, modes := values(rs, func(r *reservation) string { return r.kind }), values(rs,
		func(r *reservation) string { return string(r.mode) })
	keys := values(rs, func(r *reservation) string { return r.key })
	key := func(r *reader) uniqueKey { return uniqueKey{r.text(), job.UniqueMode(r.text()), r.text()} }
	return []*query{
		read(`INSERT INTO pawl.unique_keys (tenant, kind, mode, key, job)
			SELECT $1, u.kind, u.mode, u.key, u.job
				FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[]) WITH ORDINALITY u(kind, mode, key, job, i)
			ORDER BY u.i ON CONFLICT DO NOTHING RETURNING kind, mode, key, job`,
			func(r *reader) error {
				k, id := key(r), r.id()
				l.reserved[k], l.holders[k] = id, id
				return nil
			}, l.sub.Tenant, kinds, modes, keys, values(rs, func(r *reservation) [16]byte { return r.job })),
		read(`SELECT k.kind, k.mode, k.key, `+standings+`
			FROM unnest($2::text[], $3::text[], $4::text[]) u(kind, mode, key)
			CROSS JOIN LATERAL (SELECT * FROM pawl.unique_keys k WHERE k.tenant = $1 AND k.kind = u.kind
				AND k.mode = u.mode AND k.key = u.key OFFSET 0) k
			CROSS JOIN LATERAL (SELECT * FROM pawl.specs s WHERE s.id = k.job OFFSET 0) s `+itsJob,
			func(r *reader) error {
				k, st := key(r), r.standing()
				l.holders[k], l.jobs[st.ID] = st.ID, st
				return nil
			}, l.sub.Tenant, kinds, modes, keys),
	}
}

// known answers a job that exists already. Otherwise it gives the job its unique keys.
func (l *existing) known(n *store.New) (a store.Submitted, known bool, err error) {
	defer func() {
		if known && !l.made[n.Job.ID] {
			l.gives(n)
		}
	}()
	if st, there := l.external[n.Job.ExternalID]; there {
		if !bytes.Equal(st.fingerprint, n.Fingerprint[:]) {
			return a, false, externalTaken(n.Job.ExternalID, st.ID)
		}
		return st.existed(), true, nil
	}
	if st, there := l.jobs[n.Job.ID]; there {
		if st.Tenant != l.sub.Tenant {
			return a, true, errTaken(n.Job.ID)
		}
		return st.existed(), true, nil
	}
	for _, k := range keysOf(n) {
		holder, held := l.holders[k]
		st, there := l.jobs[holder]
		switch {
		case !held || holder == n.Job.ID:
		case there:
			return st.existed(), true, nil
		case l.reserved[k] != holder:
			return a, false, errAgain // it was given up between the two statements
		}
	}
	for _, k := range keysOf(n) {
		if _, held := l.holders[k]; !held && l.reserved[k].IsZero() {
			return a, false, errAgain
		}
		l.holders[k] = n.Job.ID
		n.Job.Ties |= tieOf(k.mode)
	}
	return a, false, nil
}

// gives frees the keys that this call has reserved for a job which does not keep them, for the jobs
// of the call that follow.
func (l *existing) gives(n *store.New) {
	for _, k := range keysOf(n) {
		if l.holders[k] == n.Job.ID && !l.reserved[k].IsZero() {
			delete(l.holders, k)
		}
	}
}

// tie counts the prerequisites that a job waits for. It returns one that has ended in another way
// than the job needs.
func (l *existing) tie(n *store.New) (unmet *job.Job, err error) {
	for _, a := range store.Strongest(n.After) {
		switch p, there := l.jobs[a.Job]; {
		case !there || p.Tenant != l.sub.Tenant:
			return nil, job.Errorf(job.Invalid, "after: there is no job %s: name a job that was submitted before",
				a.Job)
		case !p.State.Terminal():
			n.Job.Needs++
			l.needs, l.after, l.need = append(l.needs, a.Job), append(l.after, n.Job.ID), append(l.need, string(a.Need))
			if p.Custody == job.Ready {
				l.lines = append(l.lines, job.QueueKind{Queue: p.Queue, Kind: p.Kind})
			}
		case !a.Need.Met(p.State):
			unmet = &p.Job
		}
	}
	return unmet, nil
}

// inserts notes that a job is made: the jobs of the call that follow see it. One that ends at once
// gives up its unique keys, as at any end.
func (l *existing) inserts(n *store.New, canceled bool) {
	l.made[n.Job.ID] = true
	st := standing{Job: n.Job, fingerprint: n.Fingerprint[:]}
	st.Tenant = l.sub.Tenant
	switch {
	case canceled:
		st.Place = job.Place{State: job.Canceled, Custody: job.None}
		l.gives(n)
	case n.Job.Needs > 0 || n.Delay > 0 || n.Job.Due.After(l.now) || n.Job.Ties&job.TieLimited != 0:
		st.Place = job.Place{State: job.Waiting, Custody: job.Gate}
	default:
		st.Place = job.Place{State: job.Pending, Custody: job.Ready}
	}
	l.jobs[st.ID] = st
	if st.ExternalID != "" {
		l.external[st.ExternalID] = st
	}
}

// admit checks the queues of the jobs that are made.
func (l *existing) admit(in *insertion) error {
	more := map[string]int{}
	for _, n := range in.jobs {
		queue := n.Job.Queue
		check := l.sub.Queues[queue]
		if check.Document && !l.queues[queue] {
			return store.NoQueue(queue)
		}
		if check.Most == 0 || in.broken[n.Job.ID] {
			continue
		}
		more[queue]++
		if err := l.sub.Admit(queue, l.waiting[queue]+more[queue]); err != nil {
			return err
		}
	}
	return nil
}

// ties returns the queries that tie the new jobs to other rows: to their prerequisites, and to
// unique keys that were reserved for a job which is not made.
func (l *existing) ties() (qs []*query) {
	if len(l.needs) > 0 {
		needs := uuids(l.needs)
		qs = append(qs, do(`INSERT INTO pawl.prerequisites (needs, job, need) SELECT *
			FROM unnest($1::uuid[], $2::uuid[], $3::text[])`, needs, uuids(l.after), l.need),
			do(tieNeeds, needs, int(job.TieDependants)))
	}
	var kinds, modes, keys []string
	var jobs [][16]byte // zero: no job has it any more
	for k, first := range l.reserved {
		if now := l.holders[k]; now != first {
			kinds, modes, keys, jobs = append(kinds, k.kind), append(modes, string(k.mode)), append(keys, k.key),
				append(jobs, now)
		}
	}
	if len(keys) > 0 {
		qs = append(qs,
			do(`INSERT INTO pawl.unique_keys (tenant, kind, mode, key, job) SELECT $1, *
				FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[])
				ON CONFLICT (tenant, kind, mode, key) DO UPDATE
					SET job = excluded.job`, l.sub.Tenant, kinds, modes, keys, jobs),
			do(`DELETE FROM pawl.unique_keys WHERE job = '00000000-0000-0000-0000-000000000000'`))
	}
	return qs
}

// lockNeeds locks prerequisites ($1) in the order of their ids. Those that no job waits for yet are
// locked for tieNeeds, which writes tie $2. The others are only kept from ending: many submissions
// may do that side by side.
const lockNeeds = `SELECT FROM (SELECT DISTINCT i FROM unnest($1::uuid[]) i ORDER BY i OFFSET 0) u
	LEFT JOIN LATERAL (SELECT FROM pawl.jobs j WHERE j.id = u.i AND j.ties & $2::int = 0 FOR NO KEY UPDATE
		OFFSET 0) first ON true
	LEFT JOIN LATERAL (SELECT FROM pawl.jobs j WHERE j.id = u.i FOR KEY SHARE OFFSET 0) other ON true`

const tieNeeds = `UPDATE pawl.jobs j SET ties = j.ties | $2::int WHERE j.id = ANY ($1::uuid[]) AND j.ties & $2::int = 0`

// broken returns the first row of a new job whose prerequisite has failed already.
func (l *existing) broken(n *store.New) job.Job {
	j := n.Job
	j.Tenant, j.Place, j.Epoch, j.N, j.Attempt = l.sub.Tenant, job.Place{State: job.Waiting, Custody: job.Gate}, 1, 1, 1
	j.Lane, j.Created, j.Since = job.LaneOf(j.State, j.Program(), 0), l.now, l.now
	return j
}

func uuids(ids []job.ID) [][16]byte { return values(ids, func(id *job.ID) [16]byte { return *id }) }
