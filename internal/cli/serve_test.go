package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A served is a pawl serve of its own, on a folder of a test.
type served struct {
	testing.TB
	cmd    *exec.Cmd
	dir    string
	url    string
	token  string
	client *http.Client
	told   string // what it said when it served
	log    *lines
	ended  chan struct{} // closed once it has ended
}

// own is the environment of a command of a test: without settings for it, or for the tests.
func own(t testing.TB) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USER=ada", detector(t)}
}

// startServe starts pawl serve on any free port, and returns once it serves.
func startServe(t testing.TB, dir string, env []string, args ...string) *served {
	t.Helper()
	return startServeBy(t, []string{"pawl"}, dir, env, args...)
}

// startServeBy does so by another command than pawl, to which the arguments of pawl are added.
func startServeBy(t testing.TB, command []string, dir string, env []string, args ...string) *served {
	t.Helper()
	p := &served{TB: t, dir: dir, client: &http.Client{Timeout: time.Minute}, log: newLines(), ended: make(chan struct{})}
	args = slices.Concat(command[1:], []string{"serve", "--dir", dir}, args)
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	p.cmd = exec.Command(command[0], args...)
	p.cmd.Env = append(own(t), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = p.log
	p.cmd.WaitDelay = 5 * time.Second // what it has started may have its output, and live on
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		stdout.Close() // likewise
		<-p.ended
	})
	out := bufio.NewReader(stdout)
	greeting, err := out.ReadString('\n')
	for line := greeting; err == nil && !strings.HasPrefix(line, "Ctrl-C"); p.told += line {
		line, err = out.ReadString('\n')
	}
	go func() {
		io.Copy(io.Discard, stdout)
		p.cmd.Wait()
		p.log.close()
		close(p.ended)
	}()
	at := strings.LastIndex(greeting, " at ")
	if err != nil || at < 0 {
		<-p.ended
		t.Fatalf("%q, %v\n%s", greeting, err, p.log)
	}
	p.url = strings.TrimSpace(greeting[at+len(" at "):])
	text, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(text))
	return p
}

// signal sends a signal; end waits for the end of the process and returns its exit code.
func (p *served) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

