package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// ManifestFile is the name of the manifest in the folder of an archive.
const ManifestFile = "pawl-manifest.json"

// A manifest lists what an archive consists of.
type manifest struct {
	// Staged is the folder of the files until they are published. A relative path is inside the
	// archive's folder.
	Staged  string          `json:"staged"`
	Files   []archived      `json:"files"`
	Folders []archiveFolder `json:"folders,omitempty"` // of the files, the outer ones first
	Skipped []string        `json:"skipped,omitempty"` // files that cannot be archived, and why
}

// An archiveFolder is a folder of an archive.
type archiveFolder struct {
	fileName
	Mode fs.FileMode `json:"mode"`
}

func (m *manifest) size() (s Size) {
	for _, f := range m.Files {
		s.add(f.Size, f.Holes)
	}
	return s
}

// folder returns the folder of the files until they are published in the folder to.
func (m *manifest) folder(to string) string {
	if path.IsAbs(m.Staged) {
		return m.Staged
	}
	return path.Join(to, m.Staged)
}

// whole reports whether the archive is published as a whole, by one rename of its folder.
func (m *manifest) whole() bool { return path.IsAbs(m.Staged) }

// archived is one file of an archive.
type archived struct {
	fileName
	Size   int64  `json:"size"`            // bytes
	Holes  int64  `json:"holes,omitempty"` // bytes of Size that take no room on disk
	SHA256 string `json:"sha256,omitempty"`
	Blocks string `json:"sha256_blocks,omitempty"` // instead, where the holes are very large: see [files.DigestBlocks]
}

// archivedAs returns the entry of a manifest for a file that was copied.
func archivedAs(name string, c files.Copied, info fs.FileInfo) archived {
	a := archived{named(name), c.Size, 0, c.SHA256, c.Blocks}
	if holes := c.Size - files.Allocated(info); holes >= 64<<10 { // less is how the file system counts
		a.Holes = holes
	}
	return a
}

// digested reports whether the content of a file fits the digest of a.
func (a archived) digested(ctx context.Context, fsys files.FS, name string) (bool, error) {
	digest, want := files.Digest, a.SHA256
	if a.Blocks != "" {
		digest, want = files.DigestBlocks, a.Blocks
	}
	got, err := digest(ctx, fsys, name)
	return got == want, err
}

// A fileName is the name of a file in a job's folder, in the form of [files.Text].
type fileName struct {
	Name string `json:"name"`
}

func named(name string) fileName { return fileName{files.Text(name)} }

func (n fileName) String() string { return files.Name(n.Name) }

// archive stores the results in four parts. Each part can be done again: upload under a name with
// the epoch, commit the manifest, give the files their names, clean the folder. Then the job ends.
func (k *Kind) archive(ctx context.Context, s *program, record recorder, tell printed.Tell) engine.Outcome {
	if o, stop := k.lastWords(ctx, s, record, tell); stop {
		return o
	}
	if k.cfg.Ran != nil && s.progress.End != nil {
		k.cfg.Ran(ctx, s.job, *s.progress.End)
	}
	o := k.archiveParts(ctx, s, record)
	if o.Fails(s.job) {
		o = o.Kept(s.result())
	}
	if errors.Is(context.Cause(ctx), engine.ErrCanceled) {
		k.leaveNothing(context.WithoutCancel(ctx), s)
	}
	return o
}

// leaveNothing removes copies of results that are not part of the archive. What is left goes
// with the leftovers.
func (k *Kind) leaveNothing(ctx context.Context, s *program) {
	var err error
	if s.own() { // it is published as a whole: no copies lie in it, and there is no marker
		err = removeCopies(ctx, k.cfg.Files, s.job.ID, k.stagingFolder(), false)
	} else {
		err = k.tidy(ctx, s.sys, s.job.ID, s)
	}
	if err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("copies of results stay in an archive until the next look for leftovers", "job", s.job.ID,
			"folder", s.results(), "error", err)
	}
}

