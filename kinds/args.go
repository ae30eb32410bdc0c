package kinds

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/pawl-jobs/pawl/job"
)

// Args checks the arguments of the jobs of a kind. It is safe for concurrent use.
type Args struct {
	kind    string
	version int
	schema  *jsonschema.Schema
}

// NewArgs compiles the schema of a kind; without one, every arguments pass.
func NewArgs(k *Kind) (*Args, error) {
	a := &Args{kind: k.Name, version: cmp.Or(k.ArgsVersion, 1)}
	if k.Schema == nil {
		return a, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(k.Schema))
	if err != nil {
		return nil, err
	}
	var all job.SpecError
	if checkNumbers("schema", doc, &all); len(all.Problems) > 0 {
		return nil, errors.New(says(all.Problems))
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(nothing{})
	if err := c.AddResource(place, doc); err != nil {
		return nil, err
	}
	a.schema, err = c.Compile(place)
	var bad *jsonschema.SchemaValidationError
	var wrong *jsonschema.ValidationError
	if errors.As(err, &bad) && errors.As(bad.Err, &wrong) {
		(&finding{at: "schema", in: doc, all: &all}).add(wrong)
		return nil, errors.New(says(all.Problems))
	}
	return a, err
}

// place is where a schema stands for itself.
const place = "pawl:///schema"

// nothing loads no other schemas: a document stands for itself.
type nothing struct{}

// Load implements [jsonschema.URLLoader].
func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not in the document", url)
}

// Check reports everything in the arguments of a job that does not meet the schema. Its error is a
// [job.SpecError]. Arguments of another version than that of the schema pass.
func (a *Args) Check(spec *job.Spec) error {
	if a == nil || a.schema == nil || cmp.Or(spec.ArgsVersion, 1) != a.version {
		return nil
	}
	var args any
	if spec.Args != nil {
		var err error
		if args, err = jsonschema.UnmarshalJSON(bytes.NewReader(spec.Args)); err != nil {
			return job.Errorf(job.Invalid, "args: %w", err)
		}
	}
	var all job.SpecError
	if checkNumbers("args", args, &all); len(all.Problems) > 0 {
		return &all
	}
	var wrong *jsonschema.ValidationError
	switch err := a.schema.Validate(args); {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return job.Errorf(job.Invalid, "args: %w", err)
	}
	(&finding{
		at: "args", in: args, all: &all,
		remedy: "correct it: pawl get kind " + a.kind + " -o yaml has the schema of the arguments",
	}).add(wrong)
	return &all
}

// A finding makes problems of the errors of a schema.
type finding struct {
	at     string // the path of the value
	in     any    // the value
	remedy string // where nothing better is known
	all    *job.SpecError
}

var english = message.NewPrinter(language.English)

// add adds the problems of an error. If no alternative fits, it says what is wrong with each.
func (f *finding) add(e *jsonschema.ValidationError) {
	path, value := f.locate(e.InstanceLocation)
	problem := func(path, what, remedy string) {
		f.all.Add(job.Problem{Path: path, Value: value, What: what, Remedy: remedy})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		value = ""
		for _, name := range k.Missing {
			problem(member(path, name), "is missing", "give it")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			_, value = f.locate(append(e.InstanceLocation, name))
			problem(member(path, name), "is unknown", "remove it, or correct its name")
		}
	case *kind.Type:
		what := "is " + named(k.Got) + ", not " + alternatives(k.Want)
		if path == "args" && f.in == nil {
			what = "is missing"
		}
		problem(path, what, "give "+alternatives(k.Want))
	case *kind.Enum:
		problem(path, "is unknown", "give one of "+words(k.Want))
	case *kind.Const:
		problem(path, "is unknown", "give "+words([]any{k.Want}))
	case *kind.AnyOf, *kind.OneOf:
		if len(e.Causes) == 0 {
			problem(path, "fits more than one alternative, and may fit one", f.remedy)
			return
		}
		tries := make([]string, len(e.Causes))
		for i, cause := range e.Causes {
			var of job.SpecError
			(&finding{at: f.at, in: f.in, remedy: f.remedy, all: &of}).add(cause)
			tries[i] = says(of.Problems)
		}
		problem(path, "fits no alternative ("+strings.Join(tries, "; or ")+")", f.remedy)
	default:
		if len(e.Causes) == 0 {
			problem(path, "does not fit: "+e.ErrorKind.LocalizedString(english), f.remedy)
		}
		for _, cause := range e.Causes {
			f.add(cause)
		}
	}
}

// says says in one line what is wrong.
func says(problems []job.Problem) string {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.Path + " " + p.What
	}
	return strings.Join(all, ", ")
}

// locate returns the path of a value, and the value as people see it.
func (f *finding) locate(tokens []string) (path, value string) {
	path, at := f.at, f.in
	for _, t := range tokens {
		switch in := at.(type) {
		case []any:
			path += "[" + t + "]"
			if at = nil; index(t) < len(in) {
				at = in[index(t)]
			}
		case map[string]any:
			path, at = member(path, t), in[t]
		default:
			path, at = member(path, t), nil
		}
	}
	switch at.(type) {
	case nil, map[string]any, []any:
		return path, ""
	}
	text, _ := json.Marshal(at) // it was JSON
	return path, job.Shorten(string(text), 64)
}

func index(token string) int {
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func member(path, name string) string { return path + "." + name }

// named names a type of JSON.
func named(typ string) string {
	switch typ {
	case "null":
		return "null"
	case "array":
		return "a list"
	case "object", "integer":
		return "an " + typ
	case "string":
		return "a text"
	}
	return "a " + typ
}

func alternatives(types []string) string {
	all := make([]string, len(types))
	for i, t := range types {
		all[i] = named(t)
	}
	return strings.Join(all, " or ")
}

// words writes values as JSON.
func words(values []any) string {
	all := make([]string, len(values))
	for i, v := range values {
		text, _ := json.Marshal(v) // it was JSON
		all[i] = string(text)
	}
	return job.Shorten(strings.Join(all, ", "), 512)
}
