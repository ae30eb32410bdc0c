package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var demandTests = []test{
	{"ready jobs of a lane, and the sessions that claim them", demandOfLanes},
	{"a session that serves none of the lines has no part in them", demandServes},
	{"a session that drains, or has died, has no part in anything", demandDrained},
	{"jobs are counted up to the slots of all", demandMany},
	{"jobs that run alone are nobody's to share", demandAlone},
}

// workers begins a session of a worker with 10 slots in each lane.
func (w *world) worker(edit ...func(*store.Process)) job.ID {
	w.Helper()
	slots := func(p *store.Process) {
		p.Slots = map[job.Lane]int{job.LaneTask: 10, job.LanePrepare: 10}
	}
	return w.begin(process(append([]func(*store.Process){slots}, edit...)...))
}

// demand checks the demand of a lane for a claim.
func (w *world) demand(c store.Claim, lane job.Lane, ready int, want ...store.Serving) {
	w.Helper()
	all, err := w.s.Demand(w.ctx, c)
	if err != nil {
		w.Fatalf("demand: %v", err)
	}
	d := all[lane]
	byID := func(a, b store.Serving) int { return bytes.Compare(a.ID[:], b.ID[:]) }
	slices.SortFunc(d.Sessions, byID)
	slices.SortFunc(want, byID)
	if d.Ready != ready || !slices.Equal(d.Sessions, want) {
		w.Errorf("demand of lane %s is %d jobs for %+v, want %d for %+v", lane, d.Ready, d.Sessions, ready, want)
	}
}

func demandOfLanes(w *world) {
	one, two := w.worker(), w.worker()
	w.demand(wanted(one, 10), job.LaneTask, 0)
	w.submit(newTask(), newTask(), newTask(), newProgram(), newTask(delayed(time.Hour)))
	w.demand(wanted(one, 10), job.LaneTask, 3, store.Serving{ID: one, Slots: 10}, store.Serving{ID: two, Slots: 10})
	w.demand(wanted(one, 10), job.LanePrepare, 1, store.Serving{ID: one, Slots: 10}, store.Serving{ID: two, Slots: 10})
	c := wanted(two, 10)
	c.Slots = map[job.Lane]int{job.LaneTask: 2, job.LanePrepare: 0}
	w.claim(c)
	w.demand(wanted(one, 10), job.LaneTask, 1, store.Serving{ID: one, Slots: 10},
		store.Serving{ID: two, Slots: 10, Held: 2})
	w.demand(c, job.LanePrepare, 0) // it has no slots there
	w.demand(wanted(one, 10), job.LanePrepare, 1, store.Serving{ID: one, Slots: 10}, store.Serving{ID: two, Slots: 10})
}

func demandServes(w *world) {
	me := w.worker()
	mine := store.Serving{ID: me, Slots: 10}
	w.worker(func(p *store.Process) { p.Queues = []string{"other"} })
	w.worker(func(p *store.Process) { p.Kinds = []string{"other"} })
	w.worker(func(p *store.Process) { p.Kinds = nil })
	w.worker(func(p *store.Process) { p.Slots = nil })
	w.worker(func(p *store.Process) { p.Tenants = []string{"other"} })
	there := store.Serving{ID: w.worker(func(p *store.Process) { p.Machine = "m2" }), Slots: 10}
	w.submit(newTask(), newProgram(on(machine)), newProgram(on("m2")), newTask(inQueue("other")),
		newTask(ofKind("other")))
	c := wanted(me, 10)
	c.Tenants = []string{acme}
	w.demand(c, job.LaneTask, 1, mine, there)
	w.demand(c, job.LanePrepare, 1, mine)
	c.Tenants = []string{"nobody's"}
	w.demand(c, job.LaneTask, 0)
}

func demandDrained(w *world) {
	me, other := w.worker(), w.worker()
	w.addMany(3)
	w.command(other, store.Drain)
	w.demand(wanted(me, 10), job.LaneTask, 3, store.Serving{ID: me, Slots: 10})
	w.command(other, store.Work)
	w.demand(wanted(me, 10), job.LaneTask, 3, store.Serving{ID: me, Slots: 10}, store.Serving{ID: other, Slots: 10})
	w.clock.Advance(lease / 2)
	w.renew(me)
	w.clock.Advance(lease/2 + margin)
	w.demand(wanted(me, 10), job.LaneTask, 3, store.Serving{ID: me, Slots: 10})
}

func demandMany(w *world) {
	me, other := w.worker(), w.worker()
	w.addMany(25)
	w.demand(wanted(me, 1), job.LaneTask, 20, store.Serving{ID: me, Slots: 10}, store.Serving{ID: other, Slots: 10})
}

func demandAlone(w *world) {
	w.suspected(job.AloneAt, newTask())
	w.suspected(job.AloneAt, newTask())
	me := w.worker()
	w.demand(wanted(me, 1), job.LaneAlone, 1)
	w.demand(wanted(me, 1), job.LaneTask, 0)
}
