package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-jobs/pawl/job"
)

// An operation is what can be done at a path, and what the OpenAPI document says of it.
type operation struct {
	id, tag        string
	method, path   string
	summary, about string
	status         int                // of success; 200 by default
	others         map[int]string     // other statuses, with the same body but for 304, and when
	body           *body              // nil: it takes none
	answers        answers            // nil: JSON made from a type
	kind           string             // the media type of answers
	errors         []int              // statuses beside those that every operation has
	headers        map[string]*header // of the success
	public         bool               // without login
	site           bool               // only the service's own principal may do it
	ofJob          bool               // the program of a running job may do it to that job
	peer           PeerMay            // what another process must be allowed to do it; empty: none may
}

// A route is an operation and what answers it.
type route struct {
	operation
	input reflect.Type   // has its parameters as fields
	add   func(huma.API) // nil: it is in no document

	// What is below is made at the first request: huma looks at all types of an operation, which
	// takes longer than to answer, and most processes are asked for a few of them.
	made    sync.Once
	queries []string // the names of its parameters in the query
	answer  http.Handler
}

// answers describe what is answered.
type answers = func(huma.Registry) huma.MediaType

func plain(m huma.MediaType) answers { return func(huma.Registry) huma.MediaType { return m } }

var textAnswer = plain(huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}})

// A body is what an operation takes.
type body struct {
	about    string
	kind     string // media type; application/json by default
	schema   func(huma.Registry) *huma.Schema
	examples map[string]example
}

type example struct {
	summary string
	value   string // JSON
}

type header = huma.Param

const jsonType = "application/json"

// of returns the schema of a type.
func of[T any](r huma.Registry) *huma.Schema { return r.Schema(reflect.TypeFor[T](), true, "") }

func itoa(n int) string { return strconv.Itoa(n) }

func inHeader(about, value string) *header {
	return &header{Description: about, Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{value}}}
}

// register adds an operation. The errors of f become problems.
func register[I, O any](h *handler, op operation, f func(context.Context, *I) (*O, error)) {
	documented := huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Summary: op.summary, Description: op.about,
		Tags:          []string{op.tag},
		DefaultStatus: op.status, SkipValidateParams: op.public, // who watches over the service may ask as it likes
	}
	if !op.public {
		documented.Security = []map[string][]string{{bearer: {}}}
	}
	h.add(&route{operation: op, input: reflect.TypeFor[I](), add: func(api huma.API) {
		huma.Register(api, documented, func(ctx context.Context, in *I) (*O, error) {
			out, err := f(ctx, in)
			if err != nil {
				return nil, newProblem(ctx, err)
			}
			return out, nil
		})
	}})
}

func (h *handler) add(r *route) {
	pattern := r.method + " " + r.path
	h.routes = append(h.routes, r)
	h.at[pattern] = r
	h.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { r.answer.ServeHTTP(w, req) })
}

// make makes a route ready for requests.
func (h *handler) make(r *route) {
	r.made.Do(func() {
		if r.answer != nil {
			return
		}
		mux := http.NewServeMux()
		api := humago.New(mux, h.humaConfig(func(_ *huma.OpenAPI, made *huma.Operation) {
			for _, p := range made.Parameters {
				if p.In == "query" {
					r.queries = append(r.queries, p.Name)
				}
			}
		}))
		r.add(api)
		r.answer = mux
	})
}

const bearer = "bearer"

// problems names the statuses of errors in the document.
var problems = map[int]struct{ name, about string }{
	http.StatusBadRequest:         {"Broken", "The body is missing or broken off; or path, query or headers are no text."},
	http.StatusUnauthorized:       {"NotLoggedIn", "The request has no token, or one that is not known."},
	http.StatusForbidden:          {"Denied", "The caller may not do this."},
	http.StatusNotFound:           {"NotFound", "There is no such thing."},
	http.StatusRequestTimeout:     {"TooSlow", "The body comes too slowly."},
	http.StatusConflict:           {"Conflict", "It stands against what is already there; the detail says against what."},
	http.StatusPreconditionFailed: {"PreconditionFailed", "A condition in the header does not hold: read it again."},
	http.StatusRequestedRangeNotSatisfiable: {
		"NoSuchRange",
		"The range is not within the file. Content-Range says how long that is.",
	},
	http.StatusRequestEntityTooLarge:       {"TooLarge", "The body is too large."},
	http.StatusRequestURITooLong:           {"TooLong", "The path with its query is too long."},
	http.StatusUnsupportedMediaType:        {"NotJSON", "The body is not JSON by its Content-Type."},
	http.StatusRequestHeaderFieldsTooLarge: {"HeaderTooLarge", "The header is too large."},
	http.StatusServiceUnavailable: {
		"Unavailable",
		"The service cannot do it now: the same call may succeed after Retry-After.",
	},
	http.StatusUnprocessableEntity: {"Invalid", "Something in the request is wrong; errors lists all of it."},
	http.StatusTooManyRequests:     {"Exhausted", "A bound is reached: the same call may succeed after Retry-After."},
	http.StatusInternalServerError: {"Internal", "The service has a defect; instance names the request for a report."},
}

