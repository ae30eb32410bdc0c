package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// fault is a problem on the wire.
type fault struct {
	Status           int
	Code             job.ErrorKind
	Detail, Instance string
	Errors           []job.Problem
}

func TestProgramToken(t *testing.T) {
	var program atomic.Pointer[api.Caller]
	f := openWith(t, api.Config{Auth: func(r *http.Request) (api.Caller, error) {
		if r.Header.Get("Authorization") == "Bearer program" {
			return *program.Load(), nil
		}
		return byToken(r)
	}})
	f.token = "ada-token"
	var a struct{ ID job.ID }
	f.is(202, &a, "POST", "/v1/jobs", `{"command":["sleep","60"]}`)
	f.until(a.ID, job.Running)
	program.Store(&api.Caller{Principal: "ada", Job: a.ID, Launch: 1})
	var doc document
	f.is(200, &doc, "GET", "/openapi.json", "")

	f.token = "program"
	var e job.Event
	f.is(201, &e, "POST", "/v1/jobs/"+a.ID.String()+"/events", `{"name":"epoch"}`)
	if e.Cause != job.CauseJob || e.Name != "epoch" || e.Job != a.ID {
		t.Errorf("%+v", e)
	}
	for _, op := range doc.operations() {
		if op.Security == nil {
			continue
		}
		path := strings.NewReplacer("{id}", a.ID.String(), "{", "", "}", "").Replace(op.path)
		want := 403
		switch op.ID {
		case "get-job":
			want = 200
		case "add-event":
			want = 422
		}
		if r := f.call(op.method, path, "{}"); r.code != want {
			t.Errorf("%s %s: %d, want %d: %s", op.method, path, r.code, want, r.body)
		}
	}
	none := job.NewID().String()
	f.is(403, nil, "GET", "/v1/jobs/"+none, "")
	f.is(403, nil, "POST", "/v1/jobs/"+none+"/events", `{"name":"epoch"}`)
	program.Store(&api.Caller{Principal: "ada", Job: a.ID, Launch: 2})
	f.is(409, nil, "POST", "/v1/jobs/"+a.ID.String()+"/events", `{"name":"epoch"}`)
	f.token = "ada-token"
	f.is(200, nil, "POST", "/v1/jobs/"+a.ID.String()+"/cancel?wait=30s", "")
}

