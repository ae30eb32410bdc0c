package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/service"
)

func (h *handler) registerResources() {
	registerKind(h, job.KindQueue, `{"description": "for long runs", "max_waiting": 5000}`,
		switches{"Let a %s take new jobs again", "Let a %s take no new jobs", "Those that it has go on."},
		(*service.Service).Queues)
	registerKind(h, job.KindSystem, `{"description": "the machine in the lab", "most": {"cores": 16, "memory": "64GiB"}}`,
		switches{
			"Let a %s launch programs again", "Let a %s launch no programs",
			"It takes new jobs all the same: those that are under way are BLOCKED " +
				"until it is enabled, and the others wait in its line. What runs goes on.",
		}, (*service.Service).Systems)
	register(h, operation{
		id: "check-system", tag: "systems", method: http.MethodPost, path: "/v1/systems/{name}/check",
		summary: "Try all that jobs need of a system",
		about: "The process that answers tries it in the way of a job: it makes a connection with its keys, writes " +
			"in the work folder, and runs a program there. Nothing of it stays. It takes some seconds, and 3 minutes at " +
			"most. A system that another machine reaches is checked by a process there alone.",
	}, h.checkSystem)
	register(h, operation{
		id: "list-system", tag: "systems", method: http.MethodGet, path: "/v1/systems/{name}/files",
		summary: "List a folder of a system",
		about: "What a job can take from there as an input: the document of the system says in files which folders " +
			"these are. The process that answers looks there.",
	}, h.listSystem)
	registerKind(h, kinds.Document, `{"unique": {"args": ["image"], "until": "start"}, "timeout": "10m", `+
		`"schema": {"type": "object", "required": ["image"]}}`,
		switches{"Let a %s of task take new jobs again", "Let a %s of task take no new jobs", "Those that it has go on."},
		(*service.Service).Kinds)
	registerKind(h, job.KindPolicy, `{"description": "for work over night", `+
		`"stages": [{"every": "1m", "times": 10}, {"every": "5m"}], "max_wait": "12h"}`,
		switches{"Let a %s count again", "Let a %s count for nothing", "It is as if it were not there."},
		(*service.Service).Policies)
	registerKind(h, job.KindSchedule, `{"cron": "0 9 * * MON", "time_zone": "Europe/Berlin", `+
		`"jobs": [{"command": ["report", "--week"]}]}`,
		switches{
			"Let a %s submit jobs again", "Let a %s submit no jobs",
			"What is due meanwhile is not caught up. Jobs that are there go on.",
		}, (*service.Service).Schedules)
	h.registerSchedules()
	registerKind(h, job.KindRetention, `{"keep": {"FINISHED": "720h", "FAILED": "2160h", "CANCELED": "168h"}}`,
		switches{
			"Let a %s remove jobs again", "Let a %s remove no jobs",
			"All are kept until it is enabled again.",
		}, (*service.Service).Retentions)
}

// switches say what it means to enable and to disable what a document is about.
type switches struct{ enable, disable, about string }

// documentsOf answers for the documents of one kind.
type documentsOf[T any] struct {
	kind string
	path string // of the list
	of   func(*service.Service) service.Resources[T]
	h    *handler
}

