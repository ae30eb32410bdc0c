package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func TestMain(m *testing.M) {
	testenv.Draws(30, 100, 100)
	goleak.VerifyTestMain(testenv.Stopping(m), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"))
}

// A face is the API of a service that runs programs, on a server.
type face struct {
	*testing.T
	svc   *embedded.Service
	url   string
	token string // sent where it is not empty
}

func open(t *testing.T, stopping <-chan struct{}) *face {
	t.Helper()
	return openWith(t, api.Config{Stopping: stopping})
}

// openWith opens a face with more configured than its service.
func openWith(t *testing.T, c api.Config) *face {
	t.Helper()
	svc := embedded.Open(t)
	svc.Start(t)
	c.Service = svc.Service
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	srv := httptest.NewServer(api.New(c))
	t.Cleanup(srv.Close)
	return &face{T: t, svc: svc, url: srv.URL}
}

// logins are the tokens that [byToken] knows.
var logins = map[string]api.Caller{"ada-token": {Principal: "ada"}, "bob-token": {Principal: "bob"}}

// byToken tells who asks by a token.
func byToken(r *http.Request) (api.Caller, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if c, ok := logins[token]; ok {
		return c, nil
	}
	return api.Caller{}, job.Errorf(job.Denied, "the token is not known: log in again")
}

// A reply is an answer with its body.
type reply struct {
	code   int
	header http.Header
	body   string
}

// call asks.
func (f *face) call(method, path, body string, header ...string) reply {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), testenv.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// is calls, and sees that the status is as it should be. The answer is decoded into v unless that
// is nil.
func (f *face) is(status int, v any, method, path, body string, header ...string) reply {
	f.Helper()
	r := f.call(method, path, body, header...)
	if r.code != status {
		f.Fatalf("%s %s: %d: %s", method, path, r.code, r.body)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(r.body), v); err != nil {
			f.Fatalf("%s %s: %v: %s", method, path, err, r.body)
		}
	}
	return r
}

