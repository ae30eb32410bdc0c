package api_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// launcher is a kind whose jobs run somewhere else, where nobody looks after them.
type launcher struct{}

func (launcher) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if err := r.Record(ctx, job.Entry{Message: "about to be launched"}, job.Patch{Intent: true}, nil); err != nil {
		return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: err.Error()})
	}
	return engine.Launched(job.Running)
}

func TestCancelWithForce(t *testing.T) {
	for _, c := range []struct {
		query string
		stops bool // the service stops meanwhile
		ends  bool // and so does the job, which it stopped for
		code  job.Code
		wait  time.Duration
	}{
		{"?force=true", false, false, job.Abandoned, 10 * time.Second},
		{"?force=true&wait=1m", false, false, job.Abandoned, time.Minute},
		{"?force=true&wait=1h", false, false, job.Abandoned, 5 * time.Minute}, // the most
		{"?force=true&wait=0s", false, false, job.Abandoned, 0},
		{"?wait=1m", false, false, "", time.Minute},
		{"", false, false, "", 0},
		{"?force=true", true, false, "", 3 * time.Second},
		{"?wait=1m", true, true, job.Abandoned, 3 * time.Second},
	} {
		dir := t.TempDir()
		virtual.Test(t, func(t *testing.T) {
			db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			svc := service.New(service.Config{
				Store: db, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler), Kinds: map[string]engine.Kind{"far": launcher{}},
			})
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- svc.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			a, err := svc.Submit(ctx, service.Request{Spec: service.NewTask("far", 0)})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			stopping := make(chan struct{})
			if c.stops {
				time.AfterFunc(c.wait, func() {
					if c.ends {
						if _, err := svc.Abandon(ctx, a[0].ID); err != nil {
							t.Error(err)
						}
					}
					close(stopping)
				})
			}
			begun := time.Now()
			w := httptest.NewRecorder()
			h := api.New(api.Config{Service: svc, Stopping: stopping})
			h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/jobs/"+a[0].ID.String()+"/cancel"+c.query, nil))
			var v service.View
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			status, state := 202, job.Running
			if c.code != "" {
				status, state = 200, job.Canceled
			}
			if took := time.Since(begun); w.Code != status || v.State != state || v.Code != c.code || took != c.wait {
				t.Errorf("%q: %d after %s, %s %s", c.query, w.Code, took, v.State, w.Body)
			}
		})
	}
}