const intro = `Pawl runs jobs: programs on machines, and tasks of Go programs. An accepted job is never lost, and
always stands somewhere that has a name: its state says how far it has come, its custody who is
responsible for it now.

**To begin:** ` + "`POST /v1/jobs`" + ` with ` + "`{\"command\": [\"wc\", \"-w\", \"/etc/passwd\"]}`" + ` answers an id.
` + "`GET /v1/jobs/{id}/events?follow=true`" + ` tells
what happens to it, and ` + "`GET /v1/jobs/{id}/logs`" + ` what its program wrote.

**Login:** send ` + "`Authorization: Bearer TOKEN`" + `. TOKEN is in the file ` + "`token`" + ` of the service's
data folder, which pawl serve names. To try requests on this page, press Authorize and give it there.

**Errors** are problems (RFC 9457, application/problem+json). Their code is stable: it says what can
be done about them. Where something in the request is wrong, errors lists all of it, with the path,
what is wrong, and what to do.

**Calls can be repeated** when their answer was lost: a submission under the same Idempotency-Key or
external_id answers the same jobs.

**What may be added** within /v1: paths, parameters, fields of answers, and events. Pawl-API in each
answer is the number of the surface, which is raised then. Clients pass over fields that they do not
know.`

// An encoding is an answer that has been encoded.
type encoding []byte

// encoded encodes an answer before its status is written: one that cannot be encoded is a defect,
// and has status 500.
func encoded(_ huma.Context, _ string, v any) (any, error) {
	var b bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&b, v); err != nil {
		panic(job.Errorf(job.Internal, "answer: %w", err))
	}
	return encoding(b.Bytes()), nil
}

// format writes what encoded has made.
var format = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		_, err := w.Write(v.(encoding))
		return err
	},
	Unmarshal: huma.DefaultJSONFormat.Unmarshal,
}

// humaConfig returns what the document begins with. added is told of each operation.
func (h *handler) humaConfig(added huma.AddOpFunc) huma.Config {
	config := huma.DefaultConfig("Pawl", "1."+revision)
	config.Info.Description = intro
	config.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	config.Servers = []*huma.Server{{URL: h.Prefix + "/"}}
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // no $schema in what is answered
	config.Transformers = []huma.Transformer{asProblem, encoded}
	config.Formats = map[string]huma.Format{jsonType: format, "json": format}
	config.OnAddOperation = []huma.AddOpFunc{added}
	config.Components.Schemas = newRegistry()
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		bearer: {
			Type: "http", Scheme: "bearer",
			Description: "The token of the service: it is in the file token of its data folder.",
		},
	}
	config.Tags = []*huma.Tag{
		{Name: "jobs", Description: "Submit jobs, look at them, and say what you want of them."},
		{Name: "files", Description: "What programs wrote."},
		{Name: "events", Description: "What happens, as it happens: server-sent events; each has an id " +
			"from which a client can go on (Last-Event-ID)."},
		{Name: "queues", Description: "Where jobs wait. The queue default is there without a document."},
		{Name: "systems", Description: "Where programs run. The system local, the machine of the service, is " +
			"there without a document."},
		{Name: "recovery", Description: "Jobs that wait out some trouble: those that wait for the same are a group."},
		{Name: "policies", Description: "How often it is tested whether blocked jobs may go on, and for how long " +
			"they wait. Each condition has a policy without a document."},
		{Name: "workers", Description: "The processes that work, on this machine and on others."},
		{Name: "claims", Description: "Work on tasks as a worker in any language: claim them, renew, and report."},
		{Name: "schemas", Description: "JSON Schemas, to check documents with before they are sent."},
		{Name: "service", Description: "About the service itself."},
	}
	return config
}

// document completes what huma has made of an operation.
func (h *handler) document(doc *huma.OpenAPI, made *huma.Operation) {
	op := h.at[made.Method+" "+made.Path]
	r := doc.Components.Schemas
	success := made.Responses[strconv.Itoa(made.DefaultStatus)]
	delete(made.Responses, "default")
	if op.answers != nil {
		media := op.answers(r)
		success.Content = map[string]*huma.MediaType{op.kind: &media}
	}
	for name, head := range op.headers {
		if success.Headers == nil {
			success.Headers = map[string]*huma.Param{}
		}
		success.Headers[name] = head
	}
	for status, about := range op.others {
		made.Responses[strconv.Itoa(status)] = &huma.Response{Description: about}
		if status != http.StatusNotModified {
			made.Responses[strconv.Itoa(status)].Content = success.Content
		}
	}
	errors := append([]int{
		http.StatusBadRequest, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusInternalServerError,
	}, op.errors...)
	if strings.Contains(op.path, "{") {
		errors = append(errors, http.StatusNotFound)
	}
	if op.body != nil {
		errors = append(errors, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType)
		made.RequestBody = op.body.document(r)
	}
	if !op.public {
		errors = append(errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
			http.StatusTooManyRequests, http.StatusServiceUnavailable)
	}
	for _, status := range errors {
		made.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + problems[status].name}
	}
	for _, p := range made.Parameters {
		p.Description = saidOf(op.input, p.Name)
		documentParam(p)
	}
}

