// Package app is the kind "app": a program on an execution system. It takes a job from
// PROCESSING_INPUTS to ARCHIVING.
//
// A worker does one state after the other, each in a file of its own. Each step can be done again
// after a crash. While the program runs, no worker has the job: the [Watcher] waits until the
// runner tells the end of the program, and puts the job back on its queue for ARCHIVING.
//
// The package uses the contracts of host, runner and files, and no backend.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/app/ground"
	"github.com/pawl-jobs/pawl/app/pattern"
	"github.com/pawl-jobs/pawl/app/share"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Config configures the kind. All folders are absolute.
type Config struct {
	// Local is the system on this machine.
	Local System
	// Remote finds the systems on other machines; nil: there are none.
	Remote Remote
	// Files holds inputs and archives. Folders of jobs are in the files of their systems.
	Files files.FS
	// Sources are where inputs from the web come from, by the scheme of their URL. A job with a URL
	// of another scheme is refused.
	Sources map[string]files.Source
	// Archive holds the results of jobs that name no folder for them, as <archive>/<tenant>/<job
	// id>.
	Archive string
	// Own are the other files and folders of the service: its database, its token, the folders of
	// its runner. No job takes an input from them or puts results there. The same holds for Archive
	// and for the work folder of Local.
	Own []string
	// Look is how often the watcher looks at all programs, for ends that nobody told of; a
	// minute by default.
	Look time.Duration
	// Remember is how long the host remembers jobs whose folder was cleaned; 30 days by default.
	Remember time.Duration
	// Grace is the time of a program between SIGTERM and SIGKILL; 10 s by default.
	Grace time.Duration
	// Stall is how long a step that copies files or looks at them may show no sign of life. Then it
	// is left behind and the attempt fails; 10 minutes by default.
	Stall time.Duration
	// Leave is how long such a step may take to return when it must stop. Then it is left behind;
	// 10 s by default.
	Leave time.Duration
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
	// Environ returns variables for a program. Those of its spec win. It is called at each launch,
	// whose number is in the row of the job, and its variables are not stored with the job. Nil:
	// there are none.
	Environ func(context.Context, *job.Job) map[string]string
	// Ran is told of each program whose end is known, by the worker that takes its results. It may
	// be told twice of one program. Nil: nobody is told.
	Ran func(context.Context, *job.Job, runner.End)
}

// A Kind implements [engine.Kind], [engine.Checker], [engine.Keeper] and [engine.Remover]. Its
// methods are safe for concurrent use.
type Kind struct {
	cfg Config

	mu       sync.Mutex
	progress map[hold]job.Progress // guarded by mu: of the long steps under way
	steps    map[*ownStep]bool     // guarded by mu: under way, and left behind
	ground   *ground.Ground

	away    sync.Map     // by watch when it was found that its machine cannot be reached
	copies  share.Copies // of inputs that several jobs share, on other machines
	ears    sync.Map     // an [ear] for each watch
	spreads sync.Map     // folders of jobs' folders that were made
	hanging atomic.Int64 // how many checks of submissions wait for a file system that does not answer
}

