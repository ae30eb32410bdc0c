package client_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// A machine is a service with an address, at which a process of another machine asks it.
type machine struct {
	svc   *embedded.Service
	peer  *client.Peer
	sent  atomic.Int64 // bytes of answers
	mu    sync.Mutex
	gave  int             // tokens
	taken map[string]bool // by the service
}

// openMachine opens a machine. What is asked for must come with a token of its own.
func openMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{svc: embedded.Open(t), taken: map[string]bool{}}
	m.svc.Start(t)
	h := api.New(api.Config{
		Service: m.svc.Service, Log: slog.New(slog.DiscardHandler), Inward: true,
		Auth: func(r *http.Request) (api.Caller, error) {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.taken[token] {
				return api.Caller{}, job.Errorf(job.Denied, "the token was used before")
			}
			m.taken[token] = true
			may, id, _ := strings.Cut(token, "/")
			id, _, _ = strings.Cut(id, "/")
			of, err := job.ParseID(id)
			return api.Caller{Principal: "bob", Peer: api.PeerMay(may), Job: of}, err
		},
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&counted{w, &m.sent}, r)
	}))
	t.Cleanup(srv.Close)
	asking := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(asking.CloseIdleConnections)
	m.peer = &client.Peer{Address: srv.URL, HTTP: asking, Token: func(_ context.Context, id job.ID, deletes bool) (string, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.gave++
		may := api.PeerRead
		if deletes {
			may = api.PeerDelete
		}
		return fmt.Sprintf("%s/%s/%d", may, id, m.gave), nil
	}}
	return m
}

type counted struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// run runs a script to its end.
func (m *machine) run(t *testing.T, script string, args ...string) job.ID {
	t.Helper()
	id := m.start(t, script, args...)
	if j, err := m.svc.Wait(t.Context(), id); err != nil || j.State != job.Finished {
		t.Fatalf("%s %s, %v", j.State, j.Message, err)
	}
	return id
}

func (m *machine) start(t *testing.T, script string, args ...string) job.ID {
	t.Helper()
	a, err := m.svc.Submit(t.Context(), service.Request{Spec: job.Spec{Command: append([]string{"sh", "-c", script, "sh"}, args...)}})
	if err != nil {
		t.Fatal(err)
	}
	return a[0].ID
}

