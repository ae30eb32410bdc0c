package pawl

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Peer is a process of another machine, which is asked for the files of jobs that belong to that machine. What its
// methods answer is what the methods of [Service] answer there, and so are their errors. An error of kind Unavailable says
// that the process could not be asked, or is another one than was meant: the next one of the machine is asked then. They
// are safe for concurrent use.
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

// Here returns the service that asks no process of another machine: whom another process has sent here is answered from
// here, or not at all.
func (s *Service) Here() *Service {
	other := *s
	other.cfg.Peer = nil
	return &other
}

// elsewhere reports whether the files of a job are on another machine. A process that runs no programs, and that nobody
// told how to ask others, looks for them where it is.
func (s *Service) elsewhere(j *job.Job) bool {
	return j.Machine != "" && j.Machine != s.cfg.Machine && (s.cfg.Machine != "" || s.cfg.Peer != nil)
}

// fromPeer asks the live processes of a job's machine that have an address in turn, until one of them answers. That nobody
// does is not said from memory. Where a process is, and what became of asking it, stands in the log: whoever asks may not
// be whoever runs the service.
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
		return answer, unreachable(j.Machine, ", and no process there answers: the database has heard of one at "+heard.Local().Format(time.RFC3339)+
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
	s.cfg.Log.WarnContext(ctx, what, "job", j.ID, "machine", j.Machine, "process", p.String(), "address", p.Address, "error", err)
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

// unreachable is the error of files on a machine that cannot be asked for them. It wraps nothing, because its text is for
// whoever asked.
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
