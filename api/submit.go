package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// submitted is the answer for one job.
type submitted struct {
	// Its id.
	ID job.ID `json:"id"`

	// Its state.
	State job.State `json:"state"`

	// Who is responsible for it now.
	Custody job.Custody `json:"custody"`

	// Whether it existed before this call.
	Existed bool `json:"existed"`
}

type submittedMany struct {
	// The jobs, in the order of the request.
	Jobs []submitted `json:"jobs"`
}

type viewedMany struct {
	// The jobs, in the order of the request.
	Jobs []service.View `json:"jobs"`
}

// manySpecs is a body with many specs.
type manySpecs struct {
	// The specs; at most 10000.
	Jobs []json.RawMessage `json:"jobs" minItems:"1"`

	// Fields that the specs share. Each spec is merged over them: maps key by key at every depth,
	// everything else replaces the default, and null removes it.
	Defaults json.RawMessage `json:"defaults,omitempty"`
}

// TransformSchema implements [huma.SchemaTransformer].
func (manySpecs) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["jobs"].Items = of[job.Spec](r)
	s.Properties["defaults"] = &huma.Schema{Type: huma.TypeObject, Description: s.Properties["defaults"].Description}
	return s
}

// runBody is the jobs of a file.
type runBody struct {
	// The path of the file, absolute.
	Path string `json:"path" example:"/home/ada/jobs.yaml"`

	// Identifies the bytes of the file, such as by a checksum.
	Sum string `json:"sum" minLength:"1" example:"9f86d081"`

	// Start another run even if one with the same bytes has not ended.
	New bool `json:"new,omitempty"`

	// Only find the jobs of a run that goes on. Where there is none, the answer has no jobs, and
	// nothing is submitted.
	Find bool `json:"find,omitempty"`

	// A name for a new run, made by the caller. With it the call can be repeated if its answer was
	// lost.
	Call string `json:"call,omitempty"`

	// The specs.
	Jobs []json.RawMessage `json:"jobs" minItems:"1"`
}

// TransformSchema implements [huma.SchemaTransformer].
func (runBody) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["jobs"].Items = of[job.Spec](r)
	return s
}

const specExample = `{"command": ["wc", "-w", "/etc/passwd"], "labels": {"project": "tides"}}`

func (h *handler) registerSubmit() {
	register(h, operation{
		id: "submit", tag: "jobs", method: http.MethodPost, path: "/v1/jobs",
		summary: "Submit one job or many",
		about: "All are accepted or none, and the answer comes once they are on disk. For one spec it is one job, " +
			"for many a list. " +
			"What is wrong is listed for all of them.",
		status: http.StatusAccepted,
		others: map[int]string{http.StatusOK: "With wait: all have ended."},
		body: &body{
			schema: func(r huma.Registry) *huma.Schema {
				return &huma.Schema{OneOf: []*huma.Schema{of[job.Spec](r), of[manySpecs](r)}}
			},
			examples: map[string]example{
				"program": {"a program", specExample},
				"script": {
					"a script with an input",
					`{"script": "sort poem.txt | uniq -c > counts.txt", "inputs": [{"from": "/data/poem.txt"}], ` +
						`"archive": {"include": ["counts.txt"]}}`,
				},
				"several": {
					"several jobs",
					`{"jobs": [{"arguments": ["1"]}, {"arguments": ["2"]}], ` +
						`"defaults": {"command": ["echo"], "resources": {"minutes": 1}}}`,
				},
				"task": {"a task of a Go program", `{"kind": "mail", "args": {"to": "ada"}, "external_id": "mail-17"}`},
			},
		},
		kind: jsonType,
		answers: func(r huma.Registry) huma.MediaType {
			return huma.MediaType{Schema: &huma.Schema{
				OneOf: []*huma.Schema{of[submitted](r), of[submittedMany](r), of[service.View](r), of[viewedMany](r)},
			}}
		},
		headers: map[string]*header{"Location": inHeader("The path of the job; of many, of the first.",
			"/v1/jobs/01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")},
		errors: []int{http.StatusConflict},
	}, h.submit)
	register(h, operation{
		id: "run-file", tag: "jobs", method: http.MethodPut, path: "/v1/runs/{key}",
		summary: "Submit the jobs of a file, or find those that have not ended",
		about: "If a run of the same bytes has not ended, the call finds it. The key is the SHA-256 sum of the " +
			"path of the file, in hex.",
		status: http.StatusAccepted,
		others: map[int]string{http.StatusOK: "They existed before this call."},
		body: &body{
			schema: of[runBody],
			examples: map[string]example{"file": {
				"a file with one job",
				`{"path": "/home/ada/jobs.yaml", "sum": "9f86d081", "jobs": [` + specExample + `]}`,
			}},
		},
		errors: []int{http.StatusConflict},
	}, h.runFile)
}

