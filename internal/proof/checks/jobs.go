package checks

import (
	"context"
	"fmt"
	"iter"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// A Breach is told what does not hold of a job, as "name: what was seen".
type Breach func(id job.ID, format string, args ...any)

// OpenStore opens a database to read it: that of a server, or that of a folder where dsn is empty.
func OpenStore(ctx context.Context, dsn, folder string) (store.Store, error) {
	if dsn != "" {
		return postgres.Open(ctx, dsn, postgres.Options{})
	}
	return sqlite.Open(ctx, folder, sqlite.Options{ReadOnly: true})
}

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

// Whole returns all jobs of a tenant with everything about them. Each is listed once, and is there.
func Whole(ctx context.Context, st store.Reader, tenant string, breach Breach) (map[job.ID]*job.Job, error) {
	all := map[job.ID]*job.Job{}
	for listed, err := range Jobs(ctx, st, tenant, nil) {
		if err != nil {
			return nil, err
		}
		j, err := store.FindJob(ctx, st, tenant, listed.ID)
		if job.KindOf(err) == job.NotFound {
			breach(listed.ID, "stranger: job %s is listed, and is not there", listed.ID)
			continue
		}
		if err != nil {
			return nil, err
		}
		if all[j.ID] != nil {
			breach(j.ID, "twice: job %s is listed twice", j.ID)
		}
		all[j.ID] = &j
	}
	return all, nil
}

// LaunchedTwice looks for attempts of programs that were started more than once, and returns how
// many there are.
func LaunchedTwice(l *ledger.Ledger, breach Breach) (twice int) {
	for id, started := range l.Launches {
		for attempt, n := range started {
			if n > 1 {
				twice++
				breach(id, "launched_twice: attempt %d of job %s was started %d times", attempt, id, n)
			}
		}
	}
	return twice
}

// RanTwice looks for tasks that ran twice in one epoch.
func RanTwice(l *ledger.Ledger, breach Breach) {
	for id, runs := range l.Tasks {
		epochs := map[int64]int{}
		for r, n := range runs {
			epochs[r.Epoch] += n
		}
		for epoch, n := range epochs {
			if n > 1 {
				breach(id, "ran_twice: task %s ran %d times in epoch %d", id, n, epoch)
			}
		}
	}
}

// Histories hands the rows and histories of a tenant to the check that every store passes, and
// tells breach what that says.
func Histories(st store.Store, tenant string, breach func(text string)) {
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(fatal); !ok {
				panic(p)
			}
		}
	}()
	storetest.Check(asTest(breach), st, tenant)
}

// asTest takes in what a check says that is made for tests.
type asTest func(text string)

// fatal is how a check ends that cannot go on.
type fatal struct{}

func (asTest) Helper()                             {}
func (asTest) Logf(string, ...any)                 {}
func (t asTest) Errorf(format string, args ...any) { t(fmt.Sprintf(format, args...)) }

func (t asTest) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(fatal{})
}

// A Few counts what does not hold, by its name: of many with one name the first few tell enough.
type Few map[string]int

// Enough counts one more, and reports whether there were enough before.
func (f Few) Enough(name string) bool {
	f[name]++
	return f[name] > 5
}
