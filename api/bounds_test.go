package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestLimits(t *testing.T) {
	f := openWith(t, api.Config{Limits: api.Limits{Body: 10_000, Jobs: 3, Depth: 8}})
	nested := func(depth int) string {
		return `{"kind":"mail","args":` + strings.Repeat("[", depth-1) + `"[[[["` + strings.Repeat("]", depth-1) + `}`
	}
	jobs := func(n int) string { return `{"jobs":[` + strings.Repeat(later+",", n-1) + later + `]}` }
	long := strings.Repeat("x", 20<<10)
	for _, c := range []struct {
		name, path, body string
		header           []string
		status           int
		detail           string
	}{
		{"a body that is too large", "/v1/jobs", `{"script":"` + long + `"}`, nil, 413, "more than 10000 bytes"},
		{"a body of the largest size", "/v1/jobs", `{"kind":"mail","args":"` + strings.Repeat("x", 10_000-25) + `"}`, nil, 202, ""},
		{"a deep body", "/v1/jobs", nested(9), nil, 422, "more than 8 deep"},
		{"the deepest body", "/v1/jobs", nested(8), nil, 202, ""},
		{"too many jobs", "/v1/jobs", jobs(4), nil, 422, "send up to 3"},
		{"the most jobs", "/v1/jobs", jobs(3), nil, 202, ""},
		{"a long query", "/v1/jobs?wait=" + long, later, nil, 414, "bytes"},
		{"a long path", "/v1/" + long, later, nil, 414, "bytes"},
		{"a large header", "/v1/jobs", later, []string{"A", long, "B", long, "C", long, "D", long}, 431, "bytes"},
	} {
		r := f.call("POST", c.path, c.body, c.header...)
		if r.code != c.status || !strings.Contains(r.body, c.detail) {
			t.Errorf("%s: %d %s", c.name, r.code, r.body)
		}
	}
	t.Run("a body of too many values", func(t *testing.T) {
		f := openWith(t, api.Config{})
		units := []string{"0,"}
		if testenv.Every() {
			units = append(units, "{},", "[],", `"",`)
		}
		for _, unit := range units {
			for _, body := range []string{
				`{"jobs":[` + strings.Repeat(unit, 2_000_001) + `0]}`, `{"command":["a"],"env":[` + strings.Repeat(unit, 2_000_001) + `0]}`,
			} {
				if r := f.call("POST", "/v1/jobs", body); r.code != 422 || !strings.Contains(r.body, "are too many: keep to 2000000") {
					t.Errorf("%.40s: %d %.300s", body, r.code, r.body)
				}
			}
		}
		commas := strings.Repeat(`{"kind":"mail","args":"`+strings.Repeat(",", 500_000)+`"},`, 5)
		if r := f.call("POST", "/v1/jobs", `{"jobs":[`+strings.TrimSuffix(commas, ",")+`]}`); r.code != 202 {
			t.Errorf("commas in texts are no values: %d %.300s", r.code, r.body)
		}
	})
	t.Run("a body whose length is not said", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", f.url+"/v1/jobs", io.MultiReader(strings.NewReader(`{"script":"`), strings.NewReader(long)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Error(resp.Status)
		}
	})
}

// A client that sends its whole body before it reads gets the answer, and no reset, when its body
// is refused.
func TestAnswerToALargeBody(t *testing.T) {
	f := openWith(t, api.Config{Auth: byToken, Limits: api.Limits{Body: 4 << 20}})
	const chunk = 1 << 20
	const most = 36 // MiB, more than what buffers of sockets take in
	said := fmt.Sprintf("Content-Length: %d", most*chunk)
	for _, c := range []struct {
		name, path, token, length, want string
		stops                           bool // it sends no more before it has the whole answer
	}{
		{"its length is said", "/v1/jobs", "ada-token", said, "more than 4194304 bytes", false},
		{"its length is not said", "/v1/jobs", "ada-token", "Transfer-Encoding: chunked", "more than 4194304 bytes", false},
		{"without a token", "/v1/jobs", "", said, "Unauthorized", false},
		{"where there is nothing", "/v1/none", "ada-token", said, "there is nothing at", false},
		{"it stops", "/v1/none", "ada-token", "Transfer-Encoding: chunked", "there is nothing at", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.(*net.TCPConn).SetWriteBuffer(chunk)
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n",
				c.path, c.token, c.length); err != nil {
				t.Fatal(err)
			}
			piece := []byte(strings.Repeat("x", chunk))
			chunked := strings.HasPrefix(c.length, "Transfer")
			if chunked {
				piece = fmt.Appendf(nil, "%x\r\n%s\r\n", chunk, piece)
			}
			sent := most
			if c.stops {
				sent = 1
			}
			for i := range sent {
				if _, err := conn.Write(piece); err != nil {
					t.Fatalf("after %d MiB: %v", i, err)
				}
			}
			if chunked && !c.stops {
				fmt.Fprint(conn, "0\r\n\r\n")
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.ContentLength < 1 || !strings.Contains(string(body), c.want) ||
				resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s %v", resp.Status, body, err)
			}
		})
	}
}

func TestRate(t *testing.T) {
	f := openWith(t, api.Config{Auth: byToken, Limits: api.Limits{Rate: 0.001, Burst: 3}})
	for _, who := range []string{"ada-token", "bob-token"} { // each has requests of its own
		f.token = who
		for range 3 {
			f.is(200, nil, "GET", "/v1/whoami", "")
		}
		var p fault
		r := f.is(429, &p, "GET", "/v1/whoami", "")
		if p.Code != job.Exhausted || len(r.header.Get("Retry-After")) < 3 {
			t.Errorf("%+v, Retry-After %q", p, r.header.Get("Retry-After"))
		}
		f.is(200, nil, "GET", "/healthz", "")
	}
}

func TestFullQueue(t *testing.T) {
	f := open(t, nil)
	f.is(201, nil, "PUT", "/v1/queues/small", `{"max_waiting":1}`)
	in := `{"command":["ls"],"delay":"1h","queue":"small"}`
	f.is(202, nil, "POST", "/v1/jobs", in)
	var p fault
	if r := f.is(429, &p, "POST", "/v1/jobs", in); p.Code != job.Exhausted || r.header.Get("Retry-After") != "1" {
		t.Errorf("%+v %v", p, r.header)
	}
	f.is(200, nil, "POST", "/v1/queues/small/disable", "")
	f.is(409, nil, "POST", "/v1/jobs", in)
	f.is(409, nil, "DELETE", "/v1/queues/small", "")
}

// follow opens a stream of events.
func (f *face) follow(path string) (events *bufio.Reader, stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", f.url+path, nil)
	if err != nil {
		f.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // stop closes it
	if err != nil {
		f.Fatal(err)
	}
	if resp.StatusCode != 200 {
		f.Fatal(resp.Status)
	}
	return bufio.NewReader(resp.Body), func() {
		cancel()
		resp.Body.Close()
	}
}

// event reads the next event of a stream, without what comes between events.
func event(r *bufio.Reader) (name, data string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "data":
			return name, value, nil
		}
	}
}

func TestStreams(t *testing.T) {
	const many = 200
	before := goleak.IgnoreCurrent()
	t.Run("200 at once", func(t *testing.T) {
		f := openWith(t, api.Config{Limits: api.Limits{Streams: many}})
		var streams []*bufio.Reader
		for i := range many {
			path := "/v1/events?follow=true&after=end"
			if i%2 == 1 {
				path += "&filter=name%3Dlater&type=WAITING"
			}
			r, stop := f.follow(path)
			defer stop()
			streams = append(streams, r)
		}
		var p fault
		if r := f.is(429, &p, "GET", "/v1/events?follow=true", ""); p.Code != job.Exhausted || r.header.Get("Retry-After") != "1" {
			t.Errorf("%+v", p)
		}
		f.is(429, nil, "POST", "/v1/jobs?wait=1s", later)
		f.is(200, nil, "GET", "/v1/events", "") // what ends by itself takes no place
		var a struct{ ID job.ID }
		f.is(202, &a, "POST", "/v1/jobs", later)
		var all sync.WaitGroup
		for _, r := range streams {
			all.Go(func() {
				name, data, err := event(r)
				if err != nil || name != "WAITING" || !strings.Contains(data, a.ID.String()) {
					t.Errorf("%s %s %v", name, data, err)
				}
			})
		}
		all.Wait()
	})
	http.DefaultClient.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}

// TestPlacesOfStreams sees to it that every stream and every call that waits gives its place back,
// however it ends.
func TestPlacesOfStreams(t *testing.T) {
	f := openWith(t, api.Config{Limits: api.Limits{Streams: 1}})
	ended := f.run(`{"command":["echo","a"]}`).ID.String()
	var waits, task struct{ ID job.ID }
	f.is(202, &waits, "POST", "/v1/jobs", later)
	f.is(202, &task, "POST", "/v1/jobs", `{"kind":"mail"}`)
	at := "/v1/jobs/" + waits.ID.String()
	broken := func(path string) func() {
		return func() {
			_, stop := f.follow(path)
			stop()
		}
	}
	for name, call := range map[string]func(){
		"a stream that its reader leaves":      broken("/v1/events?follow=true"),
		"that of a job":                        broken(at + "/events?follow=true"),
		"a log that its reader leaves":         broken(at + "/logs?follow=true"),
		"a log that ends":                      func() { f.is(200, nil, "GET", "/v1/jobs/"+ended+"/logs?follow=true", "") },
		"a log that is none":                   func() { f.is(404, nil, "GET", "/v1/jobs/"+task.ID.String()+"/logs?follow=true", "") },
		"a stream of which only the head goes": func() { f.is(200, nil, "HEAD", "/v1/events?follow=true", "") },
		"a submission that waits":              func() { f.is(200, nil, "POST", "/v1/jobs?wait=30s", `{"command":["true"]}`) },
		"one that is wrong":                    func() { f.is(422, nil, "POST", "/v1/jobs?wait=30s", `{}`) },
		"a wish":                               func() { f.is(200, nil, "POST", "/v1/jobs/"+task.ID.String()+"/cancel?wait=30s", "") },
	} {
		t.Run(name, func(t *testing.T) {
			call()
			for late := time.Now().Add(time.Minute); ; { // the end of a connection is noticed a moment later
				r := f.call("POST", "/v1/jobs?wait=1ms", later)
				if r.code == 202 {
					return
				}
				if r.code != 429 || time.Now().After(late) {
					t.Fatalf("the place is not given back: %d %s", r.code, r.body)
				}
			}
		})
	}
}

func TestEventsAreChosen(t *testing.T) {
	f := open(t, nil)
	var a, b struct{ ID job.ID }
	f.is(202, &a, "POST", "/v1/jobs", later)
	f.is(202, &b, "POST", "/v1/jobs", `{"command":["ls"],"delay":"1h","name":"other"}`)
	f.is(201, nil, "POST", "/v1/jobs/"+a.ID.String()+"/events", `{"name":"epoch","message":"1"}`)
	f.is(201, nil, "POST", "/v1/jobs/"+b.ID.String()+"/events", `{"name":"epoch","message":"2"}`)
	f.is(200, nil, "POST", "/v1/jobs/"+a.ID.String()+"/cancel", "")
	for query, want := range map[string]string{
		"":                                    "WAITING WAITING epoch epoch CANCELED",
		"type=epoch":                          "epoch epoch",
		"type=epoch,CANCELED":                 "epoch epoch CANCELED",
		"type=RUNNING":                        "",
		"filter=name%3Dother":                 "WAITING epoch",
		"filter=name%3Dlater+state%3DWAITING": "WAITING epoch",
		"filter=code%3DCANCELED_BY_USER":      "CANCELED",
		"filter=name%3Dlater&type=epoch":      "epoch",
	} {
		var got []string
		r := bufio.NewReader(strings.NewReader(f.is(200, nil, "GET", "/v1/events?"+query, "").body))
		for {
			name, _, err := event(r)
			if err != nil {
				break
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	t.Run("a stream after the end of a job ends", func(t *testing.T) {
		body := f.is(200, nil, "GET", "/v1/jobs/"+a.ID.String()+"/events", "").body
		last := body[strings.LastIndex(body, "id: ")+len("id: "):]
		last, _, _ = strings.Cut(last, "\n")
		f.is(200, nil, "GET", "/v1/jobs/"+a.ID.String()+"/events?follow=true", "", "Last-Event-ID", last)
	})
}

// A bubble is the handler on a server without a network, in a bubble of synctest.
type bubble struct {
	svc  *service.Service
	dial chan net.Conn
}

func openBubble(t *testing.T, dir string, c api.Config) *bubble {
	t.Helper()
	db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bubble{dial: make(chan net.Conn)}
	kinds := map[string]engine.Kind{job.KindApp: programs{}}
	b.svc = service.New(service.Config{Store: db, Broker: &local.Broker{}, Machine: "here", Kinds: kinds})
	c.Service, c.Log = b.svc, slog.New(slog.DiscardHandler)
	srv := &http.Server{Handler: api.New(c)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(b) }()
	t.Cleanup(func() {
		srv.Close()
		<-done
		db.Close()
		time.Sleep(time.Minute) // of the bubble, in which the server's connections end
	})
	return b
}

// programs are never run, and have no files.
type programs struct{ engine.Kind }

func (programs) Files(*job.Job) (engine.Files, error) {
	return engine.Files{}, job.Errorf(job.NotFound, "no files")
}
func (programs) Progress(*job.Job) (job.Progress, bool) { return job.Progress{}, false }

func (b *bubble) Accept() (net.Conn, error) {
	if c, ok := <-b.dial; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (b *bubble) Close() error {
	close(b.dial)
	return nil
}

func (b *bubble) Addr() net.Addr { return &net.UnixAddr{Name: "bubble"} }

func (b *bubble) connect(t *testing.T) net.Conn {
	here, there := net.Pipe()
	b.dial <- there
	t.Cleanup(func() { here.Close() })
	return here
}

func TestSlowBody(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		conn := openBubble(t, dir, api.Config{}).connect(t)
		begun := time.Now()
		go func() {
			fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
			for {
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(begun); resp.StatusCode != 408 || !resp.Close || took != 30*time.Second {
			t.Errorf("%s after %s", resp.Status, took)
		}
	})
	virtual.Test(t, func(t *testing.T) { // one that is slow and steady is heard, however long it takes
		conn := openBubble(t, dir, api.Config{}).connect(t)
		body := `{"kind":"mail","args":"` + strings.Repeat("x", 900_000) + `"}`
		begun := time.Now()
		go func() {
			fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
			for rest := body; rest != ""; {
				n := min(len(rest), 10_000)
				if _, err := io.WriteString(conn, rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
				time.Sleep(time.Second)
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(begun); resp.StatusCode != 202 || took < time.Minute {
			t.Errorf("%s after %s", resp.Status, took)
		}
	})
}

func TestReaderThatStops(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"/openapi.json", "/v1/events?follow=true"} {
		virtual.Test(t, func(t *testing.T) {
			answered := make(chan api.Answer, 1)
			b := openBubble(t, dir, api.Config{Answered: func(a api.Answer) { answered <- a }, Limits: api.Limits{Streams: 1}})
			conn := b.connect(t)
			begun := time.Now()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path) // and nothing is read
			a := <-answered
			if took := time.Since(begun); took > time.Minute || a.Path != strings.Split(path, "?")[0] {
				t.Errorf("%s: it held the service for %s: %+v", path, took, a)
			}
			conn2 := b.connect(t) // its place is free again
			fmt.Fprintf(conn2, "HEAD /v1/events?follow=true HTTP/1.1\r\nHost: x\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn2), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Error(resp.Status)
			}
			<-answered
		})
	}
}

// An answer that says nothing for longer than a write may take ends as any other.
func TestALogThatIsSilent(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		b := openBubble(t, dir, api.Config{})
		ask := func(method, path, body string) io.Reader {
			conn := b.connect(t)
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode >= 300 {
				said, _ := io.ReadAll(resp.Body)
				t.Fatalf("%s: %s", resp.Status, said)
			}
			t.Cleanup(func() { resp.Body.Close() })
			return resp.Body
		}
		var j struct{ ID job.ID }
		if err := json.NewDecoder(ask("POST", "/v1/jobs", later)).Decode(&j); err != nil {
			t.Fatal(err)
		}
		path := "/v1/jobs/" + j.ID.String()
		log := ask("GET", path+"/logs?follow=true", "")
		time.Sleep(time.Minute)
		ask("POST", path+"/cancel", "")
		if text, err := io.ReadAll(log); err != nil || len(text) > 0 {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestPing(t *testing.T) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		b := openBubble(t, dir, api.Config{})
		conn := b.connect(t)
		fmt.Fprintf(conn, "GET /v1/events?follow=true HTTP/1.0\r\nHost: x\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", resp.Header)
		}
		lines := bufio.NewReader(resp.Body)
		begun := time.Now()
		pings := 0
		for pings < 3 {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == ": ping\n" {
				pings++
			}
		}
		if took := time.Since(begun); took != 45*time.Second {
			t.Errorf("3 pings after %s", took)
		}
		if _, err := b.svc.Submit(t.Context(), service.Request{Spec: service.NewTask("mail", 1)}); err != nil {
			t.Fatal(err)
		}
		if name, _, err := event(lines); name != "PENDING" || err != nil {
			t.Errorf("%s %v", name, err)
		}
	})
}

func TestAbortedRequests(t *testing.T) {
	var mu sync.Mutex
	statuses := map[int]int{}
	f := openWith(t, api.Config{Answered: func(a api.Answer) {
		mu.Lock()
		defer mu.Unlock()
		statuses[a.Status]++
	}})
	address := strings.TrimPrefix(f.url, "http://")
	for _, text := range []string{
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\"",
		"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"GET /v1/events?follow=true HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/jobs?wait=5m HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\n\r\n{\"kind\":\"nobody.1\"}",
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		io.CopyN(io.Discard, conn, 20)
		conn.Close()
	}
	for { // all have been answered, or given up
		mu.Lock()
		n := 0
		for _, c := range statuses {
			n += c
		}
		mu.Unlock()
		if n >= 5 {
			break
		}
		f.call("GET", "/healthz", "")
		mu.Lock()
		statuses[200]--
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	for status := range statuses {
		if status >= 500 {
			t.Errorf("statuses %v", statuses)
		}
	}
}