func registerKind[T any](h *handler, kind, doc string, says switches, of func(*service.Service) service.Resources[T]) {
	all := plural(kind)
	d := &documentsOf[T]{kind: kind, path: "/v1/" + all, of: of, h: h}
	etag := map[string]*header{"ETag": inHeader("The version of the document.", `"3"`)}
	op := func(id, method, path, summary, about string, errors ...int) operation {
		return operation{
			id: id, tag: all, method: method, path: d.path + path, summary: summary, about: about,
			headers: etag, errors: errors,
		}
	}
	list := op("list-"+all, http.MethodGet, "", "List the "+all, "By name, also names without a document.")
	list.headers = nil
	register(h, list, d.list)
	register(h, op("get-"+kind, http.MethodGet, "/{name}", "Get a "+kind, ""), d.get)
	put := op("apply-"+kind, http.MethodPut, "/{name}", "Make a "+kind+", or put another document in its place",
		"The name in the document may be left out. With If-Match only the document of that version is replaced, "+
			"and with If-None-Match: * none is.", http.StatusPreconditionFailed)
	put.others = map[int]string{http.StatusCreated: "There was none."}
	put.body = &body{
		schema:   func(r huma.Registry) *huma.Schema { return nameless[T](r) },
		examples: map[string]example{kind: {"a " + kind, doc}},
	}
	register(h, put, d.put)
	del := op("delete-"+kind, http.MethodDelete, "/{name}", "Delete a "+kind,
		"What is there without a document stays, as it is then.", http.StatusConflict, http.StatusPreconditionFailed)
	switch kind {
	case job.KindQueue:
		del.about += " A queue that has jobs which have not ended is kept."
	case job.KindSystem:
		del.about += " A system on which a job has not ended is kept. Jobs that need it for an input or for their " +
			"results wait until it is there again."
	case kinds.Document:
		del.about = "Its jobs stay as they are. Handlers go on, and declare it again when their process starts."
	case job.KindPolicy:
		del.about = "Jobs that name it wait as the condition has it by default."
	case job.KindSchedule:
		del.about = "It submits nothing more. The jobs that it submitted stay."
	case job.KindRetention:
		del.about += " Without a document all jobs are kept."
	}
	del.about += " With If-Match only the document of that version goes."
	del.status, del.headers = http.StatusNoContent, nil
	register(h, del, d.delete)
	register(h, op("enable-"+kind, http.MethodPost, "/{name}/enable", fmt.Sprintf(says.enable, kind), "",
		http.StatusPreconditionFailed), d.disable(false))
	register(h, op("disable-"+kind, http.MethodPost, "/{name}/disable", fmt.Sprintf(says.disable, kind),
		says.about, http.StatusPreconditionFailed), d.disable(true))
}

type systemCheckOutput struct{ Body job.SystemCheck }

func (h *handler) checkSystem(ctx context.Context, in *namedInput) (*systemCheckOutput, error) {
	c, err := serviceOf(ctx).CheckSystem(ctx, in.Name)
	return &systemCheckOutput{c}, err
}

type listSystemInput struct {
	// The name.
	Name string `path:"name" example:"night"`
	// A folder or a file there.
	Path string `query:"path" required:"true" minLength:"1" example:"/data"`
	// How many entries are listed at most, by name.
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
}

type listingOutput struct{ Body job.Listing }

func (h *handler) listSystem(ctx context.Context, in *listSystemInput) (*listingOutput, error) {
	l, err := serviceOf(ctx).ListSystem(ctx, in.Name, in.Path, in.Limit)
	return &listingOutput{l}, err
}

