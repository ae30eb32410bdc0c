package app

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Evidence is what is kept of a program that failed. It is the data of the event that tells of the
// failure.
type Evidence struct {
	Attempt    int               `json:"attempt"`
	Command    []string          `json:"command"` // after its macros were replaced
	Host       string            `json:"host"`
	Folder     string            `json:"folder"`
	Scheduler  string            `json:"scheduler,omitempty"` // by what its scheduler knows it, such as "Slurm job 1234_7"
	ExitCode   *int              `json:"exit_code,omitempty"` // missing: it was killed, or is lost
	Signal     int               `json:"signal,omitempty"`
	NotStarted string            `json:"not_started,omitempty"` // why it could not be started
	Began      time.Time         `json:"began,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Ran        string            `json:"ran,omitempty"`
	Suspended  string            `json:"suspended,omitempty"` // how much of that it was suspended
	Usage      *Usage            `json:"usage,omitempty"`
	Logs       map[string]string `json:"logs,omitempty"` // the last 2 KiB of each, by file name
}

// tailBytes is how much of the end of a log is kept as evidence.
const tailBytes = 2048

// evidence returns what helps to find the cause of a failure. It leaves out what cannot be read.
func (k *Kind) evidence(ctx context.Context, s *program) json.RawMessage {
	ev := Evidence{
		Attempt: s.job.Attempt, Command: s.argv(), Host: s.sys.Host.ID(), Folder: s.dir, Usage: s.usage(),
		Scheduler: runner.NameOf(s.sys.Runner, s.progress.Handle), Logs: map[string]string{},
	}
	if e := s.progress.End; e != nil {
		ev.ExitCode, ev.Signal, ev.NotStarted = &e.Code, e.Signal, e.NotStarted
		ev.Began, ev.Ended, ev.Ran = e.Began(), e.Ended, brief(e.Ran)
	}
	if s.progress.Suspended > 0 {
		ev.Suspended = brief(s.progress.Suspended)
	}
	fsys := jobfolder.Guard(s.sys.Host.Files(), s.dir)
	for _, name := range []string{s.spec.Stdout, s.spec.Stderr} {
		if b, err := jobfolder.Tail(ctx, fsys, s.dir, name, tailBytes); err == nil && len(b) > 0 {
			b = bytes.ReplaceAll(b, []byte{0}, nil) // no database takes them
			ev.Logs[name] = string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
		}
	}
	b, err := json.Marshal(ev)
	if err != nil {
		return nil
	}
	return b
}

// Usage is what a program had used when it ended.
type Usage struct {
	// processor time of the program and of the processes that it waited for
	User    job.Duration `json:"user"`
	System  job.Duration `json:"system"`            // processor time of the kernel for them
	MaxRSS  int64        `json:"max_rss,omitempty"` // the most memory of one of them, in bytes; 0: not known
	Read    int64        `json:"read,omitempty"`    // bytes that came from disks
	Written int64        `json:"written,omitempty"` // bytes that went to disks
}

// usage returns what the program has used. Its wrapper tells the processor time. The host tells the
// rest if this process looked on when the program ended.
func (s *program) usage() *Usage {
	switch u, e := s.progress.Usage, s.progress.End; {
	case u != nil:
		return &Usage{job.Duration(u.User), job.Duration(u.System), u.MaxRSS, u.Read, u.Written}
	case e != nil:
		return &Usage{User: job.Duration(e.User), System: job.Duration(e.System)}
	}
	return nil
}
