// Package guards builds Pawl so that a process can go without one of its guards.
//
// A guard is code that does nothing on most days: it refuses the write of a worker that was frozen,
// or takes up what a dead process has left. A test that sees all go well says nothing about it, so
// some test must notice when the guard is gone. The product has no switch for that. How it is
// without a guard stands in NAME.mutants, beside NAME.go, in blocks like this one:
//
//	guard: boot
//	holds: a process of another boot is dead
//	noticed by: ./host/local ^Test$
//	-- old --
//		if p.PID <= 1 || p.Boot != boot {
//	-- new --
//		if p.PID <= 1 || p.Boot != boot && !without("boot") {
//
// The lines of the old text are in NAME.go exactly once, and those of the new text replace them. A
// block may have several such edits. Edits of one file do not overlap: where two guards share
// lines, one new text asks for both.
//
// The new text calls the function without, which each package with edits gets. It knows the missing
// guard from the variable PAWL_WITHOUT, so that one build serves for all guards. In an expression,
// either(without("boot"), then, otherwise) is one of two texts, such as parts of SQL.
//
// A guard that stands in several files has a block in each. All of them say the same that holds.
// Any of them may say who notices: a package, and its tests, as the flag -run takes them. Each such
// line must notice by itself.
package guards

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Guard has a name, and somebody who notices when it is gone.
type Guard struct {
	Name      string
	Holds     string  // because of it
	NoticedBy []Tests // when it is gone
}

// Tests are some of a package.
type Tests struct {
	Package string // such as "./host/local"
	Run     string
}

// A Set has the guards of a module.
type Set struct {
	Guards []Guard // in the order of files, and within them as they are written
	root   string
	edits  map[string][]edit // by the file of Go that they are of, as an absolute name
}

// An edit replaces lines.
type edit struct {
	at       string // file and line of the old text
	old, new string
}

// Read reads the guards of the module in a folder.
func Read(root string) (*Set, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	s := &Set{root: root, edits: map[string][]edit{}}
	var wrong []error
	err = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name != root && strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata"):
			return filepath.SkipDir
		case !e.IsDir() && filepath.Ext(name) == ".mutants":
			wrong = append(wrong, s.read(name))
		}
		return nil
	})
	return s, errors.Join(err, errors.Join(wrong...), s.check())
}

// Packages are those that have edits, such as "./host/local".
func (s *Set) Packages() []string {
	all := map[string]bool{}
	for name := range s.edits {
		rel, _ := filepath.Rel(s.root, filepath.Dir(name)) // both are absolute
		all["./"+filepath.ToSlash(rel)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// asked finds the guards that a text asks for.
var asked = regexp.MustCompile(`\bwithout\("([^"]*)"\)`)

// check says what is wrong with the guards as a whole.
func (s *Set) check() error {
	var wrong []error
	missing := map[string]bool{}
	for _, g := range s.Guards {
		missing[g.Name] = true
		if g.Holds == "" || len(g.NoticedBy) == 0 {
			wrong = append(wrong, fmt.Errorf("guard %s: it holds %q and is noticed by %v", g.Name, g.Holds,
				g.NoticedBy))
		}
	}
	known := maps.Clone(missing)
	for _, edits := range s.edits {
		for _, e := range edits {
			for _, m := range asked.FindAllStringSubmatch(e.new, -1) {
				if !known[m[1]] {
					wrong = append(wrong, fmt.Errorf("%s: %q is no guard", e.at, m[1]))
				}
				delete(missing, m[1])
			}
		}
	}
	for name := range missing {
		wrong = append(wrong, fmt.Errorf("guard %s: no new text asks without(%q)", name, name))
	}
	return errors.Join(wrong...)
}

// read reads a file of blocks.
func (s *Set) read(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	shown, err := filepath.Rel(s.root, name)
	if err != nil {
		return err
	}
	source := strings.TrimSuffix(name, ".mutants") + ".go"
	var (
		g    *Guard  // of the block
		last *edit   // of the block
		into *string // what lines are added to; nil: the head of a block
	)
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		at := fmt.Sprintf("%s:%d", shown, i+1)
		word, rest, _ := strings.Cut(line, ": ")
		switch {
		case word == "guard" && rest != "":
			g, last, into = s.guard(rest), nil, nil
		case g == nil:
			return fmt.Errorf("%s: a block begins with %q, and not with %q", at, "guard: NAME", line)
		case line == "-- old --":
			s.edits[source] = append(s.edits[source], edit{at: at})
			last = &s.edits[source][len(s.edits[source])-1]
			into = &last.old
		case line == "-- new --" && last != nil && into == &last.old:
			into = &last.new
		case into != nil:
			*into += line + "\n"
		case word == "holds" && (g.Holds == "" || g.Holds == rest):
			g.Holds = rest
		case word == "noticed by":
			t, err := parse(rest)
			if err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			if !slices.Contains(g.NoticedBy, t) {
				g.NoticedBy = append(g.NoticedBy, t)
			}
		default:
			return fmt.Errorf("%s: %q is no line of a block, or another block of %s says otherwise", at, line, g.Name)
		}
	}
	for i := range s.edits[source] {
		e := &s.edits[source][i]
		e.old, e.new = trim(e.old), trim(e.new)
	}
	return nil
}

// parse reads who notices.
func parse(text string) (Tests, error) {
	pkg, run, _ := strings.Cut(text, " ")
	if pkg != "." && !strings.HasPrefix(pkg, "./") || run == "" {
		return Tests{}, fmt.Errorf("noticed by %q: name a package and its tests, as in %q", text, "./host/local ^Test$")
	}
	if _, err := regexp.Compile(run); err != nil {
		return Tests{}, fmt.Errorf("noticed by %q: %w", text, err)
	}
	return Tests{pkg, run}, nil
}

// trim takes the blank lines off that part a text from the next block.
func trim(text string) string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return ""
	}
	return text + "\n"
}

// guard returns the guard with a name, which may be new.
func (s *Set) guard(name string) *Guard {
	i := slices.IndexFunc(s.Guards, func(g Guard) bool { return g.Name == name })
	if i < 0 {
		i = len(s.Guards)
		s.Guards = append(s.Guards, Guard{Name: name})
	}
	return &s.Guards[i]
}