// plural names the documents of a kind.
func plural(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

// nameless is the schema of T in which the name may be left out, because the path has it.
func nameless[T any](r huma.Registry) *huma.Schema {
	s := *r.SchemaFromRef(of[T](r).Ref)
	s.Required = slices.DeleteFunc(slices.Clone(s.Required), func(field string) bool { return field == "name" })
	return &s
}

type documentList[T any] struct {
	Items []service.Resource[T] `json:"items" doc:"The documents, by name."`
}

type documentsOutput[T any] struct{ Body documentList[T] }

func (d *documentsOf[T]) list(ctx context.Context, _ *struct{}) (*documentsOutput[T], error) {
	items, err := d.of(serviceOf(ctx)).List(ctx)
	return &documentsOutput[T]{documentList[T]{items}}, err
}

type namedInput struct {
	// The name.
	Name string `path:"name" example:"night"`
}

type documentOutput[T any] struct {
	Status   int
	Location string `header:"Location" doc:"The path of a document that is new."`
	ETag     string `header:"ETag"`
	Body     service.Resource[T]
}

func answerOf[T any](r service.Resource[T]) *documentOutput[T] {
	return &documentOutput[T]{Status: http.StatusOK, ETag: etag(r.Version), Body: r}
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

func (d *documentsOf[T]) get(ctx context.Context, in *namedInput) (*documentOutput[T], error) {
	r, err := d.of(serviceOf(ctx)).Resource(ctx, in.Name)
	return answerOf(r), err
}

type matchInput struct {
	// The name.
	Name string `path:"name" example:"night"`

	// The ETag that the document must have; any by default.
	IfMatch string `header:"If-Match" example:"\"3\""`
}

type putInput struct {
	// The name.
	Name string `path:"name" example:"night"`

	// The ETag of the document that is to be replaced; any by default.
	IfMatch string `header:"If-Match" example:"\"3\""`

	// A star: there must be none yet.
	IfNoneMatch string `header:"If-None-Match" enum:"*"`
}

func (d *documentsOf[T]) put(ctx context.Context, in *putInput) (*documentOutput[T], error) {
	doc, err := named(callOf(ctx).body, in.Name)
	if err != nil {
		return nil, err
	}
	version, err := versionOf(in.IfMatch)
	switch {
	case in.IfNoneMatch != "" && in.IfMatch != "":
		err = invalid("If-None-Match", in.IfNoneMatch, "cannot be given together with If-Match", "give one of them")
	case in.IfNoneMatch != "":
		version = 0
	}
	if err != nil {
		return nil, err
	}
	if d.kind == job.KindSchedule {
		if err := d.h.mayOwn(callOf(ctx), doc); err != nil {
			return nil, err
		}
	}
	r, created, err := d.of(serviceOf(ctx)).Apply(ctx, doc, version)
	if err != nil {
		return nil, err
	}
	out := answerOf(r)
	if created {
		out.Status, out.Location = http.StatusCreated, d.h.Prefix+d.path+"/"+in.Name
	}
	return out, nil
}

// named returns a document with the name that its path has.
func named(doc []byte, name string) ([]byte, error) {
	var fields map[string]json.RawMessage
	json.Unmarshal(doc, &fields) //nolint:errcheck // what is no object is refused for what it is
	if fields == nil {
		return doc, nil
	}
	if given, ok := fields["name"]; ok {
		var text string
		if json.Unmarshal(given, &text) == nil && text != name {
			return nil, invalid("name", text, "is not the name in the path", "give "+name+", or leave it out")
		}
		return doc, nil
	}
	fields["name"], _ = json.Marshal(name) // text is always JSON
	return job.Encode(fields)
}

// versionOf returns the version that If-Match asks for.
func versionOf(match string) (int64, error) {
	if match == "" {
		return service.AnyVersion, nil
	}
	text, ok := strings.CutPrefix(match, `"`)
	text, ok2 := strings.CutSuffix(text, `"`)
	version, err := strconv.ParseInt(text, 10, 64)
	if !ok || !ok2 || err != nil || version < 0 {
		return 0, invalid("If-Match", match, "is not the ETag of a document",
			`give the one that was answered, such as "3"`)
	}
	return version, nil
}

func (d *documentsOf[T]) delete(ctx context.Context, in *matchInput) (*struct{}, error) {
	version, err := versionOf(in.IfMatch)
	if err == nil {
		err = d.of(serviceOf(ctx)).Delete(ctx, in.Name, version)
	}
	return &struct{}{}, err
}

func (d *documentsOf[T]) disable(disabled bool) func(context.Context, *matchInput) (*documentOutput[T], error) {
	return func(ctx context.Context, in *matchInput) (*documentOutput[T], error) {
		version, err := versionOf(in.IfMatch)
		if err != nil {
			return nil, err
		}
		r, err := d.of(serviceOf(ctx)).Disable(ctx, in.Name, disabled, version)
		return answerOf(r), err
	}
}