// New returns the kind. It does no I/O. A process that only reads needs no more than Config.Files.
func New(cfg Config) *Kind {
	if local := &cfg.Local; local.Watch == "" && local.Host != nil {
		local.Watch = local.Host.ID()
	}
	if cfg.Grace == 0 {
		cfg.Grace = 10 * time.Second
	}
	if cfg.Stall == 0 {
		cfg.Stall = 10 * time.Minute
	}
	if cfg.Leave == 0 {
		cfg.Leave = 10 * time.Second
	}
	if cfg.Remember == 0 {
		cfg.Remember = 30 * 24 * time.Hour
	}
	if cfg.Look == 0 {
		cfg.Look = time.Minute
	}
	if cfg.Environ == nil {
		cfg.Environ = func(context.Context, *job.Job) map[string]string { return map[string]string{} }
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	own := append(slices.Clone(cfg.Own), cfg.Local.Work, cfg.Archive)
	return &Kind{
		cfg: cfg, progress: map[hold]job.Progress{}, steps: map[*ownStep]bool{},
		ground: &ground.Ground{FS: cfg.Files, Places: own},
	}
}

// Check implements [engine.Checker].
func (k *Kind) Check(tenant string, s *job.Spec) (problems []job.Problem) {
	var named []place
	name := func(field, name string) {
		if name == "" || strings.Contains(name, "${") { // its value is known when the job is prepared
			return
		}
		if field != "archive.to" && job.Web(name) {
			if k.source(name) == nil {
				problems = append(problems, job.Problem{
					Path: field, Value: name, What: "is on the web, from which this service takes no inputs", Remedy: "give a path",
				})
			}
			return
		}
		if _, _, far := job.OnSystem(name); far {
			return // the service looks at it, which knows the systems
		}
		at, err := files.Path(name)
		if err != nil {
			problems = append(problems, job.Problem{
				Path: field, Value: name, What: "is no absolute path", Remedy: "give a path that begins with /",
			})
			return
		}
		named = append(named, place{field, at})
	}
	for i, in := range s.Inputs {
		name(inputField(i), in.From)
	}
	if s.Archive != nil {
		name(archiveField, s.Archive.To)
		if wrong, ok := errors.AsType[*job.SpecError](pattern.Check(s.Archive)); ok {
			problems = append(problems, wrong.Problems...)
		}
	}
	return append(problems, k.trespasses(tenant, named)...)
}

// source returns the source of a URL; nil: there is none, or from is a path.
func (k *Kind) source(from string) files.Source {
	scheme, _, _ := strings.Cut(from, "://")
	return k.cfg.Sources[strings.ToLower(scheme)]
}

// Files implements [engine.Keeper].
func (k *Kind) Files(j *job.Job) (engine.Files, error) {
	if len(j.Resolved) == 0 {
		return engine.Files{}, job.Errorf(job.NotFound, "job %s has no files yet: it is %s", j.Name, j.State)
	}
	if here := k.cfg.Local.Watch; here != "" && j.Machine != "" && j.Machine != here {
		return engine.Files{}, job.Errorf(job.Unavailable,
			"the files of job %s are on machine %s: ask a process there; pawl workers lists them", j.Name, j.Machine)
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxCheck)
	defer cancel()
	s, err := k.openOn(ctx, &System{Watch: j.Watch}, j) // which asks nobody
	if err == nil && !s.progress.Cleaned {
		var there *program
		switch there, err = k.open(ctx, j); {
		case err == nil:
			s = there
		case ctx.Err() != nil:
			err = job.Errorf(job.Unavailable, "the system of job %s has not answered within %s: %w", j.Name, maxCheck, err)
		}
	}
	if s != nil && job.KindOf(err) == job.Unavailable && s.progress.Manifest != nil && j.State.Terminal() {
		err = nil // what it names may be within reach
		ctx, cancel = context.WithTimeout(context.Background(), maxCheck)
		defer cancel()
	}
	if err != nil {
		return engine.Files{}, err
	}
	folders := k.cfg.Files // a process that only reads has no host
	switch {
	case s.sys == k.Local():
	case s.sys.Host == nil:
		s.dir = "" // it is out of reach
	default:
		folders = s.sys.Host.Files()
	}
	if err := k.border().reach(ctx, s); err != nil {
		s.depot, s.to = k.cfg.Files, "" // likewise
	}
	f := engine.Files{
		FolderFS: jobfolder.Guard(folders, s.dir), Folder: s.dir, ResultsFS: s.depot, Results: s.to, Archived: []string{},
		Stdout: path.Clean(s.spec.Stdout), Stderr: path.Clean(s.spec.Stderr),
	}
	if m := s.progress.Manifest; m != nil {
		for _, a := range m.Files {
			f.Archived = append(f.Archived, a.String())
		}
		f.Archived = append(f.Archived, ManifestFile)
	}
	return f, nil
}

// Progress implements [engine.Keeper].
func (k *Kind) Progress(j *job.Job) (job.Progress, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, ok := k.progress[hold{j.ID, j.Epoch}]
	return p, ok
}

// A hold is a job in the hands of this process. The process may claim the same job again while a
// step of a lost hold still goes on.
type hold struct {
	id    job.ID
	epoch int64
}

func (s *program) hold() hold { return hold{s.job.ID, s.job.Epoch} }

// track begins to tell the progress of a step. move adds bytes, done ends it.
func (k *Kind) track(ctx context.Context, j *job.Job, what string, total int64) (move func(n int), done func()) {
	h := hold{j.ID, j.Epoch}
	set := func(change func(p *job.Progress)) {
		k.mu.Lock()
		defer k.mu.Unlock()
		p := k.progress[h]
		change(&p)
		k.progress[h] = p
	}
	set(func(p *job.Progress) { *p = job.Progress{What: what, Total: total} })
	move = func(n int) {
		set(func(p *job.Progress) { p.Done += int64(n) })
		reportAlive(ctx)
	}
	return move, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.progress, h)
	}
}

