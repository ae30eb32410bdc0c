package claims

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// slots are those for which a session claims. A job that may be what kills its workers is the only
// one of that kind in the hands of its session: else the next death would cast suspicion on both.
func (d *Desk) slots(ctx context.Context, session job.ID, a *Ask) (map[job.Lane]int, error) {
	slots := map[job.Lane]int{job.LaneTask: a.Slots, job.LaneAlone: 1}
	if of, _ := d.heard.get(session); !of.suspect {
		return slots, nil
	}
	other, err := d.suspect(ctx, session, a.ID)
	if other {
		delete(slots, job.LaneAlone)
	}
	return slots, err
}

// second reports whether a claim has got a suspect although its session has another one. The
// process that gave it that one may have been another.
func (d *Desk) second(ctx context.Context, session job.ID, claim job.ID, rows []job.Job) (bool, error) {
	for i := range rows {
		if rows[i].Lane == job.LaneAlone {
			d.heard.suspected(session, true)
			return d.suspect(ctx, session, claim)
		}
	}
	return false, nil
}

// suspect reports whether a session holds a suspect that another claim has got.
func (d *Desk) suspect(ctx context.Context, session, claim job.ID) (bool, error) {
	held, err := d.cfg.Store.Find(ctx, store.FindQuery{Session: session})
	if err != nil {
		return false, err
	}
	any := false
	for i := range held {
		if held[i].Lane != job.LaneAlone {
			continue
		}
		if any = true; held[i].Claim != claim {
			return true, nil
		}
	}
	d.heard.suspected(session, any)
	return false, nil
}

// suspected notes whether a session holds a suspect. It is a hint: see [Desk.slots].
func (h *heard) suspected(session job.ID, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of, known := h.of[session]; known {
		of.suspect = is
		h.of[session] = of
	}
}