// run submits a spec and returns its job when that has ended.
func (f *face) run(spec string) job.Job {
	f.Helper()
	var a struct {
		ID job.ID `json:"id"`
	}
	f.is(202, &a, "POST", "/v1/jobs", spec)
	j, err := f.svc.Wait(f.Context(), a.ID)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

const later = `{"name":"later","command":["true"],"delay":"1h","labels":{"team":"red","x":"1"}}`

func TestErrors(t *testing.T) {
	f := open(t, nil)
	ended := f.run(`{"command":["true"]}`)
	var task struct {
		ID job.ID `json:"id"`
	}
	f.is(202, &task, "POST", "/v1/jobs", `{"kind":"mail","external_id":"x"}`)
	f.is(201, nil, "PUT", "/v1/kinds/picture", `{"limits":["account/{account}"],
		"schema":{"type":"object","required":["image"],"properties":{"width":{"type":"integer","maximum":100}}}}`)
	none := job.NewID()
	run := func(path string) string { return fmt.Sprintf(`{"path":%q,"sum":"1","jobs":[%s]}`, path, later) }
	for _, c := range []struct {
		method, path, body string
		status             int
		code               job.ErrorKind
		detail             string // a part of it
		problem            string // path and remedy of the first one
	}{
		{"POST", "/v1/jobs", `{"comand":["ls"]}`, 422, job.Invalid, "comand: is not a field", "comand: did you mean command?"},
		{"POST", "/v1/jobs", `{"command":["ls"],"priority":11}`, 422, job.Invalid, "priority (11)", "priority: give 0 (first) to 9"},
		{"POST", "/v1/jobs", `{"jobs":[{"command":["ls"]},{"comand":["ls"]},{}]}`, 422, job.Invalid, "jobs[2].kind", "jobs[1].comand: did you mean command?"},
		{
			"POST", "/v1/jobs", `{"kind":"picture","args":{"account":1,"width":101}}`, 422, job.Invalid,
			"args.image", "args.image: give it",
		},
		{
			"POST", "/v1/jobs", `{"jobs":[{"kind":"mail"},{"kind":"picture","args":{"image":"cat.png"}}]}`, 422, job.Invalid,
			"limits[0] (account/{account}): finds no word",
			"jobs[1].limits[0]: give a text, a whole number, true or false there",
		},
		{"POST", "/v1/jobs", `{"jobs":[]}`, 422, job.Invalid, "jobs: is empty", "jobs: give at least one spec"},
		{"POST", "/v1/jobs", `{"jobs":[{"command":["ls"]}],"x":1}`, 422, job.Invalid, "x: is not a field of the body", "x: remove it"},
		{"POST", "/v1/jobs", `{"jobs":{}}`, 422, job.Invalid, "jobs ({}): is not a list", "jobs: give a list"},
		{"POST", "/v1/jobs", `{"jobs":[{"command":["ls"]}],"default":{}}`, 422, job.Invalid, "default: is not a field of the body", "default: did you mean defaults?"},
		{"POST", "/v1/jobs", `{"command":["ls"],"command":["rm"]}`, 422, job.Invalid, "command: stands there twice", "command: keep one of them"},
		{"POST", "/v1/jobs", `{"jobs":[{"command":["ls"]},{"command":["ls"],"env":{"A":"1","B":"2","A":"3"}}]}`, 422, job.Invalid, "stands there twice", "jobs[1].env.A: keep one of them"},
		{"POST", "/v1/jobs", "{\"command\":[\"ls\",\"\xff\"]}", 422, job.Invalid, "is not text in UTF-8", "(body): encode it so"},
		{"POST", "/v1/bulk", `{"action":"cancl","all":true}`, 422, job.Invalid, "is unknown", "action: give one of [cancel pause resume resubmit hide unhide delete try release give_up]"},
		{"POST", "/v1/bulk", `{"action":"cancel","filtr":"name=x"}`, 422, job.Invalid, "is not a field of the body", "filtr: did you mean filter?"},
		{"POST", "/v1/bulk", `{"action":"cancel","Filter":"name=x"}`, 422, job.Invalid, "is not a field of the body", "Filter: did you mean filter?"},
		{"POST", "/v1/bulk", `{"action":3,"all":true}`, 422, job.Invalid, "action (3): is not text", "action: put it in quotes: \"3\""},
		{"PATCH", "/v1/jobs/" + ended.ID.String() + "/annotations", `null`, 422, job.Invalid, "is not an object", `(body): write fields such as "labels": {"reviewed": "yes"}`},
		{"PATCH", "/v1/jobs/" + ended.ID.String() + "/annotations", `{"labels":{"a":1}}`, 422, job.Invalid, "labels.a (1): is not text", "labels.a: put it in quotes: \"1\""},
		{"PUT", "/v1/queues/night", `{"max_wait":1}`, 422, job.Invalid, "is not a field of a queue", "max_wait: did you mean max_waiting?"},
		{"PUT", "/v1/queues/night", `{"max_waiting":1,"max_waiting":2}`, 422, job.Invalid, "stands there twice", "max_waiting: keep one of them"},
		{"POST", "/v1/jobs", `[1`, 422, job.Invalid, "is not JSON", "(spec): correct the syntax"},
		{"POST", "/v1/jobs", `null`, 422, job.Invalid, "is not an object", "(spec): write fields such as command: [wc, -w, in.txt]"},
		{"POST", "/v1/jobs", ``, 400, job.Invalid, "request body is required", ""},
		{"POST", "/v1/jobs", `{"kind":"mail","external_id":"x","name":"y"}`, 409, job.Conflict, `external_id "x" belongs to job`, ""},
		{"GET", "/v1/jobs/" + none.String(), "", 404, job.NotFound, "there is no job", ""},
		{"GET", "/v1/jobs/nothing", "", 422, job.Invalid, "is not the id of a job", "id: give its 36 characters, such as 01926d3c-7b1e-7c43-9d52-6f0c8a3e1b77"},
		{"GET", "/v1/jobs?limit=0", "", 422, job.Invalid, "limit", "limit: correct or remove it"},
		{"GET", "/v1/jobs?limit=x", "", 422, job.Invalid, "invalid integer", "limit: correct or remove it"},
		{"GET", "/v1/jobs?stat=x", "", 422, job.Invalid, "is not a parameter of GET /v1/jobs", "stat: did you mean sort?"},
		{"GET", "/v1/jobs?filter=name%3Dx&filter=name%3Dy", "", 422, job.Invalid, "stands there twice", "filter: give it once"},
		{"GET", "/v1/jobs?filter=name%3Dx;limit=2", "", 422, job.Invalid, "cannot be read", "(query): write name=value with & between them, and other signs with % and two hex digits"},
		{"GET", "/v1/jobs?filter=%zz", "", 422, job.Invalid, "cannot be read", "(query): write name=value with & between them, and other signs with % and two hex digits"},
		{"GET", "/v1/jobs?filter=state%3Dx", "", 422, job.Invalid, "is not a value of this field", "filter: give one of WAITING, PENDING, PROCESSING_INPUTS, STAGING_INPUTS, STAGING_JOB, SUBMITTING_JOB, QUEUED, RUNNING, ARCHIVING, BLOCKED, PAUSED, FINISHED, FAILED, CANCELED"},
		{"GET", "/v1/jobs?filter=group%3Dx", "", 422, job.Invalid, "is not a value of this field", "filter: give the key of a group, 24 hexadecimal digits, as pawl recovery list prints them"},
		{"POST", "/v1/bulk", `{"action":"cancel","filter":"group=x"}`, 422, job.Invalid, "is not a value of this field", "filter: give the key of a group, 24 hexadecimal digits, as pawl recovery list prints them"},
		{"GET", "/v1/jobs?filter=owned%3Dada", "", 422, job.Invalid, "is not a field", "filter: did you mean owner?"},
		{"GET", "/v1/jobs?sort=state", "", 422, job.Invalid, "sort", "sort: correct or remove it"},
		{"GET", "/v1/jobs?cursor=!", "", 422, job.Invalid, "is not a cursor", ""},
		{"GET", "/v1/events?after=!", "", 422, job.Invalid, "is not a cursor", ""},
		{"GET", "/v1/events?after=0~x", "", 422, job.Invalid, "is not a cursor", ""},
		{"GET", "/v1/jobs/" + none.String() + "/events", "", 404, job.NotFound, "there is no job", ""},
		{"GET", "/v1/jobs/" + none.String() + "/history", "", 404, job.NotFound, "there is no job", ""},
		{"GET", "/v1/jobs/" + none.String() + "/logs", "", 404, job.NotFound, "there is no job", ""},
		{"GET", "/v1/jobs/" + task.ID.String() + "/logs?follow=true", "", 404, job.NotFound, "has no files and no log", ""},
		{"GET", "/v1/jobs/" + task.ID.String() + "/output", "", 404, job.NotFound, "has no files and no log", ""},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/logs?stream=stdin", "", 422, job.Invalid, "stream", "stream: correct or remove it"},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/logs?tail=0", "", 422, job.Invalid, "tail", "tail: correct or remove it"},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/output/nothing", "", 404, job.NotFound, "has no file nothing", ""},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/output/%2E%2E/x", "", 422, job.Invalid, "is not the path of a file", ""},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/output/..%2Fx", "", 422, job.Invalid, "is not the path of a file", ""},
		{"GET", "/v1/jobs/" + ended.ID.String() + "/output/%2Fetc%2Fpasswd", "", 422, job.Invalid, "is not the path of a file", ""},
		{"POST", "/v1/jobs/" + ended.ID.String() + "/pause", "", 409, job.Conflict, "has already ended FINISHED", ""},
		{"POST", "/v1/jobs/" + task.ID.String() + "/resume", "", 409, job.Conflict, "is not paused", ""},
		{"POST", "/v1/jobs/" + task.ID.String() + "/cancel?wait=x", "", 422, job.Invalid, "is not a duration", "wait: give one such as 30s"},
		{"POST", "/v1/jobs/" + none.String() + "/cancel", "", 404, job.NotFound, "there is no job", ""},
		{"POST", "/v1/jobs/" + none.String() + "/resubmit", "", 404, job.NotFound, "there is no job", ""},
		{"POST", "/v1/jobs/" + task.ID.String() + "/resubmit", "", 409, job.Conflict, "external_id", ""},
		{"PUT", "/v1/runs/x", run("/a"), 422, job.Invalid, "is not that of the run x", "path: put it to /v1/runs/" + service.RunKey("/a")},
		{"PUT", "/v1/runs/" + service.RunKey("/a"), `{"path":"/a","jobs":[` + later + `]}`, 422, job.Invalid, "sum: is missing", "sum: give what identifies the bytes of the file"},
		{"PUT", "/v1/runs/" + service.RunKey("/a"), `{"path":"/a","sum":"1","jobs":[]}`, 422, job.Invalid, "jobs: is empty", "jobs: give at least one spec"},
		{"GET", "/v1/nothing", "", 404, job.NotFound, "there is nothing at /v1/nothing", ""},
		{"DELETE", "/v1/counts", "", 405, job.Invalid, "DELETE is not a method of", ""},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			var p struct {
				Type, Title, Detail string
				Status              int
				Code                job.ErrorKind
				Errors              []job.Problem
			}
			r := f.call(c.method, c.path, c.body)
			if err := json.Unmarshal([]byte(r.body), &p); err != nil {
				t.Fatalf("%d: %v: %s", r.code, err, r.body)
			}
			if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("content type %s", ct)
			}
			if r.code != c.status || p.Status != c.status || p.Title != http.StatusText(c.status) || p.Code != c.code || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%d %s", r.code, r.body)
			}
			first := ""
			if len(p.Errors) > 0 {
				first = p.Errors[0].Path + ": " + p.Errors[0].Remedy
			}
			if first != c.problem {
				t.Errorf("problem %q, want %q", first, c.problem)
			}
		})
	}
}

