package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	mostPackage = 3000 // lines of a package without its tests
	mostFile    = 600  // lines of a file
	mostColumns = 130  // bytes of a line
	mostComment = 100  // characters of a line of comment, in tests as well
	mostRoot    = 12   // files in the root that are no tests, and as many that are
	mostMain    = 200  // lines of cmd/pawl
)

// large are the packages that may have more lines than others, each with the reason.
var large = map[string]struct {
	lines  int
	reason string
}{
	"api":                  {4650, "one surface, whose operations, schemas and errors are one document"},
	"app":                  {6000, "the steps of a program share its folder, its notes and its watcher"},
	"engine":               {3500, "one file for each loop"},
	"internal/proof/sim":   {4500, "one world, whose parts are all simulated"},
	"internal/proof/storm": {5000, "one storm: its load, its faults and its checks"},
	"job":                  {8000, "the domain: the tables of states, and the language of requests and documents"},
	"service":              {5000, "one value, Service, with all that can be asked of it, and the handlers of tasks"},
	"store/fake":           {3200, "the whole contract in memory"},
	"store/postgres":       {9500, "one file for each noun, with its statements"},
	"store/sqlite":         {7000, "one file for each noun, with its statements"},
	"store/storetest":      {15000, "the suite of the largest contract"},
}

// short are the packages that may have fewer lines than others.
var short = map[string]int{
	"host/ssh":     1500, // a backend reads like a page of its contract
	"runner/slurm": 1200,
}

// TestSizes holds the house to a size in which one finds one's way.
func TestSizes(t *testing.T) {
	root := filepath.Join("..", "..")
	packages, files := map[string]int{}, map[bool]int{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(name, root), string(filepath.Separator)))
		if e.IsDir() && (strings.HasPrefix(e.Name(), ".") && rel != "" || e.Name() == "testdata") {
			return filepath.SkipDir
		}
		if e.IsDir() || path.Ext(rel) != ".go" {
			return nil
		}
		isTest := strings.HasSuffix(rel, "_test.go")
		if path.Dir(rel) == "." {
			files[isTest]++
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			line = bytes.TrimSuffix(line, []byte("\n"))
			long, most, what := len(line), mostColumns, "columns"
			if bytes.HasPrefix(bytes.TrimLeft(line, "\t"), []byte("// ")) {
				long, most, what = utf8.RuneCount(line), mostComment, "columns of comment"
			} else if isTest {
				continue
			}
			if long > most {
				t.Errorf("%s:%d has %d %s, %d is the most", rel, n, long, what, most)
			}
		}
		if isTest {
			return nil
		}
		lines := bytes.Count(text, []byte("\n"))
		packages[path.Dir(rel)] += lines
		if lines > mostFile {
			t.Errorf("%s has %d lines, %d is the most", rel, lines, mostFile)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, lines := range packages {
		most := mostPackage
		if l, ok := large[dir]; ok {
			most = l.lines
		} else if n, ok := short[dir]; ok {
			most = n
		}
		if lines > most {
			t.Errorf("%s has %d lines, %d is the most", dir, lines, most)
		}
	}
	for dir := range large {
		if packages[dir] <= mostPackage {
			t.Errorf("%s has %d lines: it needs no exception", dir, packages[dir])
		}
	}
	if packages["cmd/pawl"] > mostMain {
		t.Errorf("cmd/pawl has %d lines, %d is the most", packages["cmd/pawl"], mostMain)
	}
	for isTest, n := range files {
		if n > mostRoot {
			t.Errorf("the root has %d files (tests: %t), %d is the most", n, isTest, mostRoot)
		}
	}
}