// Another process reads the files of one job, or deletes it, and is answered from here.
func TestPeerToken(t *testing.T) {
	peers := map[string]*api.Caller{}
	auth := func(r *http.Request) (api.Caller, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if c := peers[token]; c != nil {
			return *c, nil
		}
		return byToken(r)
	}
	f := openWith(t, api.Config{Auth: auth, Limits: api.Limits{Rate: 1e-3, Burst: 1}})
	asked := 0
	there := service.New(service.Config{
		Store: f.svc.Store, Broker: &local.Broker{}, Machine: "m2",
		Peer: func(service.PeerAsk) service.Peer { asked++; return nil },
	})
	a, err := f.svc.Submit(t.Context(), service.Request{Spec: job.Spec{Command: []string{"echo", "hello"}}})
	if err != nil {
		t.Fatal(err)
	}
	id := a[0].ID
	if _, err := f.svc.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for token, c := range map[string]*api.Caller{
		"reads": {Principal: "bob", Job: id, Peer: api.PeerRead}, "deletes": {Principal: "bob", Job: id, Peer: api.PeerDelete},
		"nothing": {Principal: "bob", Peer: api.PeerRead},
	} {
		peers[token] = c
	}
	var doc document
	f.is(200, &doc, "GET", "/openapi.json", "")
	for _, token := range []string{"nothing", "reads", "deletes"} {
		f.token = token
		for _, op := range doc.operations() {
			if op.Security == nil {
				continue
			}
			want := 403
			switch {
			case token == "reads" && (op.ID == "list-output" || op.ID == "get-output" || op.ID == "get-logs"):
				want = 200
			case token == "deletes" && op.ID == "delete-job":
				want = 204
			}
			path := strings.NewReplacer("{id}", id.String(), "{path}", "stdout", "{", "", "}", "").Replace(op.path)
			if r := f.call(op.method, path, "{}"); r.code != want {
				t.Errorf("%s: %s %s: %d, want %d: %s", token, op.method, path, r.code, want, r.body)
			}
			none := strings.NewReplacer("{id}", job.NewID().String(), "{path}", "stdout", "{", "", "}", "").Replace(op.path)
			if r := f.call(op.method, none, "{}"); none != path && r.code != 403 {
				t.Errorf("%s: %s %s: %d: %s", token, op.method, none, r.code, r.body)
			}
		}
	}

	// One that was sent to the wrong process is not sent on.
	inward := httptest.NewServer(api.New(api.Config{Service: there, Auth: auth, Inward: true, Log: slog.New(slog.DiscardHandler)}))
	defer inward.Close()
	far := &face{T: t, svc: f.svc, url: inward.URL, token: "elsewhere"}
	if a, err = f.svc.Submit(t.Context(), service.Request{Spec: job.Spec{Command: []string{"true"}}}); err != nil {
		t.Fatal(err)
	}
	peers["elsewhere"] = &api.Caller{Principal: "bob", Job: a[0].ID, Peer: api.PeerRead}
	var p fault
	far.is(503, &p, "GET", "/v1/jobs/"+a[0].ID.String()+"/output", "")
	if !strings.Contains(p.Detail, "on machine m1") || asked > 0 {
		t.Errorf("%+v; asked %d times", p, asked)
	}
	// At an address for processes nobody else is told anything.
	for _, path := range []string{"/healthz", "/readyz", "/docs", "/openapi.json"} {
		far.token = ""
		far.is(401, nil, "GET", path, "")
		far.token = "elsewhere"
		far.is(403, nil, "GET", path, "")
	}
	f.token = ""
	f.is(200, nil, "GET", "/healthz", "")
}

func TestCallers(t *testing.T) {
	f := openWith(t, api.Config{Auth: byToken})
	f.token = "bob-token"
	var who struct{ Principal, Tenant string }
	if f.is(200, &who, "GET", "/v1/whoami", ""); who.Principal != "bob" || who.Tenant != "default" {
		t.Errorf("%+v", who)
	}
	var a struct{ ID job.ID }
	var v service.View
	f.is(202, &a, "POST", "/v1/jobs", later)
	if f.is(200, &v, "GET", "/v1/jobs/"+a.ID.String(), ""); v.Owner != "bob" {
		t.Errorf("owner %s", v.Owner)
	}
	f.is(202, nil, "POST", "/v1/jobs", `{"command":["ls"],"delay":"1h","owner":"bob"}`)
	var p fault
	f.is(403, &p, "POST", "/v1/jobs", `{"jobs":[`+later+`,{"command":["ls"],"owner":"ada"}]}`)
	if p.Code != job.Denied || len(p.Errors) != 1 || p.Errors[0].Path != "jobs[1].owner" || p.Errors[0].Value != "ada" {
		t.Errorf("%+v", p)
	}
	f.token = "ada-token" // the service acts in her name
	f.is(202, nil, "POST", "/v1/jobs", `{"command":["ls"],"delay":"1h","owner":"bob"}`)
	f.is(202, &a, "POST", "/v1/jobs", `{"command":["ls"],"name":"hers","delay":"1h","owner":"ada"}`)
	again := "/v1/jobs/" + a.ID.String() + "/resubmit"
	f.token = "bob-token"
	f.is(403, nil, "POST", again, "")
	var bulk service.BulkAnswer
	f.is(200, &bulk, "POST", "/v1/bulk", `{"action":"resubmit","filter":"name=hers"}`)
	if bulk.Done != 0 || bulk.Refused != 1 {
		t.Errorf("%+v", bulk)
	}
	f.token = "ada-token"
	f.is(202, nil, "POST", again, "")
	f.is(200, nil, "GET", "/v1/whoami", "", "Origin", "https://elsewhere.example")
	for _, path := range []string{"/healthz", "/readyz", "/docs", "/openapi.json", "/openapi.yaml"} {
		f.token = ""
		f.is(200, nil, "GET", path, "")
	}
	f.is(401, nil, "GET", "/metrics", "")
}

