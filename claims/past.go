package claims

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A past is what the history says of the run of a worker.
type past struct {
	mine bool       // the worker has claimed the job under this epoch
	end  *job.Event // took the job from it; nil: nothing has
}

// past answers a report on a job that the worker does not hold under the epoch that it names. If
// the worker has ended that run itself, by the same report, that was said twice.
func (d *Desk) past(ctx context.Context, session job.ID, r *Report, j *job.Job, a *Answer) error {
	if j == nil {
		a.lost("", job.Errorf(job.NotFound, "there is no job %s: it was deleted, or never was", r.ID))
		return nil
	}
	p, err := d.run(ctx, session, j.ID, r.Epoch)
	if err != nil {
		return err
	}
	why := lateOf(p.end)
	switch {
	case !p.mine:
		a.lost("", job.Errorf(job.Fenced, "this worker has not claimed job %s under epoch %d: pass the epoch that the claim "+
			"answered, with the secret that it was made with", j.ID, r.Epoch))
	case p.end == nil:
		a.lost(j.State, d.ended(session, store.NoSession(session)))
	case p.end.Actor != session.String():
		d.clear(ctx, session, j, r.Epoch)
		a.lost(j.State, job.Errorf(job.Fenced, "job %s was taken from this worker, which was not heard of for longer than "+
			"its lease, or was told to give it up: nothing that it says of this run counts any more", j.ID))
	case r.made != nil && (r.made(p.end, j) || p.end.Cause == job.CauseDiverted):
		a.OK, a.State = true, p.end.State
	case why.code != "":
		a.lost(p.end.State, job.Errorf(job.Conflict, "this run of job %s was ended: %s", j.ID, p.end.Message))
		a.Stop = why.stop
	default:
		a.lost(p.end.State, job.Errorf(job.Conflict, "this run of job %s is over: this worker has ended it before, and the "+
			"job became %s", j.ID, p.end.State))
	}
	return nil
}

// run reads what became of the run of a job under an epoch.
func (d *Desk) run(ctx context.Context, session, id job.ID, epoch int64) (p past, err error) {
	q := store.EventQuery{Tenant: d.cfg.Tenant, Job: id, Now: true}
	for {
		es, err := d.cfg.Store.Events(ctx, q)
		if err != nil || len(es.Events) == 0 {
			return p, err
		}
		for i := range es.Events {
			e := &es.Events[i].Event
			switch {
			case e.Sub > 0:
			case e.Epoch == epoch-1 && e.Cause == job.CauseClaim:
				p.mine = e.Actor == session.String()
			case e.Epoch == epoch && e.Custody != job.Worker:
				p.end = e
				return p, nil
			}
		}
		q.Cursor = es.Cursor
	}
}

// clear tells the store that a worker lives that was taken for dead: the job did not kill it.
func (d *Desk) clear(ctx context.Context, session job.ID, j *job.Job, epoch int64) {
	eff, err := d.cfg.Store.Clear(ctx, []store.Lost{{Job: j.ID, Epoch: epoch}})
	if err != nil {
		d.cfg.Log.Warn("a job stays under suspicion", "job", j.ID, "session", session, "error", err)
		return
	}
	d.cfg.Engine.Follow(ctx, eff)
}

// sameJSON reports whether two texts are the same JSON.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
