package job_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

func TestStatesDoc(t *testing.T) {
	const golden = "../docs/states.md"
	got := statesDoc(t)
	if *update {
		if err := os.MkdirAll("../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/states.md is not what the tables say (-file +tables); go test ./job -update writes it:\n%s", diff)
	}
}

// statesDoc writes docs/states.md from the tables of package job and the comments of its constants.
func statesDoc(t *testing.T) []byte {
	says := constants(t, "state.go")
	var b bytes.Buffer
	fmt.Fprintf(&b, `<!-- Made by go test ./job -update from the tables in job/state.go and job/code.go. Do not edit. -->

# States

Two columns of a job's row say where it stands. Its **state** says how far it has come in its life.
Its **custody** says who is responsible for it now. A job is in exactly one custody at a time, and
every custody has something that moves the job on.

A **place** is a state in a custody. Every change takes a job from one place to another, along the
edges below and no others, and is a row of the job's history. Each change of custody raises the
job's **epoch**, and a write under an older epoch is refused. [words.md](words.md) has the other words.

## A life

%s
The first line is the life of a program, the second that of a task, which has nothing to stage. The other ways:

%s
`, fence("", lifeLines(t)), fence("mermaid", diagram(t)))

	b.WriteString("## What is done in each state\n\n| state | what is done | what moves the job on |\n|---|---|---|\n")
	for _, s := range job.States {
		what, who := twoParts(t, says[string(s)])
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s, what, who)
	}

	b.WriteString("\n## Custodies\n\n| custody | who holds the job | what moves it on |\n|---|---|---|\n")
	for _, c := range job.Custodies {
		what, who := twoParts(t, says[string(c)])
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c, what, who)
	}

	b.WriteString("\n## Places\n\nA state and a custody make a legal place where there is a dot.\n\n| |")
	for _, c := range job.Custodies {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", len(job.Custodies)) + "\n")
	for _, s := range job.States {
		fmt.Fprintf(&b, "| `%s` |", s)
		for _, c := range job.Custodies {
			fmt.Fprintf(&b, " %s |", dot(job.Place{State: s, Custody: c}.Legal()))
		}
		b.WriteByte('\n')
	}

	b.WriteString(`
## Edges

A job may go from the state of a row to the state of a column where there is a dot. A dot on the
diagonal is a change of custody, or something that is recorded on the way.

| |`)
	for _, s := range job.States {
		fmt.Fprintf(&b, " %s |", strings.ReplaceAll(string(s), "_", " "))
	}
	b.WriteString("\n|---|" + strings.Repeat(":-:|", len(job.States)) + "\n")
	for _, from := range job.States {
		fmt.Fprintf(&b, "| `%s` |", from)
		for _, to := range job.States {
			fmt.Fprintf(&b, " %s |", dot(job.Edge(from, to)))
		}
		b.WriteByte('\n')
	}

	b.WriteString(`
## Condition codes

A code says why a job ended, or what blocks it. The list is closed. A recoverable condition may
clear by itself: it blocks the job, and ends it only when it does not clear in time.
[Recovery](operations/recovery.md) says how to help jobs that are blocked.

| code | raised by | recoverable | what to do |
|---|---|:-:|---|
`)
	for _, c := range job.Codes {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Code, c.Raised, dot(c.Recoverable), c.Remedy)
	}
	return b.Bytes()
}

func fence(language, text string) string { return "```" + language + "\n" + text + "```\n" }

func dot(yes bool) string {
	if yes {
		return "●"
	}
	return ""
}

// twoParts splits a comment into its first sentence and the rest, without final stops.
func twoParts(t *testing.T, comment string) (string, string) {
	first, rest, ok := strings.Cut(strings.TrimSuffix(comment, "."), ". ")
	if !ok {
		t.Fatalf("the comment %q has one part, want two sentences", comment)
	}
	return first, strings.ToLower(rest[:1]) + rest[1:]
}

// constants returns the string constants of a file with the comments above and behind them.
func constants(t *testing.T, file string) map[string]string {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{}
	for _, d := range tree.Decls {
		consts, ok := d.(*ast.GenDecl)
		if !ok || consts.Tok != token.CONST {
			continue
		}
		for _, s := range consts.Specs {
			c := s.(*ast.ValueSpec)
			if v, ok := c.Values[0].(*ast.BasicLit); ok {
				// A long comment stands above its constant.
				says[strings.Trim(v.Value, `"`)] = strings.Join(strings.Fields(c.Doc.Text()+c.Comment.Text()), " ")
			}
		}
	}
	return says
}

