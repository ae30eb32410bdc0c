package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Enqueue inserts tasks in a transaction of the caller, which must be one of the store's database,
// at the isolation level READ COMMITTED.
//
// It only writes new rows. A unique key or an external id that is taken is answered, and fails
// nothing. Limits hold. Prerequisites, idempotency keys and programs are of kind Invalid. Workers
// are told by the commit. Until then the transaction holds its unique keys, and events of later
// transactions are not shown.
func (s *Store) Enqueue(ctx context.Context, query Query, sub store.Submission) ([]store.Submitted, error) {
	doc, err := enqueued(&sub)
	if err != nil {
		return nil, err
	}
	if t := doc.plain(); t != nil && s.mayBePlain(sub.Tenant) {
		text, err := s.inTransaction(ctx, query, enqueuePlain, doc.Tenant, doc.By, t.ID.String(), t.Owner, t.Kind,
			t.Name, t.Stem, t.Queue, strconv.Itoa(t.Priority), strconv.Itoa(t.MaxAttempts), t.Trace, t.Notes, t.Request,
			strconv.Itoa(int(t.Ties)), s.o.Schema)
		switch {
		case err != nil:
			return nil, err
		case text == enqueuedPlain:
			return []store.Submitted{{ID: t.ID, Place: job.Place{State: job.Pending, Custody: job.Ready}}}, nil
		}
		s.refusedPlain.Store(sub.Tenant, time.Now()) // most likely it has limits
	}
	argument, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	text, err := s.inTransaction(ctx, query, enqueue, string(argument))
	if err != nil {
		return nil, err
	}
	var made []struct {
		Job      job.ID `json:"job"`
		Existed  bool   `json:"existed"`
		Conflict string `json:"conflict"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || len(made) != len(sub.Jobs) {
		return nil, job.Errorf(job.Internal, "enqueue answered %.200q: %w", text, err)
	}
	answers := make([]store.Submitted, len(made))
	for i, m := range made {
		if m.Conflict != "" {
			return nil, externalTaken(sub.Jobs[i].Job.ExternalID, m.Job)
		}
		answers[i] = store.Submitted{
			ID: m.Job, Existed: m.Existed, Place: job.Place{State: job.Pending, Custody: job.Ready},
		}
	}
	return answers, nil
}

// mayBePlain reports whether enqueuePlain is worth a try: it was not refused within a minute.
func (s *Store) mayBePlain(tenant string) bool {
	at, refused := s.refusedPlain.Load(tenant)
	return !refused || time.Since(at.(time.Time)) > time.Minute
}

// A Query sends a statement in a transaction of the caller, with arguments, and returns the one
// text that is its answer.
type Query func(ctx context.Context, sql string, args ...any) (string, error)

// Finish decides in a transaction of the caller that the job of a worker ends with a result, at any
// isolation level. The error is of kind Fenced if the worker does not have the job in this epoch,
// or somebody has canceled it. Until the transaction ends, whoever changes the job waits.
func (s *Store) Finish(ctx context.Context, query Query, tenant string, id job.ID, epoch int64,
	result json.RawMessage,
) error {
	_, err := s.inTransaction(ctx, query, finishIn, tenant, id.String(), strconv.FormatInt(epoch, 10), string(result))
	return err
}

// inTransaction sends a statement in a transaction of the caller. Its last parameter is the id of
// the store's tables, and it answers with an empty text where the transaction has others. What the
// service itself would wait for may be that this transaction is another one than it should be.
func (s *Store) inTransaction(ctx context.Context, query Query, statement string, args ...any) (string, error) {
	text, err := query(ctx, s.sql(statement), append(args, s.id)...)
	switch code := codeOf(err); {
	case code == codeNoSchema || code == codeUndefinedTable || code == codeUndefinedFunction:
		return "", job.Errorf(job.Invalid, "the database of the transaction has no jobs in schema %s: begin it in the "+
			"database of the service: %w", s.o.Schema, err)
	case again(err):
		return "", job.Errorf(job.Unavailable, "the transaction was refused to avoid a deadlock or a conflict: roll it "+
			"back, and do all of it again: %w", err)
	case code == codeReadOnly:
		return "", job.Errorf(job.Unavailable, "the transaction takes no writes: begin it as one that writes, "+
			"on the primary: %w", err)
	case err != nil:
		return "", classify(err)
	case text == "":
		return "", job.Errorf(job.Invalid, "the database of the transaction has jobs of its own in schema %s: begin it in "+
			"the database of the service", s.o.Schema)
	}
	return text, nil
}

const (
	enqueue = `SELECT CASE WHEN e.id = $2::text::uuid
		THEN (SELECT coalesce(json_agg(m ORDER BY m.i), '[]')::text FROM pawl.enqueue($1::text::jsonb) m) ELSE '' END
	FROM pawl.era e`
	finishIn = `SELECT CASE WHEN e.id = $5::text::uuid
		THEN pawl.finish($1::text, $2::text::uuid, $3::text::bigint, $4::text::json)::text || 'done' ELSE '' END
	FROM pawl.era e`
)

// enqueuePlain enqueues one task that waits for nothing, or answers with another text: then the
// function enqueue is to do it. The function prepares its many expressions anew in each
// transaction, which takes a quarter of the time. Who is told is decided as there.
var enqueuePlain = store.SQL(`WITH new AS MATERIALIZED (
	SELECT $3::text::uuid AS id, $4::text AS owner, $5::text AS kind, $6::text AS name, $7::text AS stem,
		$8::text AS queue, $9::text::int AS priority, $10::text::int AS max_attempts, $11::text AS trace,
		nullif($12::text, '')::json AS notes, $13::text::json AS request, $14::text::int AS tied,
		NULL::text AS machine, NULL::text AS watch, false AS gated, NULL::timestamptz AS due, 0 AS needs, x.ord, x.now
	FROM (SELECT pawl.enter($16::text, $1::text) AS ord, pawl.clock() AS now OFFSET 0) x WHERE x.ord IS NOT NULL
), spec AS (
	INSERT INTO pawl.specs (id, tenant, owner, kind, name, stem, queue, priority, max_attempts, created, trace, notes,
		request)
	SELECT n.id, $1, n.owner, n.kind, n.name, n.stem, n.queue, n.priority, n.max_attempts, n.now, n.trace, n.notes,
		n.request
	FROM new n
), ` + taskHistory + `
SELECT coalesce((SELECT '` + enqueuedPlain + `' || CASE
	WHEN pg_try_advisory_xact_lock_shared(hashtextextended('pawl/untold/' || $15::text, 0))
		AND CASE WHEN pg_try_advisory_lock(hashtextextended('pawl/wanted/' || $15::text, 0))
			THEN pg_advisory_unlock(hashtextextended('pawl/wanted/' || $15::text, 0)) ELSE false END THEN ''
	ELSE pawl.tell(ARRAY['sql.0 jobs ' || n.queue || ' ' || n.kind, 'sql.0 message news '])::text END
	FROM new n), 'refused')`)

// enqueuedPlain is the answer of enqueuePlain when it has.
const enqueuedPlain = "enqueued"

// An enqueueing is the argument of the function enqueue.
type enqueueing struct {
	Tenant string         `json:"tenant"`
	By     string         `json:"by"`
	Jobs   []enqueuedTask `json:"jobs"`
}

type enqueuedTask struct {
	ID          job.ID            `json:"id"`
	Owner       string            `json:"owner"`
	Kind        string            `json:"kind"`
	Name        string            `json:"name"`
	Stem        string            `json:"stem"`
	Queue       string            `json:"queue"`
	Priority    int               `json:"priority"`
	MaxAttempts int               `json:"max_attempts"`
	ExternalID  string            `json:"external_id,omitempty"`
	Fingerprint string            `json:"fingerprint,omitempty"`
	Trace       string            `json:"trace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Index       map[string]string `json:"index,omitempty"` // by argument
	Notes       string            `json:"notes,omitempty"`
	Request     string            `json:"request"`
	Delay       int64             `json:"delay,omitempty"` // microseconds
	Due         *time.Time        `json:"due,omitempty"`
	Ties        job.Ties          `json:"ties,omitempty"`
	Limits      []string          `json:"limits,omitempty"`
	Optional    []string          `json:"optional,omitempty"`
	Order       string            `json:"order,omitempty"`
	Rank        string            `json:"rank,omitempty"`
	Unique      []enqueuedKey     `json:"unique,omitempty"`
}

type enqueuedKey struct {
	Mode job.UniqueMode `json:"mode"`
	Key  string         `json:"key"`
}

// plain returns the one task of a call, if it waits for nothing and nothing is looked at before it
// is inserted, and otherwise nil.
func (e *enqueueing) plain() *enqueuedTask {
	if len(e.Jobs) != 1 {
		return nil
	}
	t := &e.Jobs[0]
	if t.ExternalID != "" || len(t.Labels)+len(t.Index)+len(t.Limits)+len(t.Unique) > 0 || t.Delay > 0 || t.Due != nil ||
		t.Order != "" {
		return nil
	}
	return t
}

// enqueued returns a submission as the argument of enqueue.
func enqueued(sub *store.Submission) (*enqueueing, error) {
	if sub.Key != "" {
		return nil, job.Errorf(job.Invalid, "a call in a transaction has no idempotency key: give each job an "+
			"external id (pawl.WithID)")
	}
	if err := job.CheckTenant(sub.Tenant); err != nil {
		return nil, err
	}
	doc := &enqueueing{Tenant: sub.Tenant, By: sub.By, Jobs: make([]enqueuedTask, len(sub.Jobs))}
	for i := range sub.Jobs {
		n := &sub.Jobs[i]
		j := &n.Job
		switch {
		case n.Refusal != nil:
			return nil, n.Refusal
		case j.Program():
			return nil, job.Errorf(job.Invalid, "job %d is a program: only tasks are enqueued in a transaction", i)
		case len(n.After) > 0:
			return nil, job.Errorf(job.Invalid, "job %d has prerequisites: a job in a transaction has none", i)
		}
		t := enqueuedTask{
			ID: j.ID, Owner: j.Owner, Kind: j.Kind, Name: j.Name, Stem: j.Stem(), Queue: j.Queue, Priority: j.Priority,
			MaxAttempts: j.MaxAttempts, ExternalID: j.ExternalID, Trace: j.Trace, Labels: j.Labels, Index: n.Index,
			Notes:   string(j.Notes),
			Request: string(j.Request), Delay: max(0, n.Delay).Microseconds(), Due: instant(j.Due), Ties: j.Ties,
			Limits: j.Limits, Optional: n.Optional, Order: j.Order, Rank: j.Rank,
		}
		if j.ExternalID != "" {
			t.Fingerprint = hex.EncodeToString(n.Fingerprint[:])
		}
		for _, k := range keysOf(n) {
			t.Unique = append(t.Unique, enqueuedKey{k.mode, k.key})
			t.Ties |= tieOf(k.mode)
		}
		doc.Jobs[i] = t
	}
	return doc, nil
}

// tieOf is the tie of a job that holds a unique key.
func tieOf(mode job.UniqueMode) job.Ties {
	if mode == job.UntilStart {
		return job.TieUniqueStart
	}
	return job.TieUniqueDone
}

func externalTaken(name string, by job.ID) error {
	return job.Errorf(job.Conflict, "external_id %q belongs to job %s, which was another request: use a new one", name, by)
}
