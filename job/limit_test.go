package job_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestLimitValidate(t *testing.T) {
	for _, tt := range []struct {
		limit job.Limit
		want  string // in the error; empty: there is none
	}{
		{job.Limit{Key: "tenant", Most: 1}, ""},
		{job.Limit{Key: "user/*"}, ""},
		{job.Limit{Key: "system/local/user/ada lovelace%2F2", Most: job.MaxTurns, Ahead: 3, Weights: map[string]int{"ada": 7}}, ""},
		{job.Limit{}, "key: is missing"},
		{job.Limit{Key: "*"}, "key (*): is not a key"},
		{job.Limit{Key: "/*"}, "key (/*): is not a key"},
		{job.Limit{Key: "a/*/b"}, "is not a key"},
		{job.Limit{Key: "a//b"}, "is not a key"},
		{job.Limit{Key: strings.Repeat("k", job.MaxLimitKey+1)}, "is too long"},
		{job.Limit{Key: "ahead/gpu"}, "begins with ahead"},
		{job.Limit{Key: "unique/*"}, "begins with unique"},
		{job.Limit{Key: "order/account-4711", Most: 2}, "begins with order: set a limit for another key: those of this kind are Pawl's own"},
		{job.Limit{Key: "order/*"}, "begins with order"},
		{job.Limit{Key: "orders/x"}, ""},
		{job.Limit{Key: "user/müller"}, ""},
		{job.Limit{Key: `system/local/user/CORP\ada`}, ""},
		{job.Limit{Key: "user/" + strings.Repeat("ü", 128)}, ""},
		{job.Limit{Key: "system/lab/partition/a%25b/user/*"}, ""},
		{job.Limit{Key: "system/*"}, ""},
		{job.Limit{Key: "kind/send"}, ""},
		{job.Limit{Key: "user/" + strings.Repeat("u", 129)}, "not a key that jobs can have"},
		{job.Limit{Key: "user/a\x01b"}, "not a key that jobs can have"},
		{job.Limit{Key: "user/50%"}, "% / * in a name are written %25 %2F %2A"},
		{job.Limit{Key: "user/a*"}, "not a key that jobs can have"},
		{job.Limit{Key: "user/a\xff"}, "not a key that jobs can have"},
		{job.Limit{Key: "kind/ü"}, "give kind/NAME"},
		{job.Limit{Key: "system/local/users/ada"}, "give system/NAME or system/NAME/user/NAME or system/NAME/partition/NAME or system/NAME/partition/NAME/user/NAME"},
		{job.Limit{Key: "tenant/x"}, "key (tenant/x): is not a key that jobs can have: give tenant"},
		{job.Limit{Key: "tenant/*"}, "give tenant"},
		{job.Limit{Key: "user"}, "give user/NAME"},
		{job.Limit{Key: "user/"}, "give user/NAME"},
		{job.Limit{Key: "kind"}, "give kind/NAME"},
		{job.Limit{Key: "system"}, "give system/NAME"},
		{job.Limit{Key: "system/local/partition"}, "not a key that jobs can have"},
		{job.Limit{Key: "system/*/user/ada"}, "not a key that jobs can have"},
		{job.Limit{Key: "gpu/ü"}, "is not a key"},
		{job.Limit{Key: "gpu", Most: -1}, "most (-1): is out of range"},
		{job.Limit{Key: "gpu", Ahead: job.MaxTurns + 1}, "ahead"},
		{job.Limit{Key: "gpu", Weights: map[string]int{"ada": 0}}, "weights.ada"},
	} {
		err := tt.limit.Validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%+v: %v", tt.limit, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%+v: %v, want %q", tt.limit, err, tt.want)
		}
	}
}

func TestLimitsOfASpec(t *testing.T) {
	for keys, want := range map[string]string{
		`["gpu", "license/matlab"]`: "",
		`["gpu", "gpu"]`:            "is given twice",
		`["user/ada"]`:              "each job already has the keys of its tenant, user, kind and system",
		`["unique/send/x"]`:         "begins with unique",
		`["order/x"]`:               "limits[0] (order/x): begins with order: name another key: those of this kind are Pawl's own",
		`["gpu/*"]`:                 "is not a key",
		`[""]`:                      "limits[0]: is missing",
		`["gpu/{of.card}"]`:         "",
		`["gpu/{}"]`:                "is not a key",
		`["gpu/{a/b}"]`:             "is not a key",
		`["{gpu}/a"]`: "limits[0] ({gpu}/a): begins with a field of args: " +
			"put a part before it, as in account/{account}",
		`["gpu/{card}"], "args": {"card": null}`: "limits[0] (gpu/{card}): finds no word in the field card of args: " +
			"give a text, a whole number, true or false there",
		`["gpu/{card}"], "kind": "app", "command": ["true"]`: "limits[0] (gpu/{card}): reads args, " +
			"which a program does not have",
	} {
		err := valid(`{"kind": "send", "limits": ` + keys + `}`)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", keys, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
	}
}

