// Command slowest runs go test with the arguments that it gets, prints what go test prints, and
// before the last line of all the ten tests that took longest: that is where time goes when the
// tests take too long.
//
// The time of a test is its own, without that of the tests in it.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/pawl-jobs/pawl"

func main() {
	code, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "slowest:", err)
	}
	os.Exit(code)
}

// run returns the exit code of go test.
func run(out io.Writer, args []string) (code int, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	told := tell(out, events)
	var failed *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &failed) {
		return max(1, failed.ExitCode()), told
	} else if err != nil {
		return 1, err
	}
	if told != nil {
		return 1, told
	}
	return 0, nil
}

// An event is a line that go test -json prints: see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// A report is what tests have said and how long they took.
type report struct {
	out      io.Writer
	packages map[string]*said
	took     map[string]float64 // seconds, by the name of a test with its package before it
	last     string             // of a package that passed; it is held back
	failed   bool
}

// said is what the tests of a package have said, but for those that have passed.
type said struct {
	order []string // tests, and "" for the package, as they began to speak
	by    map[string][]string
}

// tell reads the events of go test to their end, and prints what it prints without -json.
func tell(out io.Writer, events io.Reader) error {
	r := &report{out: out, packages: map[string]*said{}, took: map[string]float64{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			r.take(e)
		} else {
			fmt.Fprintf(r.out, "%s", line) // it is no event, so somebody shall see it
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	r.end()
	return nil
}

func (r *report) take(e event) {
	p := r.packages[e.Package]
	if p == nil {
		p = &said{by: map[string][]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if e.Test != "" && strings.HasPrefix(e.Output, "=== ") {
			return // that a test runs, waits or goes on
		}
		if p.by[e.Test] == nil {
			p.order = append(p.order, e.Test)
		}
		p.by[e.Test] = append(p.by[e.Test], e.Output)
	case "pass", "skip", "fail":
		if e.Test != "" {
			r.ended(e)
			return
		}
		delete(r.packages, e.Package)
		if e.Action == "fail" {
			r.failed = true
			fmt.Fprint(r.out, strings.Join(p.all(), ""))
			return
		}
		fmt.Fprint(r.out, r.last)
		if r.last = ""; len(p.by[""]) > 0 {
			r.last = p.by[""][len(p.by[""])-1]
		}
	}
}

// ended takes the time of a test, and forgets what it has said unless it failed.
func (r *report) ended(e event) {
	r.took[strings.TrimPrefix(e.Package, module+"/")+" "+e.Test] = e.Elapsed
	if e.Action != "fail" {
		delete(r.packages[e.Package].by, e.Test)
	}
}

// all is what is left to say: of each test, as they began to speak, and of the package in the end.
func (s *said) all() (lines []string) {
	for _, test := range s.order {
		if test != "" {
			lines = append(lines, s.by[test]...)
		}
	}
	return append(lines, s.by[""]...)
}

// end prints the slowest tests, and then what was held back.
func (r *report) end() {
	own := maps.Clone(r.took)
	for name, took := range r.took {
		for i := strings.LastIndex(name, "/"); i > strings.Index(name, " "); i = strings.LastIndex(name[:i], "/") {
			if _, found := own[name[:i]]; found {
				own[name[:i]] -= took
				break
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(own), func(a, b string) int {
		return cmp.Or(cmp.Compare(own[b], own[a]), strings.Compare(a, b))
	})
	fmt.Fprintln(r.out, "the slowest tests:")
	for _, name := range names[:min(10, len(names))] {
		fmt.Fprintf(r.out, "%8.2fs  %s\n", own[name], name)
	}
	fmt.Fprint(r.out, r.last)
	if r.failed {
		fmt.Fprintln(r.out, "FAIL")
	}
}
