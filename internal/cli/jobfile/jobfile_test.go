package jobfile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func joined(docs []json.RawMessage) string {
	var texts []string
	for _, d := range docs {
		texts = append(texts, string(d))
	}
	return strings.Join(texts, " ")
}

func TestDocuments(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{`command: [printf, "\x1b[31m\a\0<&>\u263a\ud83d\ude00"]`, `{"command":["printf","\u001b[31m\u0007\u0000<&>☺😀"]}`},
		{"\ufeffname: a", `{"name":"a"}`},
		{"a: [1.10, 1e3, 12345678901234567890123, 9007199254740993, -0, 0x10, 1_000]", `{"a":[1.10,1e3,12345678901234567890123,9007199254740993,-0,16,1000]}`},
		{"a: ['1e3', \"1.10\", 007x, 1e, !!str 1.10]", `{"a":["1e3","1.10","007x","1e","1.10"]}`},
		{"a: |- # why\n  1e3\nb: >-\n  1.10\nc: 1.10", `{"a":"1e3","b":"1.10","c":1.10}`},
		{"{\"a\":\t1.50,\n\t\"b\": \"\\/\"}", `{"a":1.50,"b":"/"}`},
		{"x: &1 {k: v}\ny:\n  <<: *1\n  z: *1\n", `{"x":{"k":"v"},"y":{"k":"v","z":{"k":"v"}}}`},
		{"%YAML 1.2\n---\na: b\n...\n", `{"a":"b"}`},
		{"a: b\n---\n# nothing more\n", `{"a":"b"}`},
		{"a: 1\n---\nb: 2\n", `{"a":1} {"b":2}`},
		{"---\na: 1\n---\n---\nb: 2\n---\n", `{"a":1} {"b":2}`},
		{"---\n# one\n---\n# two\n---\na: 1\n...\n---\n---\nb: 2\n", `{"a":1} {"b":2}`},
		{"a: |\n  ---\n  ---\n--- # x\n--- {b: 2}\n", `{"a":"---\n---\n"} {"b":2}`},
		{"1.10: a", `{"1.10":"a"}`},
		{"null", `null`},
	} {
		docs, err := YAMLDocuments([]byte(c.yaml))
		if doc := joined(docs); err != nil || doc != c.want {
			t.Errorf("%q is %s, %v; want %s", c.yaml, doc, err, c.want)
		}
	}
	for _, c := range []struct{ yaml, want string }{
		{"", "is empty"},
		{"\ufeff---\n# a comment\n", "is empty"},
		{"a: 1\nb: 2\na: 3\n", `"a" already defined`},
		{"a: {b: 1, b: 1}", `"b" already defined`},
		{"a: \x00", "has a NUL byte"},
		{"a: \xff", "is not UTF-8"},
		{"a: [b", "is not YAML"},
		{"a: *b", "is not YAML"},
		{"a: .nan", "cannot express"},
	} {
		if doc, err := YAMLDocuments([]byte(c.yaml)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q is %s, %v; want %s", c.yaml, doc, err, c.want)
		}
	}
}

