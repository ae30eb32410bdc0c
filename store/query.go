package store

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A FindQuery asks for jobs in one of three ways: by id, by the session that holds them, or by the
// machine that watches them. An empty one asks for none.
type FindQuery struct {
	// IDs asks for jobs with everything about them. Ids that are not there are left out.
	IDs    []job.ID
	Tenant string // leaves out the jobs of others; empty: of all tenants. Only with IDs

	// Session asks for the jobs in its custody, with everything about them.
	Session job.ID

	// Machine asks for the jobs in custody monitor there that came at Since or later, or have a
	// wish. There may be very many: they come with the kind's progress, and without request, resolved
	// spec, labels and result.
	Machine string
	Since   time.Time
}

// Operation names what is asked, for those who count, trace and break calls.
func (q *FindQuery) Operation() string {
	switch {
	case !q.Session.IsZero():
		return "held"
	case q.Machine != "":
		return "watched"
	case q.Tenant != "":
		return "job"
	}
	return "find"
}

// FindJob returns one job of a tenant. It is NotFound where the tenant has no such job.
func FindJob(ctx context.Context, r Reader, tenant string, id job.ID) (job.Job, error) {
	if tenant == "" {
		return job.Job{}, NoJob(id)
	}
	jobs, err := r.Find(ctx, FindQuery{Tenant: tenant, IDs: []job.ID{id}})
	switch {
	case err != nil:
		return job.Job{}, err
	case len(jobs) == 0:
		return job.Job{}, NoJob(id)
	}
	return jobs[0], nil
}

// A Query asks for a page of jobs.
type Query struct {
	Tenant string
	Filter job.Filter
	Sort   Sort
	Limit  int    // 1 to 1000; 100 by default
	Cursor string // from the page before, of the same filter and order
}

// A Sort is the order of a list. Jobs with the same value follow in the order of submission, or
// against it.
type Sort string

// The orders. A list by end has only jobs that have ended. A list by name is by [job.Job.Stem]:
// jobs that were given no name stand together, in the order of submission.
const (
	Newest    Sort = "-created" // the default
	Oldest    Sort = "created"
	LastEnded Sort = "-ended"
	FirstEnd  Sort = "ended"
	ByName    Sort = "name"
	ByNameRev Sort = "-name"
)

// Sorts lists every order.
var Sorts = []Sort{Newest, Oldest, LastEnded, FirstEnd, ByName, ByNameRev}

// Field is the column by which a list is sorted first; empty where it has the order of submission
// alone.
func (s Sort) Field() string {
	switch s {
	case LastEnded, FirstEnd:
		return "ended"
	case ByName, ByNameRev:
		return "stem"
	}
	return ""
}

// Descends reports whether a list goes from the highest down.
func (s Sort) Descends() bool { return s[0] == '-' }

// Clamp returns the limit n of a query: standard where it gave none, and at most most.
func Clamp(n, standard, most int) int {
	if n <= 0 {
		return standard
	}
	return min(n, most)
}

// A Page is a page of jobs.
type Page struct {
	Jobs  []job.Job
	Next  string    // empty: the last page
	Since time.Time // the query looked at jobs submitted since then; zero: at all
}

// Counts are how many jobs there are.
type Counts struct {
	States map[job.State]int // those that have none are left out
	Since  time.Time         // as in [Page]
}

// An EventQuery asks for events.
type EventQuery struct {
	Tenant string
	Job    job.ID // zero: of all jobs
	Cursor string // from the answer before; empty: from the first
	Limit  int    // 1 to 10000; 1000 by default
	End    bool   // no events, but the cursor from which those are had that are committed from now on
	// Known is a cursor that was answered before, for all jobs: what is there up to it is read.
	// Without it, the newest may be held back once more, behind a change that is under way by now;
	// see Unsettled.
	Known string
}

// Events is a run of events.
type Events struct {
	Events []Event
	Cursor string // to go on from; never empty, and that of the last event when there is one
	// Unsettled says that more may have been committed, behind a change that is still under way.
	// Whoever waits for events asks again soon: if nothing comes of that change, nobody announces
	// anything.
	Unsettled bool
}

// An Event is one with its cursor: from there those after it are had. Two cursors of one event are
// the same text.
type Event struct {
	job.Event
	Cursor string `json:"-"`
}

// Site is in the place of a tenant for documents that belong to the whole service. Of what sees one
// tenant only nothing sees them.
const Site = "*"

// Kept says for how long the jobs of a tenant are kept that ended in a state.
type Kept struct {
	Tenant string
	State  job.State
	For    time.Duration
}

// Compare orders by tenant and state, as Overdue goes through what is kept.
func (k Kept) Compare(other Kept) int {
	return cmp.Or(strings.Compare(k.Tenant, other.Tenant), strings.Compare(string(k.State), string(other.State)))
}

// An OverdueQuery asks for jobs that are kept no longer.
type OverdueQuery struct {
	Kept   []Kept // each tenant and state once; others are kept for ever
	Limit  int    // 1 to 1000; 500 by default
	Cursor string // from the answer before; what is kept may have changed since
}

// Overdue are jobs that are kept no longer.
type Overdue struct {
	Jobs []Ended
	Next string // to go on behind the last of them; empty: there are no more
}

// Ended is a job that has ended.
type Ended struct {
	ID      job.ID
	Tenant  string
	State   job.State
	Kind    string
	Machine string
}

// A ResourceQuery asks for documents of a kind.
type ResourceQuery struct {
	Tenant string // whose they are; empty: those of all tenants, and of the [Site]
	Kind   string
	Name   string // empty: all
}

// Operation names what is asked, for those who count calls.
func (q *ResourceQuery) Operation() string {
	switch {
	case q.Tenant == "":
		return "all_resources"
	case q.Name == "":
		return "resources"
	}
	return "resource"
}

// FindResource returns one document. It is NotFound where there is none.
func FindResource(ctx context.Context, r Resources, tenant, kind, name string) (Resource, error) {
	if tenant == "" || name == "" {
		return Resource{}, NoResource(kind, name)
	}
	found, err := r.Resources(ctx, ResourceQuery{Tenant: tenant, Kind: kind, Name: name})
	switch {
	case err != nil:
		return Resource{}, err
	case len(found) == 0:
		return Resource{}, NoResource(kind, name)
	}
	return found[0], nil
}

// A Resource is a typed document.
type Resource struct {
	Tenant, Kind, Name string
	Version            int64
	Updated            time.Time
	Doc                json.RawMessage
}
