package pawl

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A File is one file of a job's output.
type File struct {
	// Its path in the job's folder or its results, with slashes. A byte that is no UTF-8 is written
	// as \xNN, and so it is asked for.
	Path     string    `json:"path"`
	Size     int64     `json:"size"` // bytes
	Modified time.Time `json:"modified"`

	// Why it cannot be looked at; then it may be a folder, and size and time say nothing.
	Problem string `json:"problem,omitempty"`
}

// fileAt returns what is said of a file.
func fileAt(name string, info fs.FileInfo) File {
	return File{Path: files.Text(name), Size: info.Size(), Modified: info.ModTime().UTC()}
}

// amiss returns what is said of a name that cannot be looked at.
func amiss(name string, err error) File {
	why := err.Error()
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		why = at.Err.Error()
	}
	return File{Path: files.Text(name), Problem: why}
}

// Output lists the regular files of a job, sorted by path: those in its folder while that is there,
// and its results after that. Links are not followed, and what Pawl itself keeps in the folder is
// left out. What cannot be looked at is among them, with its problem. The error is NotFound while
// the job has no files yet, and for a task.
func (s *Service) Output(ctx context.Context, id job.ID) ([]File, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.elsewhere(&j) {
		return fromPeer(ctx, s, &j, func(p Peer) ([]File, error) { return p.Output(ctx, id) })
	}
	f, err := s.filesOf(&j)
	if err != nil {
		return nil, err
	}
	list, err := below(ctx, f.FS, f.Folder, "")
	if errors.Is(err, fs.ErrNotExist) {
		return archived(ctx, f)
	}
	return list, err
}

// archived lists the files in a job's results that are its own and still there.
func archived(ctx context.Context, f engine.Files) ([]File, error) {
	if f.Archived == nil && f.Results != "" {
		all, err := below(ctx, f.FS, f.Results, "")
		if errors.Is(err, fs.ErrNotExist) {
			return []File{}, nil
		}
		return all, err
	}
	list := []File{}
	for _, name := range slices.Sorted(slices.Values(f.Archived)) {
		info, err := f.FS.Stat(ctx, path.Join(f.Results, name))
		switch {
		case err == nil && name != runner.Folder && !strings.HasPrefix(name, runner.Folder+"/"):
			list = append(list, fileAt(name, info))
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case files.Alone(err):
			list = append(list, amiss(name, err))
		default:
			return nil, err
		}
	}
	return list, nil
}

