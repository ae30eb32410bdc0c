package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Submit implements [store.Jobs].
func (s *Store) Submit(ctx context.Context, sub store.Submission) ([]store.Submitted, store.Effects, error) {
	if err := job.CheckTenant(sub.Tenant); err != nil {
		return nil, store.Effects{}, err
	}
	var answers []store.Submitted
	var eff store.Effects
	err := s.do(ctx, func(t *tx) (err error) {
		eff = store.Effects{}
		answers, err = t.submitAll(&sub, &eff)
		return err
	})
	if err != nil {
		return nil, store.Effects{}, err
	}
	return answers, eff, nil
}

// submitAll inserts the jobs of one call.
func (t *tx) submitAll(sub *store.Submission, eff *store.Effects) (answers []store.Submitted, err error) {
	if err := t.advance(sub.Tenant, sub.Advance); err != nil {
		return nil, err
	}
	var digest []byte
	if sub.Key != "" {
		digest = sub.Digest()
		known, err := t.byKey(sub, digest)
		if known != nil || err != nil {
			return known, err
		}
	}
	fits, err := t.fitting(sub)
	if err != nil {
		return nil, err
	}
	for i := range sub.Jobs {
		a, err := t.submit(sub, &sub.Jobs[i], fits, eff)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	if sub.Key == "" {
		return answers, nil
	}
	ids := make([]byte, 0, 16*len(answers))
	for _, a := range answers {
		ids = append(ids, a.ID[:]...)
	}
	_, err = t.exec(`INSERT INTO idempotency (tenant, key, fingerprint, jobs, at) VALUES (?, ?, ?, ?, ?)`,
		sub.Tenant, sub.Key, digest, ids, micros(t.now))
	return answers, err
}

// byKey answers a call that was made before under the same idempotency key; nil: there was none.
func (t *tx) byKey(sub *store.Submission, digest []byte) (answers []store.Submitted, err error) {
	if _, err := t.exec(`DELETE FROM idempotency WHERE at < ?`, t.now.Add(-store.KeepKey).UnixMicro()); err != nil {
		return nil, err
	}
	var was, ids []byte
	err = t.query(`SELECT fingerprint, jobs FROM idempotency WHERE tenant = ? AND key = ?`,
		func(v []driver.Value) error {
			was, ids = v[0].([]byte), v[1].([]byte)
			return nil
		}, sub.Tenant, sub.Key)
	if err != nil || was == nil {
		return nil, err
	}
	if !bytes.Equal(was, digest) {
		return nil, job.Errorf(job.Conflict, "idempotency key %q was used for another request: use a new key", sub.Key)
	}
	answers = []store.Submitted{}
	for b := range slices.Chunk(ids, 16) {
		answers = append(answers, store.Submitted{ID: job.ID(b), Existed: true})
	}
	rows, err := t.find(idsOf(answers))
	for i, a := range answers {
		if r := rows[a.ID]; r != nil {
			answers[i].Place = r.Place
		}
	}
	return answers, err
}

var (
	// addNeed makes a job wait for another one, unless that has ended; tieNeeded ties that one.
	addNeed = store.SQL(`INSERT INTO prerequisites (needs, job, need)
		SELECT seq, ?, ? FROM jobs WHERE id = ? AND custody <> {None}`)
	tieNeeded = store.SQL(`UPDATE jobs SET ties = ties | {TieDependants} WHERE id = ? AND custody <> {None}`)
)

// submit inserts one job, or finds the one that is there already.
func (t *tx) submit(sub *store.Submission, n *store.New, fits map[string]bool, eff *store.Effects) (store.Submitted,
	error,
) {
	j := n.Job
	if j.ExternalID != "" {
		a, known, err := t.byExternalID(sub.Tenant, &j, n.Fingerprint)
		if err != nil || known {
			return a, err
		}
	}
	keys := slices.Clone(n.Unique)
	slices.SortFunc(keys, func(a, b store.Unique) int {
		return strings.Compare(string(a.Mode)+a.Key, string(b.Mode)+b.Key)
	})
	keys = slices.Compact(keys)
	if len(keys) > 0 { // else the insert finds it
		if a, known, err := t.repeated(sub.Tenant, j.ID); err != nil || known {
			return a, err
		}
	}
	for _, u := range keys {
		rs, err := t.rows(`SELECT `+columns+` FROM unique_keys u JOIN jobs j ON j.seq = u.job
			WHERE u.tenant = ? AND u.kind = ? AND u.mode = ? AND u.key = ?`, sub.Tenant, j.Kind, string(u.Mode), u.Key)
		if err != nil {
			return store.Submitted{}, err
		}
		if len(rs) == 1 {
			return store.Submitted{ID: rs[0].ID, Place: rs[0].Place, Existed: true}, nil
		}
		if u.Mode == job.UntilStart {
			j.Ties |= job.TieUniqueStart
		} else {
			j.Ties |= job.TieUniqueDone
		}
	}

	j.Tenant, j.Created, j.Since = sub.Tenant, t.now, t.now
	if n.Delay > 0 {
		j.Due = t.now.Add(n.Delay)
	}
	j.Rank = j.RankAt(t.now)
	after := store.Strongest(n.After)
	broken, err := t.prerequisites(sub.Tenant, &j, after)
	if err != nil {
		if job.KindOf(err) == job.Invalid { // what it waits for may have been removed since it was submitted
			if a, known, err := t.repeated(sub.Tenant, j.ID); known || err != nil {
				return a, err
			}
		}
		return store.Submitted{}, err
	}
	j.Epoch, j.N, j.Attempt = 1, 1, 1
	if j.Limits, err = t.under(sub.Tenant, n); err != nil {
		return store.Submitted{}, err
	}
	if len(j.Limits) > 0 {
		j.Ties |= job.TieLimited
	}
	if broken == nil {
		j = j.Entering(fits, t.now)
	}
	j.Place = job.Next(&j, job.Pending, t.now)
	if broken != nil {
		j.Place = job.Place{State: job.Waiting, Custody: job.Gate}
	}
	if j.Custody == job.Ready || !j.Due.After(t.now) {
		j.Due = time.Time{}
	}
	if broken == nil {
		j = j.InLine(t.now)
	}
	j.Lane = job.LaneOf(j.State, j.Program(), 0)

	// A job without any key pays nothing for those that have one: neither names nor values.
	insert, limited := insertJob, []any(nil)
	if len(j.Limits) > 0 || j.Order != "" {
		insert, limited = insertLimited, []any{keysDocument(j.Limits), j.Line, optional(j.Order), j.Rank}
	}
	seq, inserted, err := t.insert(insert,
		append([]any{
			blob(j.ID), j.Tenant, j.Owner, j.Kind, j.Name, j.Queue, j.Machine, int64(j.Priority),
			int64(j.MaxAttempts), micros(j.Created),
			optional(j.ExternalID), blob(j.Parent), string(j.State), string(j.Custody), j.Epoch, j.N,
			string(j.Lane), int64(j.Attempt),
			micros(j.Since), micros(j.Due), int64(j.Needs), int64(j.Ties), j.App, j.Trace, j.Stem(),
			j.Watch,
		}, limited...)...)
	if err != nil {
		return store.Submitted{}, err
	}
	if !inserted {
		a, _, err := t.repeated(sub.Tenant, j.ID)
		return a, err
	}
	if n.Refusal != nil {
		return store.Submitted{}, n.Refusal
	}
	r := &row{Job: j, seq: seq}
	t.waits(r, 1)
	if broken == nil {
		if err := t.admit(sub, j.Queue); err != nil {
			return store.Submitted{}, err
		}
	}
	labels, err := labelsDocument(j.Labels)
	if err != nil {
		return store.Submitted{}, err
	}
	var fingerprint any
	if j.ExternalID != "" {
		fingerprint = n.Fingerprint[:]
	}
	if _, err := t.run(`INSERT INTO specs (seq, request, labels, notes, fingerprint) VALUES (?, ?, ?, ?, ?)`,
		seq, string(j.Request), labels, document(j.Notes), fingerprint); err != nil {
		return store.Submitted{}, err
	}
	if err := t.label(r, nil, n.LabelRows()); err != nil {
		return store.Submitted{}, err
	}
	if err := t.add(seq, changes{
		to: j.Custody, path: []job.Entry{{State: j.State}}, cause: job.CauseSubmit,
		actor: optional(sub.By),
	}); err != nil {
		return store.Submitted{}, err
	}
	for _, u := range keys {
		if _, err := t.exec(`INSERT INTO unique_keys (tenant, kind, mode, key, job) VALUES (?, ?, ?, ?, ?)`,
			sub.Tenant, j.Kind, string(u.Mode), u.Key, seq); err != nil {
			return store.Submitted{}, err
		}
	}
	for _, a := range after {
		if _, err := t.exec(addNeed, seq, string(a.Need), blob(a.Job)); err != nil {
			return store.Submitted{}, err
		}
		delete(t.w.held, a.Job)
		if _, err := t.exec(tieNeeded, blob(a.Job)); err != nil {
			return store.Submitted{}, err
		}
	}
	if err := t.takeTurns(r, j.Turns()); err != nil {
		return store.Submitted{}, err
	}
	if err := t.owe(r, r.Line, job.Owes(&job.Job{}, &r.Job), eff); err != nil {
		return store.Submitted{}, err
	}
	eff.Add(&r.Job)
	if broken != nil {
		if err := t.write(r, job.Unmet(&r.Job, broken), job.CausePaid, nil, eff); err != nil {
			return store.Submitted{}, err
		}
	}
	return store.Submitted{ID: r.ID, Place: r.Place}, nil
}

// prerequisites counts in j what it waits for. broken is a prerequisite that has ended otherwise
// than needed.
func (t *tx) prerequisites(tenant string, j *job.Job, after []store.After) (broken *job.Job, err error) {
	if len(after) == 0 {
		return nil, nil
	}
	ids := make([]job.ID, len(after))
	for i, a := range after {
		ids[i] = a.Job
	}
	rows, err := t.find(ids)
	if err != nil {
		return nil, err
	}
	for _, a := range after {
		switch r := rows[a.Job]; {
		case r == nil || r.Tenant != tenant:
			return nil, job.Errorf(job.Invalid, "after: there is no job %s: name a job that was submitted before",
				a.Job)
		case !r.State.Terminal():
			j.Needs++
		case !a.Need.Met(r.State):
			broken = &r.Job
		}
	}
	return broken, nil
}

// byExternalID answers with the job that has j's external id, if there is one.
func (t *tx) byExternalID(tenant string, j *job.Job, fingerprint [32]byte) (a store.Submitted, known bool, err error) {
	err = t.query(`SELECT j.id, j.state, j.custody, s.fingerprint FROM jobs j JOIN specs s ON s.seq = j.seq
		WHERE j.tenant = ? AND j.external_id = ?`, func(v []driver.Value) error {
		if was, _ := v[3].([]byte); !bytes.Equal(was, fingerprint[:]) {
			return job.Errorf(job.Conflict,
				"external_id %q belongs to job %s, which was another request: use a new one", j.ExternalID, id(v[0]))
		}
		known, a = true, store.Submitted{
			ID:    id(v[0]),
			Place: job.Place{State: job.State(text(v[1])), Custody: job.Custody(text(v[2]))}, Existed: true,
		}
		return nil
	}, tenant, j.ExternalID)
	return a, known, err
}

// repeated answers a submission whose job id is there already, if it is.
func (t *tx) repeated(tenant string, id job.ID) (a store.Submitted, known bool, err error) {
	rs, err := t.rows(`SELECT `+columns+` FROM jobs j WHERE id = ?`, blob(id))
	if err != nil || len(rs) == 0 {
		return a, false, err
	}
	if rs[0].Tenant != tenant {
		return a, true, job.Errorf(job.Conflict, "job id %s is taken", id)
	}
	return store.Submitted{ID: id, Place: rs[0].Place, Existed: true}, true, nil
}

func idsOf(answers []store.Submitted) []job.ID {
	ids := make([]job.ID, len(answers))
	for i, a := range answers {
		ids[i] = a.ID
	}
	return ids
}