func TestJobs(t *testing.T) {
	f := open(t, nil)
	type answer struct {
		ID      job.ID
		State   job.State
		Existed bool
	}
	var a, b answer
	r := f.is(202, &a, "POST", "/v1/jobs", later, "Idempotency-Key", "k")
	if at := r.header.Get("Location"); at != "/v1/jobs/"+a.ID.String() || a.State != job.Waiting || a.Existed {
		t.Errorf("%+v, at %s", a, at)
	}
	if f.is(202, &b, "POST", "/v1/jobs", later, "Idempotency-Key", "k"); b.ID != a.ID || !b.Existed {
		t.Errorf("%+v after %+v", b, a)
	}
	f.is(409, nil, "POST", "/v1/jobs", `{"command":["ls"]}`, "Idempotency-Key", "k")

	var v service.View
	f.is(200, &v, "GET", "/v1/jobs/"+a.ID.String(), "")
	if r := f.is(200, nil, "GET", "/v1/jobs/"+a.ID.String(), ""); strings.Contains(r.body, `:""`) {
		t.Errorf("what is empty is not left out: %s", r.body)
	}
	if string(v.Request) != later || !strings.HasPrefix(v.Why, "waits until") || v.Folder != "" {
		t.Errorf("%+v", v)
	}

	var many struct{ Jobs []answer }
	f.is(202, &many, "POST", "/v1/jobs", `{"jobs":[`+later+`,{"kind":"mail","args":{"x":1.10}}]}`)
	var page service.Views
	f.is(200, &page, "GET", "/v1/jobs?limit=2", "")
	if len(many.Jobs) != 2 || len(page.Jobs) != 2 || page.Jobs[0].ID != many.Jobs[1].ID || page.Next == "" || page.Jobs[1].Request != nil || page.Jobs[1].Why == "" {
		t.Errorf("%+v", page)
	}
	f.is(200, &page, "GET", "/v1/jobs?cursor="+page.Next, "")
	if len(page.Jobs) != 1 || page.Jobs[0].ID != a.ID {
		t.Errorf("%+v", page)
	}
	for query, want := range map[string]int{
		"label.team=red label.x=1": 2, "label.team=red label.x=2": 0, "kind=mail": 1, "name=later": 2,
		"state=WAITING": 2, "state=WAITING,pending": 3, "state=FAILED": 0, "": 3,
	} {
		var page service.Views
		if f.is(200, &page, "GET", "/v1/jobs?filter="+url.QueryEscape(query), ""); len(page.Jobs) != want {
			t.Errorf("%s: %d jobs, want %d", query, len(page.Jobs), want)
		}
	}

	t.Run("a wish is obeyed, or stands", func(t *testing.T) {
		path := "/v1/jobs/" + a.ID.String()
		var v service.View
		if f.is(200, &v, "POST", path+"/pause?wait=30s", ""); v.State != job.Paused {
			t.Error(v.State)
		}
		if f.is(200, &v, "POST", path+"/resume?wait=30s", ""); v.State != job.Waiting {
			t.Error(v.State)
		}
		if f.is(200, &v, "POST", path+"/cancel?wait=30s", ""); v.State != job.Canceled {
			t.Error(v.State)
		}
		var r answer
		f.is(202, &r, "POST", "/v1/jobs", `{"command":["sleep","60"]}`)
		path = "/v1/jobs/" + r.ID.String()
		for e, err := range f.svc.Events(t.Context(), r.ID, "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.State == job.Running {
				break
			}
		}
		if f.is(202, &v, "POST", path+"/pause", ""); v.Wish != job.WishPause {
			t.Errorf("%+v", v)
		}
		if f.is(200, &v, "POST", path+"/cancel?wait=30s", ""); v.State != job.Canceled {
			t.Error(v.State)
		}
	})
	t.Run("the request of a job is submitted again as it was given", func(t *testing.T) {
		var again service.View
		f.is(202, &again, "POST", "/v1/jobs/"+a.ID.String()+"/resubmit", "")
		if again.ID == a.ID || string(again.Request) != later || again.State != job.Waiting {
			t.Errorf("%+v", again)
		}
		new := map[job.ID]bool{again.ID: true}
		for _, key := range []string{"k", "k", "l", ""} {
			f.is(202, &again, "POST", "/v1/jobs/"+a.ID.String()+"/resubmit", "", "Idempotency-Key", key)
			new[again.ID] = true
		}
		f.is(202, &again, "POST", "/v1/jobs/"+many.Jobs[0].ID.String()+"/resubmit", "", "Idempotency-Key", "k")
		new[again.ID] = true
		if len(new) != 5 {
			t.Errorf("%d jobs, want one for each key and job, and one for each call without", len(new))
		}
	})
	t.Run("a file's run is found again", func(t *testing.T) {
		path := "/v1/runs/" + service.RunKey("/a")
		body := `{"path":"/a","sum":"%s","new":%t,"jobs":[` + later + `]}`
		var one, two, three service.FileAnswer
		f.is(202, &one, "PUT", path, fmt.Sprintf(body, "1", false))
		f.is(200, &two, "PUT", path, fmt.Sprintf(body, "1", false))
		f.is(202, &three, "PUT", path, fmt.Sprintf(body, "1", true))
		if two.Jobs[0] != one.Jobs[0] || !two.Existed || three.Jobs[0] == one.Jobs[0] || len(three.Older) != 1 {
			t.Errorf("%+v, %+v, %+v", one, two, three)
		}
	})
}

