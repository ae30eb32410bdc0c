// Package jobfile reads the files that describe jobs, in YAML or JSON, and says all that is wrong
// in them. It has the commands init, validate and explain, and makes a job of a command that stands
// behind --.
package jobfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// Limits of a job file. They are part of the interface.
const (
	MaxFile = 64 << 20 // bytes
	maxJobs = 10_000
)

// mostFaults is how many faults of a file are said one by one.
const mostFaults = 20

// Rule says what a job file holds.
const Rule = `FILE is YAML or JSON: one job; or several documents, each one job; or one document with jobs: [...] and,
for what they share, defaults: {...}. Under each job lie the defaults: maps, such as env and labels,
are merged key by key, at every depth; everything else is replaced, lists too; null takes a default
away. A name in defaults gets the number of the job in the file (sim-1, sim-2, ...) where a job has
none of its own. Relative paths (inputs[].from, archive.to) are relative to the folder of the file,
and ~/ is your home folder there. In command, arguments, launch, env and labels numbers and truth
values are the texts that stand there; an empty value, ~ and null are none, unless they stand in
quotes. A file has at most 64 MiB and 10,000 jobs, a job 2 MiB. FILE - is standard input, and paths
are then relative to the working folder. A server on another machine knows nothing of this folder:
the paths in a file for it are absolute ones on its machine. See pawl init for all fields.`

// A File is the jobs that a file describes.
type File struct {
	Path string // absolute
	Sum  string // of the path and the bytes of the file, in hex
	Jobs []Entry
}

// An Entry is one job of a file.
type Entry struct {
	spec  job.Spec
	Given json.RawMessage // the spec with defaults and absolute paths, as JSON
}

// An item is one job of a file as it is written.
type item struct {
	label string // "job 3 of 20 (name)"; empty where the file is one job
	doc   json.RawMessage
}

// Use says what a job file is read for. The zero value is for programs on this machine.
type Use struct {
	Away  bool // the jobs run on another machine
	Here  bool // the jobs run where this process does: where something is wrong, what they lack here is named, too
	Tasks bool // they may be tasks, which the service hands to a program that handles them
}

// Read reads a job file; see [Rule]. Its error, a [term.UsageError], names everything that is
// wrong.
func Read(ctx context.Context, name string, use Use) (File, error) {
	path, content, err := ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "./") {
		return File{}, term.Usagef("job file: %w: give a file, or a command behind --, as in -- %s", err, name)
	}
	if errors.Is(err, syscall.EISDIR) {
		return File{}, term.Usagef("job file: %w: give a file, such as %s", err, filepath.Join(name, "job.yaml"))
	}
	if err != nil {
		return File{}, term.Usagef("job file: %w", err)
	}
	wrong := func(err error) (File, error) {
		return File{}, term.Usagef("job file %s %w", name, err)
	}
	if len(content) > MaxFile {
		return wrong(fmt.Errorf("is larger than %d bytes: pass large data as inputs, or make several files of it",
			MaxFile))
	}
	docs, err := YAMLDocuments(content)
	if asked, script := bytes.CutPrefix(content, []byte("#!")); script && (err != nil || docs[0][0] == '"') &&
		!bytes.Contains(bytes.SplitN(asked, []byte("\n"), 2)[0], []byte("pawl")) {
		return wrong(fmt.Errorf("is a script: give it behind --, as in --here -- %s, or write it below script: | "+
			"in a job file", path))
	}
	if err != nil {
		return wrong(err)
	}
	var faults Faults
	items := itemsOf(docs, &faults)
	if len(items) > maxJobs {
		return wrong(fmt.Errorf("holds %d jobs: give at most %d in a file", len(items), maxJobs))
	}
	if len(items) == 1 && items[0].label == "" && len(content) > job.MaxSpec {
		return wrong(fmt.Errorf("is larger than %d bytes: pass large data as inputs", job.MaxSpec))
	}
	sum := sha256.Sum256(append([]byte(path+"\x00"), content...))
	f := File{Path: path, Sum: hex.EncodeToString(sum[:])}
	unread := map[int]bool{}        // jobs
	external := map[string]string{} // labels of the jobs, by their external ids
	targets := targets{kind: app.New(app.Config{}), first: map[string]int{}}
	if !use.Away {
		targets.kind = app.New(app.Config{Files: node.LocalFiles()})
	}
	for i, it := range items {
		e, err := it.read(filepath.Dir(path), use)
		if err != nil {
			faults.Add(it.label, err)
			unread[i] = true
		}
		if id := e.spec.ExternalID; id != "" {
			if other, twice := external[id]; twice {
				faults.problem(it.label,
					job.Problem{
						Path: "external_id", Value: id, What: "is that of " + other + " too",
						Remedy: "give each job its own",
					})
			}
			external[id] = it.label
		}
		f.Jobs = append(f.Jobs, e)
		if to, other := targets.add(f.Jobs, i); to != "" {
			faults.problem(it.label, job.SharedTarget(to, items[other].label))
		}
	}
	if faults.Lines != nil {
		if use.Here {
			f.absent(ctx, true, unread, &faults)
		}
		return File{}, term.Usagef("job file %s:\n%w", name, &faults)
	}
	return f, nil
}

