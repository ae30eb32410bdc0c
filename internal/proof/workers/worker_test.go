package workers_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/job"
)

// A worker calls a server.
type worker struct {
	*site
	server *server
	secret string
	lease  string
}

func (s *site) worker(sv *server) *worker { return &worker{s, sv, rand.Text() + rand.Text(), "60s"} }

// An answer is one to any call.
type answer struct {
	status int
	Detail string
	Code   job.ErrorKind
	Mode   string
	Errors []job.Problem
	Jobs   []json.RawMessage
}

type object = map[string]any

// call makes a call that is answered.
func (s *site) call(sv *server, secret, method, path string, body any) (a answer, text []byte) {
	s.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.Context(), method, sv.url+path, bytes.NewReader(b))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Pawl-Worker", secret)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	if len(text) > 0 {
		json.Unmarshal(text, &a)
	}
	a.status = resp.StatusCode
	return a, text
}

// submit submits tasks of the kind mail and returns their ids.
func (s *site) submit(sv *server, specs ...object) (ids []string) {
	s.Helper()
	for _, spec := range specs {
		if spec["kind"] == nil {
			spec["kind"] = "mail"
		}
		a, text := s.call(sv, "", http.MethodPost, "/v1/jobs", spec)
		var one struct{ ID string }
		if json.Unmarshal(text, &one); a.status != http.StatusAccepted {
			s.Fatalf("submit: %d: %s", a.status, text)
		}
		ids = append(ids, one.ID)
	}
	return ids
}

// view returns a job.
func (s *site) view(sv *server, id string) (j job.Job) {
	s.Helper()
	a, text := s.call(sv, "", http.MethodGet, "/v1/jobs/"+id, nil)
	if err := json.Unmarshal(text, &j); err != nil || a.status != http.StatusOK {
		s.Fatalf("job %s: %d: %s", id, a.status, text)
	}
	return j
}

// ask claims, and returns the answer whatever it is.
func (w *worker) ask(more object) (answer, []claims.Task) {
	w.Helper()
	body := object{"worker": "w", "kinds": []string{"mail"}, "slots": 10, "lease": w.lease}
	for k, v := range more {
		body[k] = v
	}
	a, text := w.call(w.server, w.secret, http.MethodPost, "/v1/claims", body)
	var c struct{ Jobs []claims.Task }
	if a.status == http.StatusOK {
		if err := json.Unmarshal(text, &c); err != nil {
			w.Fatal(err)
		}
	}
	return a, c.Jobs
}

// claim claims, and waits until there are n jobs.
func (w *worker) claim(n int, more object) (jobs []claims.Task) {
	w.Helper()
	for len(jobs) < n {
		ask := object{"wait": "30s"}
		for k, v := range more {
			ask[k] = v
		}
		a, some := w.ask(ask)
		if a.status != http.StatusOK {
			w.Fatalf("claim: %d: %s", a.status, a.Detail)
		}
		jobs = append(jobs, some...)
	}
	return jobs
}

// held names a job as reports do, with more of the report.
func held(j claims.Task, more object) object {
	item := object{"id": j.ID, "epoch": j.Epoch}
	for k, v := range more {
		item[k] = v
	}
	return item
}

// say reports.
func (w *worker) say(verb string, items ...object) (answer, []claims.Answer) {
	w.Helper()
	body := object{"jobs": items}
	if verb == "renew" {
		body["lease"] = w.lease
		if items == nil {
			body["jobs"] = []object{}
		}
	}
	a, text := w.call(w.server, w.secret, http.MethodPost, "/v1/claims/"+verb, body)
	var r struct{ Jobs []claims.Answer }
	if len(text) > 0 {
		if err := json.Unmarshal(text, &r); err != nil {
			w.Fatalf("%s: %s", err, text)
		}
	}
	return a, r.Jobs
}

// says reports, and all of it is taken.
func (w *worker) says(verb string, items ...object) []claims.Answer {
	w.Helper()
	a, answers := w.say(verb, items...)
	if a.status != http.StatusOK || len(answers) != len(items) {
		w.Fatalf("%s: %d: %s", verb, a.status, a.Detail)
	}
	for _, one := range answers {
		if !one.OK {
			w.Fatalf("%s: %+v", verb, one)
		}
	}
	return answers
}

// refused reports on one job, and it is refused as one that is not the worker's.
func (w *worker) refused(verb string, code job.ErrorKind, item object) {
	w.Helper()
	a, answers := w.say(verb, item)
	if a.status != http.StatusConflict || len(a.Errors) != 1 || a.Errors[0].Path != "jobs[0]" || len(answers) != 1 ||
		answers[0].OK || answers[0].Code != code || answers[0].Stop != claims.StopLost || answers[0].Detail == "" {
		w.Errorf("%s: %d %+v %+v", verb, a.status, a.Errors, answers)
	}
}