func TestWebPagesAreRefusedWhereNobodyLogsIn(t *testing.T) {
	f := open(t, nil)
	var p fault
	f.is(403, &p, "POST", "/v1/jobs", later, "Origin", "https://elsewhere.example")
	if p.Code != job.Denied {
		t.Errorf("%+v", p)
	}
}

func TestRequestID(t *testing.T) {
	f := open(t, nil)
	r := f.is(200, nil, "GET", "/healthz", "", "X-Request-Id", "a.B-1_")
	if id := r.header.Get("X-Request-Id"); id != "a.B-1_" {
		t.Errorf("id %q", id)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 65), "<x>"} {
		var p fault
		r := f.is(404, &p, "GET", "/v1/jobs/"+job.NewID().String(), "", "X-Request-Id", bad)
		id := r.header.Get("X-Request-Id")
		if !regexp.MustCompile(`^[A-Z0-9]{16,}$`).MatchString(id) || p.Instance != id {
			t.Errorf("%q became %q, instance %q", bad, id, p.Instance)
		}
	}
}

// logged is a log whose lines are looked at.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A failing store cannot list.
type failing struct{ store.Store }

func (failing) List(context.Context, store.Query) (store.Page, error) {
	return store.Page{}, job.Errorf(job.Unavailable, "list jobs: %w", errors.New("disk secret"))
}

func (failing) Count(context.Context, string, job.Filter) (store.Counts, error) {
	return store.Counts{}, errors.New("count secret")
}

func (failing) Find(context.Context, store.FindQuery) ([]job.Job, error) {
	return nil, job.Errorf(job.Unavailable, "somebody else is busy")
}

// Sessions answers what no answer can be made of: JSON has no such year.
func (failing) Sessions(context.Context) ([]store.SessionInfo, error) {
	return []store.SessionInfo{{ID: job.NewID(), Live: true, Renewed: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}, nil
}

// ofRequests says of a record whether it was logged with the context of a request, from which a log
// knows more.
type ofRequests struct{ slog.Handler }

func (h ofRequests) Handle(ctx context.Context, r slog.Record) error {
	r.AddAttrs(slog.Bool("of-request", ctx.Value(http.ServerContextKey) != nil))
	return h.Handler.Handle(ctx, r)
}

func TestWhatGoesWrongInside(t *testing.T) {
	for _, own := range []bool{false, true} {
		var log logged
		var told sync.Map
		c := api.Config{
			Service:  service.New(service.Config{Store: failing{}, Broker: &local.Broker{}}),
			Log:      slog.New(ofRequests{slog.NewTextHandler(&log, nil)}),
			Auth:     byToken,
			Metrics:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") }),
			Answered: func(a api.Answer) { told.Store(a.RequestID, a) },
		}
		if own {
			c.Auth = nil
		}
		srv := httptest.NewServer(api.New(c))
		defer srv.Close()
		f := &face{T: t, url: srv.URL, token: "ada-token"}
		for _, try := range []struct {
			id, path, operation string
			status              int
			code                job.ErrorKind
			detail, toOwner     string // to the service's own principal
		}{
			{"panic", "/metrics", "get-metrics", 500, job.Internal, "with the id panic", "a defect"},
			{"internal", "/v1/counts", "count-jobs", 500, job.Internal, "with the id internal", "count secret"},
			{"encoded", "/v1/workers", "list-workers", 500, job.Internal, "with the id encoded", "a defect"},
			{"wrapped", "/v1/jobs", "list-jobs", 503, job.Unavailable, "under the id wrapped", "list jobs: disk secret"},
			{"said", "/v1/jobs/" + job.NewID().String(), "get-job", 503, job.Unavailable, "somebody else is busy", "somebody else is busy"},
		} {
			var p fault
			r := f.is(try.status, &p, "GET", try.path, "", "X-Request-Id", try.id)
			want := try.detail
			if own {
				want = try.toOwner
			}
			if p.Code != try.code || p.Instance != try.id || !strings.Contains(p.Detail, want) || !own && strings.Contains(r.body, "secret") {
				t.Errorf("own %t, %s: %+v", own, try.path, p)
			}
			if try.status == 503 && r.header.Get("Retry-After") != "1" {
				t.Errorf("%s: %v", try.path, r.header)
			}
			if text := log.String(); strings.Count(text, "msg=\"request failed\" request="+try.id) != 1 {
				t.Errorf("%s: log %s", try.path, text)
			} else if strings.Contains(text, "of-request=false") {
				t.Errorf("%s: logged without its request: %s", try.path, text)
			}
			v, _ := told.Load(try.id)
			a, _ := v.(api.Answer)
			principal := "ada"
			if own {
				principal = ""
			}
			if a.Operation != try.operation || a.Status != try.status || a.Method != "GET" || a.Path != try.path || a.Principal != principal || a.Bytes == 0 || a.Duration <= 0 || a.Context == nil {
				t.Errorf("%+v", a)
			}
		}
		if n := strings.Count(log.String(), "panic=secret"); n != 1 {
			t.Errorf("%d panics in the log %s", n, log.String())
		}
	}
}

func TestHeaders(t *testing.T) {
	f := openWith(t, api.Config{Version: "1.2.3"})
	for _, path := range []string{"/v1/jobs", "/v1/nothing", "/healthz", "/docs", "/openapi.yaml"} {
		head := f.call("GET", path, "").header
		for name, want := range map[string]string{
			"Pawl-Version": "1.2.3", "Pawl-Api": strconv.Itoa(api.Revision), "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			if got := head.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if csp := head.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", path, csp)
		}
	}
}

