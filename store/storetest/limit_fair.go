package storetest

import (
	"fmt"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

func limitFair(w *world) {
	for _, places := range []int{1, 8} {
		w.fresh(fmt.Sprintf("%d places", places), func(w *world) {
			w.limit(job.Limit{Key: "gpu", Most: places, Weights: map[string]int{"bob": 3}})
			total := rounds(80, 32)
			w.addMany(total, under("gpu"), ownedBy("ann"))
			w.addMany(total, under("gpu"), ownedBy("bob"))
			w.pay()
			session := w.session()
			ran := map[string]int{}
			for range total / places {
				jobs := w.claim(wanted(session, 100))
				if len(jobs) != places {
					w.Fatalf("%d run, want %d", len(jobs), places)
				}
				changes := make([]job.Change, len(jobs))
				for i, j := range jobs {
					ran[j.Owner]++
					changes[i] = finish(j, by(session))
				}
				w.applyAll(changes...)
				w.pay()
			}
			if ran["ann"] != total/4 || ran["bob"] != total/4*3 {
				w.Errorf("%v of %d ran, want a quarter of ann's", ran, total)
			}
			checkTurns(w)
		})
	}
}

func limitRound(w *world) {
	owners, places := (&turns.Key{}).MaxOwners("gpu")+30, 20
	w.limit(most("gpu", 0))
	var want []string // who goes, one after the other
	var batch []store.New
	for i := range owners {
		owner, jobs := fmt.Sprintf("u%03d", i), 2
		if i == 40 {
			owner, jobs = "u040", 9 // and they are not the first ones
		}
		for range jobs {
			batch = append(batch, newTask(under("gpu"), ownedBy(owner)))
		}
		want = append(want, owner)
	}
	w.submit(batch...)
	want = append(want, want...)
	want = append(want, slices.Repeat([]string{"u040"}, 7)...)
	w.pay()
	w.limit(most("gpu", places))
	w.pay()
	session := w.session()
	for len(want) > 0 {
		jobs := w.claim(wanted(session, 100))
		n := min(places, len(want))
		var got []string
		changes := make([]job.Change, len(jobs))
		for i, j := range jobs {
			got = append(got, j.Owner)
			changes[i] = finish(j, by(session))
		}
		next := slices.Sorted(slices.Values(want[:n]))
		if slices.Sort(got); !slices.Equal(got, next) {
			w.Fatalf("those of %v run, want those of %v", got, next)
		}
		want = want[n:]
		w.applyAll(changes...)
		w.pay()
	}
	checkTurns(w)
}

// limitFlicker: as many owners wait as are looked at, and now and then one more.
func limitFlicker(w *world) {
	const places = 20
	w.limit(most("gpu", 0))
	w.addMany(places, under("gpu"), ownedBy("u070"), withPriority(0)) // it would go first
	var others []store.New
	for i := range (&turns.Key{}).MaxOwners("gpu") {
		if i != 70 {
			others = append(others, newTask(under("gpu"), ownedBy(fmt.Sprintf("u%03d", i))))
		}
	}
	w.submit(others...)
	w.add(newTask(under("gpu"), ownedBy("aaa")))
	w.pay()
	w.limit(most("gpu", 1))
	w.pay()
	session := w.session()
	ran := map[string]int{}
	for range places {
		j := w.claimOne(session)
		if ran[j.Owner]++; j.Owner == "aaa" {
			w.must(finish(j, by(session)))
			w.pay()
			w.add(newTask(under("gpu"), ownedBy("u071"))) // as many owners are left as before
			w.add(newTask(under("gpu"), ownedBy("aaa")))
			continue
		}
		w.must(finish(j, by(session)))
		w.pay()
	}
	if ran["aaa"] > 2 || ran["u070"] > 2 || len(ran) < places-2 {
		w.Errorf("%d turns went to %v", places, ran)
	}
	checkTurns(w)
}

func limitLate(w *world) {
	w.limit(most("gpu", 1))
	session := w.session()
	w.addMany(30, under("gpu"), ownedBy("ann"))
	w.addMany(3, under("gpu"), ownedBy("bob"))
	w.pay()
	order := func(n int) (owners string) {
		for range n {
			j := w.claimOne(session)
			owners += j.Owner[:1]
			w.must(finish(j, by(session)))
			w.pay()
		}
		return owners
	}
	if got := order(10); got != "abababaaaa" {
		w.Errorf("they went as %s", got)
	}
	w.addMany(3, under("gpu"), ownedBy("cid"))
	w.pay()
	if got := order(7); got != "acacaca" && got != "aacacac" {
		w.Errorf("they went as %s", got)
	}
	checkTurns(w)
}