func TestFiles(t *testing.T) {
	f := open(t, nil)
	j := f.run(`{"command":["sh","-c","seq 3; echo no >&2; mkdir sub; echo 0123456789 > sub/a.txt; ln -s /etc/passwd out"]}`)
	path := "/v1/jobs/" + j.ID.String()
	var list struct{ Files []service.File }
	f.is(200, &list, "GET", path+"/output", "")
	names := ""
	for _, x := range list.Files {
		names += fmt.Sprintf("%s %d, ", x.Path, x.Size)
	}
	if !strings.HasPrefix(names, "pawl-manifest.json ") || !strings.HasSuffix(names, ", stderr 3, stdout 6, sub/a.txt 11, ") {
		t.Error(names)
	}
	for _, c := range []struct {
		path   string
		header []string
		status int
		want   string
	}{
		{"/output/sub/a.txt", nil, 200, "0123456789\n"},
		{"/output/sub%2Fa.txt", nil, 200, "0123456789\n"},
		{"/output/sub/a.txt", []string{"Range", "bytes=2-4"}, 206, "234"},
		{"/output/sub/a.txt", []string{"If-Modified-Since", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}, 304, ""},
		{"/logs", nil, 200, "1\n2\n3\n"},
		{"/logs?tail=2", nil, 200, "2\n3\n"},
		{"/logs?stream=stderr&follow=true", nil, 200, "no\n"},
	} {
		if r := f.call("GET", path+c.path, "", c.header...); r.code != c.status || r.body != c.want {
			t.Errorf("%s %v: %d %q", c.path, c.header, r.code, r.body)
		}
	}
	var v service.View
	if f.is(200, &v, "GET", path, ""); v.Folder != "" || !strings.HasSuffix(v.Results, "/archive/default/"+j.ID.String()) {
		t.Errorf("folder %q, results %q", v.Folder, v.Results)
	}
	var history struct{ Events []job.Event }
	if f.is(200, &history, "GET", path+"/history", ""); len(history.Events) != int(j.N) {
		t.Errorf("%d events, the last has the number %d", len(history.Events), j.N)
	}
}