type submitInput struct {
	// The same request with the same key within 24 hours returns the same jobs. Another request
	// with that key is refused.
	Key string `header:"Idempotency-Key" maxLength:"255"`

	// How long to wait for the end of the jobs, 5m at most. The answer then has the jobs in full.
	Wait string `query:"wait" example:"30s"`
}

type submitOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     any
}

// submit accepts one job or many. It answers one job with the job, and many with a list.
func (h *handler) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	wait, err := parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		release, err := h.stream()
		if err != nil {
			return nil, err
		}
		defer release()
	}
	specs, many, err := h.specs(ctx, callOf(ctx).body)
	if err != nil {
		return nil, err
	}
	sub := h.submission(ctx, specs)
	sub.Key, sub.List = in.Key, many
	answers, err := serviceOf(ctx).SubmitAll(ctx, sub)
	if err != nil {
		return nil, err
	}
	list, ids := make([]submitted, len(answers)), make([]job.ID, len(answers))
	for i, a := range answers {
		list[i], ids[i] = submitted{a.ID, a.Place.State, a.Place.Custody, a.Existed}, a.ID
	}
	out := &submitOutput{Status: http.StatusAccepted, Location: h.location(ids[0]), Body: list[0]}
	switch {
	case wait > 0:
		return out, h.waitFor(ctx, out, wait, ids, many)
	case many:
		out.Body = submittedMany{list}
	}
	return out, nil
}

func (h *handler) location(id job.ID) string { return h.Prefix + "/v1/jobs/" + id.String() }

// waitFor waits for the end of jobs that were submitted, and answers them as they stand then.
func (h *handler) waitFor(ctx context.Context, out *submitOutput, wait time.Duration, ids []job.ID, many bool) error {
	waiting, cancel := h.waiting(ctx, wait)
	defer cancel()
	svc := serviceOf(ctx)
	for _, id := range ids {
		if _, err := svc.Wait(waiting, id); err != nil && waiting.Err() == nil {
			return err
		}
	}
	views := make([]service.View, len(ids))
	out.Status = http.StatusOK
	for i, id := range ids {
		var err error
		// they are accepted, even where this process is stopping
		if views[i], err = svc.View(context.WithoutCancel(ctx), id); err != nil {
			return err
		}
		if !views[i].State.Terminal() {
			out.Status = http.StatusAccepted
		}
	}
	if out.Body = any(views[0]); many {
		out.Body = viewedMany{views}
	}
	return nil
}

// strict reads a body that has only known fields. such is an example of one for errors.
func strict(body []byte, v any, such string) error { return job.Parse(body, v, "the body", such) }

