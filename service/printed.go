package service

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// says reports whether the program of j runs, so that what it says counts.
func says(j *job.Job) bool {
	return j.Program() && j.Live && j.State == job.Running && j.Custody == job.Monitor
}

// prints reports whether the output of the running program of j can be read here.
func (s *Service) prints(j *job.Job) bool { return says(j) && !s.onOtherMachine(j) }

// tellProgress takes in how far a program says it is. The answer is no row of the history.
func (s *Service) tellProgress(ctx context.Context, j *job.Job, n job.CustomEvent) (store.Event, error) {
	p, err := printed.ParseProgress(n.Message)
	if err != nil {
		return store.Event{}, err
	}
	l := printed.LaunchOf(j)
	s.outputs.Tell(l, p, func(p job.Progress) {
		m, err := printed.News(l, p)
		if err == nil {
			err = s.cfg.Broker.Publish(context.WithoutCancel(ctx), printed.Topic, m)
		}
		if err != nil {
			s.cfg.Log.Debug("progress was not told to other processes", "job", l.Job, "error", err)
		}
	})
	return store.Event{Event: job.Event{
		Job: j.ID, Name: n.Name, Epoch: j.Epoch, State: j.State, Custody: j.Custody, At: time.Now().UTC(),
		Cause: job.CauseJob, Actor: s.cfg.Principal, Message: n.Message,
	}}, nil
}

// lookAtOutputs looks how far the running programs of jobs say they are.
func (s *Service) lookAtOutputs(ctx context.Context, jobs []job.Job) {
	all := map[printed.Launch]printed.Open{}
	for i := range jobs {
		if s.prints(&jobs[i]) {
			l := printed.LaunchOf(&jobs[i])
			all[l] = func(ctx context.Context) (io.ReadSeekCloser, int64, error) { return s.openStdout(ctx, l) }
		}
	}
	s.outputs.Look(ctx, all)
}

// checkpoint returns the last checkpoint that programs of a job have told; empty: none is known.
func (s *Service) checkpoint(j *job.Job) (point string) {
	if said := s.outputs.Said(printed.LaunchOf(j)).Checkpoint; s.prints(j) && said != nil {
		return *said
	}
	if !j.Program() || json.Unmarshal(claims.ReadWork(j).Checkpoint, &point) != nil {
		return ""
	}
	return point
}

// filesOfLaunch returns where the files of a running program are.
func (s *Service) filesOfLaunch(ctx context.Context, id job.ID, launch int) (engine.Files, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return engine.Files{}, err
	}
	if err := ofLaunch(&j, launch); err != nil {
		return engine.Files{}, err
	}
	return s.filesOf(&j)
}

// ofLaunch returns an error unless a launch of a job is the one that runs.
func ofLaunch(j *job.Job, launch int) error {
	if !j.Live || j.Launch != launch {
		return job.Errorf(job.Conflict, "launch %d of job %s is not the one that runs", launch, j.ID)
	}
	return nil
}

// openStdout opens the output of a running program. It takes in a checkpoint told by an event.
func (s *Service) openStdout(ctx context.Context, l printed.Launch) (io.ReadSeekCloser, int64, error) {
	f, err := s.filesOfLaunch(ctx, l.Job, l.Launch)
	if err != nil {
		return nil, 0, err
	}
	if point, err := jobfolder.Checkpoint(ctx, f.FolderFS, f.Folder, l.Launch); err == nil {
		s.outputs.Keep(l, point)
	}
	file, r, err := open(ctx, f, f.Stdout)
	return r, file.Size, err
}

// hearProgress takes in how far programs tell other processes that they are, until ctx ends.
func (s *Service) hearProgress(ctx context.Context) {
	for ctx.Err() == nil {
		told, err := s.cfg.Broker.Subscribe(ctx, printed.Topic)
		if err == nil {
			s.outputs.Hear(ctx, told.Messages())
			told.Close()
			return
		}
		s.cfg.Log.Debug("progress that is told to other processes is not heard", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}