func (k *Kind) archiveParts(ctx context.Context, s *program, record recorder) engine.Outcome {
	verdict := s.verdict()
	if err := k.unlaunched(ctx, s); err != nil && ctx.Err() == nil { // the attempt is not used up
		o := k.trouble(ctx, s, job.LaunchFailed, "launch", err)
		return o.At(job.SubmittingJob).Work(s.progress.anew().encode())
	}
	last := s.job.Attempt >= s.job.MaxAttempts || verdict.Code == job.DiskQuotaExceeded
	// fails returns a failure to archive. The message of a failure of the program comes first.
	fails := func(what string, into func() room, err error) engine.Outcome {
		if verdict.Code != job.NormalCompletion {
			what = verdict.Message + "; and its results were not archived: " + what
		}
		full := into != nil && noRoom(err)
		blocked := full || job.Blocking(err) != nil
		// A job that waits for room keeps no copies, except those of a manifest.
		last := last || trespass(err) || errors.Is(err, syscall.EDQUOT)
		if ctx.Err() == nil && (!blocked && last || blocked && s.progress.Manifest == nil) {
			k.leaveNothing(ctx, s)
		}
		if trespass(err) { // a link was changed meanwhile
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: what + ": " + err.Error()})
		}
		if full {
			at := into()
			if size, fits := at.fits(ctx); !fits {
				return engine.Fail(job.Entry{Code: job.FilesystemFull, Message: fmt.Sprintf(
					"%s: they take %d bytes, and on the file system of %s there would be room for %d at most: "+
						"name what is to stay in archive.exclude, or another folder in archive.to", what, at.need,
					at.root, size)})
			}
			err = k.full(ctx, at, err)
		}
		code := job.ArchiveFailed
		if errors.Is(err, fs.ErrExist) {
			code = job.ArchiveExists
		}
		return k.trouble(ctx, s, code, what, err)
	}
	if s.progress.Manifest == nil && verdict.Code == job.NormalCompletion && s.sys.shelled() {
		switch _, err := s.sys.Host.Files().Stat(ctx, s.unread()); {
		case err == nil:
			s.progress.Unbegun = true
			verdict = s.verdict()
		case !errors.Is(err, fs.ErrNotExist):
			return fails("look at "+s.unread(), nil, err)
		}
	}
	var left *leavings
	if s.progress.Manifest == nil && (verdict.Code == job.NormalCompletion || last) {
		var err error
		left, err = k.survey(ctx, s)
		if gone := errors.Is(err, fs.ErrNotExist); err != nil && (!gone || verdict.Code == job.NormalCompletion) {
			return fails("results in "+s.dir, func() room { return k.workRoom(s, 0) }, err)
		}
		if verdict.Code == job.NormalCompletion {
			s.progress.Missing = left.missing()
			verdict = s.verdict()
		}
	}
	if verdict.Code != job.NormalCompletion {
		verdict.Data = k.evidence(ctx, s)
		if !last {
			return engine.Retry(verdict).Work(s.progress.anew().encode())
		}
	}
	if on := s.spec.Archive.On; on == job.ArchiveNever || on == job.ArchiveSuccess &&
		verdict.Code != job.NormalCompletion {
		return k.unarchived(s, verdict)
	}
	if err := k.border().reach(ctx, s); err != nil {
		return fails("copy results to "+s.results(), nil, err)
	}
	if !s.own() {
		if err := s.sys.Host.Files().Mkdir(ctx, s.sys.marker(s.job.ID)); err != nil {
			return fails("mark the job in the work folder", func() room { return k.workRoom(s, 0) }, err)
		}
		crash.At("archive.announced")
	}
	if s.progress.Manifest == nil {
		m, err := k.upload(ctx, s, left, verdict.Code == job.NormalCompletion)
		if err != nil {
			into := func() room { return k.resultRoom(ctx, s, left.bytes) }
			return fails("copy results to "+s.results(), into, s.faultOf(err))
		}
		if missing := left.missing(); verdict.Code == job.NormalCompletion && missing != nil { // what could not be read
			s.progress.Missing = missing
			verdict = s.verdict()
			verdict.Message += leftOut(m.Skipped)
			verdict.Data = k.evidence(ctx, s)
			if !last {
				k.leaveNothing(ctx, s)
				return engine.Retry(verdict).Work(s.progress.anew().encode())
			}
		}
		s.progress.Manifest, s.progress.Unread = m, left.unread
		crash.At("archive.uploaded")
		if err := record(job.Entry{Message: m.size().String() + " copied" + leftOut(m.Skipped)},
			s.progress.encode()); err != nil {
			return engine.Back()
		}
	}
	crash.At("archive.committed")
	if err := k.publish(ctx, s); err != nil {
		what := fmt.Sprintf("publish results in %s (they are still in %s)", s.results(), s.dir)
		return fails(what, func() room { return k.resultRoom(ctx, s, 0) }, s.faultOf(err))
	}
	s.published = true
	crash.At("archive.published")
	if verdict.Code != job.NormalCompletion {
		return engine.Fail(verdict)
	}
	done := engine.Done(s.result())
	if n := len(s.progress.Unread); n > 0 { // a user with the rights may still take it from there
		return done.Explain(fmt.Sprintf("without what could not be archived: its folder is left in %s%s", s.dir,
			leftOut(s.progress.Unread)), nil)
	}
	if err := k.clean(ctx, s); err != nil {
		if ctx.Err() != nil || job.Shortage(err) || silent(s.job, err) != nil {
			return fails("remove "+s.dir, func() room { return k.workRoom(s, 0) }, err)
		}
		// The results are where they should be.
		done = done.Explain("its folder is left in "+s.dir+": "+files.Reason(err), nil)
	} else if s.distant() { // so nobody asks the machine where its files are
		s.progress.Cleaned = true
		done = done.Work(s.progress.encode())
	}
	crash.At("archive.cleaned")
	return done
}