func TestPaths(t *testing.T) {
	f := open(t, nil)
	for _, c := range []struct {
		method, path  string
		status        int
		allow, detail string
	}{
		{"POST", "/", 405, "GET, HEAD", ""},
		{"GET", "/v1", 404, "", ""},
		{"GET", "/v1/jobs/", 404, "", "no path ends with a slash"},
		{"POST", "/v1/jobs/", 404, "", "no path ends with a slash"},
		{"POST", "//v1/jobs", 404, "", ""},
		{"GET", "/v1/../v1/jobs", 404, "", ""},
		{"GET", "/v1/jobs/x/output/", 422, "", "path"},
		{"GET", "/v1/jobs/x/output//", 404, "", "no path ends with a slash"},
		{"PUT", "/v1/jobs", 405, "GET, HEAD, POST", ""},
		{"OPTIONS", "/v1/counts", 405, "GET, HEAD", ""},
		{"TRACE", "/v1/bulk", 405, "POST", ""},
		{"POST", "/docs", 405, "GET, HEAD", ""},
		{"BREW", "/v1/queues/x", 405, "DELETE, GET, HEAD, PUT", ""},
	} {
		r := f.call(c.method, c.path, "")
		var p fault
		if err := json.Unmarshal([]byte(r.body), &p); err != nil {
			t.Fatalf("%s %s: %d %s", c.method, c.path, r.code, r.body)
		}
		if r.code != c.status || r.header.Get("Allow") != c.allow || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s %s: %d, allowed %q: %s", c.method, c.path, r.code, r.header.Get("Allow"), r.body)
		}
	}
}

func TestHead(t *testing.T) {
	f := open(t, nil)
	j := f.run(`{"command":["sh","-c","echo 0123456789 > 'a \"b\"; c.txt'; echo x > ü.html"]}`)
	path := "/v1/jobs/" + j.ID.String()
	r := f.is(200, nil, "HEAD", path+"/output/a%20%22b%22;%20c.txt", "")
	if r.body != "" || r.header.Get("Content-Length") != "11" || r.header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("%q %v", r.body, r.header)
	}
	if got := r.header.Get("Content-Disposition"); got != `attachment; filename="a _b_; c.txt"` {
		t.Error(got)
	}
	r = f.is(200, nil, "GET", path+"/output/%C3%BC.html", "")
	if got := r.header.Get("Content-Disposition"); got != `attachment; filename*=utf-8''%C3%BC.html` || !strings.Contains(r.header.Get("Content-Security-Policy"), "sandbox") {
		t.Error(got)
	}
	for _, path := range []string{"/v1/events?follow=true", path + "/logs?follow=true", path, "/v1/jobs", "/docs", "/healthz"} {
		if r := f.is(200, nil, "HEAD", path, ""); r.body != "" {
			t.Errorf("%s: %q", path, r.body)
		}
	}
}