// OpenOutput opens one file of a job for reading, which the caller closes. A path that leads out of
// the job's folder, by itself or through a symbolic link, is Invalid.
func (s *Service) OpenOutput(ctx context.Context, id job.ID, name string) (File, io.ReadSeekCloser, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return File{}, nil, err
	}
	if s.elsewhere(&j) {
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

// filesOf returns where the files of a job are, which belongs to this machine.
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

// below lists the regular files in a folder and below it. name is the folder's path within root.
func below(ctx context.Context, fsys files.FS, root, name string) ([]File, error) {
	infos, err := fsys.List(ctx, path.Join(root, name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != "": // removed meanwhile
		return nil, nil
	case name != "" && files.Alone(err):
		return []File{amiss(name, err)}, nil
	case err != nil:
		return nil, err
	}
	list := []File{}
	for _, info := range infos {
		p := path.Join(name, info.Name())
		switch {
		case p == runner.Folder:
		case files.Fault(info) != nil:
			list = append(list, amiss(p, files.Fault(info)))
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

// open opens a file in a job's folder, or else in its results. The error is fs.ErrNotExist where
// neither has it.
func open(ctx context.Context, f engine.Files, name string) (File, io.ReadSeekCloser, error) {
	if !inner(name) {
		return File{}, nil, outside(name)
	}
	for _, root := range []string{f.Folder, f.Results} {
		if root == "" || root == f.Results && f.Archived != nil && !slices.Contains(f.Archived, name) {
			continue
		}
		full, err := within(ctx, f.FS, root, name)
		if err == nil {
			file, r, err := openAt(ctx, f.FS, full)
			if err == nil {
				file.Path = files.Text(name)
				return file, r, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return File{}, nil, err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return File{}, nil, err
		}
	}
	return File{}, nil, fs.ErrNotExist
}

func openAt(ctx context.Context, fsys files.FS, full string) (File, io.ReadSeekCloser, error) {
	r, err := fsys.Open(ctx, full)
	if err != nil {
		return File{}, nil, err
	}
	info, err := fsys.Stat(ctx, full)
	if err != nil {
		return File{}, nil, errors.Join(err, r.Close())
	}
	return File{Size: info.Size(), Modified: info.ModTime().UTC()}, r, nil
}

// inner reports whether a path is one of a file in a job's folder, as far as it says that itself.
func inner(name string) bool {
	return fs.ValidPath(strings.ToValidUTF8(name, "?")) && name != "." && !strings.ContainsRune(name, 0)
}

func outside(name string) error {
	return job.Errorf(job.Invalid, "%q is not the path of a file in the job's folder: give one without .. that "+
		"no link leads out of it", name)
}

// within returns the name of a file in the folder root, with links followed where that can be done,
// and refuses one that is not below root. What Pawl keeps there for itself is as if it were not
// there: it holds the environment.
func within(ctx context.Context, fsys files.FS, root, name string) (string, error) {
	full := path.Join(root, name)
	if r, ok := fsys.(files.Linker); ok {
		var err error
		if root, err = r.Resolve(ctx, root); err != nil {
			return "", err
		}
		if full, err = r.Resolve(ctx, full); err != nil {
			return "", err
		}
		var inside bool
		if name, inside = strings.CutPrefix(full, strings.TrimSuffix(root, "/")+"/"); !inside {
			return "", outside(name)
		}
	} else if err := noLinks(ctx, fsys, root, name); err != nil {
		return "", err
	}
	if name == runner.Folder || strings.HasPrefix(name, runner.Folder+"/") {
		return "", fs.ErrNotExist
	}
	return full, nil
}

// noLinks refuses a path in root that has a symbolic link on its way.
func noLinks(ctx context.Context, fsys files.FS, root, name string) error {
	dir := root
next:
	for part := range strings.SplitSeq(name, "/") {
		infos, err := fsys.List(ctx, dir)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if info.Name() == part {
				if info.Mode().Type() == fs.ModeSymlink {
					return outside(name)
				}
				dir = path.Join(dir, part)
				continue next
			}
		}
		return fs.ErrNotExist
	}
	return nil
}

// A Peer is a process of another machine, which is asked for the files of jobs that belong to that
// machine. What its methods answer is what the methods of [Service] answer there, and so are their
// errors. An error of kind Unavailable says that the process could not be asked, or is another one
// than was meant: the next one of the machine is asked then. They are safe for concurrent use.
type Peer interface {
	Output(ctx context.Context, id job.ID) ([]File, error)
	// OpenOutput and Log begin an answer that is read as it comes, for as long as ctx lasts.
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

// Here returns the service that asks no process of another machine: whom another process has sent
// here is answered from here, or not at all.
func (s *Service) Here() *Service {
	other := *s
	other.cfg.Peer = nil
	return &other
}

// elsewhere reports whether the files of a job are on another machine. A process that runs no
// programs, and that nobody told how to ask others, looks for them where it is.
func (s *Service) elsewhere(j *job.Job) bool {
	return j.Machine != "" && j.Machine != s.cfg.Machine && (s.cfg.Machine != "" || s.cfg.Peer != nil)
}

// fromPeer asks the live processes of a job's machine that have an address in turn, until one of
// them answers. That nobody does is not said from memory. Where a process is, and what became of
// asking it, stands in the log: whoever asks may not be whoever runs the service.
func fromPeer[T any](ctx context.Context, s *Service, j *job.Job, ask func(Peer) (T, error)) (answer T, err error) {
	if s.cfg.Peer == nil {
		return answer, unreachable(j.Machine, ": ask a process there; pawl workers lists them")
	}
	var sessions []store.SessionInfo
	var heard time.Time        // of those that do not answer
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
			s.silent(ctx, j, p, err)
		}
	}
	if len(asked) > 0 {
		return answer, unreachable(j.Machine, ", and no process there answers: the database has heard of one at "+
			heard.Local().Format(time.RFC3339)+
			"; ask again, or whoever runs the service, whose log says what is wrong")
	}
	return answer, unreachable(j.Machine, nobodyOn(j.Machine, sessions))
}

// silent logs that a process does not answer what is asked for a job.
func (s *Service) silent(ctx context.Context, j *job.Job, p *store.Process, err error) {
	what := "a process of another machine does not answer"
	if astray(p) {
		what += ": its address is one within its host, so set peer.listen or peer.url there"
	}
	s.cfg.Log.WarnContext(ctx, what, "job", j.ID, "machine", j.Machine, "process", p.String(), "address", p.Address,
		"error", err)
}

// astray reports that the address of a process cannot lead to it, where that shows.
func astray(p *store.Process) bool {
	u, err := url.Parse(p.Address)
	if err != nil {
		return false
	}
	here, err := os.Hostname()
	return err == nil && p.Host != here && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// unreachable is the error of files on a machine that cannot be asked for them. It wraps nothing,
// because its text is for whoever asked.
func unreachable(machine, why string) error {
	return job.Errorf(job.Unavailable, "the files of the job are on machine %s%s", machine, why)
}

// nobodyOn says why no process of a machine can be asked.
func nobodyOn(machine string, sessions []store.SessionInfo) string {
	if gone := goneFrom(machine, sessions); gone != nil {
		return gone.since() + ": start one there, and ask again"
	}
	return ", whose processes serve no address: start one there with the role api, or with --peer-listen"
}

// A farFile is a file of another machine with its content.
type farFile struct {
	File
	io.ReadSeekCloser
}

func (s *Service) openThere(ctx context.Context, j *job.Job, name string) (File, io.ReadSeekCloser, error) {
	if !inner(name) {
		return File{}, nil, outside(name)
	}
	f, err := fromPeer(ctx, s, j, func(p Peer) (f farFile, err error) {
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
	f := &farLog{s: s, id: j.ID}
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

// errEnough is the cause with which following ends early, as it was asked to.
var errEnough = errors.New("enough has been read")

// A farLog is a log that a peer follows.
type farLog struct {
	s        *Service
	ctx      context.Context
	stop     context.CancelCauseFunc
	watching sync.WaitGroup
	id       job.ID
	log      io.ReadCloser
}

// Read tells the end of the job from that of the process which follows: that one is an error.
func (f *farLog) Read(p []byte) (int, error) {
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

func (f *farLog) Close() error {
	f.stop(context.Canceled)
	err := f.log.Close()
	f.watching.Wait()
	return err
}

// deleteThere deletes a job that belongs to another machine, where its files are.
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