// unarchived ends a job whose files stay in its folder, because archive.on says so.
func (k *Kind) unarchived(s *program, verdict job.Entry) engine.Outcome {
	if verdict.Code != job.NormalCompletion {
		return engine.Fail(verdict)
	}
	return engine.Done(s.result()).Explain("not archived (archive.on is never): the files stay in "+s.dir, nil)
}

// verdict says how the program ended.
func (s *program) verdict() job.Entry {
	e, name := s.progress.End, s.program()
	switch limit := s.progress.Limit; {
	case e != nil && e.NotStarted == runner.RanAgain:
		return job.Entry{Code: job.SchedulerRerun, Message: e.NotStarted + ", which rerun: fail does not allow"}
	case s.progress.Cause == job.SchedulerRejected:
		return job.Entry{Code: s.progress.Cause, Message: "refused: " + s.progress.Said}
	case s.progress.Cause != "":
		// The job, not the program: that may not have begun.
		return job.Entry{Code: s.progress.Cause, Message: "the scheduler ended it: " + s.progress.Said}
	case s.progress.Overtime && (e == nil || forced(e) || s.lasted() >= limit): // else it ended just in time
		return job.Entry{Code: job.TimeLimit, Message: fmt.Sprintf(
			"%s was ended after %s, which is all that resources.minutes gives it", name, brief(limit))}
	case s.progress.Lost || e == nil:
		msg := name + " is gone and left no exit code"
		if s.progress.Said != "" {
			msg += "; its launcher said: " + s.progress.Said
		}
		return job.Entry{Code: job.ProgramLost, Message: msg}
	case e.NotStarted == runner.OverQuota:
		return job.Entry{Code: job.DiskQuotaExceeded, Message: "could not be started: " + e.NotStarted}
	case e.NotStarted != "":
		return job.Entry{Code: job.LaunchFailed, Message: "could not be started: " + e.NotStarted}
	case s.progress.Unbegun:
		return job.Entry{Code: job.LaunchFailed, Message: "not started: login files ended " + strings.Join(s.sys.Shell, " ")}
	case e.Code == 0 && s.progress.Missing != nil:
		return job.Entry{Code: job.OutputMissing, Message: name + " ended well, and nothing of what it left fits " +
			"archive.required: " + strings.Join(s.progress.Missing, ", ")}
	case e.Code == 0:
		return job.Entry{Code: job.NormalCompletion}
	case e.Signal != 0:
		return job.Entry{Code: job.ProgramKilled, Message: fmt.Sprintf(
			"%s was ended by %s after %s", name, signalName(e.Signal), brief(e.Ran))}
	}
	msg := fmt.Sprintf("%s ended with exit code %d after %s", name, e.Code, brief(e.Ran))
	switch e.Code {
	case 126:
		msg += "; a shell says so of a program that may not be executed"
	case 127:
		msg += "; a shell says so of a program that it does not find"
	case 128 + int(syscall.SIGINT), 128 + int(syscall.SIGPIPE): // a shell says nothing of these
		msg += "; a shell says so too of a program that " + signalName(e.Code-128) + " ended"
	}
	return job.Entry{Code: job.ProgramFailed, Message: msg}
}