func TestLimitKeys(t *testing.T) {
	const of = `{"a": "ada", "n": 4711.0, "b": false, "t": "R&D 100%/é*", "in": {"a": -12e2}, "x": 1.5,
		"l": [1], "e": "", "z": -0}`
	for named, want := range map[string]string{
		"gpu":              "gpu",
		"account/{a}":      "account/ada",
		"account/{n}":      "account/4711",
		"test/{b}/{in.a}":  "test/false/-1200",
		"of-{a}-{a}/{a}":   "limits[0] (of-{a}-{a}/{a}): begins with a field",
		"of/x-{a}-{n}-{a}": "of/x-ada-4711-ada",
		"of/{t}":           "of/R%26D%20100%25%2F%C3%A9%2A",
		"of/{z}":           "of/0",
		"of/{x}":           "finds no word in the field x of args",
		"of/{l}":           "finds no word in the field l of args",
		"of/{e}":           "finds no word in the field e of args",
		"of/{in}":          "finds no word in the field in of args",
		"of/{in.b}":        "finds no word in the field in.b of args",
		"of/{a.b}":         "finds no word in the field a.b of args",
	} {
		spec, err := job.ParseSpec([]byte(`{"kind": "send", "args": ` + of + `, "limits": ["` + named + `"]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err = spec.Validate(); err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", named, err, want)
			}
			continue
		}
		if keys, err := spec.LimitKeys(); err != nil || !slices.Equal(keys, []string{want}) {
			t.Errorf("%s: %q, %v, want %s", named, keys, err, want)
		}
	}
	for n, want := range map[string]string{
		"1e300": "too long", "1e999999999999999999999": "finds no word", "1e-3": "finds no word",
	} {
		long := job.Spec{
			Kind: "send", Limits: []string{"of/" + strings.Repeat("x", 200) + "/{n}"},
			Args: json.RawMessage(`{"n": ` + n + `}`),
		}
		if _, err := long.LimitKeys(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", n, err)
		}
	}
	twice := job.Spec{Kind: "send", Limits: []string{"of/{a}", "of/{b}"}, Args: json.RawMessage(`{"a": 1, "b": "1"}`)}
	if keys, err := twice.LimitKeys(); err != nil || len(keys) != 1 {
		t.Errorf("two fields of one value: %q, %v", keys, err)
	}
}

func TestKeys(t *testing.T) {
	task := job.Job{Owner: "ada", Kind: "send"}
	if got := task.Keys("", ""); !slices.Equal(got, []string{"tenant", "user/ada", "kind/send"}) {
		t.Errorf("a task: %q", got)
	}
	program := job.Job{Owner: "a/b*", Kind: job.KindApp}
	want := []string{
		"tenant", "user/a%2Fb%2A", "kind/app", "system/lab", "system/lab/user/a%2Fb%2A",
		"system/lab/partition/long", "system/lab/partition/long/user/a%2Fb%2A",
	}
	if got := program.Keys("lab", "long"); !slices.Equal(got, want) {
		t.Errorf("a program: %q", got)
	}
	for key, family := range map[string]string{"tenant": "", "user/ada": "user/*", "system/lab/user/ada": "system/lab/user/*"} {
		if got := job.Family(key); got != family {
			t.Errorf("family of %s: %q", key, got)
		}
	}
}

func TestUniqueKey(t *testing.T) {
	key := func(spec string) string {
		t.Helper()
		s, err := job.ParseSpec([]byte(spec))
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		k, err := s.UniqueKey()
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		return k
	}
	same := func(a, b string, want bool) {
		t.Helper()
		if got := key(a) == key(b); got != want {
			t.Errorf("%s and %s are equal: %t", a, b, got)
		}
	}
	same(`{"kind": "send", "args": {"a": 1, "b": 2}, "unique": {}}`, `{"kind": "send", "args": {"b": 2, "a": 1}, "unique": {}}`, true)
	same(`{"kind": "send", "args": {"a": 1, "b": 2}, "unique": {}}`, `{"kind": "send", "args": {"a": 1}, "unique": {}}`, false)
	same(`{"kind": "send", "args": {"a": {"c": 1}, "b": 2}, "unique": {"args": ["a.c"]}}`, `{"kind": "send", "args": {"a": {"c": 1}, "b": 3}, "unique": {"args": ["a.c"]}}`, true)
	same(`{"kind": "send", "args": {"a": 1}, "unique": {"args": ["a"]}}`, `{"kind": "send", "args": {"a": "1"}, "unique": {"args": ["a"]}}`, false)
	same(`{"kind": "send", "args": {"a": 1}, "unique": {"args": ["b"]}}`, `{"kind": "send", "unique": {"args": ["b"]}}`, true)
	if got := key(`{"command": ["true"], "unique": {"key": "x/y"}}`); got != "x/y" {
		t.Errorf("the key that was given: %q", got)
	}
	s, err := job.ParseSpec([]byte(`{"command": ["true"], "unique": {"key": "x/y", "until": "running"}}`))
	if err != nil {
		t.Fatal(err)
	}
	running, err := s.RunningKey()
	if l := job.Implied(running); err != nil || running != "unique/app/x%2Fy" || l == nil || l.Most != 1 {
		t.Errorf("while running: %q, %+v, %v", running, l, err)
	}
	for spec, want := range map[string]string{
		`{"command": ["true"], "unique": {}}`:                                     "a program has no args",
		`{"kind": "send", "unique": {"until": "noon"}}`:                           "give start, done or running",
		`{"kind": "send", "unique": {"key": "a", "args": ["b"]}}`:                 "give one of them",
		`{"kind": "send", "args": {}, "unique": {"args": [""]}}`:                  "name a field of args",
		`{"kind": "send", "unique": {"key": "` + strings.Repeat("k", 256) + `"}}`: "keep it to 255 characters",
	} {
		if err := valid(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}

// valid says what is wrong with a spec.
func valid(spec string) error {
	s, err := job.ParseSpec([]byte(spec))
	if err != nil {
		return err
	}
	return s.Validate()
}
