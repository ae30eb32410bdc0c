package job_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

func TestExpand(t *testing.T) {
	value := func(name string) string { return "<" + strings.TrimPrefix(name, "PAWL_") + ">" }
	environ := func(name string) (string, bool) { return "/home/ann", name == "HOME" }
	for given, want := range map[string]string{
		"plain":                       "plain",
		"":                            "",
		"$HOME costs 5$":              "$HOME costs 5$",
		"${PAWL_JOB_DIR}/x":           "<JOB_DIR>/x",
		"${PAWL_NODES}${PAWL_TASKS}":  "<NODES><TASKS>",
		"${ENV:HOME}/.rc":             "/home/ann/.rc",
		"$${PAWL_JOB_ID}":             "${PAWL_JOB_ID}",
		"$$${PAWL_JOB_ID}":            "$${PAWL_JOB_ID}",
		"$ ${PAWL_ATTEMPT} {} $${} }": "$ <ATTEMPT> {} ${} }",
	} {
		spec := job.Spec{Command: []string{"echo", given}, Env: map[string]string{"A": given}}
		if err := spec.Validate(); err != nil {
			t.Errorf("%q: %v", given, err)
		}
		got, err := spec.Expand(value, environ)
		if err != nil || got.Command[1] != want || got.Env["A"] != want {
			t.Errorf("%q becomes %q and %q (%v), want %q", given, got.Command, got.Env, err, want)
		}
		if spec.Command[1] != given || spec.Env["A"] != given {
			t.Errorf("%q: the spec itself was changed", given)
		}
	}
}

func TestExpandEverywhere(t *testing.T) {
	const m = "${PAWL_JOB_ID}"
	list := []string{m}
	spec := job.Spec{
		Command: list, Arguments: list, Launch: list, Env: map[string]string{"A": m}, Stdout: m, Stderr: m, Script: m,
		Inputs:  []job.Input{{From: m, To: m}},
		Archive: &job.Archive{To: m, Include: list, Exclude: list, Required: list},
	}
	x := []string{"x"}
	want := job.Spec{
		Command: x, Arguments: x, Launch: x, Env: map[string]string{"A": "x"}, Stdout: "x", Stderr: "x", Script: m,
		Inputs:  []job.Input{{From: "x", To: "x"}},
		Archive: &job.Archive{To: "x", Include: x, Exclude: x, Required: x},
	}
	got, err := spec.Expand(func(string) string { return "x" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("expanded (-want +got):\n%s", diff)
	}
}

func TestExpandNamesTheVariableThatIsNotSet(t *testing.T) {
	spec := job.Spec{Command: []string{"${ENV:SCRATCH}/prog"}, Arguments: []string{"${ENV:HOME}"}}
	if diff := cmp.Diff([]string{"HOME", "SCRATCH"}, spec.Variables()); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	_, err := spec.Expand(nil, func(name string) (string, bool) { return "", name == "HOME" })
	if err == nil || !strings.Contains(err.Error(), "needs the variable SCRATCH, which is not set on the system") {
		t.Errorf("error %v", err)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${PAWL_JOB_ID}", "$${", "${", "${ENV:A}", "$$${}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec := job.Spec{Command: []string{"x", text}}
		if spec.Validate() != nil {
			return
		}
		// What was accepted can be expanded, and the result of values without macros holds none but
		// literals.
		if _, err := spec.Expand(func(string) string { return "" }, func(string) (string, bool) { return "", true }); err != nil {
			t.Errorf("%q was accepted, and cannot be expanded: %v", text, err)
		}
	})
}