// inFile writes a job file to a folder of its own.
func inFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReadJobs(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"one job", "command: [ls]", `{"command":["ls"]}`},
		{"documents", "command: [ls]\n---\ncommand: [pwd]\n", `{"command":["ls"]} {"command":["pwd"]}`},
		{"a list of one", "jobs: [{command: [ls]}]", `{"command":["ls"]}`},
		{"JSON", `{"jobs": [{"command": ["ls"]}, {"command": ["pwd"]}]}`, `{"command":["ls"]} {"command":["pwd"]}`},
		{
			"maps are merged, the rest is replaced",
			"defaults: {command: [a, b], env: {A: a, B: b}, retry: {max_attempts: 3, backoff: {kind: linear, base: 1s}}}\n" +
				"jobs:\n- {}\n- {command: [c], env: {B: x}, retry: {backoff: {base: 2s}}}\n",
			`{"command":["a","b"],"env":{"A":"a","B":"b"},"retry":{"backoff":{"base":"1s","kind":"linear"},"max_attempts":3}} ` +
				`{"command":["c"],"env":{"A":"a","B":"x"},"retry":{"backoff":{"base":"2s","kind":"linear"},"max_attempts":3}}`,
		},
		{"null takes a default away", "defaults: {command: [a], priority: 3}\njobs: [{command: null, script: ls, priority: null}]", `{"script":"ls"}`},
		{"empty defaults", "defaults:\njobs: [{command: [a]}]", `{"command":["a"]}`},
		{"numbers stay as they are written", "defaults: {notes: {price: 1.10}}\njobs: [{command: [a], notes: {long: 12345678901234567890123}}]", `{"command":["a"],"notes":{"long":12345678901234567890123,"price":1.10}}`},
		{
			"a shared name gets numbers",
			"defaults: {name: sim, command: [a]}\njobs: [{}, {name: other}, {}]",
			`{"command":["a"],"name":"sim-1"} {"command":["a"],"name":"other"} {"command":["a"],"name":"sim-3"}`,
		},
		{"the name of the only job gets none", "defaults: {name: sim, command: [a]}\njobs: [{}]", `{"command":["a"],"name":"sim"}`},
		{"names may be the same", "jobs: [{name: a, command: [a]}, {name: a, command: [a]}]", `{"command":["a"],"name":"a"} {"command":["a"],"name":"a"}`},
		{
			"paths are relative to the file",
			"command: [a]\ninputs: [{from: in.txt}, {from: ../x/}, {from: /abs}, {from: 'file:///f'}, {from: '${ENV:HOME}/x', to: h}, {from: 'a/${ENV:X}/../y', to: z}]\narchive: {to: out}\n",
			`{"archive":{"to":"DIR/out"},"command":["a"],"inputs":[{"from":"DIR/in.txt"},{"from":"UP/x"},{"from":"/abs"},{"from":"file:///f"},{"from":"${ENV:HOME}/x","to":"h"},{"from":"DIR/a/${ENV:X}/../y","to":"z"}]}`,
		},
		{
			"paths in defaults are, too",
			"defaults: {inputs: [{from: in.txt}]}\njobs: [{command: [a]}]",
			`{"command":["a"],"inputs":[{"from":"DIR/in.txt"}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := inFile(t, c.content)
			f, err := Read(t.Context(), name, Use{})
			if err != nil {
				t.Fatal(err)
			}
			var given []json.RawMessage
			for _, e := range f.Jobs {
				given = append(given, e.Given)
				if again, err := job.ParseSpec(e.Given); err != nil || cmp.Diff(again, e.spec) != "" {
					t.Errorf("the spec is not what is given: %v\n%s", err, cmp.Diff(again, e.spec))
				}
			}
			want := strings.NewReplacer("DIR", filepath.Dir(name), "UP", filepath.Dir(filepath.Dir(name))).Replace(c.want)
			if got := joined(given); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if f.Path != name || len(f.Sum) != 64 {
				t.Errorf("path %s, sum %s", f.Path, f.Sum)
			}
		})
	}
}

func TestWrongJobs(t *testing.T) {
	many := func(n int, one string) string {
		return "jobs:\n" + strings.Repeat("- "+one+"\n", n)
	}
	for _, c := range []struct{ name, content, want string }{
		{"one job says no number", "command: [ls]\npriority: 12\ncolour: red", ":\ncolour: is not a field of a spec: remove it"},
		{
			"each job is named", "jobs: [{command: [a]}, {name: b, comand: [a]}, {command: [a], priority: 12}]",
			":\njob 2 of 3 (b): comand: is not a field of a spec: did you mean command?\njob 3 of 3: priority (12): is out of range: give 0 (first) to 9",
		},
		{"documents, too", "command: [a]\n---\nname: b\n", ":\njob 2 of 2 (b): kind: is missing: give a command, or the kind of a task"},
		{"no more than 20", many(25, "{comand: [a]}"), "\njob 20 of 25: comand: is not a field of a spec: did you mean command?\n… and 5 more"},
		{"a fault of the defaults is said once", "defaults: {comand: [a]}\njobs: [{command: [a]}, {command: [b]}]", ":\ndefaults: comand: is not a field of a spec: did you mean command?"},
		{
			"a field beside jobs", "jobs: [{command: [a]}]\ndefault: {priority: 1}\npriority: 3\nanything: 1\n",
			":\nanything: is not a field of a file of jobs: remove it\ndefault: is not a field of a file of jobs: did you mean defaults?\npriority: cannot stand next to jobs: move it into defaults, or into a job",
		},
		{"no jobs", "jobs: []", ":\njobs: is not a list of jobs: give at least one"},
		{"jobs are a map", "jobs: {a: {command: [a]}}", ":\njobs: is not a list of jobs: give at least one"},
		{"a job is none", "jobs: [ls]", ":\njob 1 of 1: (spec) (\"ls\"): is not an object"},
		{"defaults are no map", "defaults: [a]\njobs: [{command: [a]}]", ":\ndefaults: is not a map"},
		{"defaults without jobs", "defaults: {}\ncommand: [a]", ":\ndefaults: stands without jobs"},
		{"jobs in one of several documents", "command: [a]\n---\njobs: [{command: [a]}]", ":\njob 2 of 2: jobs: stands in one of several documents"},
		{"a list", "- command: [a]", ":\n(file): is a list: write jobs: before it"},
		{"the same external id", "jobs: [{command: [a], external_id: x}, {command: [b], external_id: x}]", ":\njob 2 of 2: external_id (x): is that of job 1 of 2 too: give each job its own"},
		{
			"one folder", "jobs: [{command: [a], archive: {to: x}}, {command: [b], name: n, archive: {to: ./x/}}]",
			"/x): is the folder for the results of job 1 of 2 too: give each job its own, such as one with " +
				"${PAWL_JOB_NAME} in it",
		},
		{"one folder by defaults", "defaults: {name: n, archive: {to: /x}}\njobs: [{command: [a]}, {command: [b]}]", ":\njob 2 of 2 (n-2): archive.to (/x): is the folder for the results of job 1 of 2 (n-1) too"},
		{"a task", "jobs: [{kind: mail}]", ":\njob 1 of 1: kind mail is a task: run tasks with the Go program that handles them"},
		{"too many", many(maxJobs+1, "{command: [a]}"), "holds 10001 jobs: give at most 10000 in a file"},
		{"a job too large", "jobs: [{command: [a], notes: " + strings.Repeat("x", job.MaxSpec) + "}]", ":\njob 1 of 1: (spec) (2097180 bytes): is too large"},
		{"one job too large", "command: [a]\nnotes: " + strings.Repeat("x", job.MaxSpec), "is larger than 2097152 bytes: pass large data as inputs"},
		{"a file too large", "# " + strings.Repeat("x", MaxFile), "is larger than 67108864 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := inFile(t, c.content)
			_, err := Read(t.Context(), name, Use{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("job file %s", name)) {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
	t.Run("a folder's name is no macro", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "a${b")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "job.yaml")
		if err := os.WriteFile(name, []byte("command: [a]\ninputs: [{from: x}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(t.Context(), name, Use{})
		if err != nil {
			t.Fatal(err)
		}
		spec, err := f.Jobs[0].spec.Expand(func(string) string { return "" }, os.LookupEnv)
		if err != nil || spec.Inputs[0].From != filepath.Join(dir, "x") {
			t.Errorf("%s, %v", spec.Inputs[0].From, err)
		}
	})
}

// FuzzReadJobs looks for what neither gives jobs nor says what is wrong.
func FuzzReadJobs(f *testing.F) {
	for _, s := range []string{
		"command: [ls]", "command: [ls]\n---\n---\ncommand: [pwd]\n", `{"jobs": [{"command": ["a"]}], "defaults": {"env": {"A": "b"}}}`,
		"defaults: &d {command: [a]}\njobs:\n- *d\n- <<: *d\n  name: x\n", "jobs: 1", "- a", "a: !!binary x", "? a\n: b",
		"inputs: [{from: x}, 1]\narchive: {to: ${x}}", "%YAML 1.2\n--- |\n x\n...\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		docs, err := YAMLDocuments(content)
		if err != nil {
			return
		}
		var faults Faults
		for _, it := range itemsOf(docs, &faults) {
			e, err := it.read("/base", Use{})
			if err != nil {
				faults.Add(it.label, err)
				continue
			}
			if !json.Valid(e.Given) {
				t.Errorf("given is %s", e.Given)
			}
		}
		if len(faults.Lines) > mostFaults {
			t.Errorf("%d faults are said", len(faults.Lines))
		}
	})
}
