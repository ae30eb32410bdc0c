package pattern

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A Set is the patterns of an archive. It is for one goroutine that matches the paths of a tree.
type Set struct {
	Required         []Pattern
	include, exclude []Pattern
}

// Wants reports whether a file is archived.
func (s Set) Wants(name string) bool {
	return !s.Excludes(name) && (s.include == nil || fits(s.include, name))
}

// Excludes reports whether a file, or all of a folder, is left out by name.
func (s Set) Excludes(name string) bool { return fits(s.exclude, name) }

func fits(list []Pattern, name string) bool {
	return slices.ContainsFunc(list, func(p Pattern) bool { return p.Match(name) })
}

// Bounds of all patterns of an archive together. They bound the memory of the patterns, and the
// work for each byte of a path.
const (
	maxPatterns     = 1000
	maxPatternBytes = 64 << 10
	maxPatternWork  = 2 * maxWork
)

// Of reads the patterns of an archive.
func Of(a *job.Archive) (p Set, err error) {
	if p, err = read(a); err != nil {
		return p, err
	}
	for _, list := range [][]Pattern{p.include, p.exclude, p.Required} {
		for i := range list {
			if err := list[i].compile(); err != nil {
				return p, err
			}
			list[i].around = &folders{}
		}
	}
	return p, nil
}

// Check is Of without the costs of compiling the patterns. Its error is a [job.SpecError].
func Check(a *job.Archive) error {
	_, err := read(a)
	return err
}

func read(a *job.Archive) (p Set, err error) {
	var problems []job.Problem
	number, bytes := len(a.Include)+len(a.Exclude)+len(a.Required), 0
	for _, list := range [][]string{a.Include, a.Exclude, a.Required} {
		for _, text := range list {
			bytes += len(text)
		}
	}
	if number > maxPatterns || bytes > maxPatternBytes {
		return p, &job.SpecError{Problems: []job.Problem{{
			Path: "archive", Value: fmt.Sprintf("%d patterns of %d bytes", number, bytes),
			What:   "are too many patterns",
			Remedy: fmt.Sprintf("keep to %d of %d bytes, such as by folders or *", maxPatterns, maxPatternBytes),
		}}}
	}
	work := 0
	parse := func(field string, list []string) (all []Pattern) {
		for i, text := range list {
			one, err := check(text)
			if err != nil {
				why, _ := strings.CutPrefix(err.Error(), fmt.Sprintf("pattern %q ", text))
				what, remedy, _ := strings.Cut(why, ": ")
				problems = append(problems,
					job.Problem{Path: fmt.Sprintf("archive.%s[%d]", field, i), Value: text, What: what, Remedy: remedy})
			}
			all = append(all, one)
			work += one.work
		}
		return all
	}
	p.include, p.exclude, p.Required = parse("include", a.Include), parse("exclude", a.Exclude),
		parse("required", a.Required)
	if work > maxPatternWork {
		problems = append(problems, job.Problem{
			Path: "archive", What: "has patterns that are too much work for each file",
			Remedy: "write fewer of them, with fewer braces and repetitions",
		})
	}
	if problems != nil {
		return p, &job.SpecError{Problems: problems}
	}
	return p, nil
}

// folders is what a pattern remembers of the folders of the path that it matched last, the outer
// ones first. A match of a folder holds for everything in it, so only the last name of each path of
// a tree is new.
type folders struct{ last []folderMatch }

type folderMatch struct {
	dir     string
	matches bool
}

// match reports whether p matches a folder or one that it is in.
func (f *folders) match(p *Pattern, dir string) bool {
	if dir == "." || dir == "/" {
		return false
	}
	n := len(f.last)
	for n > 0 && dir != f.last[n-1].dir && !strings.HasPrefix(dir, f.last[n-1].dir+"/") {
		n--
	}
	f.last = f.last[:n]
	if n > 0 && dir == f.last[n-1].dir {
		return f.last[n-1].matches
	}
	matches := f.match(p, path.Dir(dir)) || p.names(dir)
	f.last = append(f.last, folderMatch{dir, matches})
	return matches
}