// targets finds jobs of a file that would put their results into one folder.
type targets struct {
	kind  *app.Kind
	first map[string]int // of the jobs with a folder
}

// add adds the job i. If another job has the same folder, it returns the folder and the number of
// that job.
func (t *targets) add(jobs []Entry, i int) (to string, other int) {
	spec := jobs[i].spec
	j := job.Job{ID: job.NewID(), Tenant: "default"}
	spec.Defaults(j.ID, node.UserName())
	j.Name, j.Owner = spec.Name, spec.Owner
	to = t.kind.Target(&j, &spec)
	other, taken := t.first[to]
	switch {
	case to == "":
	case !taken:
		t.first[to] = i
	case !job.MayShare(&jobs[other].spec, &spec):
		return to, other
	}
	return "", 0
}

// ReadFile reads a file, or standard input, up to a byte more than a job file may have. The path of
// standard input is the name "-" in the working folder.
func ReadFile(name string) (path string, content []byte, err error) {
	path, err = filepath.Abs(name)
	if err != nil {
		return "", nil, err
	}
	f := os.Stdin
	if name != "-" {
		if f, err = os.Open(path); err != nil {
			return "", nil, err
		}
		defer f.Close()
	}
	content, err = io.ReadAll(io.LimitReader(f, MaxFile+1))
	return path, content, err
}

// itemsOf finds the jobs in the documents of a file.
func itemsOf(docs []json.RawMessage, faults *Faults) []item {
	if len(docs) > 1 {
		items := make([]item, len(docs))
		for i, doc := range docs {
			fields := fieldsOf(doc)
			items[i] = item{labelOf(i, len(docs), fields["name"]), doc}
			for _, k := range []string{"jobs", "defaults"} {
				if _, ok := fields[k]; ok {
					faults.problem(items[i].label,
						job.Problem{
							Path: k, What: "stands in one of several documents",
							Remedy: "make one document of them, with jobs: [...]",
						})
				}
			}
		}
		return items
	}
	fields := fieldsOf(docs[0])
	_, many := fields["jobs"]
	_, shared := fields["defaults"]
	switch {
	case many:
		return beneath(fields, faults)
	case shared:
		faults.problem("", job.Problem{
			Path: "defaults", What: "stands without jobs",
			Remedy: "give jobs: [...] beside it",
		})
		return nil
	case bytes.HasPrefix(docs[0], []byte("[")):
		faults.problem("", job.Problem{Path: "(file)", What: "is a list", Remedy: "write jobs: before it"})
		return nil
	}
	return []item{{doc: docs[0]}}
}

// fieldsOf returns the fields of an object, none of anything else.
func fieldsOf(doc json.RawMessage) (fields map[string]json.RawMessage) {
	json.Unmarshal(doc, &fields) //nolint:errcheck // what is no object has no fields
	return fields
}

// labelOf names the job i of n in messages.
func labelOf(i, n int, name json.RawMessage) string {
	label := fmt.Sprintf("job %d of %d", i+1, n)
	var text string
	if json.Unmarshal(name, &text) == nil && text != "" && len(text) <= 128 {
		label += " (" + live.Clean(text) + ")"
	}
	return label
}

// beneath returns the jobs of a document that has jobs, each with the defaults under it.
func beneath(fields map[string]json.RawMessage, faults *Faults) []item {
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if k == "jobs" || k == "defaults" {
			continue
		}
		p := job.Problem{Path: live.Clean(k), What: "is not a field of a file of jobs", Remedy: "remove it"}
		if slices.Contains(specFields(), k) {
			p.What, p.Remedy = "cannot stand next to jobs", "move it into defaults, or into a job"
		} else if n := job.Nearest(k, "jobs", "defaults"); n != "" {
			p.Remedy = "did you mean " + n + "?"
		}
		faults.problem("", p)
	}
	var jobs []json.RawMessage
	if json.Unmarshal(fields["jobs"], &jobs) != nil || len(jobs) == 0 {
		faults.problem("", job.Problem{
			Path: "jobs", What: "is not a list of jobs",
			Remedy: "give at least one, such as jobs: [{command: [wc, -w, in.txt]}]",
		})
		return nil
	}
	var under map[string]any
	if raw, ok := fields["defaults"]; ok && string(raw) != "null" {
		var err error
		if under, err = job.ParseObject(raw); err != nil {
			faults.problem("", job.Problem{
				Path: "defaults", What: "is not a map",
				Remedy: "give the fields that the jobs share",
			})
		} else if _, err := job.ParseSpec(raw); err != nil {
			faults.Add("defaults", err)
		}
	}
	if err := job.CheckMerge(fields["defaults"], jobs); err != nil {
		faults.Add("", err)
		return nil
	}
	items := make([]item, len(jobs))
	for i, doc := range jobs {
		name := fieldsOf(doc)["name"]
		if over, err := job.ParseObject(doc); err == nil {
			both := job.Merge(under, over)
			if shared, ok := both["name"].(string); ok && name == nil && len(jobs) > 1 {
				both["name"] = fmt.Sprintf("%s-%d", shared, i+1)
			}
			if merged, err := job.Encode(both); err == nil {
				doc, name = merged, fieldsOf(merged)["name"]
			}
		}
		items[i] = item{labelOf(i, len(jobs), name), doc}
	}
	return items
}

