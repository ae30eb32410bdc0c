package store_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func TestSQL(t *testing.T) {
	text := "UPDATE jobs SET custody = {Ready}, ties = ties & ~{TieTurn} WHERE limits <> '{}' AND a = '{a,b}'"
	want := "UPDATE jobs SET custody = 'ready', ties = ties & ~32 WHERE limits <> '{}' AND a = '{a,b}'"
	if got := store.SQL(text); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name that is not known stays in a statement")
		}
	}()
	store.SQL("state = {Sleeping}")
}

// Each name has the value of the constant of package job that is called so, and every state,
// custody, lane and tie has its name.
func TestConstants(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sources(t, "../job") {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	// What the package imports is not looked at: no constant is made of that.
	pkg, _ := (&types.Config{Error: func(error) {}}).Check("job", fset, files, nil)
	want := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		value := c.Val().ExactString()
		if c.Val().Kind() == constant.String {
			value = "'" + constant.StringVal(c.Val()) + "'"
		}
		_, there := store.Constants[name]
		switch c.Type().String() {
		case "job.State", "job.Custody", "job.Lane", "job.Ties":
			there = true
		}
		if there {
			want[name] = value
		}
	}
	if diff := cmp.Diff(want, store.Constants); diff != "" {
		t.Error(diff)
	}
}

// Package job says how states, custodies and ties are written. Statements name them.
func TestStatementsNameConstants(t *testing.T) {
	for _, literal := range []string{
		"custody = 'ready'", "state IN ('WAITING', x)", "SELECT 'FINISHED'", "IN (x,'none')",
		"j.ties & 8 <> 0", "j.ties&8", "ties IN (0, 40)", "j.ties & ~7 = 8", "ties = j.ties | 32", "ties & (8 | 32)",
		"ties = 8", "coalesce(g.ties, 0)` + where(` | CASE WHEN g.ordered IS NOT NULL\nTHEN 256 END",
		"ties & CASE WHEN a THEN {TieTurn} ELSE 32 END",
	} {
		if literals(literal) == nil {
			t.Errorf("%s is not found", literal)
		}
	}
	for _, fine := range []string{
		"custody = {Ready}", "j.ties & {TieKept} <> 0", "ties <> 0", "ties IN (0, {TieTurn})", "j.ties & $2::int = 0",
		"ties = ?", "'user'",
	} {
		if found := literals(fine); found != nil {
			t.Errorf("%s is found in %s", found, fine)
		}
	}
	for _, name := range append(sources(t, "postgres"), sources(t, "sqlite")...) {
		for _, found := range literals(read(t, name)) {
			t.Errorf("%s: %s: write it as store.SQL has it", name, found)
		}
	}
}

// literals finds states, custodies and ties in a text that are not named.
func literals(text string) (found []string) {
	for _, word := range words.FindAllString(text, -1) {
		name := strings.Trim(word, "'")
		// A user is a principal, too.
		if name != string(job.User) && slices.Contains(job.Custodies, job.Custody(name)) ||
			slices.Contains(job.States, job.State(name)) {
			found = append(found, word)
		}
	}
	return append(found, bits.FindAllString(text, -1)...)
}

var (
	words = regexp.MustCompile(`'\w+'`)
	bits  = regexp.MustCompile(`(?s)\bties,? *(0\)` + "`" + ` \+ where\(` + "`" + ` )?([&|]|IN|=) *~?\(?(0, )?[1-9]` +
		`|\bties[^;]{0,50}[&|] CASE[^;]{0,200}?(THEN|ELSE) [1-9]`)
)

// copied is the statement of Submit in the migration, which a test of store/postgres holds to that
// of the code.
var copied = regexp.MustCompile(`(?s)\$insert\$.*\$insert\$`)

