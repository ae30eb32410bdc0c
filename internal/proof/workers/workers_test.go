package workers_test

import (
	"net/http"
	"testing"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
)

// reports are what a worker can say of a job, with what it says.
var reports = map[string]object{
	"progress": {"done": 1}, "checkpoint": {"checkpoint": object{"of": "the dead"}}, "log": {"name": "log", "message": "boo"},
	"finish": {"result": "of the dead"}, "fail": {"message": "boo"}, "snooze": {"delay": "1h"},
	"block": {"message": "boo", "tester": "enabled"}, "cancel": {}, "release": {},
}

// TestFrozenBeyondItsLease: a worker says nothing for longer than its lease. Another one goes on
// from its checkpoint. Nothing that the first one says then counts.
func TestFrozenBeyondItsLease(t *testing.T) {
	each(t, func(s *site) {
		sv := s.serve()
		zombie, other := s.worker(sv), s.worker(sv)
		s.submit(sv, object{})
		was := zombie.claim(1, nil)[0]
		zombie.says("checkpoint", held(was, object{"checkpoint": object{"page": 7}}))
		zombie.says("progress", held(was, object{"done": 7, "total": 9}))
		zombie.lease = "1s"
		zombie.says("renew", held(was, nil))

		is := other.claim(1, nil)[0]
		if is.ID != was.ID || is.Epoch <= was.Epoch || is.Attempt != 1 || is.Recoveries != 1 ||
			string(is.Checkpoint) != `{"page":7}` && string(is.Checkpoint) != `{"page": 7}` {
			t.Fatalf("%+v goes on from %+v", is, was)
		}
		before := s.view(sv, is.ID.String())
		if before.Suspect != 1 {
			t.Errorf("a job of a dead worker has suspicion %d", before.Suspect)
		}
		for verb, what := range reports {
			zombie.refused(verb, job.Fenced, held(was, what))
		}
		if a, _ := zombie.ask(nil); a.status != http.StatusConflict || a.Code != job.Fenced {
			t.Errorf("a claim of a session that is over: %d %s", a.status, a.Detail)
		}
		if a, _ := zombie.say("renew", held(was, nil)); a.status != http.StatusConflict || a.Code != job.Fenced {
			t.Errorf("a renewal of a session that is over: %d %s", a.status, a.Detail)
		}
		after := s.view(sv, is.ID.String())
		if after.N != before.N || after.Epoch != before.Epoch || after.State != job.Running {
			t.Errorf("the zombie has moved the job from %+v to %+v", before, after)
		}
		if after.Suspect != 0 {
			t.Error("a worker that lives has not cleared its job")
		}
		other.says("finish", held(is, object{"result": "of the living"}))
		if j := s.view(sv, is.ID.String()); j.State != job.Finished || string(j.Result) != `"of the living"` {
			t.Errorf("%s: %s", j.State, j.Result)
		}
		s.check(sv)
	})
}

// TestLies: workers speak of jobs and epochs that are not theirs.
func TestLies(t *testing.T) {
	each(t, func(s *site) {
		sv := s.serve()
		honest, liar := s.worker(sv), s.worker(sv)
		s.submit(sv, object{}, object{})
		its := honest.claim(1, object{"slots": 1})[0]
		own := liar.claim(1, object{"slots": 1})[0]
		for verb, what := range reports {
			liar.refused(verb, job.Fenced, held(its, what))
			later, earlier := own, own
			later.Epoch++
			earlier.Epoch--
			liar.refused(verb, job.Fenced, held(later, what))
			liar.refused(verb, job.Fenced, held(earlier, what))
			nobody := own
			nobody.ID = job.NewID()
			liar.refused(verb, job.NotFound, held(nobody, what))
		}
		if _, answers := liar.say("renew", held(its, nil), held(own, nil)); answers[0].Stop != claims.StopLost || !answers[1].OK {
			t.Errorf("a renewal that names another's job: %+v", answers)
		}
		// What is right beside what is not is written down.
		a, answers := liar.say("finish", held(its, nil), held(own, nil))
		if a.status != http.StatusConflict || len(a.Errors) != 1 || a.Errors[0].Path != "jobs[0]" || answers[0].OK || !answers[1].OK {
			t.Errorf("%d %+v %+v", a.status, a.Errors, answers)
		}
		if j := s.view(sv, own.ID.String()); j.State != job.Finished {
			t.Errorf("the liar's own job is %s", j.State)
		}
		honest.says("finish", held(its, nil))
		// A secret that is too short, none, and a job that is there twice.
		for _, secret := range []string{"", "short"} {
			if a, _ := s.call(sv, secret, http.MethodPost, "/v1/claims", object{"kinds": []string{"mail"}, "slots": 1}); a.status != 422 {
				t.Errorf("secret %q: %d", secret, a.status)
			}
		}
		if a, _ := honest.say("finish", held(its, nil), held(its, nil)); a.status != 422 || a.Errors[0].Path != "jobs[1].id" {
			t.Errorf("a job twice: %d %+v", a.status, a.Errors)
		}
		s.check(sv)
	})
}