func TestDocs(t *testing.T) {
	f := openWith(t, api.Config{Prefix: "/pawl", Auth: byToken})
	page := f.is(200, nil, "GET", "/pawl/docs", "").body
	if strings.Contains(page, "//") || regexp.MustCompile(`<script>|style=|onload`).MatchString(page) {
		t.Errorf("the page asks elsewhere, or has scripts or styles in it:\n%s", page)
	}
	assets := regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(assets) < 5 {
		t.Fatalf("%d assets", len(assets))
	}
	for _, a := range assets {
		plain := f.is(200, nil, "GET", "/pawl/"+a[1], "", "Accept-Encoding", "identity")
		if plain.body == "" || plain.header.Get("Content-Type") == "" || plain.header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d bytes, %v", a[1], len(plain.body), plain.header)
		}
	}
	packed := f.is(200, nil, "GET", "/docs/swagger-ui-bundle.js", "", "Accept-Encoding", "gzip")
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body) > 1<<20 {
		t.Errorf("%d bytes, %v", len(packed.body), packed.header)
	}
	for _, name := range []string{"nothing", "..%2Fdocs.go", "swagger-ui.css.map"} {
		f.is(404, nil, "GET", "/docs/"+name, "")
	}
}

func TestPages(t *testing.T) {
	f := openWith(t, api.Config{Prefix: "/pawl"})
	for range 5 {
		f.is(202, nil, "POST", "/v1/jobs", later)
	}
	path, seen := "/v1/jobs?limit=2&sort=created&filter=name%3Dlater", 0
	for path != "" {
		var page service.Views
		r := f.is(200, &page, "GET", path, "")
		seen += len(page.Jobs)
		path = ""
		if link := r.header.Get("Link"); link != "" {
			m := regexp.MustCompile(`^<(/pawl/v1/jobs\?[^>]+)>; rel="next"$`).FindStringSubmatch(link)
			if m == nil {
				t.Fatal(link)
			}
			path = m[1]
		}
	}
	if seen != 5 {
		t.Errorf("%d jobs on all pages", seen)
	}
	var c struct {
		States map[job.State]int
		Total  int
	}
	if f.is(200, &c, "GET", "/v1/counts?filter=name%3Dlater", ""); c.Total != 5 || c.States[job.Waiting] != 5 {
		t.Errorf("%+v", c)
	}
}

func TestSubmitMany(t *testing.T) {
	f := open(t, nil)
	var many struct {
		Jobs []struct{ ID job.ID }
	}
	f.is(202, &many, "POST", "/v1/jobs", `{"jobs":[{"env":{"A":"2"},"labels":null},{"arguments":["x"]}],
		"defaults":{"command":["echo"],"delay":"1h","env":{"A":"1","B":"<1>"},"labels":{"x":"y"},"notes":{"n":1.10}}}`)
	for i, want := range []string{
		`{"command":["echo"],"delay":"1h","env":{"A":"2","B":"<1>"},"notes":{"n":1.10}}`,
		`{"arguments":["x"],"command":["echo"],"delay":"1h","env":{"A":"1","B":"<1>"},"labels":{"x":"y"},"notes":{"n":1.10}}`,
	} {
		if r := f.is(200, nil, "GET", "/v1/jobs/"+many.Jobs[i].ID.String()+"/request", ""); r.body != want {
			t.Errorf("job %d: %s", i, r.body)
		}
	}
	var p fault
	f.is(422, &p, "POST", "/v1/jobs", `{"jobs":[{"priority":11},{"command":["ls"]},{"queue":"x y","comand":[]},{"command":["ls"],"queue":"none"}]}`)
	var paths []string
	for _, e := range p.Errors {
		paths = append(paths, e.Path)
	}
	if strings.Join(paths, " ") != "jobs[0].kind jobs[0].priority jobs[2].comand jobs[2].queue" {
		t.Error(paths)
	}
	f.is(422, &p, "POST", "/v1/jobs", `{"jobs":[{"command":["ls"],"queue":"none"}]}`)
	if len(p.Errors) != 1 || p.Errors[0].Path != "jobs[0].queue" {
		t.Errorf("%+v", p)
	}
	var count struct{ Total int }
	if f.is(200, &count, "GET", "/v1/counts", ""); count.Total != 2 {
		t.Errorf("%d jobs, though all or none are accepted", count.Total)
	}
}

