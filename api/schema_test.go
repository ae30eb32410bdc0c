package api_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
)

// schema compiles the JSON Schema of a kind.
func schema(t testing.TB, kind string) *jsonschema.Schema {
	t.Helper()
	text, err := api.Schema(kind)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if s.DraftVersion != 2020 {
		t.Errorf("draft %d", s.DraftVersion)
	}
	return s
}

// allows reports whether a schema lets a document pass.
func allows(t testing.TB, s *jsonschema.Schema, doc string) bool {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return s.Validate(v) == nil
}

// parses says what the service finds wrong with a document.
func parses(kind, doc string) error {
	switch kind {
	case job.KindQueue:
		_, err := job.ParseQueue([]byte(doc))
		return err
	case job.KindSystem:
		_, err := job.ParseSystem([]byte(doc))
		return err
	case job.KindPolicy:
		_, err := job.ParsePolicy([]byte(doc))
		return err
	case job.KindRetention:
		_, err := job.ParseRetention([]byte(doc))
		return err
	case kinds.Document:
		_, err := kinds.Parse([]byte(doc))
		return err
	}
	spec, err := job.ParseSpec([]byte(doc))
	if err == nil {
		err = spec.Validate()
	}
	return err
}

// TestSchema holds schemas and parsers together.
func TestSchema(t *testing.T) {
	if _, err := api.Schema("bus"); job.KindOf(err) != job.NotFound {
		t.Errorf("schema of no kind: %v", err)
	}
	for kind, docs := range map[string]struct{ good, bad []string }{
		"job": {good: []string{
			`{"command":["ls"]}`,
			`{"script":"ls","name":"a b","labels":{"a/b.c":""},"env":{"A_1":"x"}}`,
			`{"kind":"mail","args":[1,null],"notes":"x","retry":{"max_attempts":1000,"backoff":{"kind":"linear","base":"1m30s","max":"2h","jitter":true}}}`,
			`{"command":["ls"],"priority":0,"delay":"0","resources":{"minutes":0.5,"memory":"1.5GiB","gpus":0}}`,
			`{"command":["ls"],"not_before":"2026-01-31T08:00:00+01:00","archive":{"on":"never"}}`,
			`{"command":["ls"],"inputs":[{"from":"/x","sha256":"` + strings.Repeat("aB", 32) + `"}]}`,
			`{"command":["ls"],"recovery":{"policy":"calm","max_wait":"1h"}}`,
			`{"command":["ls"],"recovery":{"stages":[{"every":"1s","times":3},{"every":"1m"}]}}`,
		}, bad: []string{
			`{}`, `[]`, `"ls"`, `{"comand":["ls"]}`, `{"command":"ls"}`, `{"command":[1]}`, `{"kind":"app"}`,
			`{"command":["ls"],"priority":10}`,
			`{"command":["ls"],"priority":-1}`, `{"command":["ls"],"priority":"1"}`,
			`{"command":["ls"],"labels":{"a b":"c"}}`,
			`{"command":["ls"],"labels":{"a":1}}`, `{"command":["ls"],"env":{"1":"x"}}`,
			`{"command":["ls"],"delay":"soon"}`, `{"command":["ls"],"delay":90}`,
			`{"command":["ls"],"delay":"-1s"}`, `{"command":["ls"],"not_before":"tomorrow"}`,
			`{"command":["ls"],"resources":{"memory":"lots"}}`,
			`{"command":["ls"],"resources":{"cores":0}}`, `{"command":["ls"],"resources":{"cores":1000001}}`,
			`{"command":["ls"],"resources":{"minutes":0}}`,
			`{"command":["ls"],"resources":{"minutes":5270401}}`, `{"command":["ls"],"archive":{"on":"sometimes"}}`,
			`{"command":["ls"],"inputs":[{}]}`,
			`{"command":["ls"],"inputs":[{"from":"/x","sha256":"12"}]}`,
			`{"command":["ls"],"retry":{"max_attempts":1001}}`,
			`{"command":["ls"],"retry":{"backoff":{"kind":"random"}}}`, `{"command":["ls"],"name":"` +
				strings.Repeat("x", 129) + `"}`,
			`{"command":["ls"],"queue":"a b"}`, `{"command":["ls"],"after":["x"]}`,
			`{"command":["ls"],"recovery":{"policy":"a b"}}`, `{"command":["ls"],"recovery":{"stages":[{"times":3}]}}`,
			`{"command":["ls"],"recovery":{"stages":[{"every":"1m","times":-1}]}}`,
			`{"command":["ls"],"recovery":{"wait":"1h"}}`,
		}},
		"queue": {good: []string{
			`{"name":"night"}`,
			`{"name":"n","description":"x","disabled":true,"max_waiting":5}`,
		}, bad: []string{
			`{}`, `{"name":"a b"}`, `{"name":"a","max_waiting":-1}`, `{"name":"a","max_waiting":10000001}`,
			`{"name":"a","most":1}`, `{"name":"` + strings.Repeat("x", 65) + `"}`,
		}},
		"system": {good: []string{
			`{"name":"lab"}`, `{"name":"lab","host":{"kind":"local"},"most":{"cores":4,"memory":"4G"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab.example.org","port":2222,"user":"ada","from":"3f9c27a41b7d","identities":["~/.ssh/id_lab"],` +
				`"host_keys":["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"],"jump":[{"address":"::1"}]},` +
				`"work":"$SCRATCH/pawl","runner":"process","env":{"A":"1"},"shell":["bash","-l"],"profile":"module load gcc\n","files":["/data"]}`,
			`{"name":"lab","host":{"kind":"ssh","via":"openssh","address":"lab","keys":"everywhere"}}`,
		}, bad: []string{
			`{}`, `{"name":"lab","host":{"kind":"slurm"}}`,
			`{"name":"lab","host":{"kind":"ssh","via":"telnet","address":"lab","keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","via":"openssh","address":"a b","keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","via":"openssh","address":"-oProxyCommand=x","keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","via":"openssh","address":"lab","keys":"here"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"a b","keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","port":65536,"keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","port":0,"keys":"everywhere"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","keys":"everywhere","jump":[{"port":22}]}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","keys":"everywhere"},"env":{"1":"x"}}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","keys":"everywhere"},"runner":"at"}`,
			`{"name":"lab","host":{"kind":"ssh","address":"lab","user":"ada","keys":"everywhere"},"profile":["x"]}`,
			`{"name":"lab","most":{"cores":0}}`, `{"name":"lab","most":{"core":1}}`,
		}},
		"policy": {good: []string{
			`{"name":"calm","max_wait":"1h"}`,
			`{"name":"SYSTEM_DISABLED","description":"x","disabled":true,"stages":[{"every":"1s","times":3},{"every":"1m"}]}`,
		}, bad: []string{
			`{"max_wait":"1h"}`, `{"name":"a b","max_wait":"1h"}`, `{"name":"calm","stages":[{"times":1}]}`,
			`{"name":"calm","stages":[{"every":"1m","times":1000001}]}`,
			`{"name":"calm","stages":[{"every":60}]}`, `{"name":"calm","wait":"1h"}`, `{"name":"calm","stages":[` +
				strings.Repeat(`{"every":"1m","times":1},`, 16) + `{"every":"1m"}]}`,
		}},
		"kind": {good: []string{
			`{"name":"thumbnail"}`, `{"name":"thumbnail","description":"x","disabled":true,"queue":"images","slots":4,"revision":0}`,
			`{"name":"a","unique":{},"order":{"key":"a","failing":"pass"},"limits":["license/matlab"],"retry":{"max_attempts":3}}`,
			`{"name":"a","timeout":"10m","stall":"90s","schema":{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}},"args_version":2}`,
			`{"name":"a","schema":false}`, `{"name":"a","schema":{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}]}}`,
		}, bad: []string{
			`{}`, `{"name":"a b"}`, `{"name":"a","timeout":600}`, `{"name":"a","timeout":"-1s"}`, `{"name":"a","slots":0}`,
			`{"name":"a","slots":1000001}`, `{"name":"a","args_version":0}`, `{"name":"a","revision":-1}`, `{"name":"a","unique":{"until":"end"}}`,
			`{"name":"a","order":{"failing":"wait"}}`, `{"name":"a","retry":{"max_attempts":0}}`, `{"name":"a","args":{}}`,
			`{"name":"a","queue":"a b"}`,
		}},
		"retention": {
			good: []string{
				`{"name":"default"}`,
				`{"name":"default","disabled":true,"keep":{"FINISHED":"720h","FAILED":"1h","CANCELED":"87600h"}}`,
			},
			bad: []string{
				`{}`, `{"name":"other"}`, `{"name":"default","keep":{"RUNNING":"1h"}}`,
				`{"name":"default","keep":{"finished":"1h"}}`,
				`{"name":"default","keep":{"FINISHED":"30 days"}}`, `{"name":"default","keep":{"FINISHED":720}}`,
				`{"name":"default","keep":["FINISHED"]}`,
			},
		},
	} {
		s := schema(t, kind)
		for _, doc := range docs.good {
			if err := parses(kind, doc); err != nil || !allows(t, s, doc) {
				t.Errorf("%s %s: the parser says %v, the schema lets it pass: %t", kind, doc, err, allows(t, s, doc))
			}
		}
		for _, doc := range docs.bad {
			if err := parses(kind, doc); err == nil || allows(t, s, doc) {
				t.Errorf("%s %s: the parser says %v, the schema lets it pass: %t", kind, doc, err, allows(t, s, doc))
			}
		}
	}
}

func TestSchemaOfExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*/job.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	s := schema(t, "job")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if !allows(t, s, string(doc)) {
			t.Errorf("the schema refuses %s", name)
		}
	}
}

// TestSchemaRefusesNothingGood: what a parser takes the schema lets pass, whatever stands in it.
func TestSchemaRefusesNothingGood(t *testing.T) {
	s := schema(t, "job")
	good := 0
	rapid.Check(t, func(t *rapid.T) {
		spec := map[string]any{}
		switch rapid.IntRange(0, 2).Draw(t, "what") {
		case 0:
			spec["command"] = []any{"sh", "-c", "ls"}
		case 1:
			spec["script"] = "#!/bin/sh\nls"
		case 2:
			spec["kind"] = "mail"
		}
		text := rapid.SampledFrom([]string{
			"a", "a b", "ä-1", strings.Repeat("x", 64), strings.Repeat("x", 128),
			strings.Repeat("x", 129), "\x00", "_",
		})
		words := func(name string) string { return text.Draw(t, name) }
		fields := map[string]func() any{
			"kind":        func() any { return words("kind") },
			"name":        func() any { return words("name") },
			"external_id": func() any { return words("external_id") },
			"owner":       func() any { return words("owner") },
			"queue":       func() any { return words("queue") },
			"priority":    func() any { return rapid.IntRange(-1, 10).Draw(t, "priority") },
			"not_before":  func() any { return "2026-01-31T08:00:00.123+01:00" },
			"delay": func() any {
				return rapid.SampledFrom([]string{"1h30m", "1.5ms", "2µs", "0", "0s", "1"}).Draw(t, "delay")
			},
			"labels":    func() any { return map[string]any{words("key"): words("value")} },
			"notes":     func() any { return map[string]any{"x": []any{nil}} },
			"args":      func() any { return []any{1} },
			"command":   func() any { return []any{words("command")} },
			"script":    func() any { return words("script") },
			"arguments": func() any { return []any{words("argument")} },
			"env":       func() any { return map[string]any{words("variable"): words("value")} },
			"system":    func() any { return words("system") },
			"launch":    func() any { return []any{"nice"} },
			"stdout":    func() any { return words("stdout") },
			"retry": func() any {
				return map[string]any{
					"max_attempts": rapid.IntRange(-1, 1001).Draw(t, "attempts"),
					"backoff":      map[string]any{"kind": "constant", "base": "1s"},
				}
			},
			"inputs": func() any {
				return []any{map[string]any{
					"from": "/x", "to": words("to"), "env": words("input env"),
					"optional": true,
				}}
			},
			"resources": func() any {
				memory := rapid.SampledFrom([]string{"1", "1B", "1.5 GiB", "512MB", "3T", "-1", "x"}).Draw(t, "memory")
				return map[string]any{
					"cores": rapid.IntRange(-1, 2).Draw(t, "cores"), "memory": memory,
					"minutes": rapid.Float64Range(-1, 6e6).Draw(t, "minutes"),
				}
			},
			"archive": func() any {
				return map[string]any{
					"to": "/y", "include": []any{words("include")},
					"on": "success",
				}
			},
		}
		for _, field := range rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(fields))), 0, 3).Draw(t,
			"fields") {
			spec[field] = fields[field]()
		}
		doc, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if parses("job", string(doc)) != nil {
			return
		}
		good++
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
	})
	if good == 0 {
		t.Error("none of the specs was good")
	}
}
