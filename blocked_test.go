package pawl_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// intender is a launcher whose jobs may run from their launch on.
type intender struct{ launcher }

func (i intender) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if !r.Job.Live {
		if err := r.Record(ctx, job.Entry{Message: job.Launching}, job.Patch{Intent: true}, nil); err != nil {
			return engine.Fail(job.Entry{Code: job.LaunchFailed, Message: err.Error()})
		}
	}
	return i.launcher.Step(ctx, r)
}

// A job that is blocked while its program may still run has no deadline, whoever looks at it, and it keeps nobody's clock from going on. Who
// gives it up is told what to do instead.
func TestBlockedWhileItMayRun(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		db := fake.New(nil)
		ctx, stop := context.WithCancel(context.Background())
		var id job.ID
		block := &job.Block{
			Code: job.HostUnreachable, Message: "host far is away", Tester: "ssh", Params: map[string]string{"host": "far"},
			Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Minute), Times: 3}}},
		}
		launched := make(chan struct{})
		watch := engine.Duty{Name: "watch", Run: func(ctx context.Context, h *engine.Held) error {
			select {
			case <-ctx.Done():
				return nil
			case <-launched:
			}
			j, err := db.Job(ctx, "default", id)
			if err != nil {
				return err
			}
			c := job.Change{Job: id, From: j.Guard(h.Fence()), To: job.Recovery, Path: []job.Entry{{State: job.Blocked, Code: block.Code, Message: block.Message}}}
			c.Set.Block, c.Set.Resume = block, job.SubmittingJob
			if answers, err := h.Apply(ctx, []job.Change{c}); err != nil || answers[0].Outcome != store.OK {
				t.Errorf("%+v, %v", answers, err)
			}
			<-ctx.Done()
			return nil
		}}
		svc := pawl.New(pawl.Config{
			Store: db, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Kinds: map[string]engine.Kind{"far": intender{}}, Duties: []engine.Duty{watch},
		})
		id = submit(t, svc, task("far", 0))[0].ID
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		close(launched)
		synctest.Wait()
		late := task("far", 1)
		late.Spec.Delay = job.Duration(time.Hour)
		other := submit(t, svc, late)[0].ID
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		v, err := svc.View(ctx, id)
		if err != nil || v.State != job.Blocked || !v.Live || !v.Until.IsZero() || !strings.Contains(v.Why, "it has no deadline, for launch 1 of it may still run") {
			t.Errorf("it is seen at %s until %v, live: %t, %s; %v", v.Place, v.Until, v.Live, v.Why, err)
		}
		vs, err := svc.Views(ctx, store.Query{})
		if err != nil || len(vs.Jobs) != 2 || !vs.Jobs[1].Until.IsZero() {
			t.Errorf("the list has %d jobs, the first of which fails at %v; %v", len(vs.Jobs), vs.Jobs[len(vs.Jobs)-1].Until, err)
		}
		if j, err := svc.Job(ctx, other); err != nil || j.State != job.Running {
			t.Errorf("a job whose time came meanwhile is %s, %v", j.Place, err)
		}
		if errs, err := svc.TurnJobs(ctx, store.GiveUp, id); err != nil || job.KindOf(errs[0]) != job.Conflict {
			t.Errorf("giving it up: %v, %v", errs, err)
		}
	})
}