// Step implements [engine.Kind]: one switch on the state, one method for each state.
func (k *Kind) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	s, err := k.open(ctx, &r.Job)
	if err != nil {
		code := job.InternalError
		if job.KindOf(err) == job.Invalid {
			code = job.InvalidDefinition
		}
		return k.faulty(ctx, &program{job: &r.Job}, code, err)
	}
	if o, behind := k.catchUp(ctx, r, s); behind {
		return o
	}
	switch r.Job.State {
	case job.ProcessingInputs:
		return k.runApart(ctx, r, s, k.processInputs)
	case job.StagingInputs:
		return k.runApart(ctx, r, s, k.stageInputs)
	case job.StagingJob:
		return k.runApart(ctx, r, s, k.stageJob)
	case job.SubmittingJob:
		return k.submit(ctx, r, s)
	case job.Archiving:
		tell := r.Teller()
		return k.runApart(ctx, r, s, func(ctx context.Context, s *program, record recorder) engine.Outcome {
			return k.archive(ctx, s, record, tell)
		})
	}
	return engine.Fail(job.Entry{Code: job.InternalError, Message: "no step for state " + string(r.Job.State)})
}

// progress is what this kind keeps in [job.Job.Work], so that a job goes on after a crash.
type progress struct {
	Handle   *runner.Handle `json:"handle,omitempty"`   // of the launch that started
	End      *runner.End    `json:"end,omitempty"`      // of the program
	Lost     bool           `json:"lost,omitempty"`     // the program is gone and left no end
	Said     string         `json:"said,omitempty"`     // words of its launcher, if the program is lost
	Cause    job.Code       `json:"cause,omitempty"`    // why a scheduler ended it; empty: none did
	Unbegun  bool           `json:"unbegun,omitempty"`  // the login files of its shell have ended that
	Missing  []string       `json:"missing,omitempty"`  // patterns of archive.required that no file fits
	Manifest *manifest      `json:"manifest,omitempty"` // of the files to be published in the archive
	Unread   []string       `json:"unread,omitempty"`   // results that could not be archived, and why
	// Before is a launch that the host knows and the row does not. It is taken over.
	Before *runner.Handle `json:"before,omitempty"`

	Limit     time.Duration `json:"limit,omitempty"`     // how long it may run; 0: no limit
	Overtime  bool          `json:"overtime,omitempty"`  // its time is over, and it is being ended
	Suspended time.Duration `json:"suspended,omitempty"` // how long it was suspended, in all
	// when it was suspended, since the host's boot; 0: it is not
	SuspendedAt time.Duration `json:"suspended_at,omitempty"`

	Usage *host.Usage `json:"usage,omitempty"` // what the program has used; nil: not known

	Checkpoint string `json:"checkpoint,omitempty"` // the last that a program of the job has printed
	Cleaned    bool   `json:"cleaned,omitempty"`    // the job's folder on another machine is gone
}

// anew returns what is left of n for another launch.
func (n progress) anew() progress { return progress{Checkpoint: n.Checkpoint} }

func (n progress) encode() json.RawMessage {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // plain data
	}
	return b
}
