package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A database that was restored to an earlier point in time knows less of its jobs than their host.
// So the first step after a claim asks the host. A row that is behind is brought up to date: the
// launch is taken over, and its program does not run again.

// catchUp brings a job up to date if the host knows more of it than its row. It reports whether it
// did, with the outcome.
func (k *Kind) catchUp(ctx context.Context, r *engine.Run, s *program) (engine.Outcome, bool) {
	if s.progress.Before != nil && r.Job.State != job.Archiving && !r.First() {
		return k.takeOver(ctx, r, s, *s.progress.Before), true
	}
	if !r.First() {
		return engine.Outcome{}, false
	}
	past, err := s.sys.Runner.Past(ctx, key(&r.Job), s.dir)
	if errors.Is(err, fs.ErrPermission) && !r.Job.Live && r.Job.State != job.Archiving && k.openFolder(ctx, s) == nil {
		past, err = s.sys.Runner.Past(ctx, key(&r.Job), s.dir)
	}
	switch {
	case err != nil && (r.Job.Live || job.KindOf(err) == job.Unavailable && !job.Shortage(err)):
		return k.unsettled(ctx, r, err), true
	case err != nil && r.Job.State == job.Archiving: // it launches nothing, and tells what is wrong
		return engine.Outcome{}, false
	case err != nil:
		return k.trouble(ctx, s, job.StagingFailed, "look for launches in the job's folder", err), true
	case past.Mark != nil && s.progress.Manifest == nil: // with a manifest in the row the archive proves itself
		return k.ended(ctx, s, past.Mark), true
	}
	last, err := s.newest(ctx, past)
	switch {
	case err != nil:
		return k.unsettled(ctx, r, err), true
	case last == nil:
		return engine.Outcome{}, false
	case r.Job.Wish == job.WishCancel:
		return k.launched(ctx, r, s, *last), true
	case last.Key.Attempt > r.Job.Attempt:
		o := engine.Requeue(job.Pending).Set(job.Patch{Retry: true, Over: r.Job.Live}).Work(s.progress.anew().encode())
		return o.Explain(fmt.Sprintf("the machine knows of attempt %d, and the database was restored to a time before it",
			last.Key.Attempt), nil), true
	case r.Job.State == job.Archiving:
		return engine.Outcome{}, false
	}
	return k.takeOver(ctx, r, s, *last), true
}

// newest returns the last launch that was started, after it has made sure that no armed launch can
// still start; nil: none was.
func (s *program) newest(ctx context.Context, p runner.Past) (last *runner.Handle, err error) {
	if n := len(p.Started); n > 0 {
		last = &p.Started[n-1]
	}
	for _, open := range p.Open {
		fate, err := s.sys.Runner.Settle(ctx, open, s.dir)
		if err != nil {
			return nil, err
		}
		if fate.Started && (last == nil || last.Key.Launch < open.Launch) {
			last = &fate.Handle
		}
	}
	return last, nil
}

// takeOver goes to the launch h and leaves staged files alone: the program may be running in the
// folder.
func (k *Kind) takeOver(ctx context.Context, r *engine.Run, s *program, h runner.Handle) engine.Outcome {
	o := engine.Next(job.SubmittingJob)
	switch r.Job.State {
	case job.ProcessingInputs:
		o = k.resolved(s, Size{})
	case job.StagingInputs:
		o = engine.Next(job.StagingJob)
	case job.SubmittingJob:
		for r.Job.Launch < h.Key.Launch {
			e := job.Entry{Message: fmt.Sprintf("launch %d was made before the database was restored", r.Job.Launch+1)}
			set := job.Patch{Intent: true, Over: r.Job.Launch+1 < h.Key.Launch}
			if !set.Over {
				e.Message += ": it is taken over"
			}
			if err := r.Record(ctx, e, set, nil); err != nil {
				return engine.Back()
			}
		}
		return k.launched(ctx, r, s, h)
	}
	n := s.progress
	n.Before = &h
	return o.Work(n.encode())
}

// ranBefore ends a job whose launch the host has refused.
func (k *Kind) ranBefore(ctx context.Context, r *engine.Run, s *program) engine.Outcome {
	past, err := s.sys.Runner.Past(ctx, key(&r.Job), s.dir)
	if err != nil {
		return k.unsettled(ctx, r, err)
	}
	return k.ended(ctx, s, past.Mark)
}

// ended ends a job whose program ran and whose folder was cleaned. It cannot be called a success,
// because the manifest of its results was lost with the row.
func (k *Kind) ended(ctx context.Context, s *program, m *runner.Mark) engine.Outcome {
	if err := k.border().reach(ctx, s); err != nil && !trespass(err) {
		return k.trouble(ctx, s, job.RanBefore, "look for the results in "+s.results(), s.faultOf(err))
	}
	results := "no results of it are in " + s.results()
	if s.depot != nil {
		if _, err := s.depot.Stat(ctx, path.Join(s.to, ManifestFile)); err == nil {
			results = "its results are in " + s.results()
		}
	}
	msg := fmt.Sprintf("%s ran before, and the database was restored to a time when it had not: %s; %s",
		s.program(), m.String(), results)
	return engine.Fail(job.Entry{Code: job.RanBefore, Message: msg}).Set(job.Patch{Over: s.job.Live})
}
