package job_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pawl-jobs/pawl/job"
)

// sameSpec compares what specs say: JSON without its spacing, and nothing the same as empty.
var sameSpec = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(
		func(a, b json.RawMessage) bool { return len(a) > 0 || len(b) > 0 },
		cmp.Transformer("value", func(raw json.RawMessage) (v any) {
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.UseNumber()
			if len(raw) > 0 && dec.Decode(&v) != nil {
				return string(raw)
			}
			return v
		}),
	),
}

func problems(t *testing.T, err error) []job.Problem {
	t.Helper()
	var e *job.SpecError
	if err == nil {
		return nil
	}
	if !errors.As(err, &e) || job.KindOf(err) != job.Invalid || len(e.Problems) == 0 {
		t.Fatalf("%T of kind %s: %v", err, job.KindOf(err), err)
	}
	return e.Problems
}

func TestParseSpec(t *testing.T) {
	got, err := job.ParseSpec([]byte(`{
		"name": "count", "external_id": "x-1", "owner": "ann", "queue": "short", "priority": 0,
		"not_before": "2026-03-01T12:00:00Z", "delay": "1m30s", "labels": {"team": "bio"}, "notes": [1, {"a": null}],
		"retry": {"max_attempts": 3, "backoff": {"kind": "linear", "base": "2s", "max": "1m", "jitter": true}},
		"command": ["wc", "-w"], "arguments": ["in.txt"], "env": {"LANG": "C"}, "system": "local",
		"inputs": [{"from": "a/in.txt", "to": "in.txt", "name": "text"}], "stdout": "out", "stderr": "err",
		"archive": {"to": "/data"}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	want := job.Spec{
		Name: "count", ExternalID: "x-1", Owner: "ann", Queue: "short", Priority: &zero,
		NotBefore: noon, Delay: job.Duration(90 * time.Second), Labels: map[string]string{"team": "bio"},
		Notes: json.RawMessage(`[1, {"a": null}]`),
		Retry: &job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{
			Kind: job.BackoffLinear, Base: job.Duration(2 * time.Second), Max: job.Duration(time.Minute), Jitter: true,
		}},
		Command: []string{"wc", "-w"}, Arguments: []string{"in.txt"}, Env: map[string]string{"LANG": "C"}, System: "local",
		Inputs: []job.Input{{From: "a/in.txt", To: "in.txt", Name: "text"}}, Stdout: "out", Stderr: "err",
		Archive: &job.Archive{To: "/data"},
	}
	if diff := cmp.Diff(want, got, sameSpec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}

	got, err = job.ParseSpec([]byte(`{"kind": "mail", "args": {"to": "ann", "after": 3, "any": [{"thing": 1}]}, "retry": null}`))
	want = job.Spec{Kind: "mail", Args: json.RawMessage(`{"to": "ann", "after": 3, "any": [{"thing": 1}]}`)}
	if diff := cmp.Diff(want, got, sameSpec); diff != "" || err != nil {
		t.Errorf("%v, spec (-want +got):\n%s", err, diff)
	}
}

func TestParseSpecRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec string
		want []job.Problem
	}{
		{"an unknown field, by its nearest name", `{"comand": ["ls"]}`, []job.Problem{{"comand", "", "is not a field of a spec", "did you mean command?"}}},
		{"a field in capitals", `{"Name": "x"}`, []job.Problem{{"Name", "", "is not a field of a spec", "did you mean name?"}}},
		{"a field that is like no other", `{"zzzzzz": 1}`, []job.Problem{{"zzzzzz", "", "is not a field of a spec", "remove it"}}},
		{"an unknown field in a map", `{"retry": {"backoff": {"bse": "1s"}}}`, []job.Problem{{"retry.backoff.bse", "", "is not a field of a spec", "did you mean base?"}}},
		{"an unknown field in a list", `{"inputs": [{"from": "a"}, {"from": "b", "too": "c"}]}`, []job.Problem{{"inputs[1].too", "", "is not a field of a spec", "did you mean to?"}}},
		{"a field that would break a line", `{"a\nb": 1}`, []job.Problem{{`"a\nb"`, "", "is not a field of a spec", "remove it"}}},
		{"a field without a name", `{"": 1}`, []job.Problem{{`""`, "", "is not a field of a spec", "remove it"}}},
		{"a reserved field", `{"after": []}`, []job.Problem{{"after", "", "is reserved for a later version", "jobs do not wait for the end of others yet: order: {key: NAME} in each of them lets one go after the other"}}},
		{"a reserved field of an input", `{"inputs": [{"from": "a", "extract": true}]}`, []job.Problem{{"inputs[0].extract", "", "is reserved for a later version", "remove it"}}},
		{"zero, where it is no default", `{"retry": {"max_attempts": 0}, "resources": {"minutes": 0.0, "gpus": 0}}`, []job.Problem{
			{"resources.minutes", "0", "is out of range", "give more than 0, or remove it for the default"},
			{"retry.max_attempts", "0", "is out of range", "give more than 0, or remove it for the default"},
		}},
		{"a size that is none", `{"resources": {"memory": "much"}}`, []job.Problem{{"resources.memory", `"much"`, "is not a size such as 512M or 4GiB", "give a size such as 512M or 4GiB"}}},
		{"a reserved field where it is not", `{"archive": {"items": []}}`, []job.Problem{{"archive.items", "", "is not a field of a spec", "remove it"}}},
		{"all of them", `{"keep": 1, "items": 1, "schedule": 1, "nme": "x"}`, []job.Problem{
			{"items", "", "is reserved for a later version", "remove it"},
			{"keep", "", "is reserved for a later version", "remove it"},
			{"nme", "", "is not a field of a spec", "did you mean name?"},
			{
				"schedule", "", "is not a field of a spec",
				"a schedule submits the jobs of a file on a clock: pawl schedules add NAME --cron TIMES FILE, or --every TIME",
			},
		}},

		{"text for a number", `{"priority": "high"}`, []job.Problem{{"priority", `"high"`, "is not a whole number", "give a whole number"}}},
		{"half a number", `{"retry": {"max_attempts": 2.5}}`, []job.Problem{{"retry.max_attempts", "2.5", "is not a whole number", "give a whole number"}}},
		{"a number for text", `{"env": {"A": "x", "N": 5}}`, []job.Problem{{"env.N", "5", "is not text", `put it in quotes: "5"`}}},
		{"text for a list", `{"command": "wc -w"}`, []job.Problem{{"command", `"wc -w"`, "is not a list", "write command: [wc, -w], or for a shell script: script: wc -w"}}},
		{"a number in a list of texts", `{"command": ["head", "-n", 5]}`, []job.Problem{{"command[2]", "5", "is not text", `put it in quotes: "5"`}}},
		{"a list for a map", `{"labels": ["a"]}`, []job.Problem{{"labels", `["a"]`, "is not a map", "give a map"}}},
		{"text for a map", `{"inputs": ["in.txt"]}`, []job.Problem{{"inputs[0]", `"in.txt"`, "is not a map", "write from: in.txt"}}},
		{"a map for a list", `{"inputs": {"from": "a"}}`, []job.Problem{{"inputs", `{"from":"a"}`, "is not a list", "put a - before it, or brackets around it: the field is a list"}}},
		{"a number for yes or no", `{"retry": {"backoff": {"jitter": 1}}}`, []job.Problem{{"retry.backoff.jitter", "1", "is not true or false", "give true or false"}}},
		{"a number for a duration", `{"delay": 90}`, []job.Problem{{"delay", "90", "is not a duration such as 90s, 1h30m or 1d", "give a unit, such as 90s"}}},
		{"no duration", `{"delay": "soon"}`, []job.Problem{{"delay", `"soon"`, "is not a duration such as 90s, 1h30m or 1d", "give a duration such as 90s, 1h30m or 1d"}}},
		{"no time", `{"not_before": "noon"}`, []job.Problem{{"not_before", `"noon"`, "is not a time such as 2006-01-02T15:04:05Z", "give a time such as 2006-01-02T15:04:05Z"}}},
		{"a map for a time", `{"not_before": {}}`, []job.Problem{{"not_before", "{}", "is not a time such as 2006-01-02T15:04:05Z", "give a time such as 2006-01-02T15:04:05Z"}}},
		{"more than one fault", `{"priority": true, "delay": {}, "nam": 1}`, []job.Problem{
			{"delay", "{}", "is not a duration such as 90s, 1h30m or 1d", "give a duration such as 90s, 1h30m or 1d"},
			{"nam", "", "is not a field of a spec", "did you mean name?"},
			{"priority", "true", "is not a whole number", "give a whole number"},
		}},

		{"nothing", ``, []job.Problem{{"(spec)", "", "is not JSON: EOF", "correct the syntax"}}},
		{"half a spec", `{"name": "x"`, []job.Problem{{"(spec)", "", "is not JSON: unexpected EOF", "correct the syntax"}}},
		{"no JSON", `name: x`, []job.Problem{{"(spec)", "", "is not JSON: invalid character 'a' in literal null (expecting 'u')", "correct the syntax"}}},
		{"two specs", `{"name": "x"} {"name": "y"}`, []job.Problem{{"(spec)", "", "is not JSON: something follows the value", "correct the syntax"}}},
		{"a list", `["ls"]`, []job.Problem{{"(spec)", `["ls"]`, "is not an object", "write fields such as command: [wc, -w, in.txt]"}}},
		{"null", `null`, []job.Problem{{"(spec)", `null`, "is not an object", "write fields such as command: [wc, -w, in.txt]"}}},
		{"too much", `{"name": "` + strings.Repeat("x", job.MaxSpec) + `"}`, []job.Problem{{"(spec)", fmt.Sprintf("%d bytes", job.MaxSpec+12), "is too large", fmt.Sprintf("keep it to %d bytes and pass larger data as an input file", job.MaxSpec)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := job.ParseSpec([]byte(tt.spec))
			if diff := cmp.Diff(tt.want, problems(t, err)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("OK at its largest", func(t *testing.T) {
		spec := `{"name": "` + strings.Repeat("x", job.MaxSpec-12) + `"}`
		if _, err := job.ParseSpec([]byte(spec)); err != nil {
			t.Errorf("%d bytes: %v", len(spec), short(err))
		}
	})
}

func short(err error) string {
	s := err.Error()
	return s[:min(len(s), 300)]
}

func ptr[T any](v T) *T { return &v }

func TestValidate(t *testing.T) {
	const name = "use letters, digits, dot, dash and underscore, and begin with a letter or digit"
	app := func(change func(*job.Spec)) job.Spec {
		s := job.Spec{Command: []string{"wc", "-w"}}
		change(&s)
		return s
	}
	mail := func(change func(*job.Spec)) job.Spec {
		s := job.Spec{Kind: "mail"}
		change(&s)
		return s
	}
	many := map[string]string{}
	for i := range job.MaxLabels + 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	long := strings.Repeat("ä", 129)
	cut := strings.Repeat("ä", 60) + "…"

	for _, tt := range []struct {
		name string
		spec job.Spec
		want []job.Problem
	}{
		{"an app", app(func(*job.Spec) {}), nil},
		{"a task", mail(func(s *job.Spec) { s.Args = json.RawMessage(`{"to": "ann"}`) }), nil},
		{"everything of an app at its limit", app(func(s *job.Spec) {
			s.Kind, s.Name, s.ExternalID, s.Owner = job.KindApp, long[:256], long[:256], long[:256]
			s.Queue, s.Priority, s.Delay = strings.Repeat("q", 64), ptr(9), job.Duration(time.Hour)
			s.Labels = map[string]string{strings.Repeat("a/b", 21): strings.Repeat("ü", 255)}
			s.Notes = json.RawMessage(`"` + strings.Repeat("n", job.MaxNotes-2) + `"`)
			s.Retry = &job.RetryPolicy{MaxAttempts: 1000, Backoff: job.Backoff{Kind: job.BackoffConstant, Base: 5, Max: 5}}
			s.Env, s.System = map[string]string{"_A1": "a\nb"}, job.SystemLocal
			s.Inputs = []job.Input{{From: "/a/in.txt"}, {From: "file:///b/in.txt", To: "b/../c/in.txt"}, {From: "dir/"}}
			s.Stdout, s.Stderr, s.Archive = "log/all", "log/all", &job.Archive{To: "/data"}
		}), nil},
		{"arguments at their limit", mail(func(s *job.Spec) { s.Args = json.RawMessage(`"` + strings.Repeat("n", job.MaxArgs-2) + `"`) }), nil},

		{"nothing to run", job.Spec{}, []job.Problem{{"kind", "", "is missing", "give a command, or the kind of a task"}}},
		{"nothing to run, with inputs", job.Spec{Inputs: []job.Input{{From: "a"}}}, []job.Problem{{"kind", "", "is missing", "give a command, or the kind of a task"}}},
		{"no name for a kind", mail(func(s *job.Spec) { s.Kind = "-mail" }), []job.Problem{{"kind", "-mail", "is not a name", name}}},
		{"a long kind", mail(func(s *job.Spec) { s.Kind = strings.Repeat("k", 65) }), []job.Problem{{"kind", strings.Repeat("k", 60) + "…", "is too long", "keep it to 64 characters"}}},
		{"a long name", app(func(s *job.Spec) { s.Name = long }), []job.Problem{{"name", cut, "is too long", "keep it to 128 characters"}}},
		{"a name of two lines", app(func(s *job.Spec) { s.Name = "a\nb" }), []job.Problem{{"name", `"a\nb"`, "has control or invisible characters", "use printable characters"}}},
		{"a name that is no text", app(func(s *job.Spec) { s.Name = "a\xff" }), []job.Problem{{"name", `"a\xff"`, "has control or invisible characters", "use printable characters"}}},
		{"a long external id", app(func(s *job.Spec) { s.ExternalID = long }), []job.Problem{{"external_id", cut, "is too long", "keep it to 128 characters"}}},
		{"a long owner", app(func(s *job.Spec) { s.Owner = long }), []job.Problem{{"owner", cut, "is too long", "keep it to 128 characters"}}},
		{"no name for a queue", app(func(s *job.Spec) { s.Queue = "a b" }), []job.Problem{{"queue", "a b", "is not a name", name}}},
		{"a priority before the first", app(func(s *job.Spec) { s.Priority = ptr(-1) }), []job.Problem{{"priority", "-1", "is out of range", "give 0 (first) to 9"}}},
		{"a priority after the last", app(func(s *job.Spec) { s.Priority = ptr(10) }), []job.Problem{{"priority", "10", "is out of range", "give 0 (first) to 9"}}},
		{
			"a version of args below 1", mail(func(s *job.Spec) { s.ArgsVersion = -1 }),
			[]job.Problem{{"args_version", "-1", "is out of range", "give 1 to 1000000"}},
		},
		{
			"a version of args that is too high", mail(func(s *job.Spec) { s.ArgsVersion = 1_000_001 }),
			[]job.Problem{{"args_version", "1000001", "is out of range", "give 1 to 1000000"}},
		},
		{"a negative delay", app(func(s *job.Spec) { s.Delay = -1e9 }), []job.Problem{{"delay", "-1s", "is negative", "give a positive duration such as 90s"}}},
		{"a delay and a time", app(func(s *job.Spec) { s.Delay, s.NotBefore = 1e9, noon }), []job.Problem{{"delay", "1s", "cannot be given together with not_before", "give one of them"}}},
		{"too many labels", app(func(s *job.Spec) { s.Labels = many }), []job.Problem{{"labels", "65", "are too many", "keep to 64"}}},
		{"no key for a label", app(func(s *job.Spec) { s.Labels = map[string]string{"a b": "", "": "x"} }), []job.Problem{
			{`labels.""`, "", "is not a label's key", "use 1 to 63 letters, digits, dots, dashes, underscores and slashes"},
			{"labels.a b", "", "is not a label's key", "use 1 to 63 letters, digits, dots, dashes, underscores and slashes"},
		}},
		{"a long label", app(func(s *job.Spec) { s.Labels = map[string]string{"a": strings.Repeat("v", 256)} }), []job.Problem{{"labels.a", strings.Repeat("v", 60) + "…", "is too long", "keep it to 255 characters"}}},
		{"large notes", app(func(s *job.Spec) { s.Notes = json.RawMessage(`"` + strings.Repeat("n", job.MaxNotes) + `"`) }), []job.Problem{{"notes", "65538 bytes", "is too large", "keep it to 65536 bytes and pass larger data by reference"}}},
		{"notes that are no JSON", app(func(s *job.Spec) { s.Notes = json.RawMessage(`{a}`) }), []job.Problem{{"notes", "{a}", "is not JSON", "correct the syntax"}}},

		{"too many attempts", app(func(s *job.Spec) { s.Retry = &job.RetryPolicy{MaxAttempts: 1001} }), []job.Problem{{"retry.max_attempts", "1001", "is out of range", "give 1 to 1000"}}},
		{"less than no attempt", app(func(s *job.Spec) { s.Retry = &job.RetryPolicy{MaxAttempts: -1} }), []job.Problem{{"retry.max_attempts", "-1", "is out of range", "give 1 to 1000"}}},
		{"an unknown backoff", app(func(s *job.Spec) { s.Retry = &job.RetryPolicy{Backoff: job.Backoff{Kind: "cubic"}} }), []job.Problem{{"retry.backoff.kind", "cubic", "is unknown", "give constant, linear or exponential"}}},
		{"a negative backoff", app(func(s *job.Spec) { s.Retry = &job.RetryPolicy{Backoff: job.Backoff{Base: -1e9}} }), []job.Problem{{"retry.backoff.base", "-1s", "is negative", "give a positive duration such as 1s"}}},
		{"a longest backoff below the first", app(func(s *job.Spec) { s.Retry = &job.RetryPolicy{Backoff: job.Backoff{Base: 2e9, Max: 1e9}} }), []job.Problem{{"retry.backoff.max", "1s", "is less than base", "give a duration of at least 2s"}}},

		{"large arguments", mail(func(s *job.Spec) { s.Args = json.RawMessage(`"` + strings.Repeat("n", job.MaxArgs) + `"`) }), []job.Problem{{"args", "1048578 bytes", "is too large", "keep it to 1048576 bytes and pass larger data by reference"}}},
		{"arguments that are no JSON", mail(func(s *job.Spec) { s.Args = json.RawMessage(``) }), []job.Problem{{"args", "", "is not JSON", "correct the syntax"}}},
		{"a task with a program's fields", mail(func(s *job.Spec) {
			s.Command, s.Arguments, s.Env, s.System = []string{"ls"}, []string{"-l"}, map[string]string{"A": "b"}, "local"
			s.Inputs, s.Stdout, s.Stderr, s.Archive = []job.Input{{From: "a"}}, "out", "err", &job.Archive{}
		}), func() (p []job.Problem) {
			for _, f := range []string{"command", "arguments", "env", "system", "inputs", "stdout", "stderr", "archive"} {
				p = append(p, job.Problem{Path: f, What: "belongs to kind app, not to a task", Remedy: "remove it, or remove kind"})
			}
			return p
		}()},

		{"an app without a command", job.Spec{Kind: job.KindApp}, []job.Problem{{"command", "", "is missing", "give a list such as [wc, -w, in.txt]"}}},
		{"an app with a task's arguments", app(func(s *job.Spec) { s.Args = json.RawMessage(`1`) }), []job.Problem{{"args", "", "belongs to tasks, not to kind app", "use arguments"}}},
		{"an empty program", app(func(s *job.Spec) { s.Command = []string{"", "-l"} }), []job.Problem{{"command[0]", "", "is empty", "give the program's name or path"}}},
		{"arguments that no program can be given", app(func(s *job.Spec) { s.Command, s.Arguments = []string{"ls", "a\x00"}, []string{"ok", "\x00"} }), []job.Problem{
			{"command[1]", `"a\x00"`, "has a NUL byte", "remove it"},
			{"arguments[1]", `"\x00"`, "has a NUL byte", "remove it"},
		}},
		{"variables that no program can be given", app(func(s *job.Spec) {
			s.Env = map[string]string{"1A": "x", "A=B": "x", "PAWL_JOB_ID": "x", "Z": "a\x00b"}
		}), []job.Problem{
			{"env.1A", "", "is not a variable's name", "use letters, digits and underscores, and do not begin with a digit"},
			{"env.A=B", "", "is not a variable's name", "use letters, digits and underscores, and do not begin with a digit"},
			{"env.PAWL_JOB_ID", "", "is reserved", "use a name that does not begin with PAWL_"},
			{"env.Z", "", "has a NUL byte", "remove it"},
		}},
		{"a system that has no name", app(func(s *job.Spec) { s.System = "a/b" }), []job.Problem{{"system", "a/b", "is not a name", name}}},
		{"an input of an unknown kind", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "ftp://x/y"}} }), []job.Problem{{"inputs[0].from", "ftp://x/y", "is of an unknown kind", "give a path, file:///…, system://NAME/path, or the URL of a file (http, https)"}}},
		{"a rerun", app(func(s *job.Spec) { s.Rerun = "never" }), []job.Problem{{"rerun", "never", "is unknown", "give accept or fail"}}},
		{"an archive on the web", app(func(s *job.Spec) { s.Archive = &job.Archive{To: "https://x/y"} }), []job.Problem{{"archive.to", "https://x/y", "is of an unknown kind", "give a path, file:///…, or system://NAME/path"}}},
		{"an input of no server", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "https:///y"}} }), []job.Problem{{"inputs[0].from", "https:///y", "is no URL", "give one such as https://data.example.org/poem.txt"}}},
		{"an input with a space in its URL", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "https://x/a y"}} }), []job.Problem{{"inputs[0].from", "https://x/a y", "has spaces or control characters", "write a space as %20"}}},
		{"an input with a password", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "https://ada:hush@x/y"}} }), []job.Problem{{"inputs[0].from", "https://ada:xxxxx@x/y", "has a name or a password in it", "give the URL without, such as one that the server has signed"}}},
		{"an input of the web in place", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "HTTPS://x/y", InPlace: true}} }), []job.Problem{{"inputs[0].in_place", "", "is for what is on the system already", "remove it, or give a path"}}},
		{"an input of no system", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "system:///y"}} }), []job.Problem{{"inputs[0].from", "system:///y", "names no system", "give one such as system://lab/data/in.txt"}}},
		{"an input of a system that has no name", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "SYSTEM://a b/y"}} }), []job.Problem{{"inputs[0].from", "SYSTEM://a b/y", "names no system", "give one such as system://lab/data/in.txt"}}},
		{"a system as an input", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "system://lab/..", To: "x"}} }), []job.Problem{{"inputs[0].from", "system://lab/..", "names no path on the system", "give one such as system://lab/data/in.txt"}}},
		{"an input of a system with a NUL byte", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "system://lab/a\x00", To: "x"}} }), []job.Problem{{"inputs[0].from", `"system://lab/a\x00"`, "has a NUL byte", "remove it"}}},
		{"an input of another system in place", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "system://lab/y", InPlace: true}} }), []job.Problem{{"inputs[0].in_place", "", "is for what is on the system of the job, which is local", "remove it, and the input is copied; or give system: lab"}}},
		{"an input of the web without a name", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "https://x/?id=a/b"}} }), []job.Problem{{"inputs[0].to", "", "is missing", "give the name that it gets in the job's folder"}}},
		{"an input of another machine", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "file://host/y"}} }), []job.Problem{{"inputs[0].from", "file://host/y", "is of an unknown kind", "give a path, file:///…, system://NAME/path, or the URL of a file (http, https)"}}},
		{"an archive of an unknown kind", app(func(s *job.Spec) { s.Archive = &job.Archive{To: "s3://b/k"} }), []job.Problem{{"archive.to", "s3://b/k", "is of an unknown kind", "give a path, file:///…, or system://NAME/path"}}},
		{"an input from nowhere", app(func(s *job.Spec) { s.Inputs = []job.Input{{To: "a"}} }), []job.Problem{{"inputs[0].from", "", "is missing", "give the path of a file or folder, or the URL of a file"}}},
		{"inputs out of the folder", app(func(s *job.Spec) {
			s.Inputs = []job.Input{{From: "a", To: "/etc/passwd"}, {From: "a", To: "x/../../b"}, {From: "a", To: ".."}, {From: "a", To: "x/.."}, {From: "/"}}
		}), []job.Problem{
			{"inputs[0].to", "/etc/passwd", "leaves the job's folder", "give a relative path without .."},
			{"inputs[1].to", "x/../../b", "leaves the job's folder", "give a relative path without .."},
			{"inputs[2].to", "..", "leaves the job's folder", "give a relative path without .."},
			{"inputs[3].to", "x/..", "is the job's folder itself", "give the name of a file in it"},
			{"inputs[4].to", ".", "is the job's folder itself", "give the name of a file in it"},
			{"inputs[4].to", ".", "is the target of inputs[3] too", "give another path"},
		}},
		{"inputs into Pawl's own folder", app(func(s *job.Spec) {
			s.Inputs = []job.Input{{From: "a", To: "./.pawl/launch.sh"}, {From: "b/.pawl"}, {From: "a", To: ".pawl2"}}
		}), []job.Problem{
			{"inputs[0].to", "./.pawl/launch.sh", "lies in .pawl, which is Pawl's own", "give another path"},
			{"inputs[1].to", ".pawl", "lies in .pawl, which is Pawl's own", "give another path"},
		}},
		{"an input that has no file name", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "a", To: "b\x00"}} }), []job.Problem{{"inputs[0].to", `"b\x00"`, "has control or invisible characters", "use printable characters"}}},
		{"two inputs for one file", app(func(s *job.Spec) { s.Inputs = []job.Input{{From: "a/in.txt"}, {From: "b", To: "./in.txt"}} }), []job.Problem{{"inputs[1].to", "./in.txt", "is the target of inputs[0] too", "give another path"}}},
		{"an input where the output goes", app(func(s *job.Spec) { s.Stderr, s.Inputs = "log", []job.Input{{From: "old/stdout"}, {From: "log"}} }), []job.Problem{
			{"inputs[0].to", "stdout", "is the target of stdout too", "give another path"},
			{"inputs[1].to", "log", "is the target of stderr too", "give another path"},
		}},
		{"names in what is no folder", app(func(s *job.Spec) {
			s.Stdout, s.Stderr = "log", "log/err"
			s.Inputs = []job.Input{
				{From: "a", To: "log/in/a"},
				{From: "https://x/b"},
				{From: "c", To: "b/c"},
				{From: "d", To: "d/d", SHA256: strings.Repeat("0", 64)},
				{From: "e", To: "d/./d//e"},
				{From: "f", To: "d/f"},
				{From: "g"},
				{From: "h", To: "g/h"},
				{From: "i", To: "logs"},
			}
		}), []job.Problem{
			{"inputs[2].to", "b/c", "lies in inputs[1], which is a file", "give one of them another path"},
			{"inputs[4].to", "d/d/e", "lies in inputs[3], which is a file", "give one of them another path"},
			{"stderr", "log/err", "lies in stdout, which is a file", "give one of them another path"},
			{"inputs[0].to", "log/in/a", "lies in stdout, which is a file", "give one of them another path"},
		}},
		{"an input around the output", app(func(s *job.Spec) {
			s.Stdout, s.Stderr, s.Inputs = "a/log", "a/log", []job.Input{{From: "a"}}
		}), nil},
		{"output in an input in place", app(func(s *job.Spec) {
			s.Stdout, s.Inputs = "a/log", []job.Input{{From: "/b/a", InPlace: true}}
		}), []job.Problem{{
			"stdout", "a/log", "lies in inputs[0], which is a link to /b/a", "give one of them another path",
		}}},
		{"output out of the folder", app(func(s *job.Spec) { s.Stdout, s.Stderr = "/dev/null", ".pawl/x" }), []job.Problem{
			{"stdout", "/dev/null", "leaves the job's folder", "give a relative path without .."},
			{"stderr", ".pawl/x", "lies in .pawl, which is Pawl's own", "give another path"},
		}},
		{"more than one fault", app(func(s *job.Spec) { s.Priority, s.Queue, s.System = ptr(12), "?", "-" }), []job.Problem{
			{"queue", "?", "is not a name", name},
			{"priority", "12", "is out of range", "give 0 (first) to 9"},
			{"system", "-", "is not a name", name},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, problems(t, tt.spec.Validate())); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateProgram(t *testing.T) {
	with := func(change func(*job.Spec)) job.Spec {
		s := job.Spec{Command: []string{"prog"}}
		change(&s)
		return s
	}
	sum := strings.Repeat("0aF4", 16)
	long := strings.Repeat("x", job.MaxWord+1)
	const notPassed = "is longer than Linux passes to a program"
	const keepShort = "keep it to 131071 bytes, or write it to a file and pass that as an input"
	for _, tt := range []struct {
		name string
		spec job.Spec
		want []job.Problem
	}{
		{"a script", job.Spec{Script: "echo ${anything}\n", Arguments: []string{"a"}}, nil},
		{"everything", with(func(s *job.Spec) {
			s.Resources = &job.Resources{Nodes: 1, Tasks: 4, Cores: 2, Memory: 1 << 30, GPUs: 1, Minutes: 0.5, Account: "a", Partition: "p"}
			s.Inputs = []job.Input{{From: "/a", SHA256: sum, Optional: true, Env: "A"}, {From: "/b", InPlace: true}}
			s.Archive = &job.Archive{On: job.ArchiveSuccess, Include: []string{"*"}, Overwrite: true}
			s.Launch = []string{"nice", "-n", "${PAWL_TASKS}"}
		}), nil},
		{"command and script", with(func(s *job.Spec) { s.Script = "x" }), []job.Problem{{"script", "", "cannot be given together with command", "give one of them"}}},
		{"a script that is too large", job.Spec{Script: strings.Repeat("x", job.MaxScript+1)}, []job.Problem{
			{"script", "1048577 bytes", "is too large", "keep it to 1048576 bytes, or pass it as an input"},
		}},
		{"a script with a NUL", job.Spec{Script: "a\x00"}, []job.Problem{{"script", "", "has a NUL byte", "remove it"}}},
		{"a long argument and variable", with(func(s *job.Spec) { s.Arguments, s.Env = []string{long}, map[string]string{"A": long} }), []job.Problem{
			{"arguments[0]", "131072 bytes", notPassed, keepShort},
			{"env.A", "131072 bytes", notPassed, keepShort},
		}},
		{"an empty launcher", with(func(s *job.Spec) { s.Launch = []string{""} }), []job.Problem{{"launch[0]", "", "is empty", "give the name or path of a program such as nice"}}},
		{"resources out of range", with(func(s *job.Spec) {
			s.Resources = &job.Resources{Nodes: 1_000_001, Tasks: -1, Cores: 1_000_001, Memory: -1, Minutes: 1e9}
		}), []job.Problem{
			{"resources.nodes", "1000001", "is out of range", "give up to 1000000"},
			{"resources.tasks", "-1", "is out of range", "give up to 1000000"},
			{"resources.cores", "1000001", "is out of range", "give up to 1000000"},
			{"resources.memory", "-1B", "is negative", "give a size such as 4GiB"},
			{"resources.minutes", "1e+09", "is out of range", "give up to 5270400 (ten years)"},
		}},
		{"inputs that cannot be", with(func(s *job.Spec) {
			s.Env = map[string]string{"A": "1"}
			s.Inputs = []job.Input{
				{From: "/a", SHA256: "12", Env: "A"},
				{From: "/b", SHA256: sum, InPlace: true, Env: "1"},
				{From: "/c", To: "b/c", Env: "PAWL_C"},
			}
		}), []job.Problem{
			{"inputs[0].sha256", "12", "is no SHA-256 sum", "give 64 hexadecimal digits, as sha256sum prints them"},
			{"inputs[0].env", "A", "is set in env too", "give one of them another name"},
			{"inputs[1].sha256", shortened(sum), "cannot be given together with in_place, which reads nothing", "remove one of them"},
			{"inputs[1].env", "1", "is not a variable's name", "use letters, digits and underscores, and do not begin with a digit"},
			{"inputs[2].env", "PAWL_C", "is reserved", "use a name that does not begin with PAWL_"},
			{"inputs[2].to", "b/c", "lies in inputs[1], which is a link to /b", "give one of them another path"},
		}},
		{"an archive at an unknown end", with(func(s *job.Spec) { s.Archive = &job.Archive{On: "failure"} }), []job.Problem{
			{"archive.on", "failure", "is unknown", "give always, success or never"},
		}},
		{"unknown macros", with(func(s *job.Spec) {
			s.Arguments = []string{"${PAWL_JOB_DIRS}", "${HOME}", "${ENV:}", "${PAWL_NODES"}
			s.Env = map[string]string{"A": "secret ${x}"}
			s.Archive = &job.Archive{To: "/a/${PAWL_ATTEMPT}"}
		}), []job.Problem{
			{"arguments[0]", "${PAWL_JOB_DIRS}", "has the unknown macro ${PAWL_JOB_DIRS}", "did you mean ${PAWL_JOB_DIR}?"},
			{"arguments[1]", "${HOME}", "has the unknown macro ${HOME}", "write $${ for a literal ${, or ${ENV:NAME} for a variable of the system"},
			{"arguments[2]", "${ENV:}", "has ${ENV:}, which names no variable", "write ${ENV:NAME}"},
			{"arguments[3]", "${PAWL_NODES", "has ${ without }", "close it, or write $${ for a literal ${"},
			{"env.A", "", "has the unknown macro ${x}", "write $${ for a literal ${, or ${ENV:NAME} for a variable of the system"},
			{"archive.to", "/a/${PAWL_ATTEMPT}", "has ${PAWL_ATTEMPT}, which the archive's folder cannot depend on", "remove it"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, problems(t, tt.spec.Validate())); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// shortened is a value as messages show it.
func shortened(s string) string { return s[:60] + "…" }

func TestBytesText(t *testing.T) {
	for text, want := range map[string]job.Bytes{
		"0": 0, "7": 7, "7B": 7, "512M": 512 << 20, "4GiB": 4 << 30, "4 GiB": 4 << 30, "1.5K": 1536, "2TB": 2e12, "3KB": 3000, " 1G ": 1 << 30,
	} {
		var got job.Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
		var again job.Bytes
		if b, _ := got.MarshalText(); again.UnmarshalText(b) != nil || again != want {
			t.Errorf("%q is written %s, which is %d", text, b, again)
		}
	}
	for _, text := range []string{"", "x", "-1", "4X", "G", "NaN", "Inf", "1e30", "0x10Z"} {
		var got job.Bytes
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestSpecErrorSaysWhereWhatAndWhatToDo(t *testing.T) {
	spec := job.Spec{Command: []string{""}, Priority: ptr(12)}
	want := "priority (12): is out of range: give 0 (first) to 9\ncommand[0]: is empty: give the program's name or path"
	if err := spec.Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestDefaults(t *testing.T) {
	id, err := job.ParseID("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		spec job.Spec
		want job.Spec
	}{
		{
			"an app",
			job.Spec{Command: []string{"/usr/bin/wc"}, Inputs: []job.Input{{From: "/a/in.txt"}, {From: "dir/"}, {From: "b", To: "c"}}},
			job.Spec{
				Kind: job.KindApp, Name: "wc-8a3e1b77", Owner: "ann", Queue: job.DefaultQueue, Priority: ptr(job.DefaultPriority),
				Command: []string{"/usr/bin/wc"}, System: job.SystemLocal, Stdout: "stdout", Stderr: "stderr",
				Inputs:    []job.Input{{From: "/a/in.txt", To: "in.txt"}, {From: "dir/", To: "dir"}, {From: "b", To: "c"}},
				Resources: &job.Resources{Nodes: 1, Tasks: 1, Cores: 1, Minutes: 10}, Archive: &job.Archive{On: job.ArchiveAlways},
			},
		},
		{
			"a task",
			job.Spec{Kind: "mail"},
			job.Spec{Kind: "mail", Name: "mail-8a3e1b77", Owner: "ann", Queue: job.DefaultQueue, Priority: ptr(job.DefaultPriority)},
		},
		{
			"what is given stays",
			job.Spec{Kind: "mail", Name: "n", Owner: "bob", Queue: "q", Priority: ptr(0)},
			job.Spec{Kind: "mail", Name: "n", Owner: "bob", Queue: "q", Priority: ptr(0)},
		},
		{
			"a program whose file name is no name",
			job.Spec{Command: []string{"/opt/my prog"}, System: "s", Stdout: "o", Stderr: "e"},
			job.Spec{
				Kind: job.KindApp, Name: "app-8a3e1b77", Owner: "ann", Queue: job.DefaultQueue, Priority: ptr(job.DefaultPriority),
				Command: []string{"/opt/my prog"}, System: "s", Stdout: "o", Stderr: "e",
				Resources: &job.Resources{Nodes: 1, Tasks: 1, Cores: 1, Minutes: 10}, Archive: &job.Archive{On: job.ArchiveAlways},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			given, err := json.Marshal(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			got := tt.spec
			got.Defaults(id, "ann")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			got.Defaults(job.NewID(), "eve")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("filled in twice (-want +got):\n%s", diff)
			}
			if kept, err := json.Marshal(tt.spec); err != nil || string(kept) != string(given) {
				t.Errorf("the spec that was copied is now %s (%v), was %s", kept, err, given)
			}
		})
	}
}

func TestRetryPolicy(t *testing.T) {
	const s = job.Duration(time.Second)
	app, mail := []string{"ls"}, "mail"
	for _, tt := range []struct {
		name string
		spec job.Spec
		want job.RetryPolicy
	}{
		{"a program that failed is not run again", job.Spec{Kind: job.KindApp, Command: app}, job.RetryPolicy{1, job.Backoff{job.BackoffExponential, s, 3600 * s, true}}},
		{"nor one whose kind goes without saying", job.Spec{Command: app}, job.RetryPolicy{1, job.Backoff{job.BackoffExponential, s, 3600 * s, true}}},
		{"unless asked for", job.Spec{Command: app, Retry: &job.RetryPolicy{MaxAttempts: 3}}, job.RetryPolicy{3, job.Backoff{job.BackoffExponential, s, 3600 * s, true}}},
		{"a task is", job.Spec{Kind: mail}, job.RetryPolicy{10, job.Backoff{job.BackoffExponential, s, 3600 * s, true}}},
		{"a backoff that is given", job.Spec{Kind: mail, Retry: &job.RetryPolicy{Backoff: job.Backoff{Kind: job.BackoffLinear, Base: 5 * s, Max: 60 * s}}}, job.RetryPolicy{10, job.Backoff{job.BackoffLinear, 5 * s, 60 * s, false}}},
		{"part of a backoff", job.Spec{Kind: mail, Retry: &job.RetryPolicy{Backoff: job.Backoff{Base: 5 * s}}}, job.RetryPolicy{10, job.Backoff{job.BackoffExponential, 5 * s, 3600 * s, false}}},
		{"a base above the longest", job.Spec{Kind: mail, Retry: &job.RetryPolicy{Backoff: job.Backoff{Base: 7200 * s}}}, job.RetryPolicy{10, job.Backoff{job.BackoffExponential, 7200 * s, 7200 * s, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.spec.RetryPolicy()); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	const request = `{"name": "x", "env": {"A": "1", "B": "2"}, "args": [1, 2.50]}`
	want, err := job.Fingerprint([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{
		`{"env":{"B":"2","A":"1"},"args":[1,2.50],"name":"x"}`,
		"\n\t{\"name\":\"\\u0078\",\r\n\"args\": [ 1 , 2.50 ], \"env\": {\"A\": \"1\", \"B\": \"2\"}}\n",
	} {
		if got, err := job.Fingerprint([]byte(same)); err != nil || got != want {
			t.Errorf("%s has another fingerprint (%v)", same, err)
		}
	}
	for _, other := range []string{
		`{"name": "y", "env": {"A": "1", "B": "2"}, "args": [1, 2.50]}`,
		`{"name": "x", "env": {"A": "1", "B": "2"}, "args": [2.50, 1]}`,
		`{"name": "x", "env": {"A": "1", "B": "2"}, "args": [1, 2.50], "queue": "default"}`,
		`{"name": "x", "env": {"A": "1"}, "args": [1, 2.50]}`,
		`{"name": "x", "env": {"A": "1", "B": "2"}, "args": [10000000000000000001, 2.50]}`,
		`{"name": "x", "env": {"A": "1", "B": "2"}, "args": [10000000000000000002, 2.50]}`,
	} {
		got, err := job.Fingerprint([]byte(other))
		if err != nil || got == want {
			t.Errorf("%s has the same fingerprint (%v)", other, err)
		}
	}
	a, _ := job.Fingerprint([]byte(`10000000000000000001`))
	if b, _ := job.Fingerprint([]byte(`10000000000000000002`)); a == b {
		t.Error("large numbers that differ have one fingerprint")
	}
	for _, bad := range []string{``, `{`, `{} {}`, `{}x`} {
		if _, err := job.Fingerprint([]byte(bad)); job.KindOf(err) != job.Invalid || err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDurationText(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90e9, "1h30m": 5400e9, "0s": 0, "1.5s": 1500e6,
		"1d": 24 * time.Hour, "2w": 336 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour, "1w1d1h1m1s1ms1µs": 193*time.Hour + 61*time.Second + 1001*time.Microsecond,
	} {
		var d job.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q is read as %s, %v", text, d, err)
		}
		b, err := d.MarshalText()
		if err != nil || d.UnmarshalText(b) != nil || time.Duration(d) != want {
			t.Errorf("%s is written as %q, %v", want, b, err)
		}
	}
	for _, bad := range []string{"", "90", "soon", "1 h", "d", "1dd", "1 d", "1d-1h", "1d2", "1e3d", "107000d", "15000w9000w", "wednesday", "-", "1y"} {
		var d job.Duration
		if err := d.UnmarshalText([]byte(bad)); err == nil || !strings.Contains(err.Error(), "such as 90s") {
			t.Errorf("%q is read as %s, %v", bad, d, err)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, s := range []string{
		`{"command": ["wc", "-w", "in.txt"], "inputs": [{"from": "in.txt"}], "env": {"A": "<&>"}}`,
		`{"kind": "mail", "args": {"to": ["ann", 1e3, null]}, "delay": "90s", "priority": 0, "labels": {}}`,
		`{"retry": {"max_attempts": 3, "backoff": {"kind": "linear", "base": "2s", "max": "1m", "jitter": true}}}`,
		`{"not_before": "2026-03-01T12:00:00+02:00", "notes": "\ud800", "archive": {"to": "/x"}}`,
		`{"name": "a", "name": null, "retry": {}, "archive": null, "command": []}`,
		`{"comand": 1, "after": [], "inputs": [{"too": {}}]}`,
		`{"delay": 90, "not_before": {}, "env": {"A": 1}}`,
		`[]`, `null`, `{} {}`, ``, `{"": {}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := job.ParseSpec(data)
		if err != nil {
			for _, p := range problems(t, err) {
				if p.Path == "" || p.What == "" || p.Remedy == "" {
					t.Errorf("%s: %+v", data, p)
				}
			}
			return
		}
		if err := spec.Validate(); err != nil {
			problems(t, err)
		}
		encoded, err := json.Marshal(spec)
		if err != nil {
			t.Fatalf("accepted, and cannot be written: %v", err)
		}
		again, err := job.ParseSpec(encoded)
		if err != nil {
			t.Fatalf("%s is refused as %s: %v", data, encoded, err)
		}
		if diff := cmp.Diff(spec, again, sameSpec); diff != "" {
			t.Errorf("%s is read again as %s:\n%s", data, encoded, diff)
		}
	})
}

// An input of the web is called as the last name of its path.
func TestNamesOfTheWeb(t *testing.T) {
	for from, want := range map[string]string{
		"https://x.example/data/poem.txt":             "poem.txt",
		"HTTP://x.example/data/poem.txt/":             "poem.txt",
		"https://x.example/a%20poem.txt?sign=a/b#c/d": "a poem.txt",
		"https://x.example/data?name=/poem.txt":       "data",
	} {
		s := job.Spec{Command: []string{"true"}, Inputs: []job.Input{{From: from}}}
		s.Kind = job.KindApp
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", from, err)
		}
		s.Defaults(job.ID{}, "")
		if got := s.Inputs[0].To; got != want {
			t.Errorf("%s is called %s, want %s", from, got, want)
		}
	}
}
