package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// A runJob is what a run knows of one of its jobs.
type runJob struct {
	ref     string
	name    string
	state   job.State
	since   job.Event // with which it came into its state
	stopped time.Time // when nothing of the launch before was alive any more
	logs    *follower // of the program that runs
	stream  *stream   // of a server, or of a program on another machine: the logs of all its launches
	far     bool      // its program runs on another machine
}

// over reports whether nothing more happens to the job without somebody's wish.
func (j *runJob) over() bool { return j.state.Terminal() || j.state == job.Paused }

// A run that shows many jobs does not look at each of them all the time.
const (
	mostFollowed = 50 // logs at a time
	mostClose    = 50 // jobs whose rows are read at each event
	mostProgress = 20 // jobs that are asked for their progress
)

// add takes in one of the run's own jobs.
func (r *run) add(ctx context.Context, s *attachment, v *service.View) {
	r.jobs[v.ID] = &runJob{ref: s.Ref(ctx, &v.Job), name: v.Name, state: v.State}
	r.show(v)
}

// greet says that a job was added. If it existed before, its past events are shown.
func (r *run) greet(ctx context.Context, s *attachment, v *service.View, existed bool) error {
	switch {
	case len(r.order) > 1:
	case existed && v.State.Terminal():
		fmt.Fprintf(r.view, "job %s (%s) has already ended %s: to run it again, give it another external_id\n",
			v.Name, v.ID, v.State)
		return nil
	case existed && r.view.Terminal(): // there the board says the rest
		fmt.Fprintf(r.view, "job %s goes on\n", v.Name)
	case existed:
		fmt.Fprintf(r.view, "job %s (%s) goes on: it is %s\n", v.Name, v.ID, v.State)
	case !r.view.Terminal():
		fmt.Fprintf(r.view, "job %s (%s) submitted\n", v.Name, v.ID)
	}
	if !existed {
		return nil
	}
	return r.replay(ctx, s, v.ID)
}

