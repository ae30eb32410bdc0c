package guards

import (
	"cmp"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/overlay"
)

// asking is added to each package with edits. A process of pawl refuses variables PAWL_… that are
// no settings, so it is told by STORM_WITHOUT.
const asking = `package %s

import (
	"cmp"
	"os"
)

var missingGuard = cmp.Or(os.Getenv("PAWL_WITHOUT"), os.Getenv("STORM_WITHOUT"))

func without(guard string) bool { return guard == missingGuard }

func either(gone bool, then, otherwise string) string {
	if gone {
		return then
	}
	return otherwise
}
`

// Without has the go command build what can go without a guard of the module in a folder.
func Without(root, guard, dir string) (overlay.Files, error) {
	s, err := Read(root)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(s.Guards, func(g Guard) bool { return g.Name == guard }) {
		return nil, fmt.Errorf("there is no guard %q: a block of a file *.mutants begins with it", guard)
	}
	return s.Overlay(dir)
}

// Overlay has the go command build with all edits. The files that it then reads are written into a
// folder.
func (s *Set) Overlay(dir string) (overlay.Files, error) {
	files := overlay.Files{}
	for name, edits := range s.edits {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		edited, err := apply(string(text), edits)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := files.Add(dir, name, edited); err != nil {
			return nil, err
		}
		head, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		added := filepath.Join(filepath.Dir(name), "without.go")
		if _, err := os.Lstat(added); err == nil {
			return nil, fmt.Errorf("%s is there already: give it another name", added)
		}
		if err := files.Add(dir, added, fmt.Sprintf(asking, head.Name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// apply returns a text with all edits.
func apply(text string, edits []edit) (string, error) {
	type place struct {
		edit
		begins, ends int
	}
	var (
		places []place
		wrong  []error
		lines  = "\n" + text // so that each line begins after another
	)
	for _, e := range edits {
		old := "\n" + e.old
		if e.old == "" {
			wrong = append(wrong, fmt.Errorf("%s: its old text is empty", e.at))
			continue
		}
		if n := strings.Count(lines, old); n != 1 {
			wrong = append(wrong, fmt.Errorf("%s: its old text is there %d times", e.at, n))
			continue
		}
		begins := strings.Index(lines, old)
		places = append(places, place{e, begins, begins + len(e.old)})
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.begins, b.begins) })
	var edited strings.Builder
	done := 0
	for _, p := range places {
		if p.begins < done {
			wrong = append(wrong, fmt.Errorf("%s: it overlaps with another edit", p.at))
			continue
		}
		edited.WriteString(text[done:p.begins] + p.new)
		done = p.ends
	}
	edited.WriteString(text[done:])
	return edited.String(), errors.Join(wrong...)
}
