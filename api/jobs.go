package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// maxBody is the size in bytes of the largest request: many specs, or a few of the largest size.
const maxBody = 64 << 20

// submitted answers for one job.
type submitted struct {
	ID job.ID `json:"id"`
	job.Place
	Existed bool `json:"existed"` // it was there before this call
}

type submitInput struct {
	Key     string `header:"Idempotency-Key" maxLength:"255"`
	RawBody []byte `contentType:"application/json"`
}

type submitOutput struct {
	Location string `header:"Location"`
	Body     any
}

// submit accepts one job or many. Of one it answers the job, of many a list.
func (h *handler) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	body := bytes.Clone(in.RawBody) // it is lent
	var many struct {
		Jobs []json.RawMessage `json:"jobs"`
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // what is no object is refused as a spec
	_, batch := fields["jobs"]
	if !batch {
		many.Jobs = []json.RawMessage{body}
	} else if err := strict(body, &many); err != nil {
		return nil, err
	}
	reqs, err := h.requests(many.Jobs, batch)
	if err != nil {
		return nil, err
	}
	answers, err := h.svc.SubmitOnce(ctx, in.Key, reqs...)
	if err != nil {
		return nil, err
	}
	list := make([]submitted, len(answers))
	for i, a := range answers {
		list[i] = submitted{a.ID, a.Place, a.Existed}
	}
	out := &submitOutput{Location: location(list[0].ID), Body: list[0]}
	if batch {
		out.Body = map[string]any{"jobs": list}
	}
	return out, nil
}

func location(id job.ID) string { return "/v1/jobs/" + id.String() }

// strict reads a body of known fields.
func strict(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return job.Errorf(job.Invalid, "body: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// requests reads and checks specs, as they were given. In a batch the path of a problem says of which.
func (h *handler) requests(specs []json.RawMessage, batch bool) ([]pawl.Request, error) {
	if len(specs) == 0 {
		return nil, job.Errorf(job.Invalid, "jobs: is empty: give at least one spec")
	}
	reqs := make([]pawl.Request, len(specs))
	var problems []job.Problem
	for i, raw := range specs {
		spec, err := job.ParseSpec(raw)
		if err == nil {
			err = h.svc.Check(&spec)
		}
		var wrong *job.SpecError
		switch {
		case errors.As(err, &wrong) && batch:
			for _, p := range wrong.Problems {
				p.Path = fmt.Sprintf("jobs[%d].%s", i, p.Path)
				problems = append(problems, p)
			}
		case err != nil:
			return nil, err
		}
		reqs[i] = pawl.Request{Spec: spec, Given: raw}
	}
	if problems != nil {
		return nil, &job.SpecError{Problems: problems}
	}
	return reqs, nil
}

type runInput struct {
	Key     string `path:"key"`
	RawBody []byte `contentType:"application/json"`
}

type runOutput struct {
	Status int
	Body   pawl.FileAnswer
}

// runFile submits the jobs of a file (202), or finds those that have not ended (200).
func (h *handler) runFile(ctx context.Context, in *runInput) (*runOutput, error) {
	var body struct {
		pawl.FileRun
		Jobs []json.RawMessage `json:"jobs"`
	}
	if err := strict(bytes.Clone(in.RawBody), &body); err != nil {
		return nil, err
	}
	switch {
	case in.Key != pawl.RunKey(body.Path):
		return nil, job.Errorf(job.Invalid, "path: is not that of the run %s: put it to /v1/runs/%s", in.Key, pawl.RunKey(body.Path))
	case body.Sum == "":
		return nil, job.Errorf(job.Invalid, "sum: is missing: give what identifies the bytes of the file")
	}
	reqs, err := h.requests(body.Jobs, len(body.Jobs) != 1)
	if err != nil {
		return nil, err
	}
	answer, err := h.svc.RunFile(ctx, body.FileRun, reqs...)
	if err != nil {
		return nil, err
	}
	out := &runOutput{Status: http.StatusAccepted, Body: answer}
	if answer.Existed {
		out.Status = http.StatusOK
	}
	return out, nil
}

type listInput struct {
	Filter string `query:"filter"`
	Sort   string `query:"sort"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000"`
	Cursor string `query:"cursor"`
}

type listOutput struct{ Body pawl.Views }

func (h *handler) list(ctx context.Context, in *listInput) (*listOutput, error) {
	f, err := job.ParseFilter(in.Filter, time.Now())
	if err != nil {
		return nil, err
	}
	q := store.Query{Filter: f, Sort: store.Sort(in.Sort), Limit: in.Limit, Cursor: in.Cursor}
	page, err := h.svc.Views(ctx, q)
	return &listOutput{page}, err
}

func invalid(path, value, what, remedy string) error {
	return &job.SpecError{Problems: []job.Problem{{Path: path, Value: value, What: what, Remedy: remedy}}}
}

type jobOutput struct {
	Status int
	Body   pawl.View
}

func (h *handler) job(ctx context.Context, in *target) (*jobOutput, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := h.svc.View(ctx, id)
	return &jobOutput{http.StatusOK, v}, err
}

type historyOutput struct {
	Body struct {
		Events []job.Event `json:"events"`
	}
}

func (h *handler) history(ctx context.Context, in *target) (*historyOutput, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	var out historyOutput
	out.Body.Events, err = h.svc.History(ctx, id)
	return &out, err
}

type wishInput struct {
	ID   string `path:"id"`
	Wait string `query:"wait"`
}

// wish makes a wish of a job and answers it as it stands then: 200 once it has obeyed, 202 while the wish stands.
func (h *handler) wish(w job.Wish, ask func(context.Context, ...job.ID) ([]store.Wished, error)) func(context.Context, *wishInput) (*jobOutput, error) {
	return func(ctx context.Context, in *wishInput) (*jobOutput, error) {
		id, err := job.ParseID(in.ID)
		if err != nil {
			return nil, err
		}
		var wait time.Duration
		if in.Wait != "" {
			if wait, err = time.ParseDuration(in.Wait); err != nil || wait < 0 {
				return nil, invalid("wait", in.Wait, "is not a duration", "give one such as 30s")
			}
		}
		answers, err := ask(ctx, id)
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			return nil, err
		}
		done := answers[0].Done
		if wait > 0 {
			waiting, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			if done, err = h.svc.Obeyed(waiting, id, w); err != nil {
				return nil, err
			}
		}
		v, err := h.svc.View(context.WithoutCancel(ctx), id) // where this process is stopping, the wish stands
		out := &jobOutput{http.StatusAccepted, v}
		if done {
			out.Status = http.StatusOK
		}
		return out, err
	}
}

func (h *handler) resubmit(ctx context.Context, in *target) (*submitOutput, error) {
	id, err := job.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if id, err = h.svc.Resubmit(ctx, id); err != nil {
		return nil, err
	}
	v, err := h.svc.View(ctx, id)
	return &submitOutput{Location: location(id), Body: v}, err
}
