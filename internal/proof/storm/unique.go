package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// alone gives one job of ten a key of which there is one job until it is started, or until it is
// done, and returns what such jobs have in common; empty: it has none.
func (s *storm) alone(i int, spec *job.Spec) string {
	rnd := s.random(fmt.Sprintf("uniqueness of job %d", i))
	if spec.Unique != nil || rnd.IntN(10) > 0 {
		return ""
	}
	until := []job.UniqueMode{job.UntilStart, job.UntilDone}[rnd.IntN(2)]
	spec.Unique = &job.Unique{Key: fmt.Sprint("u", rnd.IntN(3)), Until: until}
	kind := spec.Kind
	if kind == "" {
		kind = job.KindApp
	}
	return fmt.Sprintf("unique/%s until %s/%s", kind, until, spec.Unique.Key)
}

// answeredWith notes that the submission of an order was answered with a job: its own or, if it is
// one of a kind, that which was there.
func (s *storm) answeredWith(ctx context.Context, rnd *rand.Rand, o order, id job.ID) {
	if o.unique == "" {
		s.book.accept(o, id)
		return
	}
	var v service.View
	err := s.insist(ctx, rnd, func(c *client.Client) (err error) {
		v, err = c.Job(ctx, id)
		return err
	})
	p := s.promised(id)
	switch {
	// By somebody who was answered with it, too.
	case job.KindOf(err) == job.NotFound && p != nil && s.book.look(p).deleting:
		s.book.meet(o)
	case err != nil:
		s.breaks("lost: job %s, with which %s was answered: %v", id, o.name, err)
	default:
		s.met(o, &v)
	}
}

// met notes the job with which an order was answered.
func (s *storm) met(o order, v *service.View) {
	if v.Name == o.name {
		s.book.accept(o, v.ID)
		return
	}
	s.book.meet(o)
	i, err := strconv.Atoi(strings.TrimPrefix(v.Name, namePrefix))
	if err != nil {
		s.breaks("unique: %s was answered with job %s (%s), which nobody submitted", o.name, v.ID, v.Name)
		s.tell(v.ID)
		return
	}
	first := s.order(i) // of which nobody knows when it was submitted
	switch {
	case first.unique != o.unique:
		s.breaks("unique: %s, which is %s, was answered with job %s (%s), which is %q",
			o.name, o.unique, v.ID, v.Name, first.unique)
		s.tell(v.ID)
	case !v.Ended.IsZero() && v.Ended.Before(o.begun.Add(-time.Second)) && !s.wrong(v.Ended) && s.rightUntil(v.Ended):
		s.breaks("unique: %s was submitted at %s, and answered with job %s (%s), which had ended at %s",
			o.name, o.begun, v.ID, v.Name, v.Ended)
		s.tell(v.ID)
	}
	s.book.accept(first, v.ID)
}