// forced reports whether a program may have been ended by a kill.
func forced(e *runner.End) bool {
	return e.Signal == int(syscall.SIGTERM) || e.Signal == int(syscall.SIGKILL)
}

// lasted returns how long a program ran, as its time limit counts: from the start of its launch,
// without the time for which it was suspended.
func (s *program) lasted() time.Duration {
	return s.progress.End.Waited + s.progress.End.Ran - s.progress.Suspended
}

// signalName names a signal, as in "signal 9 (killed)".
func signalName(n int) string { return fmt.Sprintf("signal %d (%s)", n, syscall.Signal(n)) }

// staging returns the beginning of the names of the folders that hold results of a job before they
// are published.
func staging(id job.ID) string { return stagingPrefix + id.String() + "-" }

const stagingPrefix = ".pawl-"

// clean removes the job's folder and what the runner keeps for it.
func (k *Kind) clean(ctx context.Context, s *program) error {
	made, err := k.made(s.sys, s.job)
	if err != nil {
		return err
	}
	made.folder = s.where(made.folder)
	if sw, ok := s.sys.Runner.(runner.FolderCleaner); ok && s.progress.Handle != nil && s.distant() {
		// If something stays, the way below tells what it is.
		if sw.CleanFolder(ctx, s.progress.Handle.Key, s.dir, made.folder) == nil {
			return nil
		}
	}
	if s.progress.Handle != nil {
		if err := s.sys.Runner.Clean(ctx, s.progress.Handle.Key, s.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	crash.At("archive.forgotten")
	return files.RemoveAll(ctx, s.sys.Host.Files(), made.folder)
}

// result returns what is kept of a job that has ended: how its program ended, and where its results
// are.
func (s *program) result() json.RawMessage {
	var r struct {
		ExitCode *int      `json:"exit_code,omitempty"`
		Started  time.Time `json:"started,omitzero"`
		Ran      string    `json:"ran,omitempty"`
		Archive  string    `json:"archive,omitempty"`
		Size     *Size     `json:"size,omitempty"`
		Usage    *Usage    `json:"usage,omitempty"`
	}
	if e := s.progress.End; e != nil && e.NotStarted == "" && !s.progress.Lost {
		r.ExitCode, r.Started, r.Ran, r.Usage = &e.Code, e.Began(), brief(e.Ran), s.usage()
	}
	if m := s.progress.Manifest; m != nil && s.published {
		size := m.size()
		r.Archive, r.Size = s.results(), &size
	}
	b, err := json.Marshal(r)
	if err != nil || string(b) == "{}" {
		return nil
	}
	return b
}
