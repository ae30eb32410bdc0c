package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// ManifestFile is the name of the manifest in the folder of an archive.
const ManifestFile = "pawl-manifest.json"

// A manifest lists what an archive consists of.
type manifest struct {
	Staged  string     `json:"staged"` // the folder, inside the archive's, in which the files lie until they are published
	Files   []archived `json:"files"`
	Skipped []string   `json:"skipped,omitempty"` // what is no file and no folder: links, pipes, sockets
}

func (m *manifest) String() string {
	msg := fmt.Sprintf("%d files copied", len(m.Files))
	if len(m.Files) == 1 {
		msg = "1 file copied"
	}
	if n := len(m.Skipped); n > 0 {
		msg += fmt.Sprintf("; left out, being neither files nor folders: %s", strings.Join(m.Skipped[:min(n, 10)], ", "))
		if n > 10 {
			msg += fmt.Sprintf(", and %d more", n-10)
		}
	}
	return msg
}

// archived is one file of an archive.
type archived struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// archive copies the results in four parts, each of which can be done again: upload under a name that carries the
// epoch; commit the manifest; give the files their names; clean the folder. Then the job ends.
func (k *Kind) archive(ctx context.Context, r *engine.Run, s *sheet) engine.Outcome {
	o := k.archiveParts(ctx, r, s)
	if errors.Is(context.Cause(ctx), engine.ErrCanceled) {
		k.leaveNothing(context.WithoutCancel(ctx), s)
	}
	return o
}

// leaveNothing tidies up before the job ends without an archive.
func (k *Kind) leaveNothing(ctx context.Context, s *sheet) {
	if err := k.tidy(ctx, s.job.ID, s.to); err != nil {
		k.cfg.Log.Warn("copies of results stay in an archive until the next sweep", "job", s.job.ID, "folder", s.to, "error", err)
	}
}

func (k *Kind) archiveParts(ctx context.Context, r *engine.Run, s *sheet) engine.Outcome {
	verdict := s.verdict()
	if verdict.Code != job.NormalCompletion {
		verdict.Data = k.evidence(ctx, s)
		if r.Job.Attempt < r.Job.MaxAttempts {
			return engine.Retry(verdict).Work(notes{}.encode())
		}
	}
	// fails is a failure to archive. That of the program is the more important news, and is told first.
	fails := func(err error) engine.Outcome {
		if verdict.Code != job.NormalCompletion {
			err = fmt.Errorf("%s; and its results were not archived: %w", verdict.Message, err)
		}
		if ctx.Err() == nil && r.Job.Attempt >= r.Job.MaxAttempts {
			k.leaveNothing(ctx, s)
		}
		return trouble(ctx, job.ArchiveFailed, err)
	}
	if err := k.cfg.Host.Files().Mkdir(ctx, k.note(s.job.ID)); err != nil {
		return fails(err)
	}
	crash.At("archive.noted")
	if s.notes.Manifest == nil {
		m, err := k.upload(ctx, s)
		if err != nil {
			return fails(fmt.Errorf("copy results to %s: %w", s.to, err))
		}
		s.notes.Manifest = m
		crash.At("archive.uploaded")
		if err := r.Record(ctx, job.Entry{Message: m.String()}, job.Patch{}, s.notes.encode()); err != nil {
			return engine.Back()
		}
	}
	crash.At("archive.committed")
	if err := k.publish(ctx, s); err != nil {
		return fails(fmt.Errorf("publish results in %s: %w; they are still in %s", s.to, err, s.dir))
	}
	crash.At("archive.published")
	if verdict.Code != job.NormalCompletion {
		return engine.Fail(verdict)
	}
	if err := k.clean(ctx, s); err != nil {
		return fails(fmt.Errorf("clean the job's folder: %w", err))
	}
	crash.At("archive.cleaned")
	return engine.Done(s.result())
}

// verdict says how the program ended.
func (s *sheet) verdict() job.Entry {
	e := s.notes.End
	name := path.Base(s.spec.Command[0])
	switch {
	case s.notes.Lost || e == nil:
		return job.Entry{Code: job.ProgramLost, Message: name + " is gone and left no exit code"}
	case e.Code == 0:
		return job.Entry{Code: job.NormalCompletion}
	case e.Code == 126 || e.Code == 127:
		return job.Entry{Code: job.LaunchFailed, Message: fmt.Sprintf("%s, or a program that it started, could not be started (exit code %d): see its stderr", s.spec.Command[0], e.Code)}
	case e.Code > 128 && e.Code <= 128+64:
		return job.Entry{Code: job.ProgramKilled, Message: fmt.Sprintf("%s was ended by signal %d after %s", name, e.Code-128, e.Ran)}
	}
	return job.Entry{Code: job.ProgramFailed, Message: fmt.Sprintf("%s ended with exit code %d after %s", name, e.Code, e.Ran)}
}

// tailBytes is how much of the end of a log is kept as evidence.
const tailBytes = 2048

// evidence keeps what helps to find the cause of a failure. What cannot be read is left out.
func (k *Kind) evidence(ctx context.Context, s *sheet) json.RawMessage {
	ev := map[string]any{"command": append(append([]string(nil), s.spec.Command...), s.spec.Arguments...), "host": k.cfg.Host.ID(), "folder": s.dir}
	if s.notes.End != nil {
		ev["end"] = s.notes.End
	}
	for _, name := range []string{s.spec.Stdout, s.spec.Stderr} {
		if b, err := Tail(ctx, k.cfg.Host.Files(), path.Join(s.dir, name), tailBytes); err == nil && len(b) > 0 {
			ev[name] = string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
		}
	}
	b, err := json.Marshal(ev)
	if err != nil {
		return nil
	}
	return b
}

