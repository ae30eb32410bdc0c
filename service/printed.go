package service

import (
	"context"
	"encoding/json"
	"io"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
)

// prints reports whether the program of j runs, and its output can be read here.
func (s *Service) prints(j *job.Job) bool {
	return j.Program() && j.Live && j.State == job.Running && j.Custody == job.Monitor && !s.onOtherMachine(j)
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

// checkpoint returns the last checkpoint that programs of a job have printed; empty: none is known.
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
	if !j.Live || j.Launch != launch {
		return engine.Files{}, job.Errorf(job.Conflict, "launch %d of job %s is not the one that runs", launch, id)
	}
	return s.filesOf(&j)
}

// openStdout opens the output of a program while it runs.
func (s *Service) openStdout(ctx context.Context, l printed.Launch) (io.ReadSeekCloser, int64, error) {
	f, err := s.filesOfLaunch(ctx, l.Job, l.Launch)
	if err != nil {
		return nil, 0, err
	}
	file, r, err := open(ctx, f, f.Stdout)
	return r, file.Size, err
}
