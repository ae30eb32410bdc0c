package app

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A program is what a step knows of its job.
type program struct {
	job      *job.Job
	sys      *System  // on which it runs
	given    job.Spec // with its defaults and its macros
	spec     job.Spec // with its macros replaced
	environ  map[string]string
	progress progress
	dir      string   // the job's folder
	to       string   // the folder of its archive
	at       string   // the system that has it; empty: the machine of the service
	depot    files.FS // of that machine; nil until [border.reach] has reached it
	far      *farSide // that system, likewise

	loaded    files.FS // see [program.load]
	published bool     // its results are in its archive
}

// A Resolved is the resolved spec of a program: the spec with its defaults, and the values of
// macros that do not follow from the job.
type Resolved struct {
	job.Spec
	Folder  string            `json:"folder"`            // the job's folder
	Results string            `json:"results"`           // the folder of the archive, as [program.results] names it
	Environ map[string]string `json:"environ,omitempty"` // the system's variables for ${ENV:…}
	Staged  Size              `json:"staged,omitzero"`   // the inputs, as they were found
}

// A Size is an amount of files.
type Size struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	Holes int64 `json:"holes,omitempty"` // bytes of Bytes that take no room on disk
}

// add counts a file. A sum beyond the largest number stays at that number, because holes can have
// any size.
func (s *Size) add(size, holes int64) {
	s.Files++
	s.Bytes, s.Holes = sum(s.Bytes, size), sum(s.Holes, holes)
}

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// open reads the documents of a job and replaces the macros.
func (k *Kind) open(ctx context.Context, j *job.Job) (*program, error) {
	sys, err := k.system(ctx, j)
	if err != nil {
		return nil, err
	}
	return k.openOn(ctx, sys, j)
}

func (k *Kind) openOn(ctx context.Context, sys *System, j *job.Job) (_ *program, err error) {
	s := &program{job: j, sys: sys}
	if len(j.Work) > 0 {
		if err := json.Unmarshal(j.Work, &s.progress); err != nil {
			return nil, fmt.Errorf("progress of job %s: %w", j.ID, err)
		}
	}
	var r Resolved
	resolved := len(j.Resolved) > 0
	if resolved {
		if err := json.Unmarshal(j.Resolved, &r); err != nil {
			return nil, fmt.Errorf("resolved spec of job %s: %w", j.ID, err)
		}
	} else {
		if err := json.Unmarshal(j.Request, &r.Spec); err != nil {
			return nil, fmt.Errorf("request of job %s: %w", j.ID, err)
		}
		if r.Environ, err = sys.environ(ctx, &r.Spec); err != nil {
			return nil, err
		}
		r.Folder = sys.folder(j)
	}
	r.Defaults(j.ID, j.Owner)
	if !resolved && sys.Complete != nil {
		sys.Complete(r.Resources)
	}
	s.given, s.dir, s.environ = r.Spec, r.Folder, r.Environ
	k.goesTo(s, r.Results)
	if !resolved {
		if err := k.target(s); err != nil {
			return nil, err
		}
	}
	s.spec, err = s.expand(s.given)
	return s, err
}

// environ returns the variables of the system that macros of spec name.
func (y *System) environ(ctx context.Context, spec *job.Spec) (map[string]string, error) {
	names := spec.Variables()
	if len(names) == 0 {
		return nil, nil
	}
	list, err := y.Host.Environ(ctx)
	if err != nil {
		return nil, fmt.Errorf("environment of the system: %w", err)
	}
	all := map[string]string{}
	for _, v := range list {
		name, value, _ := strings.Cut(v, "=")
		all[name] = value
	}
	found := map[string]string{}
	for _, name := range names {
		if value, ok := all[name]; ok {
			found[name] = value
		}
	}
	return found, nil
}

// target chooses the folder of the archive.
func (k *Kind) target(s *program) error {
	k.goesTo(s, path.Join(k.cfg.Archive, s.job.Tenant, s.job.ID.String()))
	if s.given.Archive.To == "" {
		return nil
	}
	only, err := s.expand(job.Spec{Resources: s.given.Resources, Archive: &job.Archive{To: s.given.Archive.To}})
	if err == nil {
		k.goesTo(s, only.Archive.To)
		if s.at == "" {
			s.to, err = files.Path(s.to)
		}
	}
	if err != nil {
		return fmt.Errorf("archive.to: %w", err)
	}
	if s.at == "" && strings.HasPrefix(s.to+"/", s.dir+"/") {
		return job.Errorf(job.Invalid, "archive.to %s lies in the job's own folder, which is removed: name "+
			"another folder", s.to)
	}
	return nil
}

// goesTo notes where the archive of a job is.
func (k *Kind) goesTo(s *program, results string) {
	if system, name, far := job.OnSystem(results); far {
		s.at, s.to, s.depot = system, name, nil
		return
	}
	s.at, s.to, s.depot = "", results, k.cfg.Files
}

