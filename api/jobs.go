package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func (h *handler) registerJobs() {
	one := func(id, method, path, summary, about string) operation {
		return operation{
			id: id, tag: "jobs", method: method, path: "/v1/jobs/{id}" + path, summary: summary,
			about: about,
		}
	}
	register(h, operation{
		id: "list-jobs", tag: "jobs", method: http.MethodGet, path: "/v1/jobs",
		summary: "List jobs",
		about: "A page of the jobs that a filter chooses, newest first unless sort says otherwise. Pages are " +
			"stable while jobs are submitted. " +
			"Hidden jobs are left out unless the filter asks for them.",
		headers: map[string]*header{"Link": inHeader("The next page, if there is one.",
			`</v1/jobs?cursor=0f3a>; rel="next"`)},
	}, h.list)
	register(h, operation{
		id: "find-job", tag: "jobs", method: http.MethodGet, path: "/v1/lookup",
		summary: "Find a job by its name or a part of its id",
		about: "A whole id finds its job. Otherwise it finds the job with the name, or the only one whose id " +
			"begins or ends with these hex digits, 6 or more. " +
			"If several jobs have that name, it finds the unfinished one, or the newest if all have ended. If " +
			"several jobs fit, the answer is a conflict that lists them.",
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, h.find)
	register(h, operation{
		id: "count-jobs", tag: "jobs", method: http.MethodGet, path: "/v1/counts",
		summary: "Count jobs by state",
	}, h.count)
	get := one("get-job", http.MethodGet, "", "Get a job", "")
	get.ofJob = true
	register(h, get, h.job)
	del := one("delete-job", http.MethodDelete, "", "Delete a job that has ended",
		"Its files in the service's own folders go too, and its history.")
	del.peer = PeerDelete
	del.status, del.errors = http.StatusNoContent, []int{http.StatusConflict}
	register(h, del, h.delete)
	request := one("get-request", http.MethodGet, "/request", "Get the spec of a job",
		"The spec as it was given, byte for byte; or as it was resolved.")
	request.kind = jsonType
	request.answers = func(r huma.Registry) huma.MediaType {
		return huma.MediaType{Schema: &huma.Schema{AnyOf: []*huma.Schema{
			of[job.Spec](r),
			{Type: huma.TypeObject, Description: "A resolved spec says more, such as the folder."},
		}}}
	}
	register(h, request, h.request)
	register(h, one("get-history", http.MethodGet, "/history", "Get what happened to a job",
		"All of its events, oldest first, and how long it was in each state."), h.history)
	for _, hidden := range []bool{true, false} {
		hide := one("hide-job", http.MethodPost, "/hide", "Leave a job that has ended out of lists", "")
		if !hidden {
			hide = one("unhide-job", http.MethodPost, "/unhide", "Show a job in lists again", "")
		}
		hide.errors = []int{http.StatusConflict}
		register(h, hide, h.hide(hidden))
	}
	again := one("resubmit-job", http.MethodPost, "/resubmit", "Submit the request of a job once more",
		"The new job has the spec of the old one as it was given.")
	again.status, again.errors = http.StatusAccepted, []int{http.StatusConflict, http.StatusForbidden}
	again.headers = map[string]*header{"Location": inHeader("The path of the new job.",
		"/v1/jobs/01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")}
	register(h, again, h.resubmit)
	for _, replace := range []bool{false, true} {
		annotate := one("annotate-job", http.MethodPatch, "/annotations", "Change labels and notes of a job",
			"It merges the body into the present ones: labels key by key, where null removes one; notes as RFC "+
				"7396 says.")
		if replace {
			annotate = one("replace-annotations", http.MethodPut, "/annotations",
				"Replace labels and notes of a job", "A field that is left out stays as it is.")
		}
		annotate.errors = []int{http.StatusConflict}
		annotate.body = &body{
			schema: annotationSchema,
			examples: map[string]example{"labels": {
				"a label and a note",
				`{"labels": {"reviewed": "yes"}, "notes": {"by": "ada"}}`,
			}},
		}
		register(h, annotate, h.annotate(replace))
	}
}

// annotationSchema says that a label may be null.
func annotationSchema(r huma.Registry) *huma.Schema {
	ref := of[job.Annotation](r)
	r.SchemaFromRef(ref.Ref).Properties["labels"].AdditionalProperties = &huma.Schema{
		Type:     huma.TypeString,
		Nullable: true,
	}
	return ref
}

// A target names one job in a path. (Inputs repeat its field: huma passes over what is embedded and
// not exported.)
type target struct {
	// The id of the job.
	ID string `path:"id"`
}

// idOf reads the id in a path.
func idOf(text string) (job.ID, error) {
	id, err := job.ParseID(text)
	if err != nil {
		err = invalid("id", text, "is not the id of a job",
			"give its 36 characters, such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	}
	return id, err
}

type listInput struct {
	// The jobs; all by default.
	Filter string `query:"filter" example:"state=RUNNING owner=ada"`

	// The order; a minus reverses it. Sorted by ended there are only jobs that have ended.
	Sort string `query:"sort" enum:"-created,created,-ended,ended,name,-name" default:"-created"`

	// The most jobs of a page.
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`

	// The page to begin with: next of the page before, with the same filter and order.
	Cursor string `query:"cursor"`
}

type listOutput struct {
	Link string `header:"Link"`
	Body service.Views
}

func (h *handler) list(ctx context.Context, in *listInput) (*listOutput, error) {
	f, err := job.ParseFilter(in.Filter, time.Now())
	if err != nil {
		return nil, err
	}
	page, err := serviceOf(ctx).Views(ctx,
		store.Query{Filter: f, Sort: store.Sort(in.Sort), Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return nil, err
	}
	out := &listOutput{Body: page}
	if page.Next != "" {
		q := url.Values{"cursor": {page.Next}, "filter": {in.Filter}, "sort": {in.Sort}, "limit": {itoa(in.Limit)}}
		out.Link = "<" + h.Prefix + "/v1/jobs?" + q.Encode() + `>; rel="next"`
	}
	return out, nil
}

type findInput struct {
	// The name, the id, or a beginning or an end of the id.
	Job string `query:"job" required:"true" example:"wordcount"`

	// Take the newest hidden job with this name, if there is one.
	Hidden bool `query:"hidden"`
}

func (h *handler) find(ctx context.Context, in *findInput) (*jobOutput, error) {
	v, err := serviceOf(ctx).Find(ctx, in.Job, in.Hidden)
	return &jobOutput{http.StatusOK, v}, err
}

type countInput struct {
	// The jobs; all by default.
	Filter string `query:"filter" example:"owner=ada"`
}

type countOutput struct{ Body counts }

type counts struct {
	// How many jobs are in each state; states without jobs are left out.
	States map[job.State]int `json:"states"`

	// The sum of these.
	Total int `json:"total"`

	// Only jobs submitted since then are counted; missing: all.
	Since time.Time `json:"since,omitzero"`
}

func (h *handler) count(ctx context.Context, in *countInput) (*countOutput, error) {
	f, err := job.ParseFilter(in.Filter, time.Now())
	if err != nil {
		return nil, err
	}
	c, err := serviceOf(ctx).Count(ctx, f)
	out := &countOutput{counts{States: map[job.State]int{}, Since: c.Since}}
	for state, n := range c.States {
		out.Body.States[state] = n
		out.Body.Total += n
	}
	return out, err
}

type jobOutput struct {
	Status int
	Body   service.View
}

func (h *handler) job(ctx context.Context, in *target) (*jobOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := serviceOf(ctx).View(ctx, id)
	return &jobOutput{http.StatusOK, v}, err
}

func (h *handler) delete(ctx context.Context, in *target) (*struct{}, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	errs, err := serviceOf(ctx).Delete(ctx, id)
	if err == nil {
		err = errs[0]
	}
	return &struct{}{}, err
}

type requestInput struct {
	// The id of the job.
	ID string `path:"id"`

	// The resolved spec, with everything filled in, instead of the spec as it was given. There is
	// none before PROCESSING_INPUTS.
	Resolved bool `query:"resolved" default:"false"`
}

func (h *handler) request(ctx context.Context, in *requestInput) (*rawOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	j, err := serviceOf(ctx).Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if !in.Resolved {
		return &rawOutput{jsonType, j.Request}, nil
	}
	if j.Resolved == nil {
		return nil, job.Errorf(job.NotFound, "the spec of job %s is not resolved: it is %s", id, j.State)
	}
	return &rawOutput{jsonType, j.Resolved}, nil
}

type historyOutput struct{ Body history }

type history struct {
	// The events of the job, oldest first.
	Events []job.Event `json:"events"`

	// How long it was in each state, in the order in which it first came there.
	Spent []spent `json:"spent"`
}

// spent is the time that a job was in a state.
type spent struct {
	// The state.
	State job.State `json:"state"`

	// How long it was there, all times together. The present state counts until now.
	Seconds float64 `json:"seconds"`

	// How often it came there.
	Times int `json:"times"`
}

func (h *handler) history(ctx context.Context, in *target) (*historyOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	events, err := serviceOf(ctx).History(ctx, id)
	return &historyOutput{history{events, timeSpent(events, time.Now())}}, err
}

// timeSpent adds up how long a job stood in each state.
func timeSpent(events []job.Event, now time.Time) []spent {
	list := []spent{}
	at := map[job.State]int{}
	var stood job.State
	for i, e := range events {
		n, known := at[e.State]
		if !known {
			n = len(list)
			at[e.State] = n
			list = append(list, spent{State: e.State})
		}
		if e.State != stood {
			list[n].Times++
			stood = e.State
		}
		until := now
		if i+1 < len(events) {
			until = events[i+1].At
		}
		if !e.State.Terminal() {
			list[n].Seconds += max(0, until.Sub(e.At).Seconds())
		}
	}
	return list
}

func (h *handler) hide(hidden bool) func(context.Context, *target) (*jobOutput, error) {
	return func(ctx context.Context, in *target) (*jobOutput, error) {
		id, err := idOf(in.ID)
		if err != nil {
			return nil, err
		}
		errs, err := serviceOf(ctx).Hide(ctx, hidden, id)
		if err == nil {
			err = errs[0]
		}
		if err != nil {
			return nil, err
		}
		return h.job(ctx, in)
	}
}

type resubmitOutput struct {
	Location string `header:"Location"`
	Body     service.View
}

type resubmitInput struct {
	// The id of the job.
	ID string `path:"id"`

	// A call that is repeated with the same key within 24 hours returns the same new job.
	Key string `header:"Idempotency-Key" maxLength:"255"`
}

func (h *handler) resubmit(ctx context.Context, in *resubmitInput) (*resubmitOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	if id, err = serviceOf(ctx).ResubmitOnce(ctx, in.Key, id); err != nil {
		return nil, err
	}
	v, err := serviceOf(ctx).View(ctx, id)
	return &resubmitOutput{h.location(id), v}, err
}

func (h *handler) annotate(replace bool) func(context.Context, *target) (*jobOutput, error) {
	return func(ctx context.Context, in *target) (*jobOutput, error) {
		id, err := idOf(in.ID)
		if err != nil {
			return nil, err
		}
		var a job.Annotation
		if err := strict(callOf(ctx).body, &a, `"labels": {"reviewed": "yes"}`); err != nil {
			return nil, err
		}
		v, err := serviceOf(ctx).Annotate(ctx, id, a, replace)
		return &jobOutput{http.StatusOK, v}, err
	}
}