// Tail returns the last n bytes of a file.
func Tail(ctx context.Context, fsys files.FS, name string, n int64) ([]byte, error) {
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
	return io.ReadAll(io.LimitReader(f, n))
}

// staging is the beginning of the names of the folders in which results of a job lie before they are published.
func staging(id job.ID) string { return ".pawl-" + id.String() + "-" }

// upload copies everything but inputs and the runner's own into a folder whose name carries the epoch.
func (k *Kind) upload(ctx context.Context, s *sheet) (*manifest, error) {
	m := &manifest{Staged: fmt.Sprintf("%s%d", staging(s.job.ID), s.job.Epoch)}
	staged := path.Join(s.to, m.Staged)
	if err := k.cfg.Files.Mkdir(ctx, staged); err != nil {
		return nil, err
	}
	inputs := k.staged(ctx, s)
	var walk func(rel string) error
	walk = func(rel string) error {
		list, err := k.cfg.Host.Files().List(ctx, path.Join(s.dir, rel))
		if rel == "" && errors.Is(err, fs.ErrNotExist) {
			return nil // somebody removed the job's folder: there is nothing to archive
		}
		if err != nil {
			return err
		}
		for _, f := range list {
			name := path.Join(rel, f.Name())
			switch {
			case name == runner.Folder || inputs.has(name, f):
			case name == ManifestFile:
				return fmt.Errorf("%s is the name of the archive's own manifest: let the program write to another name", ManifestFile)
			case f.IsDir():
				if err := k.cfg.Files.Mkdir(ctx, path.Join(staged, name)); err != nil {
					return err
				}
				if err := walk(name); err != nil {
					return err
				}
			case f.Mode().IsRegular():
				c, err := files.Copy(ctx, k.cfg.Files, path.Join(staged, name), k.cfg.Host.Files(), path.Join(s.dir, name), files.CopyOptions{})
				if err != nil {
					return err
				}
				m.Files = append(m.Files, archived{name, c.Size, c.SHA256})
			default:
				m.Skipped = append(m.Skipped, name)
			}
		}
		return nil
	}
	return m, walk("")
}

// publish gives the files of the manifest the names asked for. It replaces nothing that was there before, and finds
// what it had already published.
func (k *Kind) publish(ctx context.Context, s *sheet) error {
	m := s.notes.Manifest
	for _, f := range m.Files {
		staged, name := path.Join(s.to, m.Staged, f.Name), path.Join(s.to, f.Name)
		if err := k.cfg.Files.Mkdir(ctx, path.Dir(name)); err != nil {
			return err
		}
		err := k.cfg.Files.Link(ctx, staged, name)
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			if same, lookErr := k.holds(ctx, name, f); lookErr == nil && same {
				err = nil // published before a crash
			} else if errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("%s exists with other content: move it away, or archive to another folder", name)
			}
		}
		if err != nil {
			return err
		}
		crash.At("archive.linked")
	}
	list, err := json.MarshalIndent(m.Files, "", "  ")
	if err != nil {
		return err
	}
	// The manifest comes out of a folder as the files do, so that what a crash leaves of it goes with that folder.
	staged := path.Join(s.to, staging(s.job.ID)+"manifest")
	if err := k.cfg.Files.Mkdir(ctx, staged); err != nil {
		return err
	}
	if err := k.cfg.Files.Put(ctx, path.Join(staged, ManifestFile), bytes.NewReader(list), files.PutOptions{}); err != nil {
		return err
	}
	err = k.cfg.Files.Link(ctx, path.Join(staged, ManifestFile), path.Join(s.to, ManifestFile))
	if errors.Is(err, fs.ErrExist) {
		was, readErr := files.ReadFile(ctx, k.cfg.Files, path.Join(s.to, ManifestFile))
		if readErr == nil && bytes.Equal(was, list) {
			err = nil // published before a crash
		} else {
			err = fmt.Errorf("%s is there already, of another job's archive: archive to another folder", path.Join(s.to, ManifestFile))
		}
	}
	if err != nil {
		return err
	}
	crash.At("archive.listed")
	return k.tidy(ctx, s.job.ID, s.to) // with what runs that lost their epoch had uploaded
}

// holds reports whether a file has the content that the manifest says.
func (k *Kind) holds(ctx context.Context, name string, f archived) (bool, error) {
	info, err := k.cfg.Files.Stat(ctx, name)
	if err != nil || info.Size() != f.Size {
		return false, err
	}
	sum, err := files.Digest(ctx, k.cfg.Files, name)
	return sum == f.SHA256, err
}

// clean removes the job's folder and what the runner keeps for it.
func (k *Kind) clean(ctx context.Context, s *sheet) error {
	if s.notes.Handle != nil {
		if err := k.cfg.Runner.Clean(ctx, s.notes.Handle.Key, s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	crash.At("archive.forgotten")
	return k.cfg.Host.Files().Remove(ctx, s.dir)
}

func (s *sheet) result() json.RawMessage {
	var bytes int64
	for _, f := range s.notes.Manifest.Files {
		bytes += f.Size
	}
	b, err := json.Marshal(map[string]any{"exit_code": s.notes.End.Code, "archive": s.to, "files": len(s.notes.Manifest.Files), "bytes": bytes})
	if err != nil {
		return nil
	}
	return b
}
