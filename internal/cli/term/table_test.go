package term

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

func TestTable(t *testing.T) {
	id, err := job.ParseID("01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77")
	if err != nil {
		t.Fatal(err)
	}
	rows := [][]any{
		{id, "short", Cell{Text: "FAILED", color: "31"}, "x", "why\nnot"},
		{id, strings.Repeat("name ", 25), "FINISHED", "y", strings.Repeat("日本", 40)},
		{id, "\x1b]0;t\ax\u202e", "", "", ""},
	}
	draw := func(width int) string {
		var b bytes.Buffer
		tab := NewTable(&b, false, Column{Title: "ID"}, Column{Title: "NAME", Least: 12}, Column{Title: "STATE"},
			Column{Title: "SPARE", Spare: 1}, Column{Title: "WHY", Least: 16})
		tab.width = width
		for _, r := range rows {
			tab.Row(r...)
		}
		if err := tab.Flush(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for width := 1; width < 300; width++ {
		got := draw(width)
		if n := strings.Count(got, "\n"); n != 4 {
			t.Errorf("%d lines at %d", n, width)
		}
		for line := range strings.Lines(got) {
			line = strings.TrimSuffix(line, "\n")
			if w := live.Width(line); w > max(width, 4*leastShown+6) { // four columns that cannot be spared
				t.Errorf("%d cells at %d: %s", w, width, line)
			}
			if strings.Contains(line, "\x1b]") || strings.Contains(line, "\u202e") {
				t.Errorf("%q", line)
			}
		}
		if has := strings.Contains(got, id.String()); has != (width >= WideTerminal) {
			t.Errorf("at %d the whole id is there: %t", width, has)
		}
		if !strings.Contains(got, id.Short()) && width >= 50 {
			t.Errorf("no id at %d:\n%s", width, got)
		}
	}
	if got := draw(0); !strings.Contains(got, id.String()) || !strings.Contains(got, strings.Repeat("日本", 40)) ||
		!strings.Contains(got, `why\nnot`) {
		t.Errorf("with any width:\n%s", got)
	}
	const want = "ID        NAME             STATE     SPARE  WHY\n8a3e1b77  short            " +
		"\x1b[31mFAILED\x1b[0m    x      why\\nnot\n"
	if got := draw(60); !strings.HasPrefix(got, want) {
		t.Errorf("at 60:\n%s", got)
	}
}

// A column that folds loses nothing, and the others are blank beside what goes on.
func TestTableFolds(t *testing.T) {
	for width, want := range map[int]string{
		0:  "port  integer  The port of its SSH server; 22 by default.\n",
		80: "port  integer  The port of its SSH server; 22 by default.\n",
		40: "port  integer  The port of its SSH\n               server; 22 by default.\n",
	} {
		var b bytes.Buffer
		tab := NewTable(&b, false, Column{}, Column{}, Column{Least: 10, Fold: true})
		tab.width = width
		tab.Row("port", "integer", "The port of its SSH server; 22 by default.")
		if err := tab.Flush(); err != nil || b.String() != want {
			t.Errorf("at %d:\n%s, %v, want\n%s", width, b.String(), err, want)
		}
	}
}
