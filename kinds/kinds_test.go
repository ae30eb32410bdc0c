package kinds_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
)

// Everything that is wrong with a document is named at once.
func TestParseNamesAllProblems(t *testing.T) {
	for doc, want := range map[string]string{
		`[]`: `(kind) ([]): is not an object: write fields such as name: thumbnail`,
		`{"name":"a b","timeout":"-1s","stall":"900000h","limits":["tenant"],"unique":{"key":"a","args":["b"]},"retry":{"max_attempts":2000}}`: `name (a b): is not a name
limits[0] (tenant): begins with tenant
unique.args: cannot be given together with key
retry.max_attempts (2000): is out of range
timeout (-1s): is out of range
stall (900000h0m0s): is out of range`,
		`{"name":"app"}`:  `name (app): is the kind of programs`,
		`{"queue":"a b"}`: "name: is missing\nqueue (a b): is not a name",
		`{"name":"a","order":{"args":["x"],"by":"args."},"description":"` + strings.Repeat("x", 2049) + `"}`: "order.by (args.): is unknown\n" +
			"description (2049 bytes): is too long",
		`{"name":"a","schema":{"type":"int","properties":{"a":{"minimum":"1"}}}}`: `schema: is no JSON Schema: schema.`,
		`{"name":"a","schema":{"$ref":"file:///etc/passwd"}}`:                     `is not in the document`,
		`{"name":"a","schema":{"pattern":"("}}`:                                   `schema: is no JSON Schema`,
		`{"name":"a","schema":7}`:                                                 `schema: is no JSON Schema`,
		`{"name":"a","shema":{}}`:                                                 `shema: is not a field of a kind: did you mean schema?`,
		`{"name":"a","description":"a\u0000"}`:                                    `(kind) (\u0000): stands for no character of a text`,
		`{"name":"a","schema":{"const":"\\\ud800\u0041"}}`:                        `(kind) (\ud800): stands for no character`,
		`{"name":"a","schema":{"enum":["\ud83d\ude00","\udE00"]}}`:                `(kind) (\udE00): stands for no character`,
		`{"name":"a","description":"\\u0000 \ud83d\uDe00 \"\\ud800","limits":7}`:  `limits`,
		`{"name":"a","description":"` + strings.Repeat("x", 64<<10) + `"}`:        `(kind) (65565 bytes): is too large`,
	} {
		_, err := kinds.Parse([]byte(doc))
		got := ""
		if err != nil {
			got = err.Error()
		}
		lines := strings.Split(got, "\n")
		wants := strings.Split(want, "\n")
		if len(lines) != len(wants) {
			t.Errorf("%.200s:\n%s\nwant\n%s", doc, got, want)
			continue
		}
		for i := range wants {
			if !strings.Contains(lines[i], wants[i]) {
				t.Errorf("%.200s:\n%s\nwant\n%s", doc, lines[i], wants[i])
			}
		}
	}
	if k, err := kinds.Parse([]byte(`{"name":"a","schema":null}`)); err != nil || k.Schema != nil {
		t.Errorf("%+v, %v", k, err)
	}
}

// A schema says where the arguments do not fit, and what to change.
func TestArgsNameTheirProblems(t *testing.T) {
	const schema = `{"type": "object", "required": ["image", "size"], "additionalProperties": false, "properties": {
		"image": {"type": "string", "minLength": 3}, "size": {"enum": ["s", "m", 4]}, "mail": {"type": "string", "format": "email"},
		"of": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}},
		"is": {"const": true}, "to": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]}, "one": {"oneOf": [{"minimum": 1}, {"maximum": 5}]},
		"re": {"$ref": "#/$defs/re"}, "all": {"allOf": [{"minimum": 3}, {"multipleOf": 2}]}}, "$defs": {"re": {"pattern": "^[a-z]+$"}}}`
	args, err := kinds.NewArgs(&kinds.Kind{Name: "mail", Schema: json.RawMessage(schema), ArgsVersion: 2})
	if err != nil {
		t.Fatal(err)
	}
	const correct = "correct it: pawl get kind mail -o yaml has the schema of the arguments"
	for text, want := range map[string][]string{
		`{"image":"cat","size":4,"mail":"a@b.example","of":[{"n":null}],"is":true,"to":"x","one":0,"re":"abc","all":4}`: nil,
		``:    {"args: is missing: give an object"},
		`[1]`: {"args: is a list, not an object: give an object"},
		`{}`:  {"args.image: is missing: give it", "args.size: is missing: give it"},
		`{"image":"ca","size":"xl","sise":1}`: {
			`args.sise (1): is unknown: remove it, or correct its name`, `args.image ("ca"): does not fit: minLength: got 2, want 3: ` + correct,
			`args.size ("xl"): is unknown: give one of "s", "m", 4`,
		},
		`{"image":"cat","size":4,"of":[{},{"n":2.5}],"is":false,"mail":"nobody"}`: {
			`args.of[1].n (2.5): is a number, not null or an integer: give null or an integer`, `args.is (false): is unknown: give true`,
			`args.mail ("nobody"): does not fit: 'nobody' is not valid email: missing @: ` + correct,
		},
		`{"image":"cat","size":4,"to":{},"one":3}`: {
			`args.to: fits no alternative (args.to is an object, not a text; or args.to.id is missing): ` + correct,
			`args.one (3): fits more than one alternative, and may fit one: ` + correct,
		},
		`{"image":"cat","size":4,"re":"9","all":1}`: {
			`args.re ("9"): does not fit: '9' does not match pattern '^[a-z]+$': ` + correct,
			`args.all (1): does not fit: minimum: got 1, want 3: ` + correct, `args.all (1): does not fit: multipleOf: got 1, want 2: ` + correct,
		},
	} {
		spec := job.Spec{Kind: "mail", ArgsVersion: 2}
		if text != "" {
			spec.Args = json.RawMessage(text)
		}
		got := map[string]bool{}
		var wrong *job.SpecError
		if err := args.Check(&spec); errors.As(err, &wrong) {
			for _, p := range wrong.Problems {
				got[p.String()] = true
			}
		} else if err != nil {
			t.Error(err)
		}
		wants := map[string]bool{}
		for _, w := range want {
			wants[w] = true
		}
		if diff := cmp.Diff(wants, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", text, diff)
		}
		if spec.ArgsVersion = 0; args.Check(&spec) != nil {
			t.Errorf("%s: arguments of another version are checked", text)
		}
	}
}