func (p *served) end() int {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(testenv.Patience):
		p.Fatalf("it does not end:\n%s", p.log)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ask makes a request with the token. Its body must be closed.
func (p *served) ask(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	return p.client.Do(req)
}

// get returns the status and the body of an answer.
func (p *served) get(method, path, body string) (int, string) {
	p.Helper()
	a, err := p.ask(p.Context(), method, path, body)
	if err != nil {
		p.Fatalf("%s %s: %v\n%s", method, path, err, p.log)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		p.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// lines is a log that can be waited for.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed when there is more
	closed  bool
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(b)
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log has a line that matches.
func (p *served) await(re string) {
	p.Helper()
	want, late := regexp.MustCompile(re), time.After(testenv.Patience)
	for {
		p.log.mu.Lock()
		found, closed, changed := want.Match(p.log.text.Bytes()), p.log.closed, p.log.changed
		p.log.mu.Unlock()
		switch {
		case found:
			return
		case closed:
			p.Fatalf("it ended without a line like %s:\n%s", re, p.log)
		}
		select {
		case <-changed:
		case <-late:
			p.Fatalf("no line like %s:\n%s", re, p.log)
		}
	}
}

func TestServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	p := startServe(t, dir, nil)

	t.Run("the folder says where it is and how to log in, to its owner only", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(dir, "server"))
		if err != nil || strings.TrimSpace(string(text)) != p.url {
			t.Errorf("server: %q, %v; want %s", text, err, p.url)
		}
		for _, name := range []string{"server", "token", "job-key", "socket"} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	})
	t.Run("who has no token is not let in, and is told what to send", func(t *testing.T) {
		for _, token := range []string{"", "wrong"} {
			q := *p
			q.token = token
			status, body := q.get(http.MethodGet, "/v1/jobs", "")
			if status != http.StatusUnauthorized || !strings.Contains(body, `"code":"denied"`) {
				t.Errorf("token %q: %d %s", token, status, body)
			}
		}
		p.await(`level=INFO msg="not let in" .*client=127\.0\.0\.1`)
	})
	t.Run("a header that is too large is refused in words", func(t *testing.T) {
		q := *p
		q.token = strings.Repeat("x", 100_000)
		status, body := q.get(http.MethodGet, "/v1/jobs", "")
		if status != 431 || !strings.Contains(body, `"code":"invalid"`) {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("everybody may ask whether it is ready", func(t *testing.T) {
		q := *p
		q.token = ""
		status, body := q.get(http.MethodGet, "/readyz", "")
		for _, want := range []string{`"database"`, `schema version`, `"session"`, `"disk"`, `GiB free`} {
			if !strings.Contains(body, want) {
				t.Errorf("no %s in %s", want, body)
			}
		}
		if status != http.StatusOK || strings.Contains(body, dir) {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("a job runs, and its program can tell of itself, and of nothing else", func(t *testing.T) {
		script := `ask() { curl -s -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $PAWL_JOB_TOKEN" "$@"; }
ask "$PAWL_API_URL/v1/jobs/$PAWL_JOB_ID"
ask --json '{"name": "half", "data": {"done": 0.5}}' "$PAWL_API_URL/v1/jobs/$PAWL_JOB_ID/events"
ask "$PAWL_API_URL/v1/jobs"
ask -X POST "$PAWL_API_URL/v1/jobs/$PAWL_JOB_ID/cancel"
pawl event "$PAWL_JOB_ID" quarter > told && echo told
echo $PAWL_JOB_TOKEN`
		spec, err := json.Marshal(map[string]any{"script": "#!/bin/sh\n" + script})
		if err != nil {
			t.Fatal(err)
		}
		status, body := p.get(http.MethodPost, "/v1/jobs?wait=30s", string(spec))
		var view struct{ ID, State, Results string }
		if err := json.Unmarshal([]byte(body), &view); err != nil || status != http.StatusOK || view.State != "FINISHED" {
			t.Fatalf("%d %s, %v", status, body, err)
		}
		stdout, err := os.ReadFile(filepath.Join(view.Results, "stdout"))
		if err != nil {
			t.Fatal(err)
		}
		answers := strings.Fields(string(stdout))
		if want := []string{"200", "201", "403", "403", "told"}; len(answers) != 6 || !slices.Equal(answers[:5], want) {
			t.Fatalf("the program was answered %q, want %q", answers, want)
		}
		if _, history := p.get(http.MethodGet, "/v1/jobs/"+view.ID+"/history", ""); !strings.Contains(history, "half") || !strings.Contains(history, "quarter") || strings.Contains(history, answers[5]) {
			t.Errorf("history %s", history)
		}
		if _, all := p.get(http.MethodGet, "/v1/jobs/"+view.ID, ""); strings.Contains(all, answers[5]) {
			t.Errorf("the token is kept with the job: %s", all)
		}
		q := *p
		q.token = answers[5]
		if status, _ := q.get(http.MethodGet, "/v1/jobs/"+view.ID, ""); status != http.StatusUnauthorized {
			t.Errorf("the token of a program that has ended is answered %d", status)
		}
	})
	t.Run("it is measured", func(t *testing.T) {
		status, body := p.get(http.MethodGet, "/metrics", "")
		if status != http.StatusOK {
			t.Fatal(status)
		}
		for _, want := range []string{
			`pawl_http_request_duration_seconds_count{operation="submit",status="2xx"} 1`, `pawl_launches_total 1`,
			`pawl_jobs_ended_total{state="FINISHED"} 1`, `pawl_session_live 1`,
		} {
			if !strings.Contains(body, want+"\n") {
				t.Errorf("no %s", want)
			}
		}
	})
	t.Run("what it says first can be typed as it stands", func(t *testing.T) {
		for name, want := range map[string]string{"a first job": "FINISHED", "with curl": `"state":"FINISHED"`} {
			_, line, _ := strings.Cut(p.told, "  "+name+"  ")
			line, _, found := strings.Cut(line, "\n")
			cmd := exec.Command("sh", "-c", line)
			cmd.Env = own(t)
			if out, err := cmd.CombinedOutput(); err != nil || !found || !strings.Contains(string(out), want) {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
	})
	t.Run("another one on the same folder is refused", func(t *testing.T) {
		cmd := exec.Command("pawl", "serve", "--dir", dir, "--listen", "127.0.0.1:0")
		cmd.Env = own(t)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "process") {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "server")); err != nil {
			t.Errorf("it took away the first one's file: %v", err)
		}
	})
	t.Run("it ends in good order", func(t *testing.T) {
		p.signal(syscall.SIGTERM)
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.log)
		}
		for _, name := range []string{"server", "socket"} {
			if _, err := os.Stat(filepath.Join(dir, name)); !os.IsNotExist(err) {
				t.Errorf("%s stays: %v", name, err)
			}
		}
		if text := p.log.String(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "level=WARN") {
			t.Errorf("the log has trouble:\n%s", text)
		}
	})
	t.Run("the next one has the same token", func(t *testing.T) {
		q := startServe(t, dir, nil)
		if q.token != p.token {
			t.Error("it has another one")
		}
	})
}

func TestServeReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pawl.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\n")
	p := startServe(t, dir, nil, "--grace", "3s")
	write("log:\n  level: debug\nlimits: {depth: 8}\nlease: 20s\ngrace: 9s\n")
	p.signal(syscall.SIGHUP)
	p.await(`configuration reloaded" changed="\[limits.depth: 64 → 8 log.level: info → debug\]" "needs a restart"="\[lease: 15s → 20s\]"`)
	deep := `{"command": ["true"], "notes": ` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`
	if status, body := p.get(http.MethodPost, "/v1/jobs", deep); status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || !strings.Contains(body, "8 deep") {
		t.Errorf("the new limit does not hold: %d %s", status, body)
	}
	p.await("level=DEBUG msg=request operation=submit")

	write("log: {level: warn}\nlimits: {dept: 9}\n")
	p.signal(syscall.SIGHUP)
	p.await(`level=ERROR msg="configuration not reloaded: nothing has changed" .*pawl.yaml:2: limits.dept is no setting`)
	p.get(http.MethodGet, "/v1/version", "")
	p.await("level=DEBUG msg=request operation=get-version") // the level is the one before

	write("disk: {least: 1TiB, low: 1000000TiB}\n")
	p.signal(syscall.SIGHUP)
	p.await(`disk.low: 2GiB → 1000000TiB`)
	if status, body := p.get(http.MethodGet, "/readyz", ""); !strings.Contains(body, "make room") || strings.Contains(body, dir) {
		t.Errorf("%d %s", status, body)
	}
	write("disk: {least: 1000000TiB, low: 1000000TiB}\n")
	p.signal(syscall.SIGHUP)
	p.await(`disk.least: 1TiB → 1000000TiB`)
	if status, body := p.get(http.MethodGet, "/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", status, body)
	}
}

// A stream of events ends well when the service does, and the program that runs stays.
func TestServeDrain(t *testing.T) {
	p := startServe(t, t.TempDir(), nil)
	begun := filepath.Join(t.TempDir(), "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	status, body := p.get(http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"name": "long", "command": ["sh", "-c", "echo $$ > '%s'; exec sleep 1000"]}`, begun))
	var accepted struct{ ID string }
	if err := json.Unmarshal([]byte(body), &accepted); err != nil || status != http.StatusAccepted {
		t.Fatal(status, body, err)
	}
	a, err := p.ask(t.Context(), http.MethodGet, "/v1/events?follow=true", "")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	events := bufio.NewReader(a.Body)
	for line := ""; !strings.Contains(line, `"RUNNING"`); {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(begun) // a job is RUNNING before its program has told who it is
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan int, 1)
	go func() {
		a, err := p.ask(context.Background(), http.MethodPost, "/v1/jobs?wait=1h", `{"command": ["true"], "not_before": "2100-01-01T00:00:00Z"}`)
		if err != nil {
			waiting <- 0
			return
		}
		a.Body.Close()
		waiting <- a.StatusCode
	}()
	for open := ""; !strings.Contains(open, "\npawl_http_requests_open 3\n"); { // the stream, the call that waits, and this one
		if _, open = p.get(http.MethodGet, "/metrics", ""); t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	p.signal(syscall.SIGTERM)
	if _, err := io.ReadAll(events); err != nil {
		t.Errorf("the stream is broken off: %v", err)
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.log)
	}
	if status := <-waiting; status != http.StatusAccepted {
		t.Errorf("who waits is answered %d", status)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil || !lives(pid) {
		t.Fatalf("the program %q does not run any more: %v", text, err)
	}
	q := startServe(t, p.dir, nil)
	if status, body := q.get(http.MethodPost, "/v1/jobs/"+accepted.ID+"/cancel?wait=30s", ""); status != http.StatusOK || !strings.Contains(body, `"CANCELED"`) {
		t.Errorf("the next process does not find it: %d %s", status, body)
	}
	if lives(pid) {
		t.Error("it runs on, though its job is canceled")
	}
}

// lives reports whether a process runs. One that is only not reaped yet does not.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && after[0] != 'Z' && after[0] != 'X'
}

// Whatever ends the service, what it has accepted is there afterwards, once.
func TestServeRestartUnderLoad(t *testing.T) {
	testenv.Aside(t)
	dir := t.TempDir()
	const clients, each = 16, 200 // accepted in each round, at least
	accepted := map[string]bool{}
	for round, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		p := startServe(t, dir, nil, "--grace", "5s")
		var mu sync.Mutex
		var all sync.WaitGroup
		news := make(chan struct{}, clients*each*100)
		for c := range clients {
			all.Go(func() {
				for n := 0; ; n++ {
					a, err := p.ask(context.Background(), http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"name": "j-%d-%d-%d", "command": ["true"], "not_before": "2100-01-01T00:00:00Z"}`, round, c, n))
					if err != nil {
						return // it has gone
					}
					var job struct{ ID string }
					err = json.NewDecoder(a.Body).Decode(&job)
					a.Body.Close()
					if a.StatusCode == http.StatusServiceUnavailable {
						return
					}
					if a.StatusCode != http.StatusAccepted {
						t.Errorf("status %d", a.StatusCode)
						return
					}
					if err != nil {
						return // broken off
					}
					mu.Lock()
					accepted[job.ID] = true
					mu.Unlock()
					news <- struct{}{}
				}
			})
		}
		for range each {
			<-news
		}
		p.signal(end)
		all.Wait()
		if code := p.end(); end == syscall.SIGTERM && code != 0 {
			t.Errorf("exit code %d:\n%s", code, p.log)
		}
	}
	p := startServe(t, dir, nil)
	there := map[string]int{}
	for cursor := ""; ; {
		status, body := p.get(http.MethodGet, "/v1/jobs?limit=1000&cursor="+cursor, "")
		var page struct {
			Jobs []struct{ ID string }
			Next string
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
			t.Fatal(status, body, err)
		}
		for _, j := range page.Jobs {
			there[j.ID]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for id := range accepted {
		if there[id] != 1 {
			t.Errorf("job %s was accepted and is there %d times", id, there[id])
		}
	}
	t.Logf("%d jobs accepted, %d there", len(accepted), len(there))
}