// A counted kind counts how often a spec of it is checked.
type counted struct {
	engine.Kind
	checks atomic.Int32
}

func (c *counted) Check(string, *job.Spec) []job.Problem {
	c.checks.Add(1)
	return nil
}

func (*counted) Target(*job.Job, *job.Spec) string { return "" }

func TestASpecIsCheckedOnce(t *testing.T) {
	kind := &counted{}
	srv := httptest.NewServer(api.New(api.Config{Log: slog.New(slog.DiscardHandler), Service: service.New(service.Config{
		Store: fake.New(time.Now), Broker: &local.Broker{}, Kinds: map[string]engine.Kind{"counted": kind},
	})}))
	t.Cleanup(srv.Close)
	f := &face{T: t, url: srv.URL}
	for _, tt := range []struct {
		method, path, body string
		status             int
		checks             int32
	}{
		{"POST", "/v1/jobs", `{"kind":"counted"}`, 202, 1},
		{"POST", "/v1/jobs", `{"jobs":[{"kind":"counted"}]}`, 202, 1},
		{"POST", "/v1/jobs", `{"jobs":[{},{}],"defaults":{"kind":"counted"}}`, 202, 2},
		{"POST", "/v1/jobs", `{"kind":"counted","priority":"high"}`, 422, 1},
		{
			"PUT", "/v1/runs/" + service.RunKey("/x"), `{"path":"/x","sum":"1","jobs":[{"kind":"counted"},{"kind":"counted"}]}`,
			202, 2,
		},
	} {
		kind.checks.Store(0)
		f.is(tt.status, nil, tt.method, tt.path, tt.body)
		if n := kind.checks.Load(); n != tt.checks {
			t.Errorf("%s %s: checked %d times, want %d", tt.method, tt.body, n, tt.checks)
		}
	}
}

func TestHistorySpent(t *testing.T) {
	f := open(t, nil)
	j := f.run(`{"command":["true"]}`)
	var h struct {
		Events []job.Event
		Spent  []struct {
			State   job.State
			Seconds float64
			Times   int
		}
	}
	f.is(200, &h, "GET", "/v1/jobs/"+j.ID.String()+"/history", "")
	var states []string
	total := 0.0
	for _, s := range h.Spent {
		states = append(states, string(s.State))
		total += s.Seconds
		if s.Times != 1 {
			t.Errorf("%+v", s)
		}
	}
	if strings.Join(states, " ") != "PENDING PROCESSING_INPUTS STAGING_INPUTS STAGING_JOB SUBMITTING_JOB RUNNING ARCHIVING FINISHED" {
		t.Error(states)
	}
	if lived := j.Ended.Sub(j.Created).Seconds(); total < lived-0.01 || total > lived+0.01 {
		t.Errorf("%g s in all states, of %g s", total, lived)
	}
}