// results returns the folder of the archive, as a spec names it.
func (s *program) results() string {
	if s.at == "" {
		return s.to
	}
	return "system://" + s.at + s.to
}

// Target implements [engine.Checker].
func (k *Kind) Target(j *job.Job, spec *job.Spec) string {
	a := spec.Archive
	if a == nil || a.To == "" || a.On == job.ArchiveNever || job.Web(a.To) {
		return ""
	}
	s := &program{job: j, given: *spec, dir: k.cfg.Local.folder(j)}
	s.given.Defaults(j.ID, j.Owner)
	only := job.Spec{Archive: &job.Archive{To: a.To}}
	only, err := only.Expand(s.macro, func(name string) (string, bool) { return "${ENV:" + name + "}", true })
	if err != nil {
		return ""
	}
	if system, name, far := job.OnSystem(only.Archive.To); far {
		return "system://" + system + name
	}
	to, err := files.Path(only.Archive.To)
	if err != nil {
		return ""
	}
	return k.realPath(to)
}

// system returns the name of the system, without that of the machine.
func (s *program) system() string {
	name, _, _ := strings.Cut(s.given.System, "@")
	return name
}

// own reports whether the archive is a folder of the service's own.
func (s *program) own() bool { return s.given.Archive.To == "" }

// expand replaces the macros of a spec.
func (s *program) expand(spec job.Spec) (job.Spec, error) {
	return spec.Expand(func(name string) string { return s.macro(name) }, func(name string) (string, bool) {
		v, ok := s.environ[name]
		return v, ok
	})
}

// macro returns the value of a macro of [job.Macros].
func (s *program) macro(name string) string {
	r := s.given.Resources
	switch name {
	case "PAWL_JOB_ID":
		return s.job.ID.String()
	case "PAWL_JOB_NAME":
		return s.job.Name
	case "PAWL_JOB_DIR":
		return s.dir
	case "PAWL_TENANT":
		return s.job.Tenant
	case "PAWL_OWNER":
		return s.job.Owner
	case "PAWL_ATTEMPT":
		return strconv.Itoa(s.job.Attempt)
	case "PAWL_SYSTEM":
		return s.system()
	case "PAWL_NODES":
		return strconv.Itoa(r.Nodes)
	case "PAWL_TASKS":
		return strconv.Itoa(r.Tasks)
	case "PAWL_CORES":
		return strconv.Itoa(r.Cores)
	case "PAWL_MEMORY_MB":
		return strconv.FormatInt(int64(math.Ceil(float64(r.Memory)/(1<<20))), 10)
	case "PAWL_GPUS":
		return strconv.Itoa(r.GPUs)
	case "PAWL_MINUTES":
		return strconv.FormatFloat(r.Minutes, 'f', -1, 64)
	case "PAWL_ACCOUNT":
		return r.Account
	case "PAWL_PARTITION":
		return r.Partition
	case "PAWL_ARCHIVE":
		return s.results()
	case "PAWL_CREATED":
		return s.job.Created.UTC().Format(time.RFC3339)
	}
	return "" // of an app, without one
}

// scriptFile is where the script of a job is in its folder.
const scriptFile = runner.Folder + "/script"

// argv returns the program and its arguments for the launch.
func (s *program) argv() []string {
	argv := append([]string(nil), s.spec.Launch...)
	switch name := path.Join(s.dir, scriptFile); {
	case s.spec.Script == "":
		argv = append(argv, s.spec.Command...)
	case strings.HasPrefix(s.spec.Script, "#!"):
		argv = append(argv, name)
	default:
		argv = append(argv, "/bin/sh", name)
	}
	return append(argv, s.spec.Arguments...)
}

// program returns what messages call the program.
func (s *program) program() string {
	if s.spec.Script != "" {
		return "the script"
	}
	return path.Base(s.spec.Command[0])
}

// inside returns the absolute name of a file in the job's folder. It checks again, because macros
// may have changed what was checked at the submission.
func (s *program) inside(field, name string) (string, error) {
	full := path.Join(s.dir, name)
	switch own := path.Join(s.dir, runner.Folder); {
	case path.IsAbs(name), !strings.HasPrefix(full, s.dir+"/"):
		return "", job.Errorf(job.Invalid, "%s (%s): leaves the job's folder: give a relative path without ..", field, name)
	case full == own || strings.HasPrefix(full, own+"/"):
		return "", job.Errorf(job.Invalid, "%s (%s): lies in %s, which is Pawl's own: give another path", field,
			name, runner.Folder)
	}
	return full, nil
}

// Places returns the folder of a job and the folder of its archive. They are empty until
// PROCESSING_INPUTS has chosen them.
func Places(j *job.Job) (folder, results string) {
	var r Resolved
	if json.Unmarshal(j.Resolved, &r) != nil {
		return "", ""
	}
	return r.Folder, r.Results
}
