package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// An attachment is where a run works: in this process, which has the folder's lock then and runs
// the jobs, or at the process that has it.
type attachment struct {
	*target.Target
	node  *node.Node   // nil: another process, or a server, runs the jobs
	broke chan error   // the service of this process has ended, with this
	start func()       // begins to run jobs in this process
	stop  func() error // ends the service of this process in good order; the folder stays open
	leave func() error // gives up the attachment
}

// errDetached says that the process that runs the jobs has gone.
var errDetached = errors.New("the process that runs the jobs has gone")

// A process that begins or ends has the lock for a moment without listening. One that is stopped
// listens, and is silent.
const (
	attachPatience = 10 * time.Second
	attachRetry    = 50 * time.Millisecond
	attachQuiet    = 3 * time.Second // after which a wait for the other process is told
)

// attach takes the folder, or asks the process that has it.
func (r *run) attach(ctx context.Context, signals <-chan os.Signal) (*attachment, error) {
	if r.server != nil {
		return r.attachServer()
	}
	slow := time.AfterFunc(attachQuiet, r.tellWait)
	defer slow.Stop()
	for begun := time.Now(); ; {
		s, err := r.serve(ctx)
		if job.KindOf(err) != job.Locked || folder.Away(err) != nil {
			return s, err
		}
		if at, noAnswer := target.OfProcess(ctx, r.dir); noAnswer == nil {
			if r.atOnce > 0 && r.order == nil {
				return nil, errors.Join(errNotHere(at, r.atOnce), at.Close())
			}
			return attachTo(at), nil
		}
		if time.Since(begun) > r.patience {
			meaning := "nothing was submitted"
			if r.order != nil {
				meaning = "the jobs are left as they are"
			}
			return nil, fmt.Errorf("%w, which does not answer; %s: wait for its end, or stop it", err, meaning)
		}
		select {
		case <-time.After(attachRetry):
		case <-signals:
			return nil, errLeft
		}
	}
}

// attachServer attaches to the server.
func (r *run) attachServer() (*attachment, error) {
	at, err := target.OfServer(r.server)
	if err != nil {
		return nil, err
	}
	return attachTo(at), nil
}

// attachTo returns an attachment through which the jobs are seen that others run.
func attachTo(at *target.Target) *attachment {
	return &attachment{Target: at, start: func() {}, stop: func() error { return nil }, leave: at.Close}
}

// serve takes the folder for this process. Jobs run from start on.
func (r *run) serve(ctx context.Context) (*attachment, error) {
	o := node.Options{Jobs: r.atOnce, Concerns: func(system string) bool {
		_, own := r.systems.Load(system)
		return own
	}}
	if r.view.Terminal() {
		o.Log = r.view
	}
	n, err := node.Open(ctx, r.dir, o)
	if err != nil {
		return nil, err
	}
	// An accepted job can be canceled, so cancel requests are served before the job is submitted.
	serving, cut := context.WithCancel(ctx)
	hangUp, err := n.Listen(serving)
	if err != nil {
		cut()
		return nil, errors.Join(fmt.Errorf("listen on the folder's socket: %w", err), n.Close())
	}
	running, quit := context.WithCancel(ctx)
	s := &attachment{Target: target.OfNode(n), node: n, broke: make(chan error, 1)}
	ended := make(chan struct{})
	var broke error
	s.start = sync.OnceFunc(func() {
		go func() {
			defer close(ended)
			broke = n.Run(running)
			hangUp() // the request that told it to stop is answered
			cut()
			s.broke <- broke
		}()
	})
	s.stop = sync.OnceValue(func() error {
		hangUp() // requests that wait for the end of another job are answered first
		quit()
		s.start()
		<-ended
		return broke
	})
	s.leave = func() error {
		s.stop() //nolint:errcheck // it has been told
		return n.Close()
	}
	return s, nil
}

// alone returns an attachment that reads the folder directly, even if another process runs jobs in
// it, where that can be.
func (s *attachment) alone(ctx context.Context) (*attachment, error) {
	if s.node != nil || s.Server != nil {
		return s, nil
	}
	if folder.Shared(s.Dir) {
		return s, nil // others have the jobs
	}
	at, err := target.OfReader(ctx, s.Dir)
	if err != nil {
		return s, err
	}
	return &attachment{
		Target: at, stop: s.stop,
		leave: func() error { return errors.Join(s.leave(), at.Close()) },
	}, nil
}

// show puts a job's row on the board.
func (r *run) show(v *service.View) {
	r.jobs[v.ID].far = v.Watch != v.Machine
	var spec struct{ System string }
	if json.Unmarshal(v.Request, &spec) == nil && spec.System != "" {
		r.systems.Store(spec.System, true)
	}
	f := live.Facts{Ref: r.jobs[v.ID].ref, Folder: v.Folder, Results: v.Results, Limit: limitOf(&v.Job)}
	if f.Results == "" && v.State == job.Finished {
		f.Results = v.Folder
	}
	for _, i := range job.Codes {
		if v.State == job.Failed && i.Code == v.Code {
			f.Advice = term.Typed(r.cmd, strings.ReplaceAll(i.Remedy, "JOB", f.Ref))
		}
	}
	r.view.Row(&v.Job, f)
}

// unfinished returns the programs of the folder that have not ended.
func (s *attachment) unfinished(ctx context.Context) (ids []job.ID, err error) {
	q := store.Query{Filter: job.Unended().And("kind", job.Is, job.KindApp), Limit: target.MostListed}
	for more := true; more; more = q.Cursor != "" {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			ids = append(ids, page.Jobs[i].ID)
		}
		q.Cursor = page.Next
	}
	return ids, nil
}
