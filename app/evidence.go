package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Evidence is what is kept of a program that failed, with the event that tells of it.
type Evidence struct {
	Attempt    int               `json:"attempt"`
	Command    []string          `json:"command"` // with its macros replaced
	Host       string            `json:"host"`
	Folder     string            `json:"folder"`
	ExitCode   *int              `json:"exit_code,omitempty"` // none: it was killed, or is lost
	Signal     int               `json:"signal,omitempty"`
	NotStarted string            `json:"not_started,omitempty"` // why it could not be started
	Began      time.Time         `json:"began,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Ran        string            `json:"ran,omitempty"`
	Suspended  string            `json:"suspended,omitempty"` // for how long, of that
	Usage      *Usage            `json:"usage,omitempty"`
	Logs       map[string]string `json:"logs,omitempty"` // the last lines of each, by name
}

// tailBytes is how much of the end of a log is kept as evidence.
const tailBytes = 2048

// evidence keeps what helps to find the cause of a failure. What cannot be read is left out.
func (k *Kind) evidence(ctx context.Context, s *program) json.RawMessage {
	ev := Evidence{
		Attempt: s.job.Attempt, Command: s.argv(), Host: k.cfg.Host.ID(), Folder: s.dir, Usage: s.usage(),
		Logs: map[string]string{},
	}
	if e := s.notes.End; e != nil {
		ev.ExitCode, ev.Signal, ev.NotStarted = &e.Code, e.Signal, e.NotStarted
		ev.Began, ev.Ended, ev.Ran = e.Began(), e.Ended, brief(e.Ran)
	}
	if s.notes.Suspended > 0 {
		ev.Suspended = brief(s.notes.Suspended)
	}
	for _, name := range []string{s.spec.Stdout, s.spec.Stderr} {
		if b, err := tail(ctx, k.cfg.Host.Files(), path.Join(s.dir, name), tailBytes); err == nil && len(b) > 0 {
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
	User    job.Duration `json:"user"`              // processor time of the program and all that it waited for
	System  job.Duration `json:"system"`            // of the kernel on their behalf
	MaxRSS  int64        `json:"max_rss,omitempty"` // the most memory that one of them had, in bytes; 0: not known
	Read    int64        `json:"read,omitempty"`    // bytes that came from disks
	Written int64        `json:"written,omitempty"` // bytes that went to disks
}

// usage returns what the program has used, as far as anybody knows: its wrapper tells the processor
// time, and the host the rest if the program ended while this process looked on.
func (s *program) usage() *Usage {
	switch u, e := s.notes.Usage, s.notes.End; {
	case u != nil:
		return &Usage{job.Duration(u.User), job.Duration(u.System), u.MaxRSS, u.Read, u.Written}
	case e != nil:
		return &Usage{User: job.Duration(e.User), System: job.Duration(e.System)}
	}
	return nil
}

// tail returns the last n bytes of a file, from the beginning of a line on if there is one.
func tail(ctx context.Context, fsys files.FS, name string, n int64) ([]byte, error) {
	f, err := fsys.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, size-n), io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, n))
	if i := bytes.IndexByte(b, '\n'); size > n && i >= 0 && i+1 < len(b) {
		b = b[i+1:]
	}
	return b, err
}
