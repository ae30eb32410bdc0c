package api

import (
	"context"
	"net/http"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func (h *handler) registerWorkers() {
	op := func(id, method, path, summary, about string) operation {
		return operation{
			id: id, tag: "workers", method: method, path: "/v1/workers" + path, summary: summary,
			about: about,
		}
	}
	register(h, op("list-workers", http.MethodGet, "", "List the processes that work",
		"It lists those that live, and those that ended or were lost within an hour; for a machine that has no "+
			"process any more the last one, for a week. "+
			"The newest is first."), h.workers)
	register(h, op("get-worker", http.MethodGet, "/{id}", "Get one process, with the jobs that it holds",
		"The jobs are those of the caller's tenant, 100 at most; the one that it has held for longest is first."),
		h.worker)
	steer := func(name, summary, about string, c store.Mode) {
		o := op(name+"-worker", http.MethodPost, "/{id}/"+name, summary, about+
			" Only the principal of the service may say so. It can be repeated.")
		o.site, o.errors = true, []int{http.StatusConflict}
		register(h, o, h.tell(c))
	}
	steer("drain", "Let a process claim nothing more",
		"The jobs that run in it end in their own time. It stays, as draining.", store.Drain)
	steer("undrain", "Let a process that drains claim again", "One that was told to stop goes on stopping.", store.Work)
	steer("stop", "Let a process end", "It claims nothing more, and ends once it holds no job. "+
		"Programs go on.", store.Stop)
}

type workerList struct {
	// The processes, newest first.
	Items []service.Worker `json:"items"`
}

type workersOutput struct{ Body workerList }

func (h *handler) workers(ctx context.Context, _ *struct{}) (*workersOutput, error) {
	items, err := serviceOf(ctx).Workers(ctx)
	return &workersOutput{workerList{items}}, err
}

type workerInput struct {
	// The id of its session.
	ID string `path:"id"`
}

type workerViewOutput struct{ Body service.WorkerView }

func (h *handler) worker(ctx context.Context, in *workerInput) (*workerViewOutput, error) {
	id, err := idOf(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := serviceOf(ctx).Worker(ctx, id)
	return &workerViewOutput{v}, err
}

type workerOutput struct{ Body service.Worker }

func (h *handler) tell(c store.Mode) func(context.Context, *workerInput) (*workerOutput, error) {
	return func(ctx context.Context, in *workerInput) (*workerOutput, error) {
		id, err := idOf(in.ID)
		if err != nil {
			return nil, err
		}
		w, err := serviceOf(ctx).SetMode(ctx, id, c)
		return &workerOutput{w}, err
	}
}

// steers refuses callers that may not steer the processes of the service.
func (h *handler) steers(c *call) error {
	if !c.op.site || c.svc.Principal() == h.Service.Principal() {
		return nil
	}
	return job.Errorf(job.Denied, "only %s, the user of the service, may steer its processes: ask them",
		h.Service.Principal())
}