// Numbers that take very long to compute with, or cannot be, are refused wherever they stand.
func TestLongNumbers(t *testing.T) {
	args, err := kinds.NewArgs(&kinds.Kind{Name: "mail", Schema: json.RawMessage(
		`{"properties": {"a": {"minimum": 3}, "b": {"multipleOf": 0.1}, "c": {"items": {"maximum": 5}}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("9", 401)
	for text, path := range map[string]string{
		`{"a": 1e400, "b": 1E-400, "c": [-1e+308]}`: "",
		`{"a": 1e2000000}`:                          "args.a",
		`{"a": 1e-2000000}`:                         "args.a",
		`{"a": 1e99999999999999999999}`:             "args.a",
		`{"b": 1E+500000000}`:                       "args.b",
		`{"c": [1, 1e401]}`:                         "args.c[1]",
		`{"d": {"e": ` + long + `}}`:                "args.d.e",
	} {
		err := args.Check(&job.Spec{Kind: "mail", Args: json.RawMessage(text)})
		if path == "" && err != nil && strings.Contains(err.Error(), "too long") {
			t.Errorf("%s: %v", text, err)
		}
		if path != "" && (err == nil || !strings.Contains(err.Error(), path+" (") || !strings.Contains(err.Error(), "is too long")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := kinds.NewArgs(&kinds.Kind{Name: "mail", Schema: json.RawMessage(`{"multipleOf": 1e-2000000}`)}); err == nil ||
		!strings.Contains(err.Error(), "schema.multipleOf is a number that is too long") {
		t.Errorf("a schema: %v", err)
	}
}

// A job has what it says itself, and else what its kind says.
func TestComplete(t *testing.T) {
	k := kinds.Kind{
		Name: "mail", Queue: "night", Unique: &job.Unique{Args: []string{"to"}}, Order: &job.Order{Key: "a"},
		Limits: []string{"smtp"}, Retry: &job.RetryPolicy{MaxAttempts: 3},
	}
	for _, c := range []struct{ given, want string }{
		{
			`{"kind":"mail","args":{"n":1.0,"<":"&"}, "unique": null}`,
			`{"args":{"n":1.0,"<":"&"},"kind":"mail","limits":["smtp"],"order":{"key":"a"},"queue":"night","retry":{"max_attempts":3},"unique":{"args":["to"]}}`,
		},
		{
			`{"kind":"mail","queue":"day","unique":{"key":"k"},"order":{"key":"b"},"limits":[],"retry":{"max_attempts":1}}`,
			`{"kind":"mail","queue":"day","unique":{"key":"k"},"order":{"key":"b"},"limits":[],"retry":{"max_attempts":1}}`,
		},
	} {
		spec, err := job.ParseSpec([]byte(c.given))
		if err != nil {
			t.Fatal(err)
		}
		text, err := k.Complete(&spec, []byte(c.given))
		if err != nil || string(text) != c.want {
			t.Errorf("%s, %v", text, err)
		}
		again, err := job.ParseSpec(text)
		if diff := cmp.Diff(spec, again); diff != "" || err != nil {
			t.Errorf("(-spec +text) %s, %v", diff, err)
		}
	}
}

// Whatever the arguments are, they are checked without a panic, and each problem names a path.
func TestAnyArgs(t *testing.T) {
	schemas := []string{
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}},"additionalProperties":false}`,
		`{"anyOf":[{"type":"array","minItems":2,"uniqueItems":true},{"not":{"type":"object"}}]}`,
		`{"if":{"required":["a"]},"then":{"properties":{"a":{"const":1}}},"else":{"propertyNames":{"maxLength":1}}}`,
		`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"a":{"$ref":"#/$defs/t"}},"minProperties":1}}}`,
		`{"contains":{"type":"string"},"prefixItems":[{"type":"null"}],"items":false}`, `false`,
	}
	rapid.Check(t, func(t *rapid.T) {
		args, err := kinds.NewArgs(&kinds.Kind{Name: "a", Schema: json.RawMessage(rapid.SampledFrom(schemas).Draw(t, "schema"))})
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.SampledFrom([]string{
			`null`, `{}`, `[]`, `"a"`, `1e9`, `{"a":1}`, `{"a":[1,2.5,"x"]}`, `{"a":{"a":{}}}`, `{"ab":1,"a.b[0]":{}}`, `[null,"a",3]`, `[[],[]]`, `{"":{"":0}}`,
		}).Draw(t, "args")
		var wrong *job.SpecError
		if err := args.Check(&job.Spec{Kind: "a", Args: json.RawMessage(text)}); err != nil && !errors.As(err, &wrong) {
			t.Fatal(err)
		}
		if wrong == nil {
			return
		}
		for _, p := range wrong.Problems {
			if !strings.HasPrefix(p.Path, "args") || p.What == "" || p.Remedy == "" {
				t.Fatalf("%s: %+v", text, p)
			}
		}
	})
}

// A kind that is disabled takes no job, and neither does one that cannot tell where a job stands in
// its order.
func TestRefuse(t *testing.T) {
	spec := func(text string) *job.Spec {
		s, err := job.ParseSpec([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	for _, c := range []struct {
		kind  kinds.Kind
		given string
		want  job.ErrorKind
	}{
		{kinds.Kind{Name: "mail"}, `{"kind":"mail"}`, ""},
		{kinds.Kind{Name: "mail", Disabled: true}, `{"kind":"mail"}`, job.Conflict},
		{kinds.Kind{Name: "mail"}, `{"kind":"mail","args":{"n":1},"order":{"key":"a","by":"args.n"}}`, ""},
		{kinds.Kind{Name: "mail"}, `{"kind":"mail","args":{"n":[]},"order":{"key":"a","by":"args.n"}}`, job.Invalid},
	} {
		err := c.kind.Refuse(spec(c.given))
		if (err == nil) != (c.want == "") || err != nil && job.KindOf(err) != c.want {
			t.Errorf("%s of %+v: %v, want %q", c.given, c.kind, err, c.want)
		}
	}
}

// Arguments of another version than that of the schema are not checked by it.
func TestArgsOfAnotherVersion(t *testing.T) {
	k := kinds.Kind{Name: "mail", ArgsVersion: 2, Schema: json.RawMessage(`{"required": ["to"]}`)}
	args, err := kinds.NewArgs(&k)
	if err != nil {
		t.Fatal(err)
	}
	for version, wrong := range map[int]bool{0: false, 1: false, 2: true, 3: false} {
		err := args.Check(&job.Spec{Kind: "mail", Args: json.RawMessage(`{}`), ArgsVersion: version})
		if (err != nil) != wrong {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

// An index has each job's digests of its arguments, and all jobs once those are gone that an older
// document completed.
func TestIndex(t *testing.T) {
	changed := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	d := kinds.Declare(&kinds.Kind{Name: "mail", Index: []string{"to", "user.id"}}, 1, changed, nil)
	of := func(args string) map[string]string {
		index, err := d.Index(&job.Spec{Kind: "mail", Args: json.RawMessage(args)})
		if err != nil || len(index) != 2 {
			t.Fatalf("%s: %v, %v", args, index, err)
		}
		return index
	}
	one, same, other := of(`{"to":"bob","user":{"id":1}}`), of(`{"user":{"id":1.0},"to":"bob","x":2}`), of(`{"to":"eve"}`)
	if !maps.Equal(one, same) || one["to"] == other["to"] || one["user.id"] == other["user.id"] {
		t.Errorf("%v, %v, %v", one, same, other)
	}
	if from := d.Indexed("to"); from.Before(changed.Add(time.Minute)) || from.After(changed.Add(time.Hour)) {
		t.Errorf("since %v", from)
	}
	var none *kinds.Declared
	if index, err := none.Index(&job.Spec{}); index != nil || err != nil || !none.Indexed("to").IsZero() ||
		!d.Indexed("from").IsZero() {
		t.Error("an index that is not there")
	}
}