// specs takes a body apart into specs, each with the defaults under it.
func (h *handler) specs(ctx context.Context, body []byte) (specs []json.RawMessage, many bool, err error) {
	var fields map[string]json.RawMessage
	json.Unmarshal(body, &fields) //nolint:errcheck // what is no object is refused as a spec
	if _, many = fields["jobs"]; !many {
		return []json.RawMessage{body}, false, nil
	}
	var list manySpecs
	if err := strict(body, &list, `"jobs": [{"command": ["ls"]}]`); err != nil {
		return nil, true, err
	}
	if err := h.tooMany(list.Jobs); err != nil {
		return nil, true, err
	}
	if list.Defaults == nil || string(list.Defaults) == "null" {
		return list.Jobs, true, nil
	}
	under, err := job.ParseObject(list.Defaults)
	if err != nil {
		return nil, true, invalid("defaults", "", "is not an object", "give the fields that the jobs share")
	}
	if _, err := job.ParseSpec(list.Defaults); err != nil {
		return nil, true, below("defaults", err)
	}
	if err := job.CheckMerge(list.Defaults, list.Jobs); err != nil {
		return nil, true, err
	}
	for i, raw := range list.Jobs {
		if ctx.Err() != nil {
			return nil, true, context.Cause(ctx)
		}
		over, err := job.ParseObject(raw)
		if err != nil {
			continue // it is refused as a spec
		}
		if list.Jobs[i], err = job.Encode(job.Merge(under, over)); err != nil {
			return nil, true, err
		}
	}
	return list.Jobs, true, nil
}

// tooMany refuses no specs, and more than one call may bring.
func (h *handler) tooMany(specs []json.RawMessage) error {
	switch {
	case len(specs) == 0:
		return invalid("jobs", "", "is empty", "give at least one spec")
	case len(specs) > h.Limits.Jobs:
		return invalid("jobs", fmt.Sprintf("%d specs", len(specs)), "are too many at once",
			fmt.Sprintf("send up to %d, and more in further calls", h.Limits.Jobs))
	}
	return nil
}

// submission is what a caller submits. The service reads and checks the specs.
func (h *handler) submission(ctx context.Context, specs []json.RawMessage) service.Submission {
	own := h.Service.Principal()
	caller := cmp.Or(callOf(ctx).caller.Principal, own)
	sub := service.Submission{
		Jobs: make([]service.Request, len(specs)),
		// its own, and in the service's own name those of everybody
		MayOwn: func(owner string) bool { return owner == caller || caller == own },
	}
	for i, raw := range specs {
		sub.Jobs[i].Given = raw
	}
	return sub
}

// below puts a path before those of a spec's problems.
func below(at string, err error) error {
	var wrong *job.SpecError
	if !errors.As(err, &wrong) {
		return err
	}
	moved := &job.SpecError{Problems: make([]job.Problem, len(wrong.Problems))}
	for i, p := range wrong.Problems {
		p.Path = at + "." + p.Path
		moved.Problems[i] = p
	}
	return job.Errorf(job.KindOf(err), "%w", moved)
}

type runInput struct {
	// The SHA-256 sum of the path of the file, in hex.
	Key string `path:"key"`
}

type runOutput struct {
	Status int
	Body   service.FileAnswer
}

// runFile submits the jobs of a file (202), or finds those that have not ended (200).
func (h *handler) runFile(ctx context.Context, in *runInput) (*runOutput, error) {
	var body runBody
	if err := strict(callOf(ctx).body, &body, `"jobs": [{"command": ["ls"]}]`); err != nil {
		return nil, err
	}
	switch {
	case in.Key != service.RunKey(body.Path):
		return nil, invalid("path", body.Path, "is not that of the run "+in.Key, "put it to /v1/runs/"+
			service.RunKey(body.Path))
	case body.Sum == "":
		return nil, invalid("sum", "", "is missing", "give what identifies the bytes of the file")
	}
	if err := h.tooMany(body.Jobs); err != nil {
		return nil, err
	}
	run := service.FileRun{Path: body.Path, Sum: body.Sum, New: body.New, Find: body.Find, Call: body.Call}
	answer, err := serviceOf(ctx).RunFile(ctx, run, h.submission(ctx, body.Jobs))
	if err != nil {
		return nil, err
	}
	out := &runOutput{Status: http.StatusAccepted, Body: answer}
	if answer.Existed {
		out.Status = http.StatusOK
	}
	return out, nil
}
