package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs a test over a socket and in memory.
func both(t *testing.T, test func(ctx context.Context, t *testing.T, c *client.Client)) {
	for _, way := range []string{"a socket", "memory"} {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
			t.Cleanup(cancel)
			svc := embedded.Open(t)
			svc.Start(t)
			h := api.New(api.Config{Service: svc.Service})
			c := client.New(client.Local(h))
			if way == "a socket" {
				name := filepath.Join(t.TempDir(), "socket")
				l, err := new(net.ListenConfig).Listen(ctx, "unix", name)
				if err != nil {
					t.Fatal(err)
				}
				srv := httptest.NewUnstartedServer(h)
				srv.Listener.Close()
				srv.Listener = l
				srv.Start()
				t.Cleanup(srv.Close)
				c = client.New(client.Unix(name))
			}
			t.Cleanup(c.Close)
			test(ctx, t, c)
		})
	}
}

func spec(text string) json.RawMessage { return json.RawMessage(text) }

// command is the spec of a shell script that may read a gate.
func command(script, gate string) json.RawMessage {
	b, err := json.Marshal(map[string]any{"name": "script", "command": []string{"sh", "-c", script, "sh", gate}})
	if err != nil {
		panic(err)
	}
	return b
}

// gate is a pipe at which a program waits until the test opens it.
func gate(t *testing.T) (name string, open func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func() {
		t.Helper()
		if err := os.WriteFile(name, []byte("go\n"), 0); err != nil {
			t.Error(err)
		}
	}
}

// one submits a spec.
func one(ctx context.Context, t *testing.T, c *client.Client, s json.RawMessage) job.ID {
	t.Helper()
	a, err := c.Submit(ctx, "", s)
	if err != nil {
		t.Fatal(err)
	}
	return a[0].ID
}