// A migration is a file of text. What its indexes say of states, custodies and ties is what package
// job says now.
func TestMigrationsNameConstants(t *testing.T) {
	for dir, indexes := range map[string]map[string]string{
		"postgres": {
			"jobs_ready":   "custody = {Ready}",
			"jobs_due":     "custody = {Gate} AND due IS NOT NULL",
			"jobs_gate":    "custody || '' = {Gate}",
			"jobs_needs":   "custody = {Gate} AND needs <> 0",
			"jobs_monitor": "custody = {Monitor}",
			"jobs_wished":  "custody = {Monitor} AND wish <> ''",
			"jobs_state":   "coalesce(custody, '') <> {Worker}",
			"jobs_kept":    "line IS NOT NULL AND ties & {TieKept} <> 0",
			"jobs_group":   "custody = {Recovery}",
			"jobs_blocked": "custody = {Recovery}",
			"jobs_until":   "custody = {Recovery} AND until IS NOT NULL",
		},
		"sqlite": {
			"jobs_ready":   "custody = {Ready}",
			"jobs_due":     "custody = {Gate} AND due IS NOT NULL",
			"jobs_monitor": "custody = {Monitor}",
			"jobs_needs":   "custody = {Gate} AND needs <> 0",
			"jobs_wished":  "custody = {Monitor} AND wish <> ''",
			"jobs_gate":    "custody = {Gate}",
			"jobs_kept":    "line <> '' AND ties & {TieKept} <> 0",
		},
	} {
		names, err := filepath.Glob(filepath.Join(dir, "migrations", "*.sql"))
		if err != nil || len(names) == 0 {
			t.Fatalf("no migrations of %s: %v", dir, err)
		}
		for _, name := range names {
			text := conditions.ReplaceAllStringFunc(read(t, name), func(index string) string {
				m := conditions.FindStringSubmatch(index)
				if want, there := indexes[m[1]]; !there || m[2] != store.SQL(want) {
					return index
				}
				delete(indexes, m[1])
				return ""
			})
			for _, found := range literals(copied.ReplaceAllString(text, "")) {
				t.Errorf("%s: %s: say here which constant of package job that is", name, found)
			}
		}
		for _, index := range slices.Sorted(maps.Keys(indexes)) {
			t.Errorf("%s: index %s does not say %s", dir, index, store.SQL(indexes[index]))
		}
	}
}

var conditions = regexp.MustCompile(`CREATE INDEX (\w+)\s[^;]*?\sWHERE ([^;]*);`)

// sources are the names of the Go files in a folder that are no tests.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// One file of each store has all SQL that writes history, and all that moves a job.
func TestHistoryIsWrittenInOneFile(t *testing.T) {
	for _, text := range []string{
		"INSERT INTO pawl.events (job) SELECT", "insert into ended", "INSERT OR FAIL INTO events (n)",
		"INSERT INTO pawl.jobs AS j (id)", "DELETE FROM pawl.jobs j WHERE j.id",
		"UPDATE pawl.jobs j SET due = NULL,\n\tcustody = 'x' WHERE", "UPDATE jobs SET n = n + 1",
		"UPDATE pawl.jobs j SET ties = CASE WHEN j.n = 1 THEN 2 END, epoch = 3 FROM x",
	} {
		if len(moves(text)) == 0 {
			t.Errorf("%s is not found", text)
		}
	}
	for _, text := range []string{
		"INSERT INTO pawl.specs (id)", "SELECT FROM pawl.events e", "DELETE FROM pawl.ended e WHERE",
		"DELETE FROM jobs WHERE seq = ?",
		"UPDATE pawl.jobs j SET due = NULL WHERE j.n = 1",
		"UPDATE pawl.jobs j SET ties = $1 FROM x WHERE custody = 'x'",
		"UPDATE jobs SET line = ?, since = ? WHERE seq = ? AND state = ?",
	} {
		if found := moves(text); len(found) > 0 {
			t.Errorf("%s is found in %s", found, text)
		}
	}
	for dir, file := range map[string]string{"postgres": "history.go", "sqlite": "changes.go"} {
		for _, name := range sources(t, dir) {
			found := moves(read(t, name))
			if filepath.Base(name) == file {
				if len(found) == 0 {
					t.Errorf("%s writes no history", name)
				}
				continue
			}
			for _, statement := range found {
				t.Errorf("%s: %s: write it in %s", name, statement, file)
			}
		}
	}
}

// moves finds in a text what writes history, makes a job, or sets its place. What removes jobs that
// are kept no longer is none of it.
func moves(text string) (found []string) {
	found = writes.FindAllString(text, -1)
	for _, update := range updates.FindAllString(text, -1) {
		set, _, _ := strings.Cut(update, "WHERE")
		if place.MatchString(set) {
			found = append(found, update)
		}
	}
	return found
}

var (
	writes = regexp.MustCompile(`(?i)\bINTO (pawl\.)?(events|ended|jobs)\b|\bDELETE FROM pawl\.jobs\b`)
	// The first column, and those that follow a comma.
	place   = regexp.MustCompile(`(SET|,)\s+(state|custody|epoch|n) = `)
	updates = regexp.MustCompile(`(?s)\bUPDATE (pawl\.)?jobs\b[^;]*?(WHERE|$)`)
)
