package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Annotate implements [store.Jobs].
func (s *Store) Annotate(ctx context.Context, a store.Annotation) ([]error, error) {
	var answers []error
	err := s.call(ctx, a.Tenant, func(t *tx) error {
		rows := map[job.ID]*job.Job{}
		// The lock on the spec lets the job's own changes pass.
		err := t.send(do(`SELECT FROM pawl.specs s WHERE s.id = ANY ($1) AND s.tenant = $2 ORDER BY s.id
			FOR NO KEY UPDATE`, uuids(a.Jobs), a.Tenant),
			read(`SELECT `+columns+`, `+documents+` FROM pawl.specs s `+itsJob+`
				WHERE s.id = ANY ($1) AND s.tenant = $2`, func(r *reader) error {
				j := r.whole()
				rows[j.ID] = &j
				return nil
			}, uuids(a.Jobs), a.Tenant))
		if err != nil {
			return err
		}
		answers = make([]error, len(a.Jobs))
		var made annotations
		for i, id := range a.Jobs {
			j := rows[id]
			if j == nil {
				answers[i] = store.NoJob(id)
				continue
			}
			answers[i] = made.add(j, &a)
		}
		return t.commit(made.queries(a.Tenant)...)
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// annotations collects what annotations make of jobs.
type annotations struct {
	jobs []*job.Job // as they will be; each once
}

// add annotates one job, or says why not. j becomes what it is then.
func (m *annotations) add(j *job.Job, a *store.Annotation) error {
	hidden := j.Hidden
	if a.Hidden != nil {
		hidden = *a.Hidden
	}
	if hidden && !j.State.Terminal() {
		return job.Errorf(job.Conflict, "job %s is %s: it can be hidden once it has ended", j.ID, j.State)
	}
	labels, notes, refused := a.Merge(j, a.Replace)
	if refused != nil {
		return refused
	}
	if a.Labels != nil || a.Notes != nil {
		j.Labels, j.Notes = labels, notes
	}
	j.Hidden = hidden
	for _, other := range m.jobs {
		if other == j {
			return nil
		}
	}
	m.jobs = append(m.jobs, j)
	return nil
}

// queries returns what writes the annotations. The table of labels has those of jobs that are not
// hidden.
func (m *annotations) queries(tenant string) []*query {
	if len(m.jobs) == 0 {
		return nil
	}
	ids := values(m.jobs, func(j **job.Job) [16]byte { return (*j).ID })
	var l labelRows
	for _, j := range m.jobs {
		if !j.Hidden {
			l.add(j.ID, j.Labels)
		}
	}
	return []*query{
		do(`UPDATE pawl.specs s SET labels = ($2::json[])[array_position($1::uuid[], s.id)],
			notes = ($3::json[])[array_position($1::uuid[], s.id)],
			hidden = ($4::bool[])[array_position($1::uuid[], s.id)] WHERE s.id = ANY ($1::uuid[])`, ids,
			column(m.jobs, func(j **job.Job) *string { return labelsDocument((*j).Labels) }),
			column(m.jobs, func(j **job.Job) *string { return document((*j).Notes) }),
			values(m.jobs, func(j **job.Job) bool { return (*j).Hidden })),
		do(`UPDATE pawl.ended e SET hidden = ($2::bool[])[array_position($1::uuid[], e.id)]
			WHERE e.id = ANY ($1::uuid[]) AND e.hidden <> ($2::bool[])[array_position($1::uuid[], e.id)]`, ids,
			values(m.jobs, func(j **job.Job) bool { return (*j).Hidden })),
		do(`DELETE FROM pawl.labels l WHERE l.job = ANY ($1) AND NOT starts_with(l.key, $2)`, ids, store.IndexKey("")),
		do(`INSERT INTO pawl.labels (tenant, key, value, created, job)
			SELECT $1, u.key, u.value, s.created, u.job
				FROM unnest($2::text[], $3::text[], $4::uuid[]) u(key, value, job)
			CROSS JOIN LATERAL (SELECT s.created FROM pawl.specs s WHERE s.id = u.job OFFSET 0) s`,
			tenant, nonNil(l.keys), nonNil(l.values), nonNil(l.jobs)),
	}
}

// AddEvent implements [store.Jobs]. It changes nothing that a change of the job looks at.
func (s *Store) AddEvent(ctx context.Context, n store.NewEvent) (e store.Event, eff store.Effects, err error) {
	if n.Cause != job.CauseUser && n.Cause != job.CauseJob {
		return e, eff, job.Errorf(job.Internal, "an event of a user with cause %q", n.Cause)
	}
	err = s.write(ctx, n.Tenant, func(t *tx) error {
		eff = store.Effects{}
		var j *job.Job
		var told int
		var before *store.Event
		err := t.send(
			do(`SELECT FROM pawl.jobs j WHERE j.id = $1 AND j.tenant = $2 FOR NO KEY UPDATE`, [16]byte(n.Job),
				n.Tenant),
			read(`SELECT j.told, `+columns+` FROM pawl.specs s `+itsJob+`
				WHERE s.id = $1 AND s.tenant = $2`, func(r *reader) error {
				told = r.int()
				row := r.row()
				j = &row
				return nil
			}, [16]byte(n.Job), n.Tenant),
			read(eventOfKey, func(r *reader) error {
				there := r.event()
				before = &there
				return nil
			}, [16]byte(n.Job), nonzero(n.Key), n.Tenant))
		if err != nil {
			return err
		}
		if j == nil {
			return store.NoJob(n.Job)
		}
		if j.Custody == job.Ready { // a claim that came by meanwhile passed over it
			eff.Add(j)
		}
		if before != nil {
			e = *before
			return n.Repeats(&e.Event)
		}
		if err := n.Allowed(j); err != nil {
			return err
		}
		if told >= job.MaxJobEvents {
			return job.Errorf(job.Conflict, "job %s has %d events of users and its own: it takes no more", n.Job,
				job.MaxJobEvents)
		}
		e.Event = job.Event{
			Job: n.Job, N: j.N, Name: n.Name, Epoch: j.Epoch, State: j.State, Custody: j.Custody, Cause: n.Cause,
			Actor: n.By, Message: n.Message, Data: n.Data,
		}
		return t.commit(read(addEvent, func(r *reader) error {
			e.Sub, e.At = r.int64(), r.time()
			e.Cursor = store.EventCursor{Ord: r.int64(), Job: e.Job, N: e.N, Sub: e.Sub}.String()
			return nil
		}, [16]byte(n.Job), j.N, n.Tenant, j.Epoch, string(j.State), string(j.Custody), string(n.Cause),
			nonzero(n.By), nonzero(n.Message),
			document(n.Data), n.Name, nonzero(n.Key)))
	})
	if err != nil {
		return store.Event{}, eff, err
	}
	return e, eff, nil
}
