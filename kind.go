package pawl

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
)

// Declare keeps the declaration in the database, as a document of its kind. Jobs of that kind that
// come by HTTP, from SQL, from a schedule or from a program of another language then have what the
// declaration says and they do not say: queue, uniqueness, order, limits and retries. Their
// arguments must meet Schema. [Service.Run] does this for the tasks that the process handles; it is
// for others, such as a process that only enqueues what workers of another language handle.
//
// Every process may say the same again. One that says something else replaces it, unless its
// Revision is lower. Of equal revisions the last one stays. What a declaration leaves out of Slots,
// Schema and Index stays as it is, and so do the description and whether the kind is disabled:
// people say those, with pawl apply.
func (t Task[A, R]) Declare(ctx context.Context, s *Service) error {
	if err := t.check(); err != nil {
		return err
	}
	return s.keepKind(ctx, t.kind())
}

// kind returns the declaration as a document.
func (t *Task[A, R]) kind() kinds.Kind {
	k := kinds.Kind{
		Name: t.Kind, Queue: t.Queue, Unique: t.Unique.u, Order: t.Order.o, Limits: t.Limits, Retry: t.Retry,
		Timeout: job.Duration(t.Timeout), Stall: job.Duration(t.Stall), Schema: t.Schema, Slots: t.Slots,
		Index: t.Index, Revision: t.Revision,
	}
	for state, d := range t.Keep {
		if k.Keep == nil {
			k.Keep = map[job.State]job.Duration{}
		}
		k.Keep[state] = job.Duration(d)
	}
	if t.Schema != nil && t.Version > 1 {
		k.ArgsVersion = t.Version
	}
	return k
}

// keepKinds keeps the declarations of the tasks that this process handles. While the database
// cannot be reached it tries again, until ctx ends.
func (s *Service) keepKinds(ctx context.Context) error {
	for _, k := range s.kinds {
		for err := s.keepKind(ctx, k); err != nil; err = s.keepKind(ctx, k) {
			if job.KindOf(err) != job.Unavailable {
				return err
			}
			s.log.Warn("declaration of a task not kept yet", "kind", k.Name, "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// keepQueue makes a queue that is not there.
func (s *Service) keepQueue(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	all := s.jobs.Queues()
	_, err := all.Resource(ctx, name)
	if job.KindOf(err) != job.NotFound {
		return err
	}
	text, err := job.Encode(job.Queue{Name: name})
	if err == nil {
		_, _, err = all.Apply(ctx, text, 0)
	}
	if job.KindOf(err) == job.Conflict {
		return nil // another process made it meanwhile
	}
	return err
}

// keepKind keeps one declaration. What only people say of a kind stays.
func (s *Service) keepKind(ctx context.Context, k kinds.Kind) error {
	if text, err := job.Encode(k); err != nil {
		return job.Errorf(job.Invalid, "task %s: %w", k.Name, err)
	} else if _, err = kinds.Parse(text); err != nil { // also where it says what is there already
		return job.Errorf(job.Invalid, "task %s: %w", k.Name, err)
	}
	if err := s.keepQueue(ctx, k.Queue); err != nil {
		return job.Errorf(job.KindOf(err), "task %s: %w", k.Name, err)
	}
	all := s.jobs.Kinds()
	for {
		old, err := all.Resource(ctx, k.Name)
		if err != nil && job.KindOf(err) != job.NotFound {
			return err
		}
		if was := &old.Doc; was.Revision > k.Revision {
			return nil // of a newer build
		}
		doc := k
		doc.Description, doc.Disabled = old.Doc.Description, old.Doc.Disabled
		if doc.Slots = cmp.Or(doc.Slots, old.Doc.Slots); doc.Schema == nil {
			doc.Schema, doc.ArgsVersion = old.Doc.Schema, old.Doc.ArgsVersion
		}
		if doc.Index == nil {
			doc.Index = old.Doc.Index
		}
		old.Doc.Name = k.Name // of one that is not there
		text, err := job.Encode(doc)
		if err != nil {
			return job.Errorf(job.Invalid, "task %s: %w", k.Name, err)
		}
		if was, err := job.Encode(old.Doc); err == nil && bytes.Equal(was, text) {
			return nil
		}
		if _, _, err = all.Apply(ctx, text, old.Version); job.KindOf(err) == job.Conflict {
			continue // another process said something meanwhile
		}
		if err != nil {
			return job.Errorf(job.KindOf(err), "task %s: %w", k.Name, err)
		}
		return nil
	}
}