func TestPeer(t *testing.T) {
	m := openMachine(t)
	ctx := t.Context()
	id := m.run(t, `seq 3; mkdir d; seq 100 > d/numbers.txt; : > empty; rm -f gone`)
	var numbers strings.Builder
	for i := range 100 {
		fmt.Fprintln(&numbers, i+1)
	}

	files, err := m.peer.Output(ctx, id)
	want, wantErr := m.svc.Output(ctx, id)
	if err != nil || wantErr != nil || fmt.Sprint(files) != fmt.Sprint(want) {
		t.Errorf("%v, %v; want %v, %v", files, err, want, wantErr)
	}
	log, err := m.peer.Log(ctx, id, service.LogQuery{Tail: 2})
	if err != nil {
		t.Fatal(err)
	}
	if text := all(t, log); text != "2\n3\n" {
		t.Errorf("log %q", text)
	}

	f, r, err := m.peer.OpenOutput(ctx, id, "d/numbers.txt")
	if err != nil || f.Path != "d/numbers.txt" || f.Size != int64(numbers.Len()) || f.Modified.IsZero() {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := iotest.TestReader(r, []byte(numbers.String())); err != nil {
		t.Error(err)
	}
	if _, err := r.Seek(-1, io.SeekStart); err == nil {
		t.Error("it can be read from before its beginning")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if f, r, err = m.peer.OpenOutput(ctx, id, "empty"); err != nil || f.Size != 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	if text := all(t, r); text != "" {
		t.Errorf("an empty file has %q", text)
	}

	for name, kind := range map[string]job.ErrorKind{"gone": job.NotFound, "../d": job.Invalid, "d": job.NotFound} {
		_, _, want := m.svc.OpenOutput(ctx, id, name)
		if _, _, err := m.peer.OpenOutput(ctx, id, name); job.KindOf(err) != kind || err.Error() != want.Error() {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
	waiting, err := m.svc.Submit(ctx, service.Request{Spec: job.Spec{Command: []string{"true"}, Delay: 1 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.peer.Delete(ctx, waiting[0].ID); job.KindOf(err) != job.Conflict {
		t.Errorf("a job that has not ended is deleted: %v", err)
	}
	if err := m.peer.Delete(ctx, id); err != nil {
		t.Error(err)
	}
	if _, err := m.peer.Output(ctx, id); job.KindOf(err) != job.NotFound {
		t.Error(err)
	}
}

// A file that is large comes as it is read, and a log that is followed until whoever reads has had
// enough.
func TestPeerStreams(t *testing.T) {
	m := openMachine(t)
	t.Run("a large file", func(t *testing.T) {
		const size = 64 << 20
		id := m.run(t, `head -c 67108864 /dev/zero > large`)
		m.sent.Store(0)
		f, r, err := m.peer.OpenOutput(t.Context(), id, "large")
		if err != nil || f.Size != size {
			t.Fatalf("%+v, %v", f, err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seek(-3, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		if end := all(t, r); end != "\x00\x00\x00" {
			t.Errorf("its end is %q", end)
		}
		if sent := m.sent.Load(); sent > size/2 {
			t.Errorf("%d bytes were sent for %d", sent, 1<<10+3)
		}
	})
	t.Run("a log", func(t *testing.T) {
		name, open := gate(t)
		id := m.start(t, `echo one; read x < "$1"; echo two`, name)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		given, err := m.peer.Log(ctx, id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := m.peer.Log(t.Context(), id, service.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 4)
		if _, err := io.ReadFull(given, line); err != nil || string(line) != "one\n" {
			t.Fatalf("%q, %v", line, err)
		}
		cancel()
		if _, err := given.Read(line); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		given.Close()
		open()
		if text := all(t, whole); text != "one\ntwo\n" {
			t.Errorf("%q", text)
		}
	})
}

// A file that is written while it is read: what it had when it was opened comes, or an error.
func TestPeerFileThatChanges(t *testing.T) {
	content := make([]byte, 1000)
	rand.Read(content)
	now := content
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(now))
	}))
	defer srv.Close()
	asking := &http.Client{Transport: &http.Transport{}}
	defer asking.CloseIdleConnections()
	p := &client.Peer{Address: srv.URL, HTTP: asking, Token: func(context.Context, job.ID, bool) (string, error) { return "", nil }}
	open := func() io.ReadSeekCloser {
		t.Helper()
		now = content[:600]
		_, r, err := p.OpenOutput(t.Context(), job.NewID(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seek(100, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	now = content
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, content[100:600]) {
		t.Errorf("of one that grew: %d bytes, %v", len(b), err)
	}
	r.Close()
	r = open()
	now = content[:300]
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of one that became shorter: %v", err)
	}
	r.Close()
}

func TestPeerThatIsNotTheOne(t *testing.T) {
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	deaf := httptest.NewServer(http.NotFoundHandler())
	deaf.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	defer untrusted.Close()
	m := openMachine(t)
	id := m.run(t, "true")
	asking := &http.Client{Transport: &http.Transport{}}
	defer asking.CloseIdleConnections()
	for what, c := range map[string]struct{ address, token, want string }{
		"no service":                   {stranger.URL, "", "and not as Pawl does"},
		"nobody":                       {deaf.URL, "", "connection refused"},
		"no URL":                       {"jobs.example.org", "", "not the URL of a service"},
		"a certificate of a stranger":  {untrusted.URL, "", "in peer.ca"},
		"one that has had this before": {m.peer.Address, "read/" + id.String() + "/same", "used before"},
	} {
		p := &client.Peer{Address: c.address, HTTP: asking, Token: func(context.Context, job.ID, bool) (string, error) { return c.token, nil }}
		if strings.HasSuffix(c.token, "same") {
			if _, err := p.Output(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		_, errOutput := p.Output(t.Context(), id)
		_, _, errOpen := p.OpenOutput(t.Context(), id, "x")
		_, errLog := p.Log(t.Context(), id, service.LogQuery{})
		for _, err := range []error{errOutput, errOpen, errLog, p.Delete(t.Context(), id)} {
			if job.KindOf(err) != job.Unavailable || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	t.Run("it may do no more than it was allowed", func(t *testing.T) {
		p := &client.Peer{Address: m.peer.Address, HTTP: asking, Token: func(context.Context, job.ID, bool) (string, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.gave++
			return fmt.Sprintf("read/%s/%d", id, m.gave), nil
		}}
		if _, err := p.Output(t.Context(), job.NewID()); job.KindOf(err) != job.Denied {
			t.Errorf("it reads another job: %v", err)
		}
		if err := p.Delete(t.Context(), id); job.KindOf(err) != job.Denied {
			t.Errorf("it deletes: %v", err)
		}
	})
}
