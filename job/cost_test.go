package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// problemsOf returns what is wrong with a spec.
func problemsOf(t *testing.T, text string) []job.Problem {
	t.Helper()
	spec, err := job.ParseSpec([]byte(text))
	if err == nil {
		err = spec.Validate()
	}
	if err == nil {
		return nil
	}
	wrong, ok := errors.AsType[*job.SpecError](err)
	if !ok {
		t.Fatal(err)
	}
	return wrong.Problems
}

func TestSpecsHaveBounds(t *testing.T) {
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	var env strings.Builder
	for i := range 10_001 {
		fmt.Fprintf(&env, `,"A%d":""`, i)
	}
	for _, c := range []struct{ spec, path string }{
		{`{"command":["a"],"arguments":` + repeated(`""`, 100_000) + `}`, "arguments"},
		{`{"command":["a"],"inputs":` + repeated(`{"from":"/a"}`, 10_001) + `}`, "inputs"},
		{`{"command":["a"],"env":{"B":""` + env.String() + `}}`, "env"},
		{`{"command":["a"],"notes":` + deep + `}`, "notes"},
		{`{"kind":"mail","args":` + deep + `}`, "args"},
	} {
		if all := problemsOf(t, c.spec); len(all) != 1 || all[0].Path != c.path {
			t.Errorf("%.60s: %+.300v", c.spec, all)
		}
	}
	note := job.CustomEvent{Name: "x", Data: json.RawMessage(deep)}
	if note.Validate() == nil {
		t.Error("the data of an event may be as deep as it likes")
	}
	bad := job.Spec{Command: []string{"a\xff"}}
	if err := bad.Validate(); err == nil {
		t.Error("an argument may be no UTF-8")
	}
}

// TestSpecsFarBeyondBounds: what is wrong ever so often is neither compared nor told so often.
func TestSpecsFarBeyondBounds(t *testing.T) {
	testenv.Aside(t)
	for _, wrong := range []string{
		`{"command":["a"],"inputs":` + repeated(`{}`, 10_000) + `}`,
		`{"command":["a"],"inputs":` + repeated(`1`, 100_000) + `}`,
		`{"command":["a"]` + unknown(20_000) + `}`,
	} {
		all := problemsOf(t, wrong)
		if len(all) != job.MaxProblems || !strings.Contains(all[len(all)-1].What, "more problems") {
			t.Errorf("%.60s: %d problems are listed", wrong, len(all))
		}
	}
	// Each of these is compared with those before it, so those beyond the bound are not looked at.
	for _, short := range []string{
		`{"command":["a"],"limits":` + repeated(`"a"`, 100_000) + `}`,
		`{"command":["a"],"resources":{"options":` + repeated(`"--nice=b"`, 100_000) + `}}`,
	} {
		if all := problemsOf(t, short); len(all) > 40 || !strings.Contains(all[0].What, "too many") {
			t.Errorf("%.60s: %d problems are listed: %.300v", short, len(all), all)
		}
	}
	many := repeated(`{"name":"a"}`, 100_000)
	_, err := job.ParseSystem([]byte(`{"name":"c","runner":"slurm","partitions":` + many + `}`))
	if wrong, ok := errors.AsType[*job.SpecError](err); !ok || len(wrong.Problems) == job.MaxProblems {
		t.Errorf("partitions: %.300v", err)
	}
}

// repeated is a list in JSON of n times the same.
func repeated(one string, n int) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }

func unknown(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"field%d":1`, i)
	}
	return b.String()
}

// TestInputsInPlaceAmongMany has as many inputs as there may be: each is looked for among the
// others, and not at each.
func TestInputsInPlaceAmongMany(t *testing.T) {
	s := job.Spec{Command: []string{"a"}}
	for i := range job.MaxInputs {
		s.Inputs = append(s.Inputs, job.Input{From: "/x", To: fmt.Sprintf("d%d", i), InPlace: true})
	}
	s.Inputs[7].To = "d1/below"
	wrong, ok := errors.AsType[*job.SpecError](s.Validate())
	if !ok || len(wrong.Problems) != 1 || wrong.Problems[0].Path != "inputs[7].to" {
		t.Errorf("%+v", wrong)
	}
}

func TestCheckMerge(t *testing.T) {
	specs := slices.Repeat([]json.RawMessage{json.RawMessage(`{}`)}, 10_000)
	if err := job.CheckMerge(json.RawMessage(strings.Repeat("x", 180<<10)), specs); job.KindOf(err) != job.Invalid {
		t.Errorf("%v", err)
	}
	if err := job.CheckMerge(json.RawMessage(strings.Repeat("x", 6<<10)), specs); err != nil {
		t.Error(err)
	}
}

// TestPatternsOfFilters holds how filters match against regular expressions that say the same.
func TestPatternsOfFilters(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	text := func(signs string) string {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteRune([]rune(signs)[r.IntN(len([]rune(signs)))])
		}
		return b.String()
	}
	for range 20_000 {
		pattern, name := text("ab*?é*"), text("abé\n")
		expr := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
		want := regexp.MustCompile(`(?s)^` + expr + `$`).MatchString(name)
		if got := job.Where("name", job.Like, pattern).Match(&job.Job{Name: name}); got != want {
			t.Fatalf("%q fits %q: %t", name, pattern, got)
		}
	}
	long := strings.Repeat("a", 100_000)
	if job.Where("name", job.Like, strings.Repeat("*a", 20)+"*b").Match(&job.Job{Name: long}) {
		t.Error("what does not fit is chosen")
	}
}