// ended follows a job to its end.
func ended(ctx context.Context, t *testing.T, c *client.Client, id job.ID) service.View {
	t.Helper()
	for _, err := range c.Events(ctx, client.EventQuery{Job: id, Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	v, err := c.Job(ctx, id)
	if err != nil || !v.State.Terminal() {
		t.Fatalf("%s, %v", v.State, err)
	}
	return v
}

func TestClient(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		given := `{"name":"a","command":["sh","-c","echo '<hello>'; seq 9 >&2; mkdir 'b c'; echo x > 'b c/d?e'"],"labels":{"k":"v"},"notes":1.10}`
		a, err := c.Submit(ctx, "key", spec(given), spec(`{"kind":"mail","delay":"1h"}`))
		if err != nil || len(a) != 2 || a[0].Existed {
			t.Fatalf("%+v, %v", a, err)
		}
		if b, err := c.Submit(ctx, "key", spec(given), spec(`{"kind":"mail","delay":"1h"}`)); err != nil || b[0].ID != a[0].ID || !b[1].Existed {
			t.Errorf("%+v, %v", b, err)
		}
		v := ended(ctx, t, c, a[0].ID)
		if v.State != job.Finished || string(v.Request) != given || v.Why != "NORMAL_COMPLETION" || v.Results == "" {
			t.Errorf("%+v", v)
		}
		page, err := c.List(ctx, store.Query{Filter: job.WhereState(job.Finished, job.Failed).And("label.k", job.Is, "v").And("name", job.Is, "a").And("kind", job.Is, "app"), Limit: 5})
		if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != v.ID || page.Jobs[0].Request != nil {
			t.Errorf("%+v, %v", page, err)
		}
		if page, err = c.List(ctx, store.Query{Limit: 1}); err != nil || page.Next == "" {
			t.Errorf("%+v, %v", page, err)
		}
		if page, err = c.List(ctx, store.Query{Limit: 1, Cursor: page.Next}); err != nil || page.Jobs[0].ID != v.ID {
			t.Errorf("%+v, %v", page, err)
		}
		history, err := c.History(ctx, v.ID)
		if err != nil || len(history.Events) != int(v.N) {
			t.Errorf("%d events, %v", len(history.Events), err)
		}
		var cursor string
		for n, err := range c.Events(ctx, client.EventQuery{Job: v.ID}) {
			if err != nil || n.Job != v.ID || n.N == 0 {
				t.Errorf("%+v, %v", n, err)
			}
			if cursor = n.Cursor; n.N == v.N-2 {
				break
			}
		}
		left := 0
		for _, err := range c.Events(ctx, client.EventQuery{Job: v.ID, After: cursor}) {
			if left++; err != nil {
				t.Error(err)
			}
		}
		if left != 2 {
			t.Errorf("%d events after the last but two", left)
		}

		files, err := c.Output(ctx, v.ID)
		if err != nil || len(files) != 4 || files[0].Path != "b c/d?e" {
			t.Errorf("%+v, %v", files, err)
		}
		f, r, err := c.OpenOutput(ctx, v.ID, "b c/d?e")
		if err != nil {
			t.Fatal(err)
		}
		if text := all(t, r); text != "x\n" || f.Size != 2 || f.Modified.IsZero() {
			t.Errorf("%q, %+v", text, f)
		}
		log, err := c.Log(ctx, v.ID, service.LogQuery{Stderr: true, Tail: 1, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if text := all(t, log); text != "9\n" {
			t.Errorf("%q", text)
		}

		if w, obeyed, err := c.Pause(ctx, a[1].ID, time.Minute); err != nil || !obeyed || w.State != job.Paused {
			t.Errorf("%s, %t, %v", w.State, obeyed, err)
		}
		if w, obeyed, err := c.Resume(ctx, a[1].ID, 0); err != nil || !obeyed || w.State != job.Waiting {
			t.Errorf("%s, %t, %v", w.State, obeyed, err)
		}
		if w, obeyed, err := c.Cancel(ctx, a[1].ID, time.Minute); err != nil || !obeyed || w.State != job.Canceled {
			t.Errorf("%s, %t, %v", w.State, obeyed, err)
		}
		again, err := c.Resubmit(ctx, v.ID)
		if err != nil || again.ID == v.ID || string(again.Request) != given {
			t.Errorf("%+v, %v", again, err)
		}
		ended(ctx, t, c, again.ID)
		run := service.FileRun{Path: "/home/ada/job.yaml", Sum: "1"}
		first, err := c.RunFile(ctx, run, spec(`{"kind":"mail"}`))
		if err != nil || first.Existed {
			t.Errorf("%+v, %v", first, err)
		}
		if second, err := c.RunFile(ctx, run, spec(`{"kind":"mail"}`)); err != nil || !second.Existed || second.Jobs[0] != first.Jobs[0] {
			t.Errorf("%+v, %v", second, err)
		}
	})
}

func all(t *testing.T, r io.ReadCloser) string {
	t.Helper()
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestErrors(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		_, err := c.Submit(ctx, "", spec(`{"comand":["ls"]}`))
		var wrong *job.SpecError
		if job.KindOf(err) != job.Invalid || !errors.As(err, &wrong) || wrong.Problems[0].Path != "jobs[0].comand" || !strings.Contains(err.Error(), "did you mean command?") {
			t.Errorf("%v", err)
		}
		if _, err := c.Job(ctx, job.NewID()); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		id := one(ctx, t, c, spec(`{"kind":"mail"}`))
		if _, _, err := c.Resume(ctx, id, 0); job.KindOf(err) != job.Conflict || !strings.Contains(err.Error(), "is not paused") {
			t.Errorf("%v", err)
		}
		if _, err := c.Log(ctx, id, service.LogQuery{Follow: true}); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		done := one(ctx, t, c, spec(`{"command":["true"]}`))
		ended(ctx, t, c, done)
		for _, name := range []string{"../x", "..", ".", "a/../b", "/etc/passwd", ""} {
			if _, _, err := c.OpenOutput(ctx, done, name); job.KindOf(err) != job.Invalid {
				t.Errorf("%q: %v", name, err)
			}
		}
		for _, err := range c.Events(ctx, client.EventQuery{After: "!", Follow: true}) {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("%v", err)
			}
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		_, err := client.New(client.Unix(filepath.Join(t.TempDir(), "socket"))).Job(t.Context(), job.NewID())
		if job.KindOf(err) != job.Unavailable || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a handler that panics answers with an error", func(t *testing.T) {
		c := client.New(client.Local(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("no") })))
		if _, err := c.Job(t.Context(), job.NewID()); err == nil || job.KindOf(err) != job.Internal {
			t.Errorf("%v", err)
		}
	})
	t.Run("a request whose context has ended is not made", func(t *testing.T) {
		c := client.New(client.Local(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is made") })))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := c.Job(ctx, job.NewID()); err == nil || err.Error() != "enough" {
			t.Errorf("%v", err)
		}
	})
	t.Run("what is no answer of the service is told as that", func(t *testing.T) {
		c := client.New(client.Local(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) })))
		if _, err := c.Job(t.Context(), job.NewID()); err == nil || err.Error() != "the service answers 502 Bad Gateway" {
			t.Errorf("%v", err)
		}
	})
}

func TestStreams(t *testing.T) {
	both(t, func(ctx context.Context, t *testing.T, c *client.Client) {
		name, open := gate(t)
		id := one(ctx, t, c, command(`echo one; read x <"$1"; echo two; exec sleep 60`, name))
		r, err := c.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		for _, want := range []string{"one\n", "two\n"} {
			if got, err := lines.ReadString('\n'); err != nil || got != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
			if want == "one\n" {
				open()
			}
		}

		// The end of a context ends a stream, and so does closing it, or leaving the loop.
		short, stop := context.WithCancel(ctx)
		var last error
		for n, err := range c.Events(short, client.EventQuery{Job: id, Follow: true}) {
			if last = err; n.State == job.Running {
				stop()
			}
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("%v", last)
		}
		other, err := c.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
		for range c.Events(ctx, client.EventQuery{Follow: true}) {
			break
		}

		// Who waits for a wish and goes leaves the wish.
		short, stop = context.WithCancel(ctx)
		defer stop()
		gone := make(chan error, 1)
		go func() {
			_, _, err := c.Cancel(short, id, time.Hour)
			gone <- err
		}()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		if err := <-gone; err != nil {
			t.Error(err)
		}
		if v := ended(ctx, t, c, id); v.State != job.Canceled {
			t.Error(v.State)
		}
	})
}