// TestLostAnswers: each call is repeated, as after an answer that was lost.
func TestLostAnswers(t *testing.T) {
	each(t, func(s *site) {
		sv := s.serve()
		w := s.worker(sv)
		s.submit(sv, object{}, object{}, object{}, object{}, object{}, object{}, object{})
		call := object{"id": job.NewID(), "slots": 7}
		jobs, again := w.claim(7, call), w.claim(7, call)
		for i := range jobs {
			if again[i].ID != jobs[i].ID || again[i].Epoch != jobs[i].Epoch {
				t.Errorf("the claim was repeated: %+v, and %+v before", again[i], jobs[i])
			}
		}
		verbs := []string{"finish", "fail", "snooze", "block", "cancel", "release"}
		states := map[string]job.State{
			"finish": job.Finished, "fail": job.Waiting, "snooze": job.Waiting, "block": job.Blocked, "cancel": job.Canceled,
			"release": job.Pending,
		}
		for i, verb := range verbs {
			what := reports[verb]
			if verb == "block" {
				what = object{"message": "away", "tester": "tcp", "params": object{"address": "127.0.0.1:1"}}
			}
			for range 3 {
				if a := w.says(verb, held(jobs[i], what)); a[0].State != states[verb] {
					t.Errorf("%s: %+v", verb, a)
				}
			}
			for _, other := range verbs {
				if states[other] != states[verb] || other == "fail" || verb == "fail" {
					if other != verb {
						w.refused(other, job.Conflict, held(jobs[i], reports[other]))
					}
				}
			}
			w.refused("progress", job.Conflict, held(jobs[i], reports["progress"]))
		}
		w.refused("finish", job.Conflict, held(jobs[0], object{"result": "another"}))
		for range 3 {
			w.says("checkpoint", held(jobs[6], reports["checkpoint"]))
			w.says("progress", held(jobs[6], reports["progress"]))
		}
		w.says("finish", held(jobs[6], nil))
		s.check(sv)
	})
}

// TestServersKilled: the server of a worker is killed. The worker goes on with another one, or with
// the next one on the same folder, and loses nothing.
func TestServersKilled(t *testing.T) {
	each(t, func(s *site) {
		first := s.serve()
		w := s.worker(first)
		s.submit(first, object{}, object{})
		jobs := w.claim(2, object{"slots": 2})
		w.says("checkpoint", held(jobs[0], object{"checkpoint": 1}))
		var second *server
		if s.many() {
			second = s.serve()
		}
		first.kill(s)
		if second == nil {
			second = s.serve()
		}
		w.server = second
		w.says("renew", held(jobs[0], nil), held(jobs[1], nil))
		w.says("progress", held(jobs[0], object{"done": 1}))
		w.says("finish", held(jobs[0], nil), held(jobs[1], nil))
		for _, j := range jobs {
			if v := s.view(second, j.ID.String()); v.State != job.Finished || v.Recoveries != 0 || v.Attempt != 1 {
				t.Errorf("%s after %d recoveries, in attempt %d", v.State, v.Recoveries, v.Attempt)
			}
		}
		s.submit(second, object{})
		w.says("finish", held(w.claim(1, nil)[0], nil))
		s.check(second)
	})
}
