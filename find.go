package pawl

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// mostFound is how many jobs are told when a reference fits several.
const mostFound = 20

// Find returns the job that ref names: the whole id, or at least [job.LeastIDPart] hex digits with which the id of one
// job begins or ends, or a name. Of several jobs with one name it is the unfinished one, or the newest when all have
// ended; with hidden the newest hidden one, if there is one. A name never hides an id: where ref is the name of one job
// and a part of the id of another, the answer is Conflict, as it is wherever ref fits several jobs.
func (s *Service) Find(ctx context.Context, ref string, hidden bool) (View, error) {
	switch {
	case ref == "":
		return View{}, job.Errorf(job.Invalid, "the job is empty: give the name or the id of a job")
	case !utf8.ValidString(ref) || strings.ContainsRune(ref, 0):
		return View{}, job.Errorf(job.Invalid, "%q is neither a name nor an id: give text in UTF-8 without NUL", ref)
	}
	if id, err := job.ParseID(ref); err == nil {
		return s.View(ctx, id)
	}
	found, err := s.named(ctx, ref, hidden)
	if err != nil {
		return View{}, err
	}
	byID, err := s.withPart(ctx, ref)
	if err != nil {
		return View{}, err
	}
	for i := range byID {
		if len(found) == 0 || found[0].ID != byID[i].ID {
			found = append(found, byID[i])
		}
	}
	switch len(found) {
	case 0:
		return View{}, job.Errorf(job.NotFound, "no job %q", ref)
	case 1:
		return s.View(ctx, found[0].ID)
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID, found[i].Name, found[i].State)
	}
	return View{}, job.Errorf(job.Conflict, "%q names more than one job: give the id of one of them%s", ref, &ids)
}

// named returns the unfinished jobs of a name, or when all have ended the newest, which may be hidden.
func (s *Service) named(ctx context.Context, name string, hidden bool) ([]job.Job, error) {
	all := job.Where("name", name)
	tries := []store.Query{
		{Filter: all.And("custody", job.IsNot, string(job.None)), Limit: mostFound},
		{Filter: all, Limit: 1},
		{Filter: all.And("hidden", job.Is, "true"), Limit: 1},
	}
	if hidden {
		tries = []store.Query{tries[2], tries[0], tries[1]}
	}
	for _, q := range tries {
		if page, err := s.List(ctx, q); err != nil || len(page.Jobs) > 0 {
			return page.Jobs, err
		}
	}
	return nil, nil
}

// withPart returns the jobs whose ids begin or end with ref, however old they are.
func (s *Service) withPart(ctx context.Context, ref string) ([]job.Job, error) {
	patterns := job.IDPatterns(ref)
	if patterns == nil {
		return nil, nil
	}
	f := job.Filter(nil).And("id", job.Like, patterns...).
		And("created", job.AtLeast, time.Unix(0, 0).UTC().Format(time.RFC3339)).And("hidden", job.Is, "true", "false")
	page, err := s.List(ctx, store.Query{Filter: f, Limit: mostFound})
	return page.Jobs, err
}