// specFields returns the names of a spec's fields.
func specFields() (names []string) {
	for f := range reflect.TypeFor[job.Spec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// read makes a spec of the item. base is the folder of its file.
func (it item) read(base string, use Use) (e Entry, err error) {
	e.Given = it.doc
	if fields, err := job.ParseObject(it.doc); err == nil {
		if use.Away {
			if problems := adrift(fields); problems != nil {
				return e, &job.SpecError{Problems: problems}
			}
		}
		rooted(fields, base)
		if e.Given, err = job.Encode(fields); err != nil {
			return e, err
		}
	}
	e.spec, err = job.ReadSpec(e.Given, (*job.Spec).Validate)
	if k := e.spec.Kind; err == nil && k != "" && k != job.KindApp && !use.Tasks {
		err = job.Errorf(job.Invalid, "kind %s is a task: run tasks with the Go program that handles them", k)
	}
	return e, err
}

// adrift returns the relative paths of a spec, which mean nothing on another machine.
func adrift(fields map[string]any) (problems []job.Problem) {
	eachPath(fields, func(at, p string) string {
		if absolute("/", p) != p {
			problems = append(problems, job.Problem{
				Path: at, Value: p, What: "is a path on this machine, and the server is on another",
				Remedy: "copy it there and give its absolute path on that machine, or use a server here",
			})
		}
		return p
	})
	return problems
}

// eachPath replaces each path of a spec by what f makes of it. at is where it stands.
func eachPath(fields map[string]any, f func(at, p string) string) {
	replace := func(m any, k, at string) {
		if m, ok := m.(map[string]any); ok {
			if p, ok := m[k].(string); ok {
				m[k] = f(at, p)
			}
		}
	}
	if inputs, ok := fields["inputs"].([]any); ok {
		for i, in := range inputs {
			replace(in, "from", fmt.Sprintf("inputs[%d].from", i))
		}
	}
	replace(fields["archive"], "to", "archive.to")
}

// rooted makes the relative paths of a spec absolute.
func rooted(fields map[string]any, base string) {
	eachPath(fields, func(_, p string) string { return absolute(base, p) })
}

// absolute returns a path that is relative to base as an absolute one, and one that begins with ~/
// as one of the home folder. What begins with a macro is absolute once that has been replaced; in
// base itself nothing is one.
func absolute(base, p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok || p == "~" {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if p == "" || filepath.IsAbs(p) || strings.Contains(p, "://") || strings.HasPrefix(p, "${") {
		return p
	}
	base = strings.ReplaceAll(base, "${", "$${")
	if strings.Contains(p, "${") {
		return strings.TrimSuffix(base, "/") + "/" + p // what a macro stands for may have more than one part
	}
	return filepath.Join(base, p)
}

// Faults are what is wrong with the jobs of a file: the first mostFaults, and how many more there
// are.
type Faults struct {
	Lines []string
	more  int
	said  map[string]bool // what is wrong with the defaults: it is not said of each job again
}

func (f *Faults) Error() string {
	text := strings.Join(f.Lines, "\n")
	if f.more > 0 {
		text += fmt.Sprintf("\n… and %d more", f.more)
	}
	return text
}

// problem adds one problem of the job that a label names.
func (f *Faults) problem(label string, p job.Problem) {
	f.Add(label, &job.SpecError{Problems: []job.Problem{p}})
}

// Add takes in what is wrong with the job that a label names.
func (f *Faults) Add(label string, err error) {
	var spec *job.SpecError
	texts := []string{err.Error()}
	if errors.As(err, &spec) {
		texts = nil
		for _, p := range spec.Problems {
			texts = append(texts, p.String())
		}
	}
	for _, t := range texts {
		switch {
		case f.said[t]:
			continue
		case label == "defaults":
			if f.said == nil {
				f.said = map[string]bool{}
			}
			f.said[t] = true
		}
		if label != "" {
			t = label + ": " + t
		}
		if len(f.Lines) == mostFaults {
			f.more++
			continue
		}
		f.Lines = append(f.Lines, t)
	}
}