func TestEvents(t *testing.T) {
	stopping := make(chan struct{})
	f := open(t, stopping)
	var ids []string
	events := func(path string, header ...string) (all []string) {
		t.Helper()
		ids = nil
		r := f.call("GET", path, "", header...)
		if r.code != 200 || r.header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d: %s", r.code, r.body)
		}
		first, rest, _ := strings.Cut(r.body, "\n\n")
		if !regexp.MustCompile(`^id: .*\nretry: 3000$`).MatchString(first) {
			t.Fatalf("the stream begins with %q, and not with a cursor and when to come again", first)
		}
		for block := range strings.SplitSeq(strings.TrimSuffix(rest, "\n\n"), "\n\n") {
			lines := strings.Split(block, "\n")
			if len(lines) != 3 || !strings.HasPrefix(lines[2], `data: {"job":`) {
				t.Fatalf("event %q", block)
			}
			ids = append(ids, strings.TrimPrefix(lines[0], "id: "))
			all = append(all, strings.TrimPrefix(lines[1], "event: "))
		}
		return all
	}
	j := f.run(`{"command":["true"]}`)
	path := "/v1/jobs/" + j.ID.String() + "/events"
	all := events(path)
	if len(all) != int(j.N) || all[0] != "PENDING" || all[len(all)-1] != "FINISHED" {
		t.Errorf("%v", all)
	}
	// Each event has a cursor of its own.
	for i, id := range ids[:len(ids)-1] {
		if rest := events(path + "?follow=true&after=" + id); len(rest) != len(all)-i-1 {
			t.Errorf("%d of %d events after %s", len(rest), len(all), id)
		}
		if rest := events(path+"?after=0", "Last-Event-ID", id); len(rest) != len(all)-i-1 {
			t.Errorf("%d of %d events after %s", len(rest), len(all), id)
		}
	}
	if got := events("/v1/events"); len(got) != len(all) {
		t.Errorf("%d events of all jobs, want %d", len(got), len(all))
	}
	// A service that stops ends the streams, after what there is.
	close(stopping)
	if got := events("/v1/events?follow=true"); len(got) != len(all) {
		t.Errorf("%d events, want %d", len(got), len(all))
	}
}
