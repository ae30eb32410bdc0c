package store

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A FindQuery asks for jobs in one of three ways: by id, by the session that holds them, or by the
// watch that looks after them. An empty query asks for none.
type FindQuery struct {
	// IDs asks for these jobs, with all of their fields. Unknown ids are left out.
	IDs []job.ID
	// Tenant, with IDs only, leaves out the jobs of other tenants. Empty: all tenants.
	Tenant string

	// Session asks for the jobs in its custody, with all of their fields.
	Session job.ID

	// Watch asks for the jobs in custody monitor there that have come since Since, or that have a
	// wish. There may be very many. So they come with Work, but without Request, Resolved, Labels
	// and Result.
	Watch string
	Since time.Time
}

// Operation names the kind of query, for metrics, traces and tests.
func (q *FindQuery) Operation() string {
	switch {
	case !q.Session.IsZero():
		return "held"
	case q.Watch != "":
		return "watched"
	case q.Tenant != "":
		return "job"
	}
	return "find"
}

// FindJob returns a job of a tenant. The error is NotFound if the tenant has no such job.
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
	Tenant string // a service fills it in
	Filter job.Filter
	Sort   Sort
	Limit  int    // 1 to 1000; 100 by default
	Cursor string // Next of the page before, with the same filter and order
}

// A Sort is the order of a list. Jobs with equal values are in the order of submission, or in the
// opposite order if the list descends.
type Sort string

// The orders. A list by end has only jobs that have ended. A list by name is sorted by
// [job.Job.Stem], so jobs without a given name are together, in the order of submission.
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

// Field returns the first column of the order. It is empty if the list is in the order of
// submission.
func (s Sort) Field() string {
	switch s {
	case LastEnded, FirstEnd:
		return "ended"
	case ByName, ByNameRev:
		return "stem"
	}
	return ""
}

// Descends reports whether the list begins with the highest value.
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
	Next  string    // the cursor of the next page; empty: this is the last
	Since time.Time // only jobs submitted since then were looked at; zero: all
}

// IndexKey is the key under which the table of labels has an argument. No label has such a key.
func IndexKey(field string) string { return indexKeys + field }

const indexKeys = "args:"

// LabelRows returns the rows of the table of labels that a new job gets: its labels and its index.
func (n *New) LabelRows() map[string]string {
	rows := maps.Clone(n.Job.Labels)
	for field, key := range n.Index {
		if rows == nil {
			rows = map[string]string{}
		}
		rows[IndexKey(field)] = key
	}
	return rows
}

// Counts are how many jobs a filter chooses, by state.
type Counts struct {
	States map[job.State]int // states without jobs are left out
	Since  time.Time         // as in [Page]
}

// An EventQuery asks for events.
type EventQuery struct {
	Tenant string
	Job    job.ID // zero: all jobs
	Cursor string // Cursor of the answer before; empty: from the first event
	Limit  int    // 1 to 10000; 1000 by default
	End    bool   // no events, but a cursor that is followed by those committed from now on
	// Known is a cursor of an earlier answer for all jobs. The answer has all events up to it.
	// Without Known, the newest events may be held back again, behind a change that is still under
	// way; see Unsettled.
	Known string
	// Now is for Job: the answer has all of its events, also those that readers of all jobs are not
	// shown yet, behind a change of another job that is still under way. Cursors of such answers are
	// for queries with Now.
	Now bool
}

// Events is a run of events.
type Events struct {
	Events []Event
	// Cursor is where to go on. It is never empty. If there are events, it is that of the last one.
	Cursor string
	// Unsettled says that more events may have been committed, behind a change that is still under
	// way. A reader that waits for events asks again soon: if that change writes none, no wake-up
	// comes.
	Unsettled bool
}

// An Event is an event with its cursor. The events after it follow the cursor. All cursors of an
// event are the same text.
type Event struct {
	job.Event
	Cursor string `json:"-"`
}

// Site takes the place of a tenant in documents that belong to the whole service. Methods that see
// one tenant do not see them.
const Site = "*"

// Kept says how long the jobs of a tenant are kept that ended in a state.
type Kept struct {
	Tenant string
	State  job.State
	Kind   string // of this kind; empty: of all kinds that have no rule of their own
	For    time.Duration
	// Since leaves out jobs that ended before it: an earlier look has seen them. Zero: none.
	Since time.Time
}

