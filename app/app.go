// Package app is the kind "app": a program on an execution system, from PROCESSING_INPUTS to ARCHIVING.
//
// A worker does one state after the other, each in a file of its own, and each so that it can be done again after a
// crash. In between, while the program runs, no worker has the job: the [Watcher] waits for the message that the
// program's end leaves in the spool, and puts the job back on its queue for ARCHIVING.
//
// The package uses the contracts of host, runner and files, and no backend.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Config configures the kind. All folders are absolute.
type Config struct {
	Host   host.Host
	Runner runner.Runner
	// Files is where inputs come from and archives go to.
	Files files.FS
	// Work holds the jobs' folders, as <work>/<tenant>/<job id>.
	Work string
	// Archive holds the results of jobs that name no archive, as <archive>/<tenant>/<job id>.
	Archive string
	// Spool is the folder in which ends appear.
	Spool string
	// Reconcile is how often all programs are looked at, for ends that nobody told of; a minute by default.
	Reconcile time.Duration
	// Grace is what a program gets between SIGTERM and SIGKILL; 10 s by default.
	Grace time.Duration
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
}

// Kind implements [engine.Kind].
type Kind struct {
	cfg Config
}

// New returns the kind. It does no I/O.
func New(cfg Config) *Kind {
	if cfg.Grace == 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Reconcile == 0 {
		cfg.Reconcile = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Kind{cfg}
}

// Step implements [engine.Kind]: one switch on the state, one method for each.
func (k *Kind) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	s, err := k.open(&r.Job)
	if err != nil {
		code := job.InternalError
		if job.KindOf(err) == job.Invalid {
			code = job.InvalidDefinition
		}
		return engine.Fail(job.Entry{Code: code, Message: err.Error()})
	}
	switch r.Job.State {
	case job.ProcessingInputs:
		return k.processInputs(ctx, s)
	case job.StagingInputs:
		return k.stageInputs(ctx, s)
	case job.StagingJob:
		return k.stageJob(ctx, s)
	case job.SubmittingJob:
		return k.submit(ctx, r, s)
	case job.Archiving:
		return k.archive(ctx, r, s)
	}
	return engine.Fail(job.Entry{Code: job.InternalError, Message: "no step for state " + string(r.Job.State)})
}

// A sheet is everything that a step needs to know of its job.
type sheet struct {
	job   *job.Job
	spec  job.Spec // as resolved, once it is
	notes notes
	dir   string // the job's folder
	to    string // the folder of its archive
}

// notes are the kind's own notes in the job's row.
type notes struct {
	Handle   *runner.Handle `json:"handle,omitempty"`   // of the launch that started
	End      *runner.End    `json:"end,omitempty"`      // of the program
	Lost     bool           `json:"lost,omitempty"`     // it is gone and left no end
	Manifest *manifest      `json:"manifest,omitempty"` // of what is to be published in the archive
}

func (n notes) encode() json.RawMessage {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Resolved is the resolved spec of a program: the spec with its defaults, and where it was put.
type Resolved struct {
	job.Spec
	Folder  string `json:"folder"`
	Results string `json:"results"` // the folder of the archive
}

// Places returns the folder of a job and that of its archive, once PROCESSING_INPUTS has chosen them.
func Places(j *job.Job) (folder, results string) {
	var r Resolved
	if json.Unmarshal(j.Resolved, &r) != nil {
		return "", ""
	}
	return r.Folder, r.Results
}

// Files implements [engine.Keeper]. It asks neither host nor runner, so a kind made to read has no need of them.
func (k *Kind) Files(j *job.Job) (engine.Files, error) {
	var r Resolved
	if json.Unmarshal(j.Resolved, &r) != nil || r.Folder == "" {
		return engine.Files{}, job.Errorf(job.NotFound, "job %s has no files yet: it is %s", j.ID, j.State)
	}
	return engine.Files{FS: k.cfg.Files, Folder: r.Folder, Results: r.Results, Stdout: r.Stdout, Stderr: r.Stderr}, nil
}

// Progress implements [engine.Keeper].
func (k *Kind) Progress(job.ID) (job.Progress, bool) { return job.Progress{}, false }

// open reads the job's documents.
func (k *Kind) open(j *job.Job) (*sheet, error) {
	s := &sheet{job: j}
	if len(j.Work) > 0 {
		if err := json.Unmarshal(j.Work, &s.notes); err != nil {
			return nil, fmt.Errorf("notes of job %s: %w", j.ID, err)
		}
	}
	if len(j.Resolved) > 0 {
		var r Resolved
		if err := json.Unmarshal(j.Resolved, &r); err != nil {
			return nil, fmt.Errorf("resolved spec of job %s: %w", j.ID, err)
		}
		s.spec, s.dir, s.to = r.Spec, r.Folder, r.Results
		return s, nil
	}
	if err := json.Unmarshal(j.Request, &s.spec); err != nil {
		return nil, fmt.Errorf("request of job %s: %w", j.ID, err)
	}
	s.spec.Defaults(j.ID, j.Owner)
	s.dir = path.Join(k.cfg.Work, j.Tenant, j.ID.String())
	s.to = path.Join(k.cfg.Archive, j.Tenant, j.ID.String())
	if a := s.spec.Archive; a != nil && a.To != "" {
		to, err := Path(a.To)
		if err != nil {
			return nil, fmt.Errorf("archive.to: %w", err)
		}
		s.to = to
	}
	return s, nil
}

// Path returns the absolute path that a files URL names on this machine.
func Path(from string) (string, error) {
	if u, err := url.Parse(from); err == nil && u.Scheme != "" && !strings.HasPrefix(from, "/") {
		if u.Scheme != "file" || u.Host != "" {
			return "", job.Errorf(job.Invalid, "%s: only paths and file:///… are known", from)
		}
		from = u.Path
	}
	if !path.IsAbs(from) {
		return "", job.Errorf(job.Invalid, "%s: is not absolute; give a path that begins with /", from)
	}
	return path.Clean(from), nil
}

// trouble makes the outcome of a step that failed. code says what it was about.
func trouble(ctx context.Context, code job.Code, err error) engine.Outcome {
	if ctx.Err() != nil {
		return engine.Back()
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code = job.FilesystemFull
	}
	return engine.Retry(job.Entry{Code: code, Message: err.Error()})
}

// inputTrouble is trouble with something the user named.
func inputTrouble(ctx context.Context, in job.Input, err error) engine.Outcome {
	code := job.StagingFailed
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, err = job.InputMissing, fmt.Errorf("input %s is not there: %w", in.From, err)
	case errors.Is(err, fs.ErrPermission):
		code, err = job.InputUnreadable, fmt.Errorf("input %s cannot be read: %w", in.From, err)
	default:
		err = fmt.Errorf("input %s: %w", in.From, err)
	}
	return trouble(ctx, code, err)
}
