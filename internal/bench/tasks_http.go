package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// httpFigures are of the same tasks when workers claim them over HTTP.
type httpFigures struct {
	Workers            int     `json:"workers"`
	Slots              int     `json:"slots"` // of all of them
	TasksPerSecond     float64 `json:"tasks_per_second"`
	InProcessPerSecond float64 `json:"in_process_per_second"`
	Ratio              float64 `json:"ratio"`
	Lost               int     `json:"lost"`
	Twice              int     `json:"twice"`
}

// overHTTP measures workers that are clients of the API, in dir. They share the cores with the
// service.
func (b *tasksBench) overHTTP(ctx context.Context, m *Measurement, dir string) (f *httpFigures, err error) {
	svc, err := m.openBed(ctx, dir, service.Config{}, func(*service.Service) {})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.close()) }()
	site, err := openSite(svc.ctx, api.New(api.Config{Service: svc.Service}))
	if err != nil {
		return nil, err
	}
	defer site.close()
	f = &httpFigures{Workers: b.workers, Slots: max(1, b.slots/b.workers) * b.workers}
	ctx, cancel := context.WithCancelCause(svc.ctx)
	defer cancel(nil)
	seen := seen{times: map[string]int{}, all: make(chan struct{}), want: b.jobs}
	var workers sync.WaitGroup
	for range b.workers {
		workers.Go(func() {
			if err := site.work(ctx, f.Slots/f.Workers, &seen); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	begin := time.Now()
	spec := func(n int) job.Spec { return service.NewTask(noop, noopArgs{n}) }
	if err := svc.submitAll(b.jobs, b.batch, spec); err != nil {
		return nil, err
	}
	select {
	case <-seen.all:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	end, err := svc.finished(b.jobs)
	if err != nil {
		return nil, err
	}
	cancel(nil)
	workers.Wait()
	f.TasksPerSecond = Rounded(b.perSecond(end.Sub(begin)), 1)
	f.Lost, f.Twice = seen.count()
	return f, nil
}

// seen is how often each task was in the hands of a worker.
type seen struct {
	mu    sync.Mutex
	times map[string]int // guarded by mu
	all   chan struct{}  // closed when as many were seen as are wanted
	want  int
}

func (s *seen) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times[id]++; s.times[id] == 1 && len(s.times) == s.want {
		close(s.all)
	}
}

func (s *seen) count() (lost, twice int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.times {
		if n > 1 {
			twice++
		}
	}
	return s.want - len(s.times), twice
}

// work is a worker with one connection. It claims as many tasks as it has slots, and finishes them
// with one call.
func (s *site) work(ctx context.Context, slots int, seen *seen) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	secret := "Pawl-Worker: " + rand.Text() + rand.Text()
	claim := request("POST", "/v1/claims", fmt.Sprintf(`{"kinds":[%q],"slots":%d,"wait":"5s"}`, noop, slots), secret)
	var got struct {
		Jobs []struct {
			ID    string
			Epoch int64
		}
	}
	for {
		got.Jobs = got.Jobs[:0]
		if err := c.expect(claim, &got); err != nil {
			return err
		}
		if len(got.Jobs) == 0 {
			continue
		}
		var body strings.Builder
		for i, j := range got.Jobs {
			seen.add(j.ID)
			body.WriteString([]string{`{"jobs":[`, ","}[min(i, 1)])
			fmt.Fprintf(&body, `{"id":%q,"epoch":%d}`, j.ID, j.Epoch)
		}
		if err := c.expect(request("POST", "/v1/claims/finish", body.String()+"]}", secret), &struct{}{}); err != nil {
			return err
		}
	}
}

// expect sends a request and reads its answer, which must be 200.
func (c *conn) expect(req []byte, answer any) error {
	status, body, err := c.ask(req)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the service answers %d: %s", status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, answer)
}