// replay takes in what has happened to a job.
func (r *run) replay(ctx context.Context, s *attachment, id job.ID) error {
	if len(r.order) > mostClose {
		return nil
	}
	h, err := s.History(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range h.Events {
		if err := r.take(ctx, s, e); err != nil {
			return err
		}
	}
	return nil
}

// catchUp looks at the jobs again at a new attachment. At the one before, not all may have become
// known.
func (r *run) catchUp(ctx context.Context, s *attachment) error {
	for _, id := range r.order {
		v, err := s.Job(ctx, id)
		if err != nil {
			return err
		}
		if r.jobs[id] == nil {
			r.add(ctx, s, &v)
			err = r.greet(ctx, s, &v, true)
		} else {
			r.show(&v)
			err = r.replay(ctx, s, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// last takes in how a job stands at the end, which may be farther than its last event that was
// seen.
func (r *run) last(ctx context.Context, s *attachment, v *service.View) error {
	j := r.jobs[v.ID]
	if j == nil {
		j = &runJob{ref: s.Ref(ctx, &v.Job), name: v.Name}
		r.jobs[v.ID] = j
	}
	r.show(v)
	if v.State == j.state || len(r.order) > mostClose {
		return nil
	}
	h, err := s.History(ctx, v.ID)
	for _, e := range h.Events {
		r.view.Event(e)
	}
	return err
}

// watch shows what happens to the jobs until all are over. It returns nil then, and errLeft when
// they are left, whatever this process is waiting for at that time.
func (r *run) watch(ctx context.Context, s *attachment, signals <-chan os.Signal) error {
	ctx, end := context.WithCancelCause(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end(nil)
	news := make(chan store.Event)
	lost := make(chan error, 1)
	helpers.Go(func() {
		for n, err := range s.Events(ctx, client.EventQuery{After: r.cursor, Follow: true}) {
			if err != nil {
				lost <- err
				return
			}
			select {
			case news <- n:
			case <-ctx.Done():
				return
			}
		}
		lost <- nil
	})
	cancel := make(chan struct{}, 1)
	helpers.Go(func() {
		for ctx.Err() == nil {
			switch r.view.Stopped(ctx, signals) {
			case live.Leave:
				end(errLeft)
			case live.Cancel:
				select {
				case cancel <- struct{}{}:
				default: // it waits already, for an answer to something else
				}
			}
		}
	})
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for r.left() > 0 {
		select {
		case n := <-news:
			if err := r.take(ctx, s, n.Event); err != nil {
				return r.lost(ctx, s, err)
			}
			r.cursor = n.Cursor
		case err := <-lost:
			return r.lost(ctx, s, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.broke:
			return cmp.Or(err, errLeft) // it was told to stop
		case <-clock.C:
			r.progress(ctx, s)
		case <-cancel:
			if err := r.cancel(ctx, s); err != nil {
				return r.lost(ctx, s, err)
			}
		}
	}
	return nil
}

// lost makes the error of an attachment at which nobody answers any more.
func (r *run) lost(ctx context.Context, s *attachment, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.node == nil && (err == nil || job.KindOf(err) == job.Unavailable) {
		return errDetached
	}
	return cmp.Or(err, s.stop(), errLeft) // without an error it was told to stop
}

// left returns how many jobs are not over.
func (r *run) left() (n int) {
	for _, j := range r.jobs {
		if !j.over() {
			n++
		}
	}
	return n
}

// cancel asks for the end of all jobs that have not ended.
func (r *run) cancel(ctx context.Context, s *attachment) error {
	for _, id := range r.order {
		if r.jobs[id].state.Terminal() {
			continue
		}
		if _, _, err := s.Cancel(ctx, id, 0); err != nil && job.KindOf(err) != job.Conflict {
			return err
		}
	}
	return nil
}

// take takes in an event, if it is of one of the run's own jobs.
func (r *run) take(ctx context.Context, s *attachment, e job.Event) error {
	j := r.jobs[e.Job]
	if j == nil || e.N <= j.since.N {
		return nil
	}
	stays := j.since.N > 0 && e.State == j.since.State
	if !stays && j.logs != nil {
		j.logs.finish() // what the program wrote before its end is shown before that
		j.logs = nil
	}
	retried := j.since.State == job.Running && (e.State == job.Pending || e.State == job.Waiting)
	if !stays && j.since.State == job.Archiving || retried {
		j.stopped = e.At // what the program left running has been ended, too
	}
	if e.State.Terminal() || len(r.order) <= mostClose {
		v, err := s.Job(ctx, e.Job)
		if err != nil {
			return err
		}
		r.show(&v)
	}
	begins := job.Begins(j.since.State, e.State) && r.followed() < mostFollowed
	if begins && e.State != job.Running { // it has ended, too: what it wrote is shown before that
		if err := r.follow(ctx, s, e); err != nil {
			return err
		}
	}
	if e.State != job.Running && j.logs != nil {
		j.logs.finish()
		j.logs = nil
	}
	if e.State.Terminal() && j.stream != nil {
		j.stream.rest(ctx)
		j.stream = nil
	}
	r.view.Event(e)
	if begins && e.State == job.Running {
		if err := r.follow(ctx, s, e); err != nil {
			return err
		}
	}
	j.state = e.State
	if !stays {
		j.since = e
	} else {
		j.since.N = e.N
	}
	return nil
}

// follow begins to show what the program writes that began with event e.
func (r *run) follow(ctx context.Context, s *attachment, e job.Event) (err error) {
	j := r.jobs[e.Job]
	if s.Server != nil || j.far {
		if j.stream == nil {
			j.stream, err = r.streamLogs(ctx, s, e.Job)
		}
		return err
	}
	logs, err := r.logsOf(ctx, s, e, j.stopped)
	if err != nil {
		return err
	}
	j.logs = &follower{
		line: func(l string) { r.view.Log(e.Job, l) },
		part: func(l string) { r.view.Last(e.Job, l) }, name: j.ref,
	}
	j.logs.follow(logs)
	return nil
}

func (r *run) followed() (n int) {
	for _, j := range r.jobs {
		if j.logs != nil || j.stream != nil {
			n++
		}
	}
	return n
}

func (r *run) finishLogs() {
	for _, j := range r.jobs {
		if j.logs != nil {
			j.logs.finish()
			j.logs = nil
		}
		if j.stream != nil {
			j.stream.end()
			j.stream = nil
		}
	}
}

// progress asks how far long steps have come. That is for a terminal: lines do not tell it.
func (r *run) progress(ctx context.Context, s *attachment) {
	if !r.view.Terminal() {
		return
	}
	asked := 0
	for _, id := range r.order {
		if st := r.jobs[id].state; st != job.StagingInputs && st != job.Running && st != job.Archiving {
			continue
		}
		if asked++; asked > mostProgress {
			return
		}
		if v, err := s.Job(ctx, id); err == nil && v.Progress != nil {
			r.view.Progress(id, *v.Progress)
		}
	}
}

// logsOf returns the logs of the launch that began to run with event e; none if a later launch has
// the files by now, or may have. stopped is when nothing of the launch before was alive any more.
// The process that runs the jobs of a folder is on this machine, so the files are read where they
// are.
func (r *run) logsOf(ctx context.Context, s *attachment, e job.Event, stopped time.Time) ([]logFile, error) {
	v, err := s.Job(ctx, e.Job)
	if err != nil {
		return nil, err
	}
	f, err := app.New(app.Config{}).Files(&v.Job)
	if err != nil {
		return nil, nil //nolint:nilerr // it has none
	}
	h, err := s.History(ctx, e.Job)
	if err != nil {
		return nil, err
	}
	for _, later := range h.Events {
		if later.N > e.N && later.State == job.SubmittingJob {
			return nil, nil
		}
	}
	var logs []logFile
	for _, name := range slices.Compact([]string{path.Clean(f.Stdout), path.Clean(f.Stderr)}) {
		logs = append(logs, logFile{name: name, folder: f.Folder, archived: f.Results, stale: stopped})
	}
	return logs, nil
}

// limitOf returns for how long a job's program may run; 0 while that is not known.
func limitOf(j *job.Job) time.Duration {
	var r app.Resolved
	if json.Unmarshal(j.Resolved, &r) != nil || r.Resources == nil {
		return 0
	}
	return r.Resources.Limit()
}
