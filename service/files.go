package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/jobfolder"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A File is one file of a job's output.
type File struct {
	// Its path in the job's folder or its results, with slashes. A byte that is not UTF-8 is
	// written as \xNN, in answers and in requests.
	Path     string    `json:"path"`
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`

	// Why it cannot be looked at. Then it may be a folder, and size and modified mean nothing.
	Problem string `json:"problem,omitempty"`
}

// fileAt returns the File of a file.
func fileAt(name string, info fs.FileInfo) File {
	return File{Path: files.Text(name), Size: info.Size(), Modified: info.ModTime().UTC()}
}

// unreadable returns the File of a name that cannot be looked at.
func unreadable(name string, err error) File {
	why := err.Error()
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		why = at.Err.Error()
	}
	return File{Path: files.Text(name), Problem: why}
}

// Output lists the regular files of a job, sorted by path: those in its folder while that is there,
// and then its results. It does not follow links, and leaves out Pawl's own files in the folder. A
// file that cannot be looked at is listed with its problem. The error is of kind NotFound if the
// job has no files yet, and for a task.
func (s *Service) Output(ctx context.Context, id job.ID) ([]File, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.onOtherMachine(&j) {
		return fromPeer(ctx, s, &j, func(p Peer) ([]File, error) { return p.Output(ctx, id) })
	}
	f, err := s.filesOf(&j)
	if err != nil {
		return nil, err
	}
	if f.Folder != "" {
		list, err := below(ctx, f.FolderFS, f.Folder, "")
		if !errors.Is(err, fs.ErrNotExist) {
			return list, err
		}
	}
	return archived(ctx, f)
}

// archived lists the files of a job in its results that are still there.
func archived(ctx context.Context, f engine.Files) ([]File, error) {
	if f.Archived == nil && f.Results != "" {
		all, err := below(ctx, f.ResultsFS, f.Results, "")
		if errors.Is(err, fs.ErrNotExist) {
			return []File{}, nil
		}
		return all, err
	}
	list := []File{}
	for _, name := range slices.Sorted(slices.Values(f.Archived)) {
		info, err := f.ResultsFS.Stat(ctx, path.Join(f.Results, name))
		switch {
		case err == nil && name != runner.Folder && !strings.HasPrefix(name, runner.Folder+"/"):
			list = append(list, fileAt(name, info))
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case files.Alone(err):
			list = append(list, unreadable(name, err))
		default:
			return nil, err
		}
	}
	return list, nil
}

// OpenOutput opens one file of a job for reading. The caller closes it. A path that leads out of
// the job's folder, by itself or through a symbolic link, is an error of kind Invalid.
func (s *Service) OpenOutput(ctx context.Context, id job.ID, name string) (File, io.ReadSeekCloser, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return File{}, nil, err
	}
	if s.onOtherMachine(&j) {
		return s.openThere(ctx, &j, name)
	}
	f, err := s.filesOf(&j)
	if err != nil {
		return File{}, nil, err
	}
	file, r, err := open(ctx, f, files.Name(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = job.Errorf(job.NotFound, "job %s has no file %s: see pawl output %s", j.ID, name, j.ID)
	case errors.Is(err, fs.ErrPermission):
		err = job.Errorf(job.Conflict, "job %s: %s may not be read by the user that runs Pawl: %w", j.ID, name, err)
	}
	return file, r, err
}

// filesOf returns where the files of a job of this machine are.
func (s *Service) filesOf(j *job.Job) (engine.Files, error) {
	k, err := s.keeper(j)
	if err != nil {
		return engine.Files{}, err
	}
	return k.Files(j)
}

func (s *Service) keeper(j *job.Job) (engine.Keeper, error) {
	k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper)
	switch {
	case ok:
		return k, nil
	case j.Program():
		return nil, job.Errorf(job.Unavailable, "this process does not keep the files of programs")
	}
	return nil, job.Errorf(job.NotFound, "job %s is a task and has no files and no log: see pawl history %s", j.ID,
		j.ID)
}

// below lists the regular files in a folder, at any depth. name is the path of the folder within
// root.
func below(ctx context.Context, fsys files.FS, root, name string) ([]File, error) {
	infos, err := fsys.List(ctx, path.Join(root, name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != "": // removed meanwhile
		return nil, nil
	case name != "" && files.Alone(err):
		return []File{unreadable(name, err)}, nil
	case err != nil:
		return nil, err
	}
	list := []File{}
	for _, info := range infos {
		p := path.Join(name, info.Name())
		switch {
		case p == runner.Folder:
		case files.Fault(info) != nil:
			list = append(list, unreadable(p, files.Fault(info)))
		case info.IsDir():
			more, err := below(ctx, fsys, root, p)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		case info.Mode().IsRegular():
			list = append(list, fileAt(p, info))
		}
	}
	return list, nil
}

// open opens a file in a job's folder, or else in its results. The error is fs.ErrNotExist if
// neither has it.
func open(ctx context.Context, f engine.Files, name string) (File, io.ReadSeekCloser, error) {
	if !jobfolder.Has(name) {
		return File{}, nil, jobfolder.Outside(name)
	}
	for i, root := range []string{f.Folder, f.Results} {
		fsys := []files.FS{f.FolderFS, f.ResultsFS}[i]
		if root == "" || root == f.Results && f.Archived != nil && !slices.Contains(f.Archived, name) {
			continue
		}
		switch r, info, err := jobfolder.Open(ctx, fsys, root, name); {
		case err == nil:
			return File{Path: files.Text(name), Size: info.Size(), Modified: info.ModTime().UTC()}, r, nil
		case !errors.Is(err, fs.ErrNotExist):
			return File{}, nil, err
		}
	}
	return File{}, nil, fs.ErrNotExist
}

// A Peer is a process of another machine. It is asked for the files of jobs that belong to that
// machine. Its methods return what the same methods of [Service] return there, errors included. An
// error of kind Unavailable says that the process could not be asked, or is not the one that was
// meant; then the next process of the machine is asked. The methods are safe for concurrent use.
type Peer interface {
	Output(ctx context.Context, id job.ID) ([]File, error)
	// OpenOutput and Log begin an answer. It can be read for as long as ctx lasts.
	OpenOutput(ctx context.Context, id job.ID, name string) (File, io.ReadSeekCloser, error)
	Log(ctx context.Context, id job.ID, q LogQuery) (io.ReadCloser, error)
	// Delete deletes a job that has ended, with its files. It can be repeated.
	Delete(ctx context.Context, id job.ID) error
}

// A PeerAsk says which process is asked, and in whose name.
type PeerAsk struct {
	Process   store.Process // has a machine and an address
	Tenant    string
	Principal string
}

// Here returns a service that asks no other machine. It answers requests that another process has
// sent here: from this machine, or not at all.
func (s *Service) Here() *Service {
	other := *s
	other.cfg.Peer = nil
	return &other
}

// onOtherMachine reports whether the files of a job are on another machine. A process that runs no
// programs and has no Config.Peer looks for them on its own machine.
func (s *Service) onOtherMachine(j *job.Job) bool {
	return j.Machine != "" && j.Machine != s.cfg.Machine && (s.cfg.Machine != "" || s.cfg.Peer != nil)
}

// fromPeer asks the live processes of a job's machine that have an address, one after the other,
// until one answers. It says from fresh rows, never from memory, that none is there. Addresses and
// errors of peers go into the log only: the caller may not be the operator.
func fromPeer[T any](ctx context.Context, s *Service, j *job.Job, ask func(Peer) (T, error)) (answer T, err error) {
	if s.cfg.Peer == nil {
		return answer, unreachable(j.Machine, ": ask a process there; pawl workers lists them")
	}
	var sessions []store.SessionInfo
	var heard time.Time        // when the silent ones were heard of last
	asked := map[job.ID]bool{} // by their sessions
	for _, look := range []func(context.Context) ([]store.SessionInfo, error){s.sessions.there, s.sessions.now} {
		if sessions, err = look(ctx); err != nil {
			return answer, err
		}
		for i := range sessions {
			p := &sessions[i].Process
			if p.Machine != j.Machine || p.Address == "" || !sessions[i].Live || asked[sessions[i].ID] {
				continue
			}
			asked[sessions[i].ID] = true
			answer, err = ask(s.cfg.Peer(PeerAsk{Process: *p, Tenant: s.cfg.Tenant, Principal: s.cfg.Principal}))
			kind := job.KindOf(err)
			switch {
			case err == nil:
				return answer, nil
			case ctx.Err() != nil:
				return answer, context.Cause(ctx)
			case kind != job.Unavailable && kind != job.Closed:
				return answer, err
			}
			if heard.Before(sessions[i].Renewed) {
				heard = sessions[i].Renewed
			}
			s.logSilence(ctx, j, p, err)
		}
	}
	if len(asked) > 0 {
		return answer, unreachable(j.Machine, ", and no process there answers: the database has heard of one at "+
			heard.Local().Format(time.RFC3339)+
			"; ask again, or ask an administrator: the log of the service says what is wrong")
	}
	return answer, unreachable(j.Machine, whyNobody(j.Machine, sessions))
}

// logSilence logs that a process does not answer a question about a job.
func (s *Service) logSilence(ctx context.Context, j *job.Job, p *store.Process, err error) {
	what := "a process of another machine does not answer"
	if p.LeadsNowhere() {
		what += ": its address is one within its host, so set peer.listen or peer.url there"
	}
	s.cfg.Log.WarnContext(ctx, what, "job", j.ID, "machine", j.Machine, "process", p.String(), "address", p.Address,
		"error", err)
}

// unreachable returns the error about files on a machine that cannot be asked. It wraps no error,
// because its text is for the caller.
func unreachable(machine, why string) error {
	return job.Errorf(job.Unavailable, "the files of the job are on machine %s%s", machine, why)
}

// whyNobody says why no process of a machine can be asked.
func whyNobody(machine string, sessions []store.SessionInfo) string {
	if gone := goneFrom(machine, sessions); gone != nil {
		return gone.since() + ": start one there, and ask again"
	}
	return ", whose processes serve no address: start one there with the role api, or with --peer-listen"
}

// A peerFile is a file of another machine with its content.
type peerFile struct {
	File
	io.ReadSeekCloser
}

func (s *Service) openThere(ctx context.Context, j *job.Job, name string) (File, io.ReadSeekCloser, error) {
	if !jobfolder.Has(name) {
		return File{}, nil, jobfolder.Outside(name)
	}
	f, err := fromPeer(ctx, s, j, func(p Peer) (f peerFile, err error) {
		f.File, f.ReadSeekCloser, err = p.OpenOutput(ctx, j.ID, name)
		return f, err
	})
	return f.File, f.ReadSeekCloser, err
}

// logThere opens the log of a job that belongs to another machine.
func (s *Service) logThere(ctx context.Context, j *job.Job, q LogQuery) (io.ReadCloser, error) {
	if !q.Follow {
		return fromPeer(ctx, s, j, func(p Peer) (io.ReadCloser, error) { return p.Log(ctx, j.ID, q) })
	}
	f := &peerLog{s: s, id: j.ID}
	ctx, f.stop = context.WithCancelCause(ctx)
	f.ctx = ctx
	r, err := fromPeer(ctx, s, j, func(p Peer) (io.ReadCloser, error) { return p.Log(ctx, j.ID, q) })
	if err != nil {
		f.stop(err)
		return nil, err
	}
	f.log = r
	f.watching.Go(func() {
		select {
		case <-q.Until:
			f.stop(errEnough)
		case <-ctx.Done():
		}
	})
	return f, nil
}

// errEnough is the cause that ends following early, on request.
var errEnough = errors.New("enough has been read")

// A peerLog is a log that a peer follows.
type peerLog struct {
	s        *Service
	ctx      context.Context
	stop     context.CancelCauseFunc
	watching sync.WaitGroup
	id       job.ID
	log      io.ReadCloser
}

// Read tells the end of the job from the end of the process that follows. The latter is an error.
func (f *peerLog) Read(p []byte) (int, error) {
	n, err := f.log.Read(p)
	switch {
	case err == nil:
	case errors.Is(context.Cause(f.ctx), errEnough):
		err = io.EOF
	case f.ctx.Err() != nil:
		err = context.Cause(f.ctx)
	case errors.Is(err, io.EOF):
		j, lost := f.s.Job(f.ctx, f.id)
		switch {
		case job.KindOf(lost) == job.NotFound: // it has ended, and was deleted
		case lost != nil:
			err = lost
		case !j.State.Terminal():
			err = unreachable(j.Machine, ", and the process there that followed the log has stopped: ask again")
		}
	}
	return n, err
}

func (f *peerLog) Close() error {
	f.stop(context.Canceled)
	err := f.log.Close()
	f.watching.Wait()
	return err
}

// deleteThere deletes a job on the machine that it belongs to.
func (s *Service) deleteThere(ctx context.Context, j *job.Job) error {
	asked := 0
	_, err := fromPeer(ctx, s, j, func(p Peer) (struct{}, error) {
		err := p.Delete(ctx, j.ID)
		if asked++; asked > 1 && job.KindOf(err) == job.NotFound {
			err = nil // one that was asked before has done it, and its answer was lost
		}
		return struct{}{}, err
	})
	return err
}
