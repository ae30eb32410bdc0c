package claims_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A place is a store with the processes that serve workers from it.
type place struct {
	*testing.T
	store store.Store
	svc   *service.Service
}

// at runs a test in virtual time.
func at(t *testing.T, test func(p *place)) {
	t.Helper()
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		p := &place{T: t, store: fake.New(time.Now)}
		p.svc = p.process()
		test(p)
		if err := p.store.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(24 * time.Hour) // what still wants to look at runs finds the store closed
	})
}

// process returns another process on the same store.
func (p *place) process() *service.Service {
	return service.New(service.Config{Store: p.store, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
}

// kind applies the document of the kind mail.
func (p *place) kind(fields string) {
	p.Helper()
	if _, _, err := p.svc.Kinds().Apply(p.Context(), []byte(`{"name":"mail",`+fields+`}`), service.AnyVersion); err != nil {
		p.Fatal(err)
	}
}

func (p *place) submit(n int) (ids []job.ID) {
	p.Helper()
	for i := range n {
		jobs, err := p.svc.Submit(p.Context(), service.Request{Spec: service.NewTask("mail", i)})
		if err != nil {
			p.Fatal(err)
		}
		ids = append(ids, jobs[0].ID)
	}
	return ids
}

func session(p *place, name string) job.ID {
	p.Helper()
	id, err := claims.SessionOf(name + strings.Repeat(".", claims.MinSecret))
	if err != nil {
		p.Fatal(err)
	}
	return id
}

// claim makes one claim that does not wait.
func (p *place) claim(d *claims.Desk, session job.ID, a claims.Ask) []claims.Task {
	p.Helper()
	a.Kinds = []string{"mail"}
	if a.Slots == 0 {
		a.Slots = 10
	}
	if a.Lease == 0 {
		a.Lease = job.Duration(15 * time.Second)
	}
	over, cancel := context.WithCancel(p.Context())
	cancel()
	c, err := d.Claim(p.Context(), over, session, a)
	if err != nil {
		p.Fatal(err)
	}
	return c.Jobs
}

func (p *place) job(id job.ID) job.Job {
	p.Helper()
	j, err := store.FindJob(p.Context(), p.store, "default", id)
	if err != nil {
		p.Fatal(err)
	}
	return j
}

func held(t claims.Task) claims.Held { return claims.Held{ID: t.ID, Epoch: t.Epoch} }

// renew is a renewal that names jobs.
func (p *place) renew(d *claims.Desk, session job.ID, jobs ...claims.Task) []claims.Answer {
	p.Helper()
	names := make([]claims.Held, len(jobs))
	for i := range jobs {
		names[i] = held(jobs[i])
	}
	r, err := d.Renew(p.Context(), session, 15*time.Second, names)
	if err != nil {
		p.Fatal(err)
	}
	return r.Jobs
}

func (p *place) report(d *claims.Desk, session job.ID, r claims.Report, err error) claims.Answer {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	answers, err := d.Report(p.Context(), session, []claims.Report{r})
	if err != nil {
		p.Fatal(err)
	}
	return answers[0]
}

func TestLate(t *testing.T) {
	t.Run("a run that takes too long has failed, as that of a handler", func(t *testing.T) {
		at(t, func(p *place) {
			p.kind(`"timeout":"10s"`)
			p.submit(1)
			d, w := p.svc.Claims(), session(p, "w")
			one := p.claim(d, w, claims.Ask{})[0]
			time.Sleep(10*time.Second - time.Millisecond)
			if j := p.job(one.ID); j.Custody != job.Worker {
				t.Errorf("before its time is over it is %s", j.Place)
			}
			time.Sleep(2 * time.Millisecond)
			j := p.job(one.ID)
			if j.State != job.Waiting || j.Code != job.TimeLimit || j.Attempt != 2 || j.Recoveries != 0 || j.Suspect != 0 {
				t.Errorf("%s, %s, attempt %d", j.Place, j.Code, j.Attempt)
			}
			if a := p.renew(d, w, one)[0]; a.OK || a.Stop != claims.StopTimedOut || a.Err() == nil ||
				!strings.Contains(a.Detail, "10s") {
				t.Errorf("the worker hears %+v", a)
			}
			r, err := claims.Finish(held(one), nil)
			if a := p.report(d, w, r, err); a.OK || a.Stop != claims.StopTimedOut || a.Code != job.Conflict {
				t.Errorf("what comes after that is answered with %+v", a)
			}
		})
	})
	t.Run("the last attempt ends the job", func(t *testing.T) {
		at(t, func(p *place) {
			p.kind(`"timeout":"10s","retry":{"max_attempts":1}`)
			p.submit(1)
			one := p.claim(p.svc.Claims(), session(p, "w"), claims.Ask{})[0]
			time.Sleep(11 * time.Second)
			if j := p.job(one.ID); j.State != job.Failed || j.Code != job.TimeLimit {
				t.Errorf("%s, %s", j.Place, j.Code)
			}
		})
	})
	t.Run("a result in time counts", func(t *testing.T) {
		at(t, func(p *place) {
			p.kind(`"timeout":"10s","stall":"10s"`)
			p.submit(1)
			d, w := p.svc.Claims(), session(p, "w")
			one := p.claim(d, w, claims.Ask{})[0]
			time.Sleep(9 * time.Second)
			r, err := claims.Finish(held(one), nil)
			if a := p.report(d, w, r, err); !a.OK {
				t.Errorf("%+v", a)
			}
			time.Sleep(time.Minute)
			if j := p.job(one.ID); j.State != job.Finished {
				t.Error(j.Place)
			}
		})
	})
	t.Run("another process ends it", func(t *testing.T) {
		// The process that gave the claim is gone. Nothing of the run is known but its row.
		at(t, func(p *place) {
			p.kind(`"timeout":"10s"`)
			p.submit(1)
			gone := service.New(service.Config{Store: dies{p.store}, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
			w := session(p, "w")
			one := p.claim(gone.Claims(), w, claims.Ask{})[0]
			time.Sleep(8 * time.Second)
			p.renew(p.svc.Claims(), w, one)
			time.Sleep(3 * time.Second)
			if j := p.job(one.ID); j.Code != job.TimeLimit {
				t.Errorf("%s, %s", j.Place, j.Code)
			}
		})
	})
	t.Run("a run without a sign of life has stalled", func(t *testing.T) {
		at(t, func(p *place) {
			p.kind(`"stall":"10s","timeout":"1h"`)
			p.submit(1)
			d, w := p.svc.Claims(), session(p, "w")
			one := p.claim(d, w, claims.Ask{})[0]
			for i := range 10 {
				time.Sleep(9 * time.Second)
				r, err := claims.Progress(held(one), job.Progress{Done: int64(i)})
				if i%2 == 0 {
					r, err = claims.Checkpoint(held(one), []byte(fmt.Sprint(i)))
				}
				if a := p.report(d, w, r, err); !a.OK {
					t.Fatalf("%+v", a)
				}
			}
			time.Sleep(6 * time.Second)
			if a := p.renew(d, w, one)[0]; !a.OK { // by a thread that knows nothing of the run
				t.Fatalf("%+v", a)
			}
			time.Sleep(5 * time.Second)
			if j := p.job(one.ID); j.State != job.Waiting || j.Code != job.TaskStalled || j.Attempt != 2 {
				t.Errorf("%s, %s, attempt %d", j.Place, j.Code, j.Attempt)
			}
			if a := p.renew(d, w, one)[0]; a.Stop != claims.StopStalled {
				t.Errorf("the worker hears %+v", a)
			}
		})
	})
	t.Run("the signs of an earlier run do not count", func(t *testing.T) {
		at(t, func(p *place) {
			p.kind(`"stall":"10s"`)
			p.submit(1)
			d, w := p.svc.Claims(), session(p, "w")
			one := p.claim(d, w, claims.Ask{})[0]
			r, err := claims.Checkpoint(held(one), []byte(`1`))
			p.report(d, w, r, err)
			p.report(d, w, claims.Release(held(one)), nil)
			time.Sleep(time.Minute)
			w = session(p, "next")
			again := p.claim(d, w, claims.Ask{})[0]
			time.Sleep(9 * time.Second)
			if j := p.job(again.ID); j.Custody != job.Worker {
				t.Errorf("%s, %s", j.Place, j.Code)
			}
			p.renew(d, w, again)
			time.Sleep(2 * time.Second)
			if j := p.job(again.ID); j.Code != job.TaskStalled {
				t.Errorf("%s, %s", j.Place, j.Code)
			}
		})
	})
}

// A dies is the store of a process that can do no more than claim.
type dies struct{ store.Store }

func (dies) Find(context.Context, store.FindQuery) ([]job.Job, error) { return nil, nil }

// TestAlone: a session holds one suspect at a time, beside other jobs.
func TestAlone(t *testing.T) {
	suspects := func(p *place) []job.ID {
		ids := p.submit(3)
		for i := range job.AloneAt {
			dead := session(p, fmt.Sprint("dead", i))
			for range 3 { // the second death finds suspects, which go to sessions one by one
				p.claim(p.svc.Claims(), dead, claims.Ask{Lease: job.Duration(time.Second)})
				dead = session(p, dead.String())
			}
			time.Sleep(2 * time.Second)
			if _, _, err := p.store.Expire(p.Context(), 1000); err != nil {
				p.Fatal(err)
			}
		}
		p.submit(2)
		return ids
	}
	moves := func(p *place, ids []job.ID) (n int64) {
		for _, id := range ids {
			n += p.job(id).Epoch
		}
		return n
	}
	count := func(jobs []claims.Task, p *place) (alone int) {
		for _, one := range jobs {
			if p.job(one.ID).Lane == job.LaneAlone {
				alone++
			}
		}
		return alone
	}
	t.Run("by one process", func(t *testing.T) {
		at(t, func(p *place) {
			ids := suspects(p)
			d, w := p.svc.Claims(), session(p, "w")
			call := claims.Ask{ID: job.NewID()}
			first := p.claim(d, w, call)
			if len(first) != 3 || count(first, p) != 1 {
				t.Fatalf("%d jobs, %d of them suspects", len(first), count(first, p))
			}
			if again := p.claim(d, w, call); len(again) != 3 {
				t.Errorf("the same call is answered with %d jobs", len(again))
			}
			before := moves(p, ids)
			if more := p.claim(d, w, claims.Ask{}); len(more) != 0 || moves(p, ids) != before {
				t.Errorf("it gets %d suspects more, or others were moved", len(more))
			}
			if other := p.claim(d, session(p, "other"), claims.Ask{}); len(other) != 1 {
				t.Errorf("another worker gets %d", len(other))
			}
			for _, one := range first {
				r, err := claims.Finish(held(one), nil)
				p.report(d, w, r, err)
			}
			if more := p.claim(d, w, claims.Ask{}); len(more) != 1 {
				t.Errorf("after the first it gets %d", len(more))
			}
		})
	})
	t.Run("by several processes", func(t *testing.T) {
		at(t, func(p *place) {
			suspects(p)
			w := session(p, "w")
			p.claim(p.svc.Claims(), w, claims.Ask{})
			other := p.process().Claims()
			for range 3 {
				if more := p.claim(other, w, claims.Ask{}); len(more) != 0 {
					t.Errorf("another process gives it %d suspects more", len(more))
				}
			}
			held, err := p.store.Find(p.Context(), store.FindQuery{Session: w})
			if err != nil || len(held) != 3 {
				t.Errorf("it holds %d jobs, %v", len(held), err)
			}
		})
	})
}

// TestProof: who is not the session that claimed a job, or names another epoch, says nothing of it.
func TestProof(t *testing.T) {
	at(t, func(p *place) {
		p.submit(1)
		d, w, liar := p.svc.Claims(), session(p, "w"), session(p, "liar")
		one := p.claim(d, w, claims.Ask{})[0]
		p.claim(d, liar, claims.Ask{})
		for _, h := range []claims.Held{{ID: one.ID, Epoch: one.Epoch + 1}, {ID: one.ID, Epoch: one.Epoch - 1}} {
			r, err := claims.Finish(h, nil)
			if a := p.report(d, w, r, err); a.OK || a.Stop != claims.StopLost || a.Code != job.Fenced {
				t.Errorf("epoch %d: %+v", h.Epoch, a)
			}
		}
		r, err := claims.Finish(held(one), nil)
		if a := p.report(d, liar, r, err); a.OK || a.Stop != claims.StopLost || a.Code != job.Fenced {
			t.Errorf("another session: %+v", a)
		}
		log, err := claims.Log(held(one), job.CustomEvent{Name: "log"})
		if a := p.report(d, liar, log, err); a.OK {
			t.Errorf("another session writes into the history: %+v", a)
		}
		if j := p.job(one.ID); j.Custody != job.Worker {
			t.Error(j.Place)
		}
	})
}

// TestNoProof: a report without an id or an epoch is a mistake of the worker, and loses it no task.
func TestNoProof(t *testing.T) {
	at(t, func(p *place) {
		p.submit(1)
		d, w := p.svc.Claims(), session(p, "w")
		one := p.claim(d, w, claims.Ask{})[0]
		for want, h := range map[string]claims.Held{
			"jobs[1].id: is missing": {Epoch: 2}, "jobs[1].epoch: is missing": {ID: job.NewID()},
		} {
			good, _ := claims.Finish(held(one), nil)
			bad, _ := claims.Finish(h, nil)
			_, err := d.Report(t.Context(), w, []claims.Report{good, bad})
			_, renewed := d.Renew(t.Context(), w, 0, []claims.Held{held(one), h})
			for _, err := range []error{err, renewed} {
				if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}
		}
		if j := p.job(one.ID); j.Custody != job.Worker {
			t.Error(j.Place)
		}
	})
}

// TestSaidAgain: an end that is said again is answered as it was. Another end is refused, though
// the job has come to the same place.
func TestSaidAgain(t *testing.T) {
	type said func(claims.Held) (claims.Report, error)
	fail := func(message string, final bool) said {
		return func(h claims.Held) (claims.Report, error) { return claims.Fail(h, final, "", message, nil) }
	}
	cancel := func(reason string) said {
		return func(h claims.Held) (claims.Report, error) { return claims.Cancel(h, reason) }
	}
	block := func(message string) said {
		return func(h claims.Held) (claims.Report, error) { return claims.Block(h, message, "go/x", nil) }
	}
	snooze := func(d time.Duration) said {
		return func(h claims.Held) (claims.Report, error) { return claims.Snooze(h, d, "") }
	}
	finish := func(result string) said {
		return func(h claims.Held) (claims.Report, error) { return claims.Finish(h, []byte(result)) }
	}
	for _, c := range []struct {
		about      string
		end, other said
	}{
		{"fail, not for good", fail("x", false), fail("x", true)},
		{"fail, for another reason", fail("x", false), fail("y", false)},
		{"fail for good", fail("", true), fail("y", true)},
		{"cancel", cancel("x"), cancel("y")},
		{"block", block("x"), block("y")},
		{"snooze", snooze(time.Hour), snooze(time.Minute)},
		{"finish", finish("1"), finish("2")},
	} {
		t.Run(c.about, func(t *testing.T) {
			at(t, func(p *place) {
				p.submit(1)
				d, w := p.svc.Claims(), session(p, "w")
				one := p.claim(d, w, claims.Ask{})[0]
				for range 2 {
					r, err := c.end(held(one))
					if a := p.report(d, w, r, err); !a.OK || a.State != p.job(one.ID).State {
						t.Errorf("%+v", a)
					}
				}
				r, err := c.other(held(one))
				if a := p.report(d, w, r, err); a.OK || a.Code != job.Conflict || a.Stop != claims.StopLost {
					t.Errorf("another end is answered %+v", a)
				}
			})
		})
	}
}

// TestLogAgain: a line with a key that is said again is written once, also in one call.
func TestLogAgain(t *testing.T) {
	at(t, func(p *place) {
		p.submit(1)
		d, w := p.svc.Claims(), session(p, "w")
		one := p.claim(d, w, claims.Ask{})[0]
		log, err := claims.Log(held(one), job.CustomEvent{Name: "log", Message: "page 7", Key: "page-7"})
		for range 2 {
			if a := p.report(d, w, log, err); !a.OK || a.State != job.Running {
				t.Errorf("said again: %+v", a)
			}
		}
		answers, err := d.Report(p.Context(), w, []claims.Report{log, log})
		if err != nil || !answers[0].OK || !answers[1].OK {
			t.Errorf("said twice in a call: %+v, %v", answers, err)
		}
		other, err := claims.Log(held(one), job.CustomEvent{Name: "log", Message: "page 8", Key: "page-7"})
		if a := p.report(d, w, other, err); a.OK || a.Code != job.Conflict || a.Stop != "" {
			t.Errorf("another line with the same key: %+v", a)
		}
		lines := 0
		es, err := p.store.Events(p.Context(), store.EventQuery{Tenant: "default", Job: one.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es.Events {
			if e.Name == "log" {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("it was written %d times", lines)
		}
	})
}

// TestRenewalWaits: a renewal that waits is answered by a quarter of the lease, so that the worker
// is heard of again in time, and at once when there is something to stop.
func TestRenewalWaits(t *testing.T) {
	at(t, func(p *place) {
		p.submit(1)
		d, w := p.svc.Claims(), session(p, "w")
		one := p.claim(d, w, claims.Ask{})[0]
		wait, cancel := context.WithTimeout(p.Context(), time.Hour)
		defer cancel()
		renew := func() (claims.Renewal, time.Duration) {
			begun := time.Now()
			r, err := d.RenewWaiting(p.Context(), wait, w, 20*time.Second, []claims.Held{held(one)})
			if err != nil {
				t.Fatal(err)
			}
			return r, time.Since(begun)
		}
		if r, took := renew(); took != 5*time.Second || r.Jobs[0].Stop != "" {
			t.Errorf("it took %v, of a lease of 20s: %+v", took, r)
		}
		go func() {
			time.Sleep(time.Second)
			if _, err := p.svc.Cancel(p.Context(), one.ID); err != nil {
				t.Error(err)
			}
		}()
		if r, took := renew(); took != time.Second || r.Jobs[0].Stop != claims.StopCanceled {
			t.Errorf("it took %v after a cancel: %+v", took, r)
		}
		if r, took := renew(); took != 0 || r.Jobs[0].Stop != claims.StopCanceled {
			t.Errorf("it took %v where there is something to stop: %+v", took, r)
		}
	})
}
