package storetest

import (
	"fmt"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

func limitChanged(w *world) {
	w.limit(most("gpu", 4))
	ids := w.addMany(10, under("gpu"))
	w.pay()
	w.limit(most("gpu", 2))
	w.at(job.Pending, job.Ready, ids[:4]...)
	session := w.session()
	jobs := w.claim(wanted(session, 10))
	for i, j := range jobs {
		w.must(finish(j, by(session)))
		w.pay()
		if held, _ := w.turns("gpu"); held != max(2, 3-i) {
			w.Errorf("%d turns after %d ends", held, i+1)
		}
	}
	w.limit(most("gpu", 5))
	w.uses("gpu", 5, 1)
	w.limit(most("gpu", 0))
	w.uses("gpu", 5, 1)
	effects, err := store.RemoveLimit(w.ctx, w.s, acme, "gpu")
	if err != nil || !effects.Owed {
		w.Errorf("remove: owed: %t, %v", effects.Owed, err)
	}
	w.pay()
	w.uses("gpu", 6, 0)
	if all, err := w.s.Limits(w.ctx, acme); err != nil || len(all) > 0 {
		w.Errorf("limits: %+v, %v", all, err)
	}
	checkTurns(w)
}

func limitFamily(w *world) {
	w.limit(most("user/*", 1), most("user/bob", 2))
	w.addMany(3, under("user/ann"))
	w.addMany(3, under("user/bob"))
	w.addMany(3, under("user"))
	w.pay()
	w.uses("user/ann", 1, 2)
	w.uses("user/bob", 2, 1)
	w.uses("user", 3, 0)
	w.limit(most("user/*", 2))
	w.uses("user/ann", 2, 1)
	w.uses("user/bob", 2, 1)
	if _, err := store.RemoveLimit(w.ctx, w.s, acme, "user/bob"); err != nil {
		w.Errorf("remove: %v", err)
	}
	w.limit(most("user/*", 3))
	w.uses("user/bob", 3, 0)
	all, err := w.s.Limits(w.ctx, acme)
	if err != nil || len(all) != 1 || all[0].Key != "user/*" || all[0].Most != 3 {
		w.Errorf("limits: %+v, %v", all, err)
	}
	checkTurns(w)
}

// limitPartition: programs stand under the limits of where they run by themselves.
func limitPartition(w *world) {
	const normal, debug = "system/lab/partition/normal", "system/lab/partition/debug"
	w.limit(most(normal, 3), most(normal+"/user/*", 2), most(debug+"/user/bob", 1),
		most("system/lab/partition/a%2Fb", 1))
	programs := func(n int, owner, system, partition string) []job.ID {
		jobs := make([]store.New, n)
		for i := range jobs {
			jobs[i] = newProgram(ownedBy(owner),
				spec(fmt.Sprintf(`{"system": %q, "resources": {"partition": %q}}`, system, partition)), asItIs)
		}
		return idsOf(w.submit(jobs...))
	}
	of := map[string][]job.ID{
		"ann": programs(4, ann, "lab", "normal"), "bob": programs(4, "bob", "lab", "normal"),
		"debug": programs(3, "bob", "lab", "debug"),
		"cid":   programs(2, "cid", "lab", "debug"), "far": programs(4, ann, "far", "normal"),
		"none": programs(4, ann, "lab", ""), "a/b": programs(2, ann, "lab", "a/b"),
	}
	for who, keys := range map[string][]string{
		"ann": {normal, normal + "/user/ann"}, "bob": {normal, normal + "/user/bob"},
		"debug": {debug + "/user/bob"}, "cid": nil, "far": nil, "none": nil,
		"a/b": {"system/lab/partition/a%2Fb"},
	} {
		for _, id := range of[who] {
			w.isUnder(id, keys...)
		}
	}
	session := w.session()
	run := func() map[string]int { // makes ready what may be, and launches what may be
		w.pay()
		for _, j := range w.claim(wanted(session, 100)) {
			if j.State != job.SubmittingJob {
				w.must(staged(j, by(session)))
			}
		}
		w.pay()
		for _, j := range w.claim(wanted(session, 100)) {
			if j.State == job.SubmittingJob {
				j = w.must(setting(move(j, by(session), job.Worker, job.SubmittingJob), job.Patch{Intent: true}))
				w.must(move(j, by(session), job.Monitor, job.Running))
			}
		}
		running := map[string]int{}
		for who, ids := range of {
			for _, id := range ids {
				if w.job(id).Live {
					running[who]++
				}
			}
		}
		return running
	}
	alone := map[string]int{"debug": 1, "cid": 2, "far": 4, "none": 4, "a/b": 1}
	got := run()
	if n, m := got["ann"], got["bob"]; n > 2 || m > 2 || n+m != 3 {
		w.Errorf("%d of ann's run in the partition, and %d of bob's", n, m)
	}
	delete(got, "ann")
	delete(got, "bob")
	equal(w, "those that run elsewhere", got, alone)
	if held, _ := w.turns(normal); held != 3 {
		w.Errorf("%d turns of the partition", held)
	}
	checkTurns(w)
	w.limit(most(normal, 100))
	got = run()
	if n, m := got["ann"], got["bob"]; n != 2 || m != 2 {
		w.Errorf("%d of ann's run in the partition, and %d of bob's, with a limit of their own", n, m)
	}
	checkTurns(w)
}

func limitOptional(w *world) {
	free := w.add(newTask(ownedBy("bob"), perhaps("kind/send", "user/bob")))
	w.at(job.Pending, job.Ready, free)
	w.limit(job.Limit{Key: "user/*", Most: 1, Weights: map[string]int{"ann": 3}})
	held := w.add(newTask(perhaps("kind/send", "user/ann"), under("gpu")))
	w.pay()
	if j := w.job(held); !slices.Equal(j.Limits, []string{"gpu", "user/ann"}) {
		w.Errorf("the job is under %q", j.Limits)
	}
	w.uses("user/ann", 1, 0)
	if all, err := w.s.Limits(w.ctx, acme); err != nil || len(all) != 1 || all[0].Weights["ann"] != 3 {
		w.Errorf("limits: %+v, %v", all, err)
	}
	if all, err := w.s.Limits(w.ctx, "other"); err != nil || len(all) > 0 {
		w.Errorf("limits of another tenant: %+v, %v", all, err)
	}
	if all, err := w.s.Turns(w.ctx, store.TurnQuery{Tenant: "other"}); err != nil || len(all) > 0 {
		w.Errorf("turns of another tenant: %+v, %v", all, err)
	}
	checkTurns(w)
}
