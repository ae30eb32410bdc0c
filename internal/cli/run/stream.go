package run

import (
	"context"
	"path"
	"sync"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// A stream shows what the programs of one job write, those of all its attempts, as a server sends
// it. It ends when the job has ended.
type stream struct {
	stop    context.CancelFunc
	reading sync.WaitGroup
}

// streamLogs begins to show the logs of a job of a server.
func (r *run) streamLogs(ctx context.Context, s *attachment, id job.ID) (*stream, error) {
	v, err := s.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	queries := []service.LogQuery{{Follow: true}}
	if f, err := app.New(app.Config{}).Files(&v.Job); err == nil && path.Clean(f.Stdout) != path.Clean(f.Stderr) {
		queries = append(queries, service.LogQuery{Follow: true, Stderr: true})
	}
	ctx, stop := context.WithCancel(ctx)
	st, ref := &stream{stop: stop}, r.jobs[id].ref
	for _, q := range queries {
		st.reading.Go(func() {
			log, err := s.Log(ctx, id, q)
			if err == nil {
				defer log.Close()
				err = term.EachLine(log, func(line string) { r.view.Log(id, line) },
					func(part string) { r.view.Last(id, part) })
			}
			if err != nil && ctx.Err() == nil {
				r.view.Log(id, "… the log broke off here; see pawl logs "+ref)
			}
		})
	}
	return st, nil
}

// rest waits until all has been shown.
func (s *stream) rest(ctx context.Context) {
	release := context.AfterFunc(ctx, s.stop)
	defer release()
	s.reading.Wait()
	s.stop()
}

// end shows nothing more.
func (s *stream) end() {
	s.stop()
	s.reading.Wait()
}
