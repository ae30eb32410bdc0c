// Package arch holds the import rules of the house, so that a test can hold the code to them.
//
// The tree is in layers, and imports go down:
//
//	cmd/pawl                          the program, a main function
//	internal/cli/… internal/bench/…   its commands
//	internal/node, examples/…         wiring: the code that knows the leaves
//	internal/proof/…                  programs and parts of tests; the product imports none of it
//	api client auth web notify        the faces, which reach jobs through package service
//	pawl, the module's root           the library: tasks as values; postgres and sqlite open it
//	service                           all that can be asked of jobs, for the library and the faces
//	app → recovery → engine, route    what moves jobs
//	schedule                          when jobs are due, and the duty that submits them
//	kinds                             what a kind of task says of all its jobs
//	claims                            what workers in any language claim and report
//	store broker runner → host → files the contracts, each with its suite beside it (store/storetest)
//	job, and below it                 the domain: job/turns, job/groups, job/why
//
// A leaf is a package below a contract, such as store/sqlite: one backend of it. Tests may import
// anything, and so may the packages that serve only tests. The product has no switches for tests:
// how it is without one of its guards stands in files *.mutants, which internal/proof/guards reads.
// When a rule has to change, it changes here, in the depguard rules of .golangci.yml, and in
// CONTRIBUTING.md.
package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Package is what `go list -json` says of a package, as far as the rules look.
type Package struct {
	ImportPath string
	Name       string
	Imports    []string // of the package itself, without its tests
}

// allowed lists, for the packages of this module that may import few others, which those are. A
// name stands for that package alone; "x/…" for all below x.
var allowed = map[string][]string{
	"job":        {},
	"job/turns":  {"job"},
	"job/groups": {"job"},
	"job/why":    {"job"},

	"files":  {"job"},
	"host":   {"job", "files"},
	"runner": {"job", "host", "files"},
	"store":  {"job", "job/…"},
	"broker": {"job"},

	"engine":   {"job", "store", "broker", "files", "host", "runner", "internal/…"},
	"recovery": {"job", "job/…", "store", "broker", "files", "host", "runner", "engine", "internal/…"},
	"app":      {"app/…", "job", "store", "broker", "files", "host", "runner", "engine", "recovery", "internal/…"},
	"route":    {"job", "store", "internal/…"},
	"schedule": {"job", "store", "broker", "engine", "internal/…"},
	"kinds":    {"job"},
	"claims":   {"job", "kinds", "store", "engine", "internal/…"},
	"service": {
		"job", "job/…", "kinds", "store", "broker", "files", "host", "runner", "engine", "recovery", "schedule",
		"claims", "service/internal/feed", "internal/…",
	},
	"":         {"job", "job/…", "kinds", "store", "broker", "engine", "recovery", "service", "internal/…"},
	"postgres": {"", "job", "store", "broker"},
	"sqlite":   {"", "job", "store", "broker"},
	"pawltest": {"", "job", "store", "broker"},

	"service/internal/feed": {"job", "store", "broker", "engine"},

	"auth": {"job"}, // who calls; jobs are looked up for it

	"internal/live":      {"job"}, // what it shows is handed to it
	"internal/config":    {"job", "internal/yamltree"},
	"internal/ingress":   {"job"},
	"internal/observe":   {"job", "job/…", "store", "broker"}, // it decorates contracts
	"internal/jobfolder": {"job", "files", "runner"},          // what a program may have left there
	"internal/readiness": {"store", "api", "internal/…"},      // it makes checks of api
}

var (
	contracts = []string{"files", "host", "runner", "store", "broker"}
	faces     = []string{"api", "client", "auth", "web", "notify"}

	// joined are the leaves that import others: a machine's files are a part of its host.
	joined = map[string][]string{"host/local": {"files/local"}, "host/ssh": {"files/sftp", "files/shell"}}

	// wiring puts the house together. Beside the sources it is the only code that knows the leaves.
	wiring = []string{"internal/node", "examples"}

	// sources are where an application's jobs may be: each opens the leaves that it has.
	sources = map[string][]string{
		"postgres": {"store/postgres", "broker/pgnotify"},
		"sqlite":   {"store/sqlite", "broker/local"},
		"pawltest": {"store/fake", "broker/local"},
	}

	// commands are the program pawl above that.
	commands = []string{"cmd/pawl", "internal/cli", "internal/bench"}

	// forTests are packages that only tests and test programs need. They may import anything.
	forTests = []string{"internal/proof", "internal/arch", "internal/bench/benchtest"}

	// badNames say nothing about what a package is for.
	badNames = []string{
		"common", "helper", "helpers", "manager", "managers", "misc", "model", "models", "shared", "util", "utils",
	}
)

// Check returns a sentence for each breach of the rules by the packages of a module, sorted.
func Check(module string, pkgs []Package) []string {
	var breaches []string
	for _, p := range pkgs {
		rel, own := within(module, p.ImportPath)
		if !own {
			continue
		}
		for _, what := range check(module, rel, p) {
			breaches = append(breaches, p.ImportPath+": "+what)
		}
	}
	slices.Sort(breaches)
	return breaches
}

