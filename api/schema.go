package api

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// scalars are the types that are one word on the wire.
var scalars = map[reflect.Type]struct {
	name   string
	schema huma.Schema
}{
	reflect.TypeFor[job.ID](): {"ID", huma.Schema{
		Type: huma.TypeString, Format: "uuid", Pattern: idPattern,
		Examples:    []any{"01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77"},
		Description: "A UUID of version 7; ids that were made later sort later.",
	}},
	reflect.TypeFor[job.Duration](): {"Duration", huma.Schema{
		Type: huma.TypeString, Pattern: job.DurationPattern, Examples: []any{"90s"},
		Description: "A duration: numbers with units, such as 90s, 1h30m or 1d. A day (d) has 24 hours, and a " +
			"week (w) seven days.",
	}},
	reflect.TypeFor[job.Bytes](): {"Bytes", huma.Schema{
		Type: huma.TypeString, Pattern: `^[0-9]+(\.[0-9]+)? ?([KMGT](iB|B)?|B)?$`, Examples: []any{"512M"},
		Description: "A number of bytes: K, M, G and T stand for powers of 1024, with or without iB; KB, MB, GB " +
			"and TB for powers of 1000.",
	}},
	reflect.TypeFor[job.State]():   {"State", wordSchema("How far a job has come.", job.States)},
	reflect.TypeFor[job.Custody](): {"Custody", wordSchema("Who is responsible for a job now.", job.Custodies)},
	reflect.TypeFor[job.Lane](): {
		"Lane",
		wordSchema("The part of a worker's slots in which a job is served.", job.Lanes),
	},
	reflect.TypeFor[job.Code](): {"Code", wordSchema("Why a job ended, or what blocks it.", codes())},
	reflect.TypeFor[job.Wish](): {
		"Wish",
		wordSchema("What is wished of a job.", []job.Wish{job.WishCancel, job.WishPause}),
	},
	reflect.TypeFor[job.Cause]():           {"Cause", wordSchema("What made an event.", causes)},
	reflect.TypeFor[job.ErrorKind]():       {"ErrorCode", wordSchema("What the caller can do about an error.", errorKinds)},
	reflect.TypeFor[service.Action]():      {"Action", wordSchema("What is done with jobs.", service.Actions)},
	reflect.TypeFor[service.WorkerState](): {"WorkerState", wordSchema("What a process does.", service.WorkerStates)},
	reflect.TypeFor[store.Role]():          {"Role", wordSchema("A part that a process plays.", store.Roles)},
}

const idPattern = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"

var causes = []job.Cause{
	job.CauseSubmit, job.CauseClaim, job.CauseWork, job.CauseDiverted, job.CauseDue, job.CauseExpired, job.CauseWish,
	job.CausePaid, job.CauseTurn, job.CauseClear, job.CauseUser, job.CauseJob,
}

var errorKinds = []job.ErrorKind{
	job.Internal, job.Invalid, job.NotFound, job.Conflict, job.Exhausted, job.Denied, job.Fenced, job.Unavailable,
	job.Locked,
	job.Corrupt, job.Newer, job.Closed,
}

func codes() (list []job.Code) {
	for _, c := range job.Codes {
		list = append(list, c.Code)
	}
	return list
}

func wordSchema[S ~string](about string, list []S) huma.Schema {
	s := huma.Schema{Type: huma.TypeString, Description: about}
	for _, word := range list {
		s.Enum = append(s.Enum, string(word))
	}
	return s
}

// A scalar stands for T where huma looks for a type that knows its own schema: those of package job
// know of none.
type scalar[T any] struct{}

// Schema implements [huma.SchemaProvider].
func (scalar[T]) Schema(r huma.Registry) *huma.Schema {
	s := scalars[reflect.TypeFor[T]()]
	if r.Map()[s.name] == nil {
		r.Map()[s.name] = &s.schema
	}
	return &huma.Schema{Ref: refPrefix + s.name}
}

func alias[T any](r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[T](), reflect.TypeFor[scalar[T]]())
}

const refPrefix = "#/components/schemas/"