func TestStoppingAnswersWhoWaits(t *testing.T) {
	stopping := make(chan struct{})
	f := open(t, stopping)
	var a struct{ ID job.ID }
	f.is(202, &a, "POST", "/v1/jobs", `{"command":["sleep","60"]}`)
	f.until(a.ID, job.Running)
	answers := make(chan reply, 2)
	go func() { answers <- f.call("POST", "/v1/jobs?wait=5m", later) }()
	go func() { answers <- f.call("POST", "/v1/jobs/"+a.ID.String()+"/pause?wait=5m", "") }()
	var done service.View
	for done.Wish == "" && done.State != job.Paused { // the pause has arrived
		f.is(200, &done, "GET", "/v1/jobs/"+a.ID.String(), "")
	}
	close(stopping)
	for range 2 {
		if r := <-answers; r.code != 202 && r.code != 200 {
			t.Errorf("%d %s", r.code, r.body)
		}
	}
	if _, err := f.svc.Cancel(context.Background(), a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.svc.Wait(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
}

func TestResourceVersions(t *testing.T) {
	f := openWith(t, api.Config{Prefix: "/pawl"})
	var r service.Resource[job.Queue]
	of := func(answer reply, status int, etag string, disabled bool) {
		t.Helper()
		r = service.Resource[job.Queue]{}
		if err := json.Unmarshal([]byte(answer.body), &r); err != nil {
			t.Fatal(err)
		}
		if answer.code != status || answer.header.Get("ETag") != etag || r.Doc.Name != "night" || r.Doc.Disabled != disabled {
			t.Errorf("%d, ETag %s: %s", answer.code, answer.header.Get("ETag"), answer.body)
		}
	}
	first := f.call("PUT", "/v1/queues/night", `{"description":"<x>"}`)
	of(first, 201, `"1"`, false)
	if at := first.header.Get("Location"); at != "/pawl/v1/queues/night" || r.Doc.Description != "<x>" {
		t.Errorf("%s %+v", at, r)
	}
	of(f.call("POST", "/v1/queues/night/disable", ""), 200, `"2"`, true)
	of(f.call("GET", "/v1/queues/night", ""), 200, `"2"`, true)
	of(f.call("POST", "/v1/queues/night/enable", ""), 200, `"3"`, false)
	var p fault
	if f.is(412, &p, "PUT", "/v1/queues/night", `{}`, "If-Match", `"2"`); p.Code != job.Conflict {
		t.Errorf("%+v", p)
	}
	of(f.call("PUT", "/v1/queues/night", `{}`, "If-Match", `"3"`), 200, `"4"`, false)
	if r := f.is(200, nil, "GET", "/v1/queues/default", ""); r.header.Get("ETag") != `"0"` {
		t.Errorf("what is there without a document has the ETag %s", r.header.Get("ETag"))
	}
	for _, call := range [][2]string{{"POST", "/disable"}, {"POST", "/enable"}, {"DELETE", ""}} {
		f.is(422, nil, call[0], "/v1/queues/night"+call[1], "", "If-Match", `4`)
		if f.is(412, &p, call[0], "/v1/queues/night"+call[1], "", "If-Match", `"3"`); p.Code != job.Conflict {
			t.Errorf("%v: %+v", call, p)
		}
		f.is(404, nil, call[0], "/v1/queues/none"+call[1], "", "If-Match", `"3"`)
	}
	of(f.call("GET", "/v1/queues/night", ""), 200, `"4"`, false)
	of(f.call("POST", "/v1/queues/night/disable", "", "If-Match", `"4"`), 200, `"5"`, true)
	of(f.call("POST", "/v1/queues/night/enable", "", "If-Match", `"5"`), 200, `"6"`, false)
	f.is(412, nil, "DELETE", "/v1/queues/night", "", "If-Match", `"0"`)
	var task store.Submitted
	f.is(202, &task, "POST", "/v1/jobs", `{"kind":"mail","queue":"night","delay":"1h"}`)
	f.is(409, nil, "DELETE", "/v1/queues/night", "", "If-Match", `"6"`)
	var list struct{ Items []service.Resource[job.Queue] }
	if f.is(200, &list, "GET", "/v1/queues", ""); len(list.Items) != 2 {
		t.Errorf("%+v", list)
	}
	f.is(200, nil, "POST", "/v1/jobs/"+task.ID.String()+"/cancel?wait=1m", "")
	f.is(204, nil, "DELETE", "/v1/queues/night", "", "If-Match", `"6"`)
	if f.is(200, &list, "POST", "/v1/queues/default/disable", "", "If-Match", `"0"`); r.Version != 6 {
		t.Errorf("%+v", r)
	}
}