func (b *body) document(r huma.Registry) *huma.RequestBody {
	media := &huma.MediaType{Schema: b.schema(r)}
	for name, e := range b.examples {
		if media.Examples == nil {
			media.Examples = map[string]*huma.Example{}
		}
		media.Examples[name] = &huma.Example{Summary: e.summary, Value: json.RawMessage(e.value)}
	}
	kind := b.kind
	if kind == "" {
		kind = jsonType
	}
	return &huma.RequestBody{Description: b.about, Required: true, Content: map[string]*huma.MediaType{kind: media}}
}

// documentParam says of a parameter what its tag cannot say. The schema that huma checks with stays
// as it is.
func documentParam(p *huma.Param) {
	s := *p.Schema
	switch { // a page that tries requests sends each example along
	case len(s.Examples) > 0 && p.Required:
		p.Example = s.Examples[0]
	case len(s.Examples) > 0:
		p.Description += fmt.Sprintf(" Such as `%v`.", s.Examples[0])
	}
	s.Examples = nil
	switch {
	case p.In == "path" && p.Name == "id":
		s = huma.Schema{Ref: refPrefix + "ID"}
	case p.Name == "wait":
		s = huma.Schema{Ref: refPrefix + "Duration"}
	case p.Name == "filter":
		s.Description = ""
		p.Description += filterDoc()
	}
	s.Description = ""
	p.Schema = &s
}

// filterDoc describes the grammar of filters.
func filterDoc() string {
	var b strings.Builder
	b.WriteString(" Terms with spaces between them, which must all hold: a field, an operator and values with " +
		"commas between them, such as " +
		"`state=RUNNING,PENDING owner=ada label.project=x created>24h`. Operators: `=` one of, `!=` none of, `~` " +
		"like (`*` any characters, `?` one), " +
		"and `< <= > >=` for times (RFC 3339, a date, or how long ago) and numbers. A value with a space, comma " +
		"or quote stands in double quotes. Fields: ")
	for i, f := range job.FilterFields {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString("`" + f.Name + "` " + f.Doc)
	}
	b.WriteString("; `label.KEY` the label KEY; `args.NAME` an argument of a task, with = or !=, " +
		"indexed where the kind's document says so. These fields look at all jobs: ")
	var indexed []string
	for _, f := range job.FilterFields {
		if f.Indexed {
			indexed = append(indexed, "`"+f.Name+"`")
		}
	}
	b.WriteString(strings.Join(indexed, ", ") + " and labels, with `=`. A filter with another term looks at the " +
		"jobs of the last 7 days, unless it has `created>`; " +
		"`since` in the answer says so.")
	return b.String()
}

// openAPI returns the document of all operations.
func (h *handler) openAPI() *huma.OpenAPI {
	api := humago.New(http.NewServeMux(), h.humaConfig(h.document))
	for _, r := range h.routes {
		if r.add != nil {
			r.add(api)
		}
	}
	doc := api.OpenAPI()
	r := doc.Components.Schemas
	doc.Components.Responses = map[string]*huma.Response{}
	for status, p := range problems {
		resp := &huma.Response{
			Description: p.about,
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: of[problem](r)}},
		}
		switch status {
		case http.StatusUnauthorized:
			resp.Headers = map[string]*header{"WWW-Authenticate": inHeader("How to log in.", `Bearer realm="pawl"`)}
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			resp.Headers = map[string]*header{"Retry-After": inHeader("After how many seconds to try again.", "1")}
		case http.StatusRequestedRangeNotSatisfiable:
			resp.Headers = map[string]*header{"Content-Range": inHeader("The length of the file.", "bytes */1024")}
		}
		doc.Components.Responses[p.name] = resp
	}
	for at, item := range doc.Paths {
		if proper := strings.ReplaceAll(at, "...}", "}"); proper != at {
			doc.Paths[proper] = item
			delete(doc.Paths, at)
		}
	}
	delete(r.Map(), "ErrorModel") // of huma's own errors
	delete(r.Map(), "ErrorDetail")
	describe(r.Map())
	taken := map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put, item.Patch} {
			if op != nil && op.RequestBody != nil {
				for _, media := range op.RequestBody.Content {
					reach(r, media.Schema, taken)
				}
			}
		}
	}
	for name, s := range r.Map() {
		if s.AdditionalProperties == false && !taken[name] {
			s.AdditionalProperties = nil // what is answered may grow
		}
	}
	return doc
}

// reach notes which named schemas a schema leads to.
func reach(r huma.Registry, s *huma.Schema, found map[string]bool) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		if !found[name] {
			found[name] = true
			reach(r, r.SchemaFromRef(s.Ref), found)
		}
	}
	reach(r, s.Items, found)
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		reach(r, more, found)
	}
	for _, p := range s.Properties {
		reach(r, p, found)
	}
	for _, list := range slices.Concat(s.OneOf, s.AnyOf, s.AllOf) {
		reach(r, list, found)
	}
}
