package workers_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
)

// kind applies a document of a kind of task.
func (s *site) kind(sv *server, doc object) {
	s.Helper()
	name, _ := doc["name"].(string)
	a, text := s.call(sv, "", http.MethodPut, "/v1/kinds/"+name, doc)
	if a.status >= 300 {
		s.Fatalf("kind: %d: %s", a.status, text)
	}
}

// left waits until a job has left its worker.
func (s *site) left(sv *server, id job.ID) (j job.Job) {
	s.Helper()
	for j = s.view(sv, id.String()); j.Custody == job.Worker; j = s.view(sv, id.String()) {
		if s.Context().Err() != nil {
			s.Fatal("it does not leave its worker")
		}
	}
	return j
}

// TestSlow: a worker that lives, and renews, takes longer than the kind gives a run. The run ends
// as that of a handler, also if the server that gave the claim was killed.
func TestSlow(t *testing.T) {
	each(t, func(s *site) {
		first := s.serve()
		s.kind(first, object{"name": "mail", "timeout": "2s"})
		slow := s.worker(first)
		later := object{"backoff": object{"base": "1h"}} // so that it is seen in WAITING
		s.submit(first, object{"retry": object{"max_attempts": 1}}, object{"retry": later})
		jobs := slow.claim(2, object{"slots": 2})
		first.kill(s)
		sv := s.serve()
		slow.server = sv
		slow.say("renew", held(jobs[0], nil), held(jobs[1], nil))
		for _, one := range jobs {
			j := s.left(sv, one.ID)
			want := job.Waiting
			if one.MaxAttempts == 1 {
				want = job.Failed
			}
			if j.Code != job.TimeLimit || j.State != want || j.Recoveries != 0 || j.Suspect != 0 {
				s.Errorf("%s, %s after %d recoveries, suspect %d", j.State, j.Code, j.Recoveries, j.Suspect)
			}
		}
		_, answers := slow.say("renew", held(jobs[0], nil), held(jobs[1], nil))
		for _, a := range answers {
			if a.OK || a.Stop != claims.StopTimedOut {
				s.Errorf("the worker hears %+v", a)
			}
		}
		if a, answers := slow.say("finish", held(jobs[0], nil)); a.status != http.StatusConflict || answers[0].OK {
			s.Errorf("%d %+v", a.status, answers)
		}
		s.check(sv)
	})
}

// TestDrained: the server of a worker ends in good order while the worker holds jobs under a limit.
// The worker keeps them and its turns, and reports to the next one.
func TestDrained(t *testing.T) {
	each(t, func(s *site) {
		first := s.serve()
		s.kind(first, object{"name": "mail", "slots": 2})
		w, other := s.worker(first), s.worker(first)
		s.submit(first, object{}, object{}, object{})
		jobs := w.claim(2, nil)
		if len(jobs) != 2 {
			s.Fatalf("a limit of 2 lets %d run", len(jobs))
		}
		var sv *server
		if s.many() {
			sv = s.serve()
		}
		first.end()
		if sv == nil {
			sv = s.serve()
		}
		w.server, other.server = sv, sv
		if _, more := other.ask(nil); len(more) != 0 {
			s.Errorf("the limit lets %d more run", len(more))
		}
		w.says("renew", held(jobs[0], nil), held(jobs[1], nil))
		w.says("finish", held(jobs[0], nil))
		next := other.claim(1, nil)[0]
		w.says("finish", held(jobs[1], nil))
		other.says("finish", held(next, nil))
		for _, one := range append(jobs, next) {
			if j := s.view(sv, one.ID.String()); j.State != job.Finished || j.Attempt != 1 || j.Recoveries != 0 {
				s.Errorf("%s in attempt %d after %d recoveries", j.State, j.Attempt, j.Recoveries)
			}
		}
		s.check(sv)
	})
}

// TestCanceledWhileItWaits: a renewal that waits is answered because somebody cancels a job.
func TestCanceledWhileItWaits(t *testing.T) {
	each(t, func(s *site) {
		sv := s.serve()
		w := s.worker(sv)
		w.lease = "1h" // the wait would last for a quarter of that
		ids := s.submit(sv, object{})
		one := w.claim(1, nil)[0]
		canceled := make(chan struct{})
		go func() {
			defer close(canceled)
			if a, text := s.call(sv, "", http.MethodPost, "/v1/jobs/"+ids[0]+"/cancel", object{}); a.status >= 300 {
				s.Errorf("cancel: %d: %s", a.status, text)
			}
		}()
		_, text := s.call(sv, w.secret, http.MethodPost, "/v1/claims/renew", object{
			"jobs": []object{held(one, nil)}, "lease": "1h", "wait": "5m",
		})
		<-canceled
		var r struct{ Jobs []claims.Answer }
		if err := json.Unmarshal(text, &r); err != nil || len(r.Jobs) != 1 || r.Jobs[0].Stop != claims.StopCanceled {
			s.Errorf("%v: %s", err, text)
		}
		w.says("release", held(one, nil))
		if j := s.view(sv, ids[0]); j.State != job.Canceled {
			s.Error(j.State)
		}
		s.check(sv)
	})
}
