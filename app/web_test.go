package app_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	fileshttp "github.com/pawl-jobs/pawl/files/http"
	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// web runs a service anew that takes inputs of a server, and returns the server's URL.
func (h *house) web(answer http.HandlerFunc, change ...func(*parts)) string {
	h.Helper()
	server := httptest.NewServer(answer)
	source := fileshttp.New(fileshttp.Config{Rule: egress.All})
	h.stop()
	h.start(append(change, func(p *parts) { p.Sources = map[string]files.Source{"http": source, "https": source} })...)
	h.Cleanup(func() {
		h.stop()
		source.Close()
		server.Close()
	})
	return server.URL
}

func TestWebInput(t *testing.T) {
	h := open(t)
	at := h.web(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/data/a poem.txt":
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("roses"))
		case "/closed":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	t.Run("it is fetched", func(t *testing.T) {
		s := shell(`cat "a poem.txt" sub/b >got; echo "$POEM" >>got`)
		s.Inputs = []job.Input{
			{From: at + "/data/a%20poem.txt?signed=a/b", SHA256: sum("roses")},
			{From: at + "/data/a%20poem.txt", To: "sub/b", Env: "POEM"},
			{From: at + "/nothing", Optional: true},
		}
		j := h.end(h.submit(s))
		folder, results := app.Places(&j)
		if j.State != job.Finished {
			t.Fatalf("%s %s", j.State, j.Message)
		}
		if got := h.read(results, "got"); got != "rosesroses"+folder+"/sub/b\n" {
			t.Errorf("it got %q", got)
		}
		if said := h.history(j.ID); !strings.Contains(said, "2 files (10 bytes) staged") || !strings.Contains(said, "optional and not there: "+at+"/nothing") {
			t.Errorf("history:\n%s", said)
		}
		if exists(results, "sub") {
			t.Error("an input was archived")
		}
	})
	for _, tt := range []struct {
		name string
		in   job.Input
		code job.Code
		want string
	}{
		{"it is not there", job.Input{From: at + "/nothing"}, job.InputMissing, "input " + at + "/nothing is not there"},
		{"it is closed", job.Input{From: at + "/closed"}, job.InputUnreadable, "cannot be read: " + strings.TrimPrefix(at, "http://") + " answers 403 (Forbidden)"},
		{"it is another", job.Input{From: at + "/data/a%20poem.txt", SHA256: sum("violets")}, job.InputChanged, sum("roses")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := shell("exit 0")
			s.Inputs = []job.Input{tt.in}
			if j := h.end(h.submit(s)); j.State != job.Failed || j.Code != tt.code || !strings.Contains(j.Message, tt.want) {
				t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
			}
		})
	}
}

func TestNoWeb(t *testing.T) {
	h := open(t)
	s := shell("exit 0")
	s.Inputs = []job.Input{{From: "https://data.example.org/poem.txt"}}
	if _, err := h.svc.Submit(h.ctx, service.Request{Spec: s}); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "inputs[0].from") {
		t.Errorf("Submit: %v", err)
	}
	s.Inputs[0].From = "https://${PAWL_OWNER}.example.org/poem.txt" // what stands for it is known when the job is prepared
	if j := h.end(h.submit(s)); j.Code != job.InvalidDefinition {
		t.Errorf("%s %s: %s", j.State, j.Code, j.Message)
	}
}

// A connection that breaks off in the middle of a file blocks the job. The part of the file is not
// taken for the file.
func TestTransferInterrupted(t *testing.T) {
	h := open(t)
	var up atomic.Bool
	at := h.web(func(w http.ResponseWriter, r *http.Request) {
		text := strings.Repeat("roses\n", 10_000)
		if !up.Load() && r.Method == http.MethodGet {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			if _, err := w.Write([]byte(text[:30_000])); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	})
	s := shell("wc -l <poem")
	s.Inputs = []job.Input{{From: at + "/poem"}}
	id := h.submit(s)
	g := h.blocked(1)
	j, err := h.svc.Job(h.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if g.Code != job.TransferInterrupted || g.Tester != fileshttp.TesterHTTP || g.Params["url"] != at+"/" || g.Line != "" || j.Resume != job.StagingInputs {
		t.Errorf("it goes on in %s, by group %+v", j.Resume, g)
	}
	if folder, _ := app.Places(&j); exists(folder, "poem") {
		t.Error("a part of the file stands for it")
	}
	up.Store(true)
	h.release(g)
	h.finish(id)
	j = h.end(id)
	if _, results := app.Places(&j); h.read(results, "stdout") != "10000\n" {
		t.Errorf("it got %q", h.read(results, "stdout"))
	}
}

// A server is out of order while many jobs stage from it: they wait together, none of them fails,
// and each gets what is its own.
func TestServerOutOfOrder(t *testing.T) {
	n := 150
	if testenv.Long() {
		n = 500
	}
	h := openOn(t, memory{})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	h.ctx = ctx
	var up atomic.Bool
	var refused atomic.Int64
	var fetched sync.Map
	at := h.web(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			refused.Add(1)
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet && path.Dir(r.URL.Path) == "/data" {
			fetched.Store(path.Base(r.URL.Path), true)
		}
		if path.Dir(r.URL.Path) != "/data" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(path.Base(r.URL.Path))))
	})
	if err := h.svc.SetLimit(ctx, job.Limit{Key: job.RateReleases + "/*", Most: 10_000, Per: job.Duration(time.Second)}); err != nil {
		t.Fatal(err)
	}
	var reqs []service.Request
	for i := range n {
		s := job.Spec{Arguments: []string{fmt.Sprint(i)}, Archive: &job.Archive{On: job.ArchiveNever}}
		s.Script = `read -r is <own || test "$is" = "$1"`
		s.Inputs = []job.Input{{From: fmt.Sprintf("%s/data/%d", at, i), To: "own", SHA256: sum(fmt.Sprint(i))}}
		reqs = append(reqs, service.Request{Spec: s})
	}
	jobs, err := h.svc.Submit(ctx, reqs...)
	if err != nil {
		t.Fatal(err)
	}
	g := h.blocked(n)
	if g.Code != job.FilesUnavailable || g.Tester != fileshttp.TesterHTTP || g.Params["url"] != at+"/" || g.Line != "" || g.NextTest.Sub(g.Since) < 2*time.Minute {
		t.Errorf("group %+v", g)
	}
	if refused.Load() != int64(n) {
		t.Errorf("the server was asked %d times by %d jobs", refused.Load(), n)
	}
	probe := func() int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Params["url"], http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		c := egress.All.Client(time.Minute)
		defer c.CloseIdleConnections()
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := probe(); got != http.StatusServiceUnavailable {
		t.Errorf("out of order it answers %d", got)
	}
	up.Store(true)
	if got := probe(); got != http.StatusNotFound {
		t.Errorf("in order it answers %d", got)
	}
	h.release(g)
	for i, j := range jobs {
		if j := h.end(j.ID); j.State != job.Finished || j.Attempt != 1 || j.Recoveries != 1 {
			t.Errorf("%s in attempt %d after %d recoveries: %s\n%s", j.State, j.Attempt, j.Recoveries, j.Message, h.history(j.ID))
		}
		if _, ok := fetched.Load(fmt.Sprint(i)); !ok {
			t.Errorf("%d was never fetched", i)
		}
	}
}
