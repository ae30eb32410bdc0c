package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// submit launches the program. The intent is durable before the host is touched. A run that finds
// an intent without an outcome settles it first, so that no attempt is launched twice.
func (k *Kind) submit(ctx context.Context, r *engine.Run, s *program) engine.Outcome {
	if r.Job.Live {
		fate, err := s.sys.Runner.Settle(ctx, key(&r.Job), s.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && k.removed(ctx, s):
			msg := "the job's folder is gone, and with it what was known of its launch"
			return engine.Retry(job.Entry{Code: job.ProgramLost, Message: msg}).Set(job.Patch{Over: true})
		case err != nil:
			// The launch may run: the job stays where somebody looks after it.
			return k.unsettled(ctx, r, err)
		case fate.Started:
			return k.launched(ctx, r, s, fate.Handle)
		}
		if r.Job.Wish != "" {
			return engine.Back().Set(job.Patch{Over: true})
		}
		if err := r.Record(ctx, job.Entry{Message: "the launch before was not started"}, job.Patch{Over: true},
			nil); err != nil {
			return engine.Back()
		}
	}
	for try := 1; ; try++ {
		if err := r.Launch(ctx); err != nil {
			return engine.Back()
		}
		crash.At("submit.intent")
		var h runner.Handle
		err := s.expectShell(ctx)
		if err == nil {
			h, err = s.sys.Runner.Launch(ctx, key(&r.Job), k.plan(ctx, s))
		}
		crash.At("submit.launched")
		if err == nil {
			return k.launched(ctx, r, s, h)
		}
		if errors.Is(err, runner.ErrRan) {
			return k.ranBefore(ctx, r, s)
		}
		if job.KindOf(err) == job.Invalid {
			return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: err.Error()}).Set(job.Patch{Over: true})
		}
		var fate runner.Fate
		var unsettled error
		if !errors.Is(err, runner.ErrNotArmed) {
			fate, unsettled = s.sys.Runner.Settle(context.WithoutCancel(ctx), key(&r.Job), s.dir)
		}
		full := k.full(ctx, k.workRoom(s, 0), err)
		refused, wrong := errors.AsType[*runner.Refused](err)
		if t, ok := errors.AsType[*host.Trouble](err); ok && t.Ask != nil {
			try = launchTries // it has answered
		}
		switch {
		case unsettled != nil:
			return k.unsettled(ctx, r, errors.Join(err, unsettled))
		case fate.Started:
			return k.launched(ctx, r, s, fate.Handle)
		case wrong:
			return engine.Fail(job.Entry{Code: refused.Code, Message: refused.Error()}).Set(job.Patch{Over: true})
		case ctx.Err() != nil:
			return engine.Back().Set(job.Patch{Over: true})
		case job.Blocking(full) != nil:
			return k.trouble(ctx, s, job.LaunchFailed, "launch", full).Set(job.Patch{Over: true})
		case errors.Is(err, runner.ErrArmed):
			try-- // revoked by a run that the row has forgotten: the next number may be free
		case try == launchTries && silent(&r.Job, err) != nil:
			return k.trouble(ctx, s, job.LaunchFailed, "launch", err).Set(job.Patch{Over: true})
		case job.KindOf(err) != job.Unavailable || try == launchTries:
			return engine.Retry(job.Entry{Code: job.LaunchFailed, Message: "launch: " + err.Error()}).Set(job.Patch{Over: true})
		}
		// It is revoked, so another launch belongs to the same attempt.
		if err := r.Record(ctx, job.Entry{Message: "not started: " + err.Error()}, job.Patch{Over: true}, nil); err != nil {
			return engine.Back()
		}
	}
}

// launchTries is how often one attempt tries to launch while the host cannot be reached.
const launchTries = 3

// launched hands the job to the watcher. If a cancel came meanwhile, it ends the program at once.
func (k *Kind) launched(ctx context.Context, r *engine.Run, s *program, h runner.Handle) engine.Outcome {
	if r.Job.Wish == job.WishCancel {
		if err := s.sys.Runner.Kill(ctx, h, k.cfg.Grace); err != nil {
			return k.unsettled(ctx, r, fmt.Errorf("end the program: %w", err))
		}
		return engine.Back().Set(job.Patch{Over: true})
	}
	s.progress = s.progress.anew()
	s.progress.Handle, s.progress.Limit = &h, s.given.Resources.Limit()
	state := s.sys.Runner.Traits().Launched()
	return engine.Launched(state).Work(s.progress.encode()).Explain(runner.Submitted(s.sys.Runner, h), nil)
}

// unsettled returns the outcome of a launch that may run or not: the job goes back, and the host is
// asked again.
func (k *Kind) unsettled(ctx context.Context, r *engine.Run, err error) engine.Outcome {
	if ctx.Err() != nil {
		return engine.Back()
	}
	unknown := "it is not known whether the program was started: "
	switch {
	case r.Job.State == job.Archiving:
		unknown = "the program has ended, and what it left cannot be looked at: "
	case !r.Job.Live: // nothing was launched
		unknown = ""
	}
	if b := silent(&r.Job, err); b != nil {
		b.Message = unknown + err.Error()
		return engine.Block(b)
	}
	k.cfg.Log.Error("it is not known what a program has done; asking again", "job", r.Job.ID, "error", err)
	select {
	case <-ctx.Done():
	case <-time.After(k.cfg.Grace):
	}
	return engine.Back().Explain(unknown+err.Error(), nil)
}

// removed reports whether the job's folder was removed, so that nothing of it can start. If the
// folder above it is gone too, the file system may just not be mounted.
func (k *Kind) removed(ctx context.Context, s *program) bool {
	fsys := s.sys.Host.Files()
	_, above := fsys.Stat(ctx, path.Dir(s.dir))
	_, own := fsys.Stat(ctx, path.Join(s.dir, runner.Folder))
	return above == nil && errors.Is(own, fs.ErrNotExist)
}

func key(j *job.Job) runner.Key {
	return runner.Key{Job: j.ID, Attempt: j.Attempt, Launch: j.Launch}
}

// unread returns the file that is there until the shell of a launch has read its login files.
func (s *program) unread() string {
	return path.Join(s.dir, runner.Folder, fmt.Sprintf("unread.%d.%d", s.job.Attempt, s.job.Launch))
}

// expectShell makes that file, if programs are started by a shell.
func (s *program) expectShell(ctx context.Context) error {
	if !s.sys.shelled() {
		return nil
	}
	return s.sys.Host.Files().Put(ctx, s.unread(), strings.NewReader(""), files.PutOptions{NoSync: true})
}

// plan says what is launched.
func (k *Kind) plan(ctx context.Context, s *program) runner.Plan {
	env := k.cfg.Environ(ctx, s.job)
	for _, m := range job.Macros {
		env[m.Name] = s.macro(m.Name)
	}
	env[checkpointVariable] = s.progress.Checkpoint
	for _, in := range s.spec.Inputs {
		name := path.Join(s.dir, in.To)
		if in.Env == "" {
			continue
		}
		if in.Optional {
			if _, err := s.sys.Host.Files().Stat(ctx, name); errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		env[in.Env] = name
	}
	for name, v := range s.spec.Env {
		env[name] = v
	}
	return runner.Plan{
		Dir: s.dir, Argv: s.sys.Argv(s.argv(), s.unread()), Env: env, Stdout: s.spec.Stdout, Stderr: s.spec.Stderr,
		Resources: *s.given.Resources, Once: s.given.Rerun == job.RerunFail,
	}
}
