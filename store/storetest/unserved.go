package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var unservedTests = []test{
	{"ready jobs of a line that nobody serves are named", unservedNamed},
	{"a session that drains, or has died, serves nothing", unservedDrained},
	{"jobs of a machine want a session of that machine", unservedMachine},
	{"jobs of a tenant want a session that serves the tenant", unservedTenant},
	{"many jobs of a line are not all counted", unservedMany},
}

// unserved checks which lines nobody serves.
func (w *world) unserved(want ...store.Unserved) {
	w.Helper()
	all, err := w.s.Unattended(w.ctx)
	if err != nil {
		w.Fatalf("unattended: %v", err)
	}
	got := all.Unserved
	for _, list := range [][]store.Unserved{got, want} {
		slices.SortFunc(list, func(a, b store.Unserved) int {
			return cmp.Or(cmp.Compare(a.QueueKind.Queue, b.QueueKind.Queue), cmp.Compare(a.QueueKind.Kind, b.QueueKind.Kind),
				cmp.Compare(a.Machine, b.Machine))
		})
	}
	if len(got) != len(want) {
		w.Fatalf("%d lines, want %d:\n%+v", len(got), len(want), got)
	}
	for i := range want {
		if g := got[i]; g.QueueKind != want[i].QueueKind || g.Machine != want[i].Machine || g.Jobs != want[i].Jobs ||
			!want[i].Since.IsZero() && !near(g.Since, want[i].Since) {
			w.Errorf("line %d is %+v, want %+v", i, g, want[i])
		}
	}
}

func line(queue, kind string) job.QueueKind { return job.QueueKind{Queue: queue, Kind: kind} }

func unservedNamed(w *world) {
	w.unserved()
	first := w.add(newTask(inQueue("gpu"), withPriority(7)))
	w.clock.Advance(time.Second)
	more := w.submit(newTask(inQueue("gpu")), newTask(), newTask(), newTask(ofKind("other")), newProgram(),
		newTask(inQueue("later"), delayed(time.Hour)))
	since := w.job(first).Since
	w.unserved(
		store.Unserved{QueueKind: line("gpu", task), Jobs: 2, Since: since},
		store.Unserved{QueueKind: line(job.DefaultQueue, task), Jobs: 2, Since: w.job(more[1].ID).Since},
		store.Unserved{QueueKind: line(job.DefaultQueue, "other"), Jobs: 1},
		store.Unserved{QueueKind: line(job.DefaultQueue, job.KindApp), Jobs: 1},
	)
	w.begin(process())
	gpu, other := store.Unserved{QueueKind: line("gpu", task), Jobs: 2, Since: since},
		store.Unserved{QueueKind: line(job.DefaultQueue, "other"), Jobs: 1}
	w.unserved(gpu, other)
	id := w.begin(process(func(p *store.Process) { p.Queues = []string{"gpu"} }))
	w.unserved(other)
	w.end(id)
	w.unserved(gpu, other)
}

func unservedDrained(w *world) {
	w.add(newTask())
	left := store.Unserved{QueueKind: line(job.DefaultQueue, task), Jobs: 1}
	w.unserved(left)
	id := w.begin(process())
	w.unserved()
	w.command(id, store.Drain)
	w.unserved(left)
	w.command(id, store.Work)
	w.unserved()
	w.clock.Advance(lease + margin)
	w.unserved(left)
}

func unservedMachine(w *world) {
	w.submit(newProgram(on("m2")), newProgram(on(machine)), newProgram())
	w.begin(process())
	w.unserved(store.Unserved{QueueKind: line(job.DefaultQueue, job.KindApp), Machine: "m2", Jobs: 1})
	w.begin(process(func(p *store.Process) { p.Machine = "m2" }))
	w.unserved()
}

func unservedTenant(w *world) {
	other := submission(newTask(), newTask())
	other.Tenant = "other"
	if _, _, err := w.s.Submit(w.ctx, other); err != nil {
		w.Fatalf("submit: %v", err)
	}
	w.add(newTask())
	left := func(n int) store.Unserved { return store.Unserved{QueueKind: line(job.DefaultQueue, task), Jobs: n} }
	w.unserved(left(3))
	w.begin(process(func(p *store.Process) { p.Tenants = []string{acme, "third"} }))
	w.unserved(left(2))
	w.begin(process(func(p *store.Process) { p.Tenants = []string{"other"} }))
	w.unserved()
}

func unservedMany(w *world) {
	w.addMany(store.MostUnserved + 10)
	w.unserved(store.Unserved{QueueKind: line(job.DefaultQueue, task), Jobs: store.MostUnserved})
}