// Compare orders by tenant, state and kind, as Overdue does.
func (k Kept) Compare(other Kept) int {
	return cmp.Or(strings.Compare(k.Tenant, other.Tenant), strings.Compare(string(k.State), string(other.State)),
		strings.Compare(k.Kind, other.Kind))
}

// Of returns what k is about, without times.
func (k Kept) Of() Kept { return Kept{Tenant: k.Tenant, State: k.State, Kind: k.Kind} }

// An OverdueQuery asks for jobs that need not be kept any longer.
type OverdueQuery struct {
	Kept   []Kept // each tenant, state and kind once; jobs of others are kept for ever
	Limit  int    // 1 to 1000; 500 by default
	Cursor string // Next of the answer before; Kept may have changed since
}

// Own returns the kinds that have rules of their own beside k, which is for all others.
func (q *OverdueQuery) Own(k Kept) (kinds []string) {
	for _, other := range q.Kept {
		if k.Kind == "" && other.Kind != "" && other.Tenant == k.Tenant && other.State == k.State {
			kinds = append(kinds, other.Kind)
		}
	}
	return kinds
}

// Overdue are jobs that need not be kept any longer.
type Overdue struct {
	Jobs []Ended
	Next string // the cursor to go on; empty: there are no more
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
	Tenant string // empty: all tenants, and the [Site]
	Kind   string
	Name   string // empty: all
	// Next, if it is not 0, asks for that many documents at most of those that have a time at which
	// they are looked at next, the earliest first.
	Next int
}

// Operation names the kind of query, for metrics.
func (q *ResourceQuery) Operation() string {
	switch {
	case q.Next > 0:
		return "next_resources"
	case q.Tenant == "":
		return "all_resources"
	case q.Name == "":
		return "resources"
	}
	return "resource"
}

// FindResource returns one document. The error is NotFound if there is none.
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

	// Plan is for Put: what becomes of Through and Next, which Put does not read.
	Plan Plan
	// Through is the newest due time that is dealt with. Next is when the document is looked at next;
	// zero: never. Trouble is what went wrong with the newest due time; empty: nothing. Documents of
	// a kind that nothing is due of have none of these.
	Through, Next time.Time
	Trouble       string
}

// A Plan says what becomes of the due times of a document that is written.
type Plan string

// The plans.
const (
	PlanKept Plan = ""     // they stay as they are
	PlanAnew Plan = "anew" // they are counted from now, and looked at now
	PlanNone Plan = "none" // nothing is due
)

// An Advance records that due times of a document are dealt with. Submit makes it in the
// transaction that inserts the jobs of a due time, so each due time has its jobs once.
type Advance struct {
	Kind, Name string
	Version    int64     // of the document that says what is due
	From       time.Time // [Resource.Through] as it is
	Through    time.Time // as it becomes: From, or later and not in the future by the database's clock
	Next       time.Time // as [Resource.Next] becomes
	Trouble    string    // as [Resource.Trouble] becomes
}

// Of returns r as it is after the advance. The error is that of [Advance.Passed].
func (a *Advance) Of(r Resource, now time.Time) (Resource, error) {
	if r.Version != a.Version || !r.Through.Equal(a.From) || a.Through.After(now) {
		return r, a.Passed()
	}
	r.Through, r.Next, r.Trouble = a.Through.UTC(), a.Next.UTC(), a.Trouble
	return r, nil
}

// Planned returns r, which takes the place of old, with the due times that its plan says.
func (r Resource) Planned(old Resource, now time.Time) Resource {
	r.Through, r.Next, r.Trouble = time.Time{}, time.Time{}, ""
	switch r.Plan {
	case PlanKept:
		r.Through, r.Next, r.Trouble = old.Through, old.Next, old.Trouble
	case PlanAnew:
		r.Through, r.Next = now, now
	}
	r.Plan = PlanKept
	return r
}

// Passed is the error of kind [job.Fenced] for an advance from what is not there any more.
func (a *Advance) Passed() error {
	return job.Errorf(job.Fenced, "%s %s has moved on: read it again", a.Kind, a.Name)
}