// lifeLines draws the life of a program, and under it that of a task, which leaves out what it has
// no need of.
func lifeLines(t *testing.T) string {
	program := []job.State{
		job.Waiting, job.Pending, job.ProcessingInputs, job.StagingInputs, job.StagingJob, job.SubmittingJob,
		job.Queued, job.Running, job.Archiving, job.Finished,
	}
	task := []job.State{job.Waiting, job.Pending, job.Running, job.Finished}
	for _, life := range [][]job.State{program, task} {
		for i, s := range life[1:] {
			if !job.Edge(life[i], s) {
				t.Errorf("the life line goes from %s to %s, and there is no such edge", life[i], s)
			}
		}
	}
	var upper, lower strings.Builder
	for i, s := range program {
		if i > 0 {
			upper.WriteString(" ─► ")
		}
		if slices.Contains(task, s) {
			if i > 0 {
				gap := utf8.RuneCountInString(upper.String()) - utf8.RuneCountInString(lower.String()) - len(" > ")
				lower.WriteString(" " + strings.Repeat("─", gap) + "► ")
			}
			lower.WriteString(string(s))
		}
		upper.WriteString(string(s))
	}
	return upper.String() + "\n" + lower.String() + "\n"
}

// diagram draws the edges as a Mermaid diagram. An edge that all states of a class have is drawn
// once, from the class.
func diagram(t *testing.T) string {
	why := map[[2]job.State]string{
		{job.Pending, job.Running}:         "a task",
		{job.Pending, job.Waiting}:         "a limit was set",
		{job.SubmittingJob, job.Running}:   "started at once",
		{job.SubmittingJob, job.Archiving}: "ended before its start was seen",
		{job.Queued, job.SubmittingJob}:    "the scheduler has forgotten it before it began",
		{job.Queued, job.Archiving}:        "ended before its start was seen",
		{job.Running, job.Queued}:          "the scheduler runs it again",
		{job.Running, job.Finished}:        "a task",
	}
	var b strings.Builder
	draw := func(indent string, from, to job.State) {
		fmt.Fprintf(&b, "%s%s --> %s", indent, from, to)
		if w := why[[2]job.State{from, to}]; w != "" {
			fmt.Fprintf(&b, " : %s", w)
		}
		b.WriteByte('\n')
		delete(why, [2]job.State{from, to})
	}
	// Every edge from a class is one that each state of the class has.
	all := func(class func(job.State) bool, to ...job.State) {
		for _, from := range job.States {
			for _, to := range to {
				if class(from) && from != to && !job.Edge(from, to) {
					t.Errorf("the diagram has an edge from %s to %s, and the table has not", from, to)
				}
			}
		}
	}
	alive := func(s job.State) bool { return !s.Terminal() }
	fromWork := []job.State{job.Waiting, job.Pending, job.Blocked}
	fromAny := []job.State{job.Paused, job.Failed, job.Canceled}
	all(job.State.Working, fromWork...)
	all(alive, fromAny...)

	b.WriteString("stateDiagram-v2\n    [*] --> WAITING\n    [*] --> PENDING\n    state \"working\" as working {\n")
	for _, from := range job.States {
		for _, to := range job.Edges(from) {
			if from.Working() && to.Working() && from != to {
				draw("        ", from, to)
			}
		}
	}
	b.WriteString("    }\n")
	for _, from := range job.States {
		for _, to := range job.Edges(from) {
			switch {
			case from == to, from.Working() && to.Working(): // nothing moves; drawn above
			case from.Working() && slices.Contains(fromWork, to), slices.Contains(fromAny, to): // drawn below
			case from == job.Blocked || from == job.Paused: // to resume
				if !job.Resumable(to) {
					t.Errorf("the diagram leaves out the edge from %s to %s", from, to)
				}
			default:
				draw("    ", from, to)
			}
		}
	}
	b.WriteString(`    working --> WAITING : retry, snooze
    working --> PENDING : retry, interrupted
    working --> BLOCKED : a condition that may clear
    BLOCKED --> working : its resume state
    BLOCKED --> PENDING : a task
    state "any state that is not terminal" as any
    any --> PAUSED
    PAUSED --> any : its resume state
    any --> FAILED
    any --> CANCELED
    FINISHED --> [*]
    FAILED --> [*]
    CANCELED --> [*]
`)
	for edge := range why {
		t.Errorf("the diagram explains an edge from %s to %s, and does not draw it", edge[0], edge[1])
	}
	return b.String()
}
