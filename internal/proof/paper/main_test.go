package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// told is what pawl bench local-paper -o json prints, cut short.
const told = `{
  "jobs": 10000, "limit": 50, "speedup": 50, "efficiency": 0.9612, "efficiency_list": 0.9663, "makespan_seconds": 40,
  "lost": 0, "failed": 0, "launched_twice": 0, "max_running": 50, "peak_mb": 95.4, "running": [12.5, 50, 49, 30], "running_every_seconds": 10,
  "cpu": "any", "cores": 2
}`

func measured(t *testing.T) *run {
	t.Helper()
	r := runs()[0]
	if err := r.read([]byte(told)); err != nil {
		t.Fatal(err)
	}
	return r
}

// troubled is a run with outages, of which too little is told.
func troubled(t *testing.T) *run {
	t.Helper()
	list := runs()
	r := list[slices.IndexFunc(list, func(r *run) bool { return r.trouble })]
	if err := r.read([]byte(strings.Replace(told, `"lost"`, `"efficiency_left": 0.9, "blocked": 2900, "lost"`, 1))); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunsAreWritten(t *testing.T) {
	b, err := encode([]*run{measured(t)})
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"name": "sqlite-50", "efficiency": 0.9612, "efficiency_list": 0.9663, "lost": 0.0, "failed": 0.0, "launched_twice": 0.0, "max_running": 50.0, "peak_mb": 95.4,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	for _, r := range []*run{measured(t), troubled(t)} {
		if err := r.check(); err != nil {
			t.Errorf("nothing is wrong: %v", err)
		}
	}
	for want, change := range map[string]func(*run){
		"sqlite-50: the efficiency is 0.9499, and is to be 0.95":                     func(r *run) { r.Efficiency = 0.9499 },
		"postgresql-50-trouble: the efficiency is 0.8799, and is to be 0.88":         func(r *run) { r.EfficiencyLeft = 0.8799 },
		"postgresql-50-trouble: 2899 of 10000 jobs were blocked, and 29 % are to be": func(r *run) { r.Blocked = 2899 },
		"sqlite-20-ssh: beside list scheduling it is 0.9663, and is to be 0.97": func(r *run) {
			r.Name, r.leastList = "sqlite-20-ssh", 0.97
		},
		"sqlite-50: 1 of 10000 jobs were lost":                        func(r *run) { r.Lost = 1 },
		"sqlite-50: 2 of 10000 jobs failed":                           func(r *run) { r.Failed = 2 },
		"sqlite-50: 3 programs were launched twice":                   func(r *run) { r.LaunchedTwice = 3 },
		"sqlite-50: 51 programs ran at once, and 50 may":              func(r *run) { r.MaxRunning = 51 },
		"sqlite-50: 1 of 10000 jobs were lost\nsqlite-50: 2 of 10000": func(r *run) { r.Lost, r.Failed = 1, 2 },
	} {
		r := measured(t)
		if strings.HasPrefix(want, "postgresql-50-trouble") {
			r = troubled(t)
		}
		change(r)
		if err := r.check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWhatTookTooLongIsAnError(t *testing.T) {
	slow := measured(t)
	slow.Lost = 1
	for _, tt := range []struct {
		list []*run
		took time.Duration
		want string
	}{
		{[]*run{measured(t), troubled(t)}, 18 * time.Minute, ""},
		{[]*run{measured(t), troubled(t)}, 19*time.Minute + 40*time.Second, "all of it took 19m40s, and is to be done within 18m0s: see that nothing else runs on this machine"},
		{[]*run{slow}, 18*time.Minute + time.Second, "sqlite-50: 1 of 10000 jobs were lost\nall of it took 18m1s"},
	} {
		got := ""
		if err := judge(tt.list, tt.took); err != nil {
			got = err.Error()
		}
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%v: got %q, want %q", tt.took, got, tt.want)
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	few, slow := measured(t), measured(t)
	few.title, few.few, slow.title, slow.few, slow.Makespan = "few", true, "slow", true, 100
	if err := table(&b, []*run{measured(t), troubled(t), few, slow}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		if line = strings.Join(strings.Fields(line), " "); !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| |") {
			got = append(got, line)
		}
	}
	want := []string{
		"| SQLite, speedup 50 | 0.961 | 0.95 | 0.966 | 40.0 s | 0 % | 0 | 0 | 0 | 50 | 95 MB |",
		"| PostgreSQL, speedup 50, with outages | 0.900 | 0.88 | 0.966 | 40.0 s | 29 % | 0 | 0 | 0 | 50 | 95 MB |",
		"",
		"| few | 40.0 s | 1.00 | 0.961 | 0.966 | 0 | 0 | 0 | 50 |",
		"| slow | 100.0 s | 2.50 | 0.961 | 0.966 | 0 | 0 | 0 | 50 |",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
}

func TestDrawing(t *testing.T) {
	list := runs()
	for _, r := range list {
		if err := r.read([]byte(told)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := draw(list)
	if err != nil {
		t.Fatal(err)
	}
	var paths, texts []string
	for dec := xml.NewDecoder(strings.NewReader(string(b))); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "d" {
					paths = append(paths, a.Value)
				}
			}
		case xml.CharData:
			texts = append(texts, string(e))
		}
	}
	want := "M0 110L87.5 82.5L262.5 0L437.5 2.2L612.5 44L700 110Z"
	if diff := cmp.Diff(slices.Repeat([]string{want}, len(list)), paths); diff != "" {
		t.Errorf("curves, want - got +:\n%s", diff)
	}
	for _, want := range []string{"SQLite, speedup 50: efficiency 0.961", "PostgreSQL, speedup 100: efficiency 0.961", "50", "40 s"} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing in %q", want, texts)
		}
	}
}

func TestTicks(t *testing.T) {
	for span, want := range map[float64]float64{0.5: 0.1, 7: 1, 12: 2, 105: 20, 211: 30, 400: 50, 900: 100} {
		if got := tick(span); got != want {
			t.Errorf("%g s: %g, want %g", span, got, want)
		}
	}
}
