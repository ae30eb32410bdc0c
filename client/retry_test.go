package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
)

// to is a client of a service whose answers a test makes, with what Dial gives.
func to(t *testing.T, o client.Options, h http.HandlerFunc) *client.Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: client.Local(h)}
	c, err := client.Dial("http://service/below", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problem answers with one.
func problem(w http.ResponseWriter, status int, kind job.ErrorKind, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"code": kind, "detail": detail, "instance": "r-1"})
}

func TestDial(t *testing.T) {
	for _, u := range []string{
		"", "host:7295", "ftp://host", "http://", "http://ada@host", "http://host?x=1",
		"http://host#x", "http://ho st", "://",
	} {
		if _, err := client.Dial(u, client.Options{}); job.KindOf(err) != job.Invalid ||
			!strings.Contains(err.Error(), "give one such as https://") {
			t.Errorf("%q: %v", u, err)
		}
	}
	t.Run("a path before the API and the token are sent", func(t *testing.T) {
		c := to(t, client.Options{Token: "secret"}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"principal":%q}`, r.URL.Path+" "+r.Header.Get("Authorization"))
		})
		if id, err := c.Whoami(t.Context()); err != nil || id.Principal != "/below/v1/whoami Bearer secret" {
			t.Errorf("%+v, %v", id, err)
		}
	})
	t.Run("a redirect is not followed", func(t *testing.T) {
		c := to(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://service/below/v1/jobs", http.StatusMovedPermanently)
		})
		_, err := c.Submit(t.Context(), "", spec(`{}`))
		if job.KindOf(err) != job.Invalid ||
			!strings.Contains(err.Error(), "leads on to https://service/below/v1/jobs") {
			t.Errorf("%v", err)
		}
	})
	t.Run("the revision is that of the API", func(t *testing.T) {
		if client.Revision != api.Revision {
			t.Errorf("the client knows %d, the API is %d", client.Revision, api.Revision)
		}
	})
}

// TestRepeated counts the tries of each call of a service that has no answer.
func TestRepeated(t *testing.T) {
	id := job.NewID()
	calls := map[string]func(context.Context, *client.Client) error{
		"get": func(ctx context.Context, c *client.Client) error { _, err := c.Job(ctx, id); return err },
		"submit": func(ctx context.Context, c *client.Client) error {
			_, err := c.Submit(ctx, "", spec(`{}`))
			return err
		},
		"run file": func(ctx context.Context, c *client.Client) error {
			_, err := c.RunFile(ctx, service.FileRun{Path: "/x", New: true}, spec(`{}`))
			return err
		},
		"cancel": func(ctx context.Context, c *client.Client) error { _, _, err := c.Cancel(ctx, id, 0); return err },
		"resume": func(ctx context.Context, c *client.Client) error { _, _, err := c.Resume(ctx, id, 0); return err },
		"hide":   func(ctx context.Context, c *client.Client) error { _, err := c.Hide(ctx, id, true); return err },
		"delete": func(ctx context.Context, c *client.Client) error { return c.Delete(ctx, id) },
		"annotate": func(ctx context.Context, c *client.Client) error {
			_, err := c.Annotate(ctx, id, job.Annotation{}, false)
			return err
		},
		"apply": func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Queues().Apply(ctx, "q", spec(`{}`), service.AnyVersion)
			return err
		},
		"apply at": func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Queues().Apply(ctx, "q", spec(`{}`), 3)
			return err
		},
		"disable": func(ctx context.Context, c *client.Client) error {
			_, err := c.Queues().Disable(ctx, "q", true, service.AnyVersion)
			return err
		},
		"disable at": func(ctx context.Context, c *client.Client) error {
			_, err := c.Queues().Disable(ctx, "q", true, 3)
			return err
		},
		"delete at": func(ctx context.Context, c *client.Client) error { return c.Queues().Delete(ctx, "q", 3) },
		"dry run": func(ctx context.Context, c *client.Client) error {
			_, err := c.Bulk(ctx, service.Bulk{Action: service.ActCancel, DryRun: true})
			return err
		},
		"bulk": func(ctx context.Context, c *client.Client) error {
			_, err := c.Bulk(ctx, service.Bulk{Action: service.ActCancel})
			return err
		},
		"resubmit": func(ctx context.Context, c *client.Client) error { _, err := c.Resubmit(ctx, id); return err },
		"event": func(ctx context.Context, c *client.Client) error {
			_, err := c.AddEvent(ctx, id, job.CustomEvent{Name: "x"})
			return err
		},
		"log": func(ctx context.Context, c *client.Client) error {
			_, err := c.Log(ctx, id, service.LogQuery{})
			return err
		},
		"one cursor": func(ctx context.Context, c *client.Client) error { _, err := c.Cursor(ctx); return err },
	}
	once := []string{"apply at", "disable at", "delete at", "bulk"}
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tt := range []struct {
		what string
		safe int // tries of calls that may be carried out twice
		once int // tries of the others
		kind job.ErrorKind
		h    http.HandlerFunc
		err  error // instead of an answer
	}{
		{
			what: "an unavailable service", safe: 4, once: 1, kind: job.Unavailable,
			h: func(w http.ResponseWriter, _ *http.Request) {
				problem(w, http.StatusServiceUnavailable, job.Unavailable, "later")
			},
		},
		{
			what: "a proxy without a service", safe: 4, once: 1, kind: job.Unavailable,
			h: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "no", http.StatusBadGateway)
			},
		},
		{what: "a lost answer", safe: 4, once: 1, kind: job.Unavailable, err: errors.New("connection reset")},
		{what: "nobody", safe: 4, once: 4, kind: job.Unavailable, err: refused},
		{
			what: "a service that has no room", safe: 4, once: 4, kind: job.Exhausted,
			h: func(w http.ResponseWriter, _ *http.Request) {
				problem(w, http.StatusTooManyRequests, job.Exhausted, "full")
			},
		},
		{what: "a defect", safe: 1, once: 1, kind: job.Internal, h: func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusInternalServerError, job.Internal, "oh")
		}},
		{what: "a refusal", safe: 1, once: 1, kind: job.Conflict, h: func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusConflict, job.Conflict, "no")
		}},
		{what: "a stranger", safe: 1, once: 1, kind: job.Denied, h: func(w http.ResponseWriter, _ *http.Request) {
			problem(w, http.StatusUnauthorized, job.Denied, "who?")
		}},
	} {
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			t.Run(tt.what+"/"+name, func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					tries := 0
					keys := map[string]bool{}
					count := func(r *http.Request) error {
						tries++
						keys[r.Header.Get("Idempotency-Key")] = true
						return tt.err
					}
					c, err := client.Dial("http://service",
						client.Options{HTTP: &http.Client{Transport: meddler{client.Local(tt.h), count}}})
					if err != nil {
						t.Fatal(err)
					}
					err = calls[name](t.Context(), c)
					want := tt.safe
					if slices.Contains(once, name) {
						want = tt.once
					}
					if job.KindOf(err) != tt.kind || tries != want || len(keys) != 1 {
						t.Errorf("%d tries, want %d; %d keys; %v", tries, want, len(keys), err)
					}
					if tt.kind == job.Internal && !strings.Contains(err.Error(), "about request r-1") {
						t.Errorf("%v", err)
					}
				})
			})
		}
	}
}

// A meddler looks at each request first, and fails it with the error that it is told.
type meddler struct {
	http.RoundTripper
	meddle func(*http.Request) error
}

func (m meddler) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := m.meddle(r); err != nil {
		return nil, err
	}
	return m.RoundTripper.RoundTrip(r)
}

func TestPauses(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var at []time.Time
		after := ""
		h := func(w http.ResponseWriter, _ *http.Request) {
			at = append(at, time.Now())
			w.Header().Set("Retry-After", after)
			problem(w, http.StatusServiceUnavailable, job.Unavailable, "later")
		}
		c := to(t, client.Options{}, h).Trying(8)
		if _, err := c.Version(t.Context()); job.KindOf(err) != job.Unavailable || len(at) != 8 {
			t.Fatalf("%d tries, %v", len(at), err)
		}
		for i, most := range []time.Duration{200, 400, 800, 1600, 3200, 5000, 5000} {
			most *= time.Millisecond
			if d := at[i+1].Sub(at[i]); d < most/2 || d > most {
				t.Errorf("pause %d is %v, want %v to %v", i+1, d, most/2, most)
			}
		}

		// The service may say when.
		for value, want := range map[string]time.Duration{"7": 7 * time.Second, "59": 59 * time.Second} {
			at, after = nil, value
			c.Trying(2).Version(t.Context())
			if len(at) != 2 || at[1].Sub(at[0]) != want {
				t.Errorf("Retry-After %s: %v", value, at)
			}
		}
		at, after = nil, time.Now().Add(20*time.Second).UTC().Format(http.TimeFormat)
		c.Trying(2).Version(t.Context())
		if d := at[1].Sub(at[0]); d < 19*time.Second || d > 20*time.Second {
			t.Errorf("Retry-After %s: %v", after, d)
		}
		// That is not for ever.
		at, after = nil, "3600"
		if _, err := c.Version(t.Context()); len(at) != 1 || err == nil {
			t.Errorf("%d tries, %v", len(at), err)
		}
		// The end of the context ends a pause, and the error says why nothing came of the call.
		at, after = nil, "50"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Version(ctx); job.KindOf(err) != job.Unavailable || len(at) != 1 ||
			time.Since(at[0]) != time.Second {
			t.Errorf("%v after %v", err, time.Since(at[0]))
		}
		at = nil
		if _, err := c.Version(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestRepeatedAnswers(t *testing.T) {
	// lost answers the first request with nothing, and the second with h.
	lost := func(t *testing.T, h http.HandlerFunc) *client.Client {
		n := 0
		return to(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Content-Length", "100")
				io.WriteString(w, "{")
				panic(http.ErrAbortHandler)
			}
			h(w, r)
		})
	}
	id := job.NewID()
	t.Run("what is gone was deleted", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			gone := func(w http.ResponseWriter, _ *http.Request) {
				problem(w, http.StatusNotFound, job.NotFound, "no job")
			}
			if err := lost(t, gone).Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
			if err := to(t, client.Options{}, gone).Delete(t.Context(), id); job.KindOf(err) != job.NotFound {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("what goes on was resumed", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			state := job.Waiting
			h := func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					problem(w, http.StatusConflict, job.Conflict, "is not paused")
					return
				}
				json.NewEncoder(w).Encode(map[string]any{"id": id, "state": state})
			}
			if v, obeyed, err := lost(t, h).Resume(t.Context(), id, 0); err != nil || !obeyed ||
				v.State != job.Waiting {
				t.Errorf("%s, %t, %v", v.State, obeyed, err)
			}
			state = job.Finished
			if _, _, err := lost(t, h).Resume(t.Context(), id, 0); job.KindOf(err) != job.Conflict {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("what is blocked no more was released, or given up", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			state, code := job.Running, job.Code("")
			h := func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					problem(w, http.StatusConflict, job.Conflict, "is not blocked")
					return
				}
				json.NewEncoder(w).Encode(map[string]any{"id": id, "state": state, "code": code})
			}
			is := func(want groups.Action, kind job.ErrorKind) {
				t.Helper()
				if v, err := lost(t, h).ActOnJob(t.Context(), want, id); err != nil && job.KindOf(err) != kind ||
					err == nil && (kind != "" || v.State != state) {
					t.Errorf("%s of a job that is %s: %s, %v", want, state, v.State, err)
				}
			}
			is(groups.Release, "")
			is(groups.GiveUp, job.Conflict)
			is(groups.TryNow, job.Conflict)
			state, code = job.Failed, job.RecoveryGivenUp
			is(groups.GiveUp, "")
			is(groups.Release, job.Conflict)
		})
	})
	t.Run("a long wait is many calls", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			var waits []string
			c := to(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
				waits = append(waits, r.FormValue("wait"))
				d, _ := time.ParseDuration(r.FormValue("wait"))
				time.Sleep(d)
				w.WriteHeader(http.StatusAccepted)
				io.WriteString(w, `{}`)
			})
			if _, obeyed, err := c.Cancel(t.Context(), id, 12*time.Minute); obeyed || err != nil {
				t.Error(obeyed, err)
			}
			if diff := cmp.Diff([]string{"5m0s", "5m0s", "2m0s"}, waits); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("what is none of Pawl's answers is told as that", func(t *testing.T) {
		c := to(t, client.Options{}, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })
		if _, err := c.Job(t.Context(), id); err == nil ||
			!strings.Contains(err.Error(), "the answer of http://service/below is not Pawl's") {
			t.Errorf("%v", err)
		}
		c = to(t, client.Options{}, http.NotFound)
		if _, err := c.Job(t.Context(), id); job.KindOf(err) != job.Internal ||
			!strings.Contains(err.Error(), "check that http://service/below is the address") {
			t.Errorf("%v", err)
		}
	})
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		revision string
		status   int
		want     string
	}{
		{"1", http.StatusNotFound, "no; the service (Pawl v9, API 1) is older than this client (API 3): if it " +
			"does not know what it was asked, update the service"},
		{"4", http.StatusUnprocessableEntity, "no; the service (Pawl v9, API 4) is newer than this client (API " +
			"3): if it does not know what it was asked, update this client"},
		{"4", http.StatusConflict, "no"},
		{"3", http.StatusNotFound, "no"},
		{"", http.StatusNotFound, "no"},
	} {
		c := to(t, client.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(client.VersionHeader, "v9")
			w.Header().Set(client.RevisionHeader, tt.revision)
			problem(w, tt.status, job.NotFound, "no")
		})
		if _, err := c.Job(t.Context(), job.NewID()); err == nil || err.Error() != tt.want {
			t.Errorf("API %q, status %d: %v", tt.revision, tt.status, err)
		}
	}
}

// TestEventsGoOn lets a service break its stream of events in every way.
func TestEventsGoOn(t *testing.T) {
	const most = 60
	// serve sends events from Last-Event-ID on, a few at a time.
	serve := func(t *testing.T, breaks int, h func(n int, w http.ResponseWriter) (over bool)) (seen []int64,
		err error,
	) {
		calls := 0
		c := to(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
			calls++
			after := 0
			if v := r.FormValue("after"); v != "" && v != "end" {
				after, _ = strconv.Atoi(v)
			}
			if v := r.Header.Get("Last-Event-ID"); v != "" {
				after, _ = strconv.Atoi(v)
			}
			if h(calls, w) {
				return
			}
			fmt.Fprintf(w, ": hello\nid: %d\n\n", after)
			for n := after + 1; n <= most; n++ {
				fmt.Fprintf(w, "id: %d\nevent: RUNNING\ndata: {\"n\":%d,\ndata: \"state\":\"RUNNING\"}\n\n", n, n)
				if n%breaks == 0 && n < most {
					fmt.Fprintf(w, "id: %d\ndata: {\"n\":", n+1)
					if n%2 == 0 {
						panic(http.ErrAbortHandler)
					}
					return
				}
			}
			<-r.Context().Done()
		})
		for e, err := range c.Events(t.Context(), client.EventQuery{Follow: true}) {
			if err != nil {
				return seen, err
			}
			if seen = append(seen, e.N); e.N == most {
				return seen, nil
			}
		}
		return seen, errors.New("it ended")
	}
	gapless := func(t *testing.T, seen []int64) {
		t.Helper()
		for i, n := range seen {
			if n != int64(i+1) {
				t.Fatalf("event %d comes as number %d", n, i+1)
			}
		}
	}
	for _, breaks := range []int{1, 2, 7, most} {
		t.Run(fmt.Sprintf("every %d", breaks), func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				seen, err := serve(t, breaks, func(int, http.ResponseWriter) bool { return false })
				gapless(t, seen)
				if err != nil || len(seen) != most {
					t.Errorf("%d events, %v", len(seen), err)
				}
			})
		})
	}
	t.Run("a service that stops and starts", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			seen, err := serve(t, 5, func(n int, w http.ResponseWriter) bool {
				if n%4 == 1 {
					return false
				}
				http.Error(w, "starting", http.StatusServiceUnavailable)
				return true
			})
			gapless(t, seen)
			if err != nil || len(seen) != most {
				t.Errorf("%d events, %v", len(seen), err)
			}
		})
	})
	t.Run("a service that does not come back", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			seen, err := serve(t, 5, func(n int, w http.ResponseWriter) bool {
				if n == 1 {
					return false
				}
				http.Error(w, "starting", http.StatusServiceUnavailable)
				return true
			})
			if len(seen) != 5 || job.KindOf(err) != job.Unavailable {
				t.Errorf("%d events, %v", len(seen), err)
			}
		})
	})
	t.Run("a service that only breaks off", func(t *testing.T) {
		virtual.Test(t, func(t *testing.T) {
			seen, err := serve(t, most, func(_ int, w http.ResponseWriter) bool {
				io.WriteString(w, "id: 0\n\n")
				panic(http.ErrAbortHandler)
			})
			if len(seen) != 0 || job.KindOf(err) != job.Unavailable {
				t.Errorf("%d events, %v", len(seen), err)
			}
		})
	})
	t.Run("what is no event", func(t *testing.T) {
		_, err := serve(t, most, func(_ int, w http.ResponseWriter) bool {
			io.WriteString(w, "id: 1\ndata: <html>\n\n")
			return true
		})
		if err == nil || !strings.Contains(err.Error(), "the service sent something that is not an event") {
			t.Errorf("%v", err)
		}
	})
}

// TestNobodyListens is about a real network.
func TestNobodyListens(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	c, err := client.Dial(srv.URL, client.Options{Tries: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); job.KindOf(err) != job.Unavailable ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	t.Run("a connection that is cut is made again", func(t *testing.T) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			for i := range 2 {
				conn, err := l.Accept()
				if err != nil {
					done <- err
					return
				}
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					done <- err
					return
				}
				if i == 1 {
					io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{\"api\":7}")
				}
				conn.Close()
			}
			done <- nil
		}()
		transport := &http.Transport{DisableKeepAlives: true}
		c, err := client.Dial("http://"+l.Addr().String(), client.Options{HTTP: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Version(t.Context())
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err == nil && v.API != 7 || err != nil {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
