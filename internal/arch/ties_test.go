package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bits finds ties of jobs that SQL has as numbers.
var bits = regexp.MustCompile(`(?s)\bties,? *(0\)` + "`" + ` \+ where\(` + "`" + ` )?([&|]|IN|=) *~?\(?(0, )?[1-9]|\bties[^;]{0,50}[&|] CASE[^;]{0,200}?(THEN|ELSE) [1-9]`)

// TestTiesHaveNames: package job says what each bit of the ties of a job means, and SQL has them from there.
func TestTiesHaveNames(t *testing.T) {
	for _, literal := range []string{
		"j.ties & 8 <> 0", "j.ties&8", "ties IN (0, 40)", "j.ties & ~7 = 8", "ties = j.ties | 32", "ties & (8 | 32)", "ties = 8",
		"coalesce(g.ties, 0)` + where(` | CASE WHEN g.ordered IS NOT NULL\nTHEN 256 END", "ties & CASE WHEN a THEN ` + x + ` ELSE 32 END",
	} {
		if !bits.MatchString(literal) {
			t.Errorf("%s is not found", literal)
		}
	}
	for _, fine := range []string{"j.ties & ` + tieKept + ` <> 0", "ties <> 0", "ties IN (0, `+tieTurn+`)", "j.ties & $2::int = 0", "ties = ?"} {
		if bits.MatchString(fine) {
			t.Errorf("%s is found", fine)
		}
	}
	for _, dir := range []string{"postgres", "sqlite"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "store", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in store/%s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range bits.FindAllIndex(text, -1) {
				t.Errorf("%s: %q: write the bit as ties.go has it", name, text[at[0]:at[1]])
			}
		}
	}
}