// newRegistry returns a registry that knows the types of package job.
func newRegistry() huma.Registry {
	r := huma.NewMapRegistry(refPrefix, func(t reflect.Type, hint string) string {
		if t == reflect.TypeFor[job.Problem]() {
			return "Fault" // a problem is the whole answer
		}
		return huma.DefaultSchemaNamer(t, hint)
	})
	alias[job.ID](r)
	alias[job.Duration](r)
	alias[job.Bytes](r)
	alias[job.State](r)
	alias[job.Custody](r)
	alias[job.Lane](r)
	alias[job.Code](r)
	alias[job.Wish](r)
	alias[job.Cause](r)
	alias[job.ErrorKind](r)
	alias[service.Action](r)
	alias[service.WorkerState](r)
	alias[store.Role](r)
	r.RegisterTypeAlias(reflect.TypeFor[job.Given](), reflect.TypeFor[job.Spec]())
	return r
}

// schemaKinds are the kinds of document that [Schema] knows.
var schemaKinds = map[string]struct {
	typ   reflect.Type
	title string
}{
	"job":             {reflect.TypeFor[job.Spec](), "A job"},
	job.KindQueue:     {reflect.TypeFor[job.Queue](), "A queue"},
	job.KindSystem:    {reflect.TypeFor[job.System](), "A system"},
	job.KindPolicy:    {reflect.TypeFor[job.RecoveryPolicy](), "A policy"},
	job.KindRetention: {reflect.TypeFor[job.Retention](), "A retention"},
	job.KindSchedule:  {reflect.TypeFor[job.Schedule](), "A schedule"},
	kinds.Document:    {reflect.TypeFor[kinds.Kind](), "A kind of task"},
}

// Kinds returns the kinds of document that [Schema] knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(schemaKinds)) }

// Schema returns the JSON Schema (2020-12) of a kind of document: "job" (the spec of a job),
// "queue", "system", "kind", "policy", "retention" or "schedule". The error for any other kind is
// of kind [job.NotFound].
//
// The service refuses what the schema refuses, with one exception: the service takes null and empty
// text for a field that may be left out. It also checks what a schema cannot express.
func Schema(kind string) ([]byte, error) {
	k, ok := schemaKinds[kind]
	if !ok {
		return nil, job.Errorf(job.NotFound, "there is no schema of %q: give one of %s", kind,
			strings.Join(Kinds(), ", "))
	}
	r := newRegistry()
	r.Schema(k.typ, true, "")
	describe(r.Map())
	top := *r.Map()[k.typ.Name()]
	delete(r.Map(), k.typ.Name())
	top.Title = k.title
	more := map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": r.Map()}
	maps.Copy(more, top.Extensions)
	top.Extensions = more
	text, err := json.MarshalIndent(&top, "", "  ")
	return bytes.ReplaceAll(text, []byte(refPrefix), []byte("#/$defs/")), err
}

type schemasOutput struct{ Body schemaList }

type schemaList struct {
	// The kinds of document, each with a schema at /v1/schemas/{kind}.
	Kinds []string `json:"kinds"`
}

type kindInput struct {
	// The kind of document.
	Kind string `path:"kind" example:"job"`
}

// A rawOutput is answered to the byte.
type rawOutput struct {
	Type string `header:"Content-Type"`
	Body []byte
}

func (h *handler) registerSchemas() {
	register(h, operation{
		id: "list-schemas", tag: "schemas", method: http.MethodGet, path: "/v1/schemas",
		summary: "List the kinds of document",
	}, func(context.Context, *struct{}) (*schemasOutput, error) {
		return &schemasOutput{schemaList{Kinds()}}, nil
	})
	register(h, operation{
		id: "get-schema", tag: "schemas", method: http.MethodGet, path: "/v1/schemas/{kind}",
		summary: "Get the JSON Schema of a kind",
		about: "For editors and for checks: what it refuses the service refuses too, but for null and empty " +
			"text in the place of what is left out. The service also checks what a schema cannot say.",
		kind: schemaType, answers: plain(huma.MediaType{Schema: &huma.Schema{Type: huma.TypeObject}}),
	}, func(_ context.Context, in *kindInput) (*rawOutput, error) {
		text, err := Schema(in.Kind)
		return &rawOutput{schemaType, text}, err
	})
}

const schemaType = "application/schema+json"