func check(module, rel string, p Package) []string {
	var breaches []string
	breach := func(format string, args ...any) { breaches = append(breaches, fmt.Sprintf(format, args...)) }

	for _, name := range append(strings.Split(rel, "/"), p.Name) {
		if slices.Contains(badNames, name) {
			breach("%q says nothing: name the package after what it provides", name)
			break
		}
	}
	if !known(rel) {
		breach("it has no place in the house: give it one in internal/arch")
	}
	for _, imported := range p.Imports {
		to, own := within(module, imported)
		if !own {
			if below(rel, "job") && !standard(imported) {
				breach("imports %s, but %s imports only the standard library", imported, rel)
			}
			continue
		}
		if why := refusal(rel, to); why != "" {
			breach("imports %s, but %s", imported, why)
		}
	}
	return breaches
}

// refusal says why the package at from must not import the one at to, both relative to the module.
// It is empty when from may.
func refusal(from, to string) string {
	if below(from, forTests...) {
		return ""
	}
	switch {
	case below(to, forTests...) && !suite(from) && path.Base(from) != "fake":
		return "that is for tests only"
	case below(to, "cmd"), below(to, commands...) && !below(from, commands...), to == "internal/node" &&
		!below(from, commands...):
		return "a program is nobody's library"
	case suite(to) && !suite(from):
		return "that is a suite, for tests only"
	}

	if below(from, wiring...) {
		return ""
	}
	if leaf(to) {
		if below(from, backend(to)) {
			return "" // a leaf may have packages below it
		}
		if slices.Contains(joined[from], to) || slices.Contains(sources[from], to) {
			return ""
		}
		return "only " + wiring[0] + " knows the leaves"
	}

	if below(from, commands...) {
		return ""
	}
	if below(to, forTests...) {
		return ""
	}
	if list, ok := allowed[from]; ok {
		return notListed(title(from), to, list)
	}
	top, _, _ := strings.Cut(from, "/")
	switch {
	case slices.Contains(contracts, top): // a leaf, a suite, or what leaves share
		list := append([]string{top, top + "/…", "internal/…"}, allowed[top]...)
		for _, c := range allowed[top] {
			if slices.Contains(contracts, c) {
				list = append(list, c+"/"+c+"test")
			}
		}
		return notListed("a package below "+top, to, list)
	case allowed[top] != nil:
		return notListed("a package below "+top, to, append([]string{top, top + "/…"}, allowed[top]...))
	case slices.Contains(faces, top):
		if below(to, "broker", "runner", "host") {
			return "a face reaches jobs through package service"
		}
	case top == "internal":
		return notListed("a package of internal", to, []string{"job", "job/…", "store", "internal/…"})
	}
	return ""
}

// notListed is the refusal of a package that is not in list. The list is said in the order that it
// has.
func notListed(who, to string, list []string) string {
	for _, l := range list {
		if tree, ok := strings.CutSuffix(l, "/…"); l == to || ok && below(to, tree) {
			return ""
		}
	}
	if len(list) == 0 {
		return who + " imports only the standard library"
	}
	return who + " imports nothing of this module but " + strings.Join(list, ", ")
}

// known reports whether the house has a place for a package.
func known(rel string) bool {
	if rel == "cmd/pawl" || below(rel, wiring...) || below(rel, "internal") || below(rel, faces...) {
		return true
	}
	top, _, _ := strings.Cut(rel, "/")
	_, ok := allowed[top]
	return ok
}

// leaf reports whether a package is a backend of a contract. What several leaves share is in the
// internal folder of their contract, and is none.
func leaf(rel string) bool { return backend(rel) != "" && !suite(rel) }

// backend is the leaf that a package is or stands below: store/sqlite for store/sqlite/schema. It
// is empty for a package that is not below a contract.
func backend(rel string) string {
	parts := strings.Split(rel, "/")
	if len(parts) < 2 || !slices.Contains(contracts, parts[0]) || parts[1] == "internal" {
		return ""
	}
	return parts[0] + "/" + parts[1]
}

// suite reports whether a package is the suite of a contract, such as store/storetest.
func suite(rel string) bool {
	top, rest, _ := strings.Cut(rel, "/")
	return slices.Contains(contracts, top) && below(rest, top+"test")
}

// below reports whether a package is one of trees or stands below one.
func below(rel string, trees ...string) bool {
	for _, tree := range trees {
		if rel == tree || strings.HasPrefix(rel, tree+"/") {
			return true
		}
	}
	return false
}

// within returns a package's path relative to the module, "" for the module's root.
func within(module, path string) (rel string, own bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// standard reports whether an import path is the standard library's: the first part of any other
// has a dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func title(rel string) string {
	if rel == "" {
		return "package pawl"
	}
	return rel
}
