package checks

import (
	"context"
	"iter"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Jobs yields all jobs of a tenant that a filter chooses, as lists show them; no filter: all. An
// error is yielded last.
func Jobs(ctx context.Context, st store.Reader, tenant string, f job.Filter) iter.Seq2[job.Job, error] {
	return func(yield func(job.Job, error) bool) {
		q := store.Query{Tenant: tenant, Filter: f, Limit: 1000}
		for more := true; more; more = q.Cursor != "" {
			page, err := st.List(ctx, q)
			if err != nil {
				yield(job.Job{}, err)
				return
			}
			for _, j := range page.Jobs {
				if !yield(j, nil) {
					return
				}
			}
			q.Cursor = page.Next
		}
	}
}
