package sim

import (
	"bytes"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Ghosts send to the store what a process would that had been frozen and does not look at the clock
// when it wakes up, or that is out of its mind. The engine stops itself before it comes to that, so
// that nobody else shows whether the store refuses it. The judge knows the answer; what a ghost may
// do all the same it does not try.

// ghosts haunts the world until its storm is over.
func (w *world) ghosts() {
	for n := 1; ; n++ {
		r := w.dice("ghost", n)
		time.Sleep(between(r, time.Millisecond, 4*time.Second))
		if time.Since(w.began) > w.length {
			return
		}
		w.judge.haunt(r)
	}
}

func (g *judge) haunt(r *rand.Rand) {
	g.w.commit.Lock()
	live := g.live()
	ended := job.Entry{State: job.Failed, Code: job.TaskFailed, Message: "a ghost was here"}
	var cs []job.Change
	change := func(j *job.Job, f job.Fence) {
		cs = append(cs, job.Change{
			Job: j.ID, From: j.Guard(f), Path: []job.Entry{ended}, To: job.None,
			Set: job.Patch{Over: true},
		})
	}
	// Who had a job writes about it where it found it then.
	if n := len(g.past); n > 0 {
		j := g.past[n-1-r.IntN(min(n, 10))]
		now := g.rows(j.ID)[j.ID]
		if !live[j.Session] || now.Epoch != j.Epoch || now.N != j.N {
			change(&j, job.Fence{Session: j.Session})
		}
	}
	// Another one, or a watcher who is none any more, writes where the job stands.
	sessions := slices.SortedFunc(maps.Keys(g.sessions), job.ID.Compare)
	for _, j := range g.w.left() {
		if !oneIn(r, 4) || slices.ContainsFunc(cs, func(c job.Change) bool { return c.Job == j.ID }) {
			continue
		}
		switch d := g.terms["watch/"+j.Machine]; {
		case j.Custody == job.Worker:
			if s := sessions[r.IntN(len(sessions))]; !bytes.Equal(s[:], j.Session[:]) {
				change(&j, job.Fence{Session: s})
			}
		case j.Custody == job.Monitor && d.Term > 1:
			change(&j, job.Fence{Duty: d.Name, Term: d.Term - 1})
		}
	}
	g.w.commit.Unlock()
	if len(cs) > 0 {
		_, _, _, _ = g.apply(context.Background(), &link{Store: g.w.store}, cs, nil) // it looks on
	}
}
