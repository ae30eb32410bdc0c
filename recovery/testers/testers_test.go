package testers_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/testers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// expect asks a tester, and checks whether it finds clear, for how many, and what it says or fails
// with.
func expect(t *testing.T, tester recovery.Tester, params map[string]string, clear bool, may int, says string) {
	t.Helper()
	a, err := tester.Test(t.Context(), recovery.Question{Params: params})
	if err != nil {
		a.Says = err.Error()
	}
	if a.Clear != clear || a.May != may || !strings.Contains(a.Says, says) {
		t.Errorf("asked with %v it finds clear: %t, for %d, and says %q (%v); want %t, %d, %q", params, a.Clear, a.May, a.Says, err, clear, may, says)
	}
}

func TestNames(t *testing.T) {
	all := testers.All(nil, nil)
	for _, name := range []string{recovery.TCP, recovery.HTTP, recovery.Space, recovery.Command} {
		if all[name] == nil {
			t.Errorf("there is no tester %s", name)
			continue
		}
		expect(t, all[name], nil, false, 0, "tester "+name+": parameter ")
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	expect(t, testers.TCP{}, map[string]string{"host": host, "port": port}, true, 0, "takes connections")
	l.Close()
	expect(t, testers.TCP{}, map[string]string{"host": host, "port": port}, false, 0, "connection refused")
	expect(t, testers.TCP{}, map[string]string{"host": host}, false, 0, "port is needed")
	expect(t, testers.TCP{}, map[string]string{"host": "no such host.invalid", "port": "1"}, false, 0, "lookup")
}

// TestDial: what goes to servers goes there as it is told to, whatever answers there.
func TestDial(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	params := map[string]string{"host": host, "port": port, "url": s.URL}
	refuse := egress.Public.Dialer().DialContext
	for _, name := range []string{recovery.TCP, recovery.HTTP} {
		expect(t, testers.All(nil, nil)[name], params, true, 0, "")
		expect(t, testers.All(nil, refuse)[name], params, false, 0, "jobs of this service may not have it go there")
	}
}

func TestHTTP(t *testing.T) {
	hangs := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		if after := r.URL.Query().Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
	})
	mux.HandleFunc("HEAD /head", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/status/503", http.StatusFound) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) {
		close(hangs)
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	for _, tt := range []struct {
		url   string
		clear bool
		says  string
	}{
		{"/status/200", true, "answers 200 OK"},
		{"/status/404", true, "answers 404"},
		{"/status/429", false, "answers 429"},
		{"/status/500", false, "answers 500"},
		{"/status/503?after=120", false, "503 Service Unavailable, and asks to come back after 2m0s"},
		{"/status/429?after=90000", false, "429 Too Many Requests, and asks to come back after 1h0m0s"},
		{"/status/503?after=soon", false, "503 Service Unavailable"},
		{"/elsewhere", true, "answers 302"},
		{"/endless", true, "answers 200"},
	} {
		expect(t, testers.HTTP{}, map[string]string{"url": s.URL + tt.url}, tt.clear, 0, tt.says)
	}
	expect(t, testers.HTTP{}, map[string]string{"url": s.URL + "/head", "method": "HEAD"}, true, 0, "answers 204")
	expect(t, testers.HTTP{}, map[string]string{"url": s.URL + "/head", "method": "POST"}, false, 0, "give GET or HEAD")
	for _, url := range []string{"ftp://x/y", "x", "http://", "http://me:secret@x\x7f/"} {
		expect(t, testers.HTTP{}, map[string]string{"url": url}, false, 0, "parameter url is no URL")
	}
	t.Run("that does not answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			<-hangs
			cancel()
		}()
		if _, err := (testers.HTTP{}).Test(ctx, recovery.Question{Params: map[string]string{"url": s.URL + "/hangs"}}); err == nil {
			t.Error("it answers")
		}
	})
	t.Run("no secret is told", func(t *testing.T) {
		_, err := testers.HTTP{}.Test(t.Context(), recovery.Question{Params: map[string]string{"url": "http://me:secret@127.0.0.1:1/?key=secret"}})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("it says %v", err)
		}
	})
}

func TestSpace(t *testing.T) {
	dir := t.TempDir()
	expect(t, testers.Space{}, map[string]string{"path": dir}, true, 0, "bytes are free on the file system of "+dir)
	expect(t, testers.Space{}, map[string]string{"path": dir, "bytes": strconv.FormatUint(1<<62, 10)}, false, 0, "are needed")
	expect(t, testers.Space{}, map[string]string{"path": dir, "bytes": "much"}, false, 0, "give a number of bytes")
	expect(t, testers.Space{}, map[string]string{"path": filepath.Join(dir, "gone")}, false, 0, "no such file")
}

func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=3"); err != nil {
		t.Skip("a file system of its own takes root: ", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	full := filepath.Join(dir, "full")
	expect(t, testers.Space{}, map[string]string{"path": dir}, true, 0, "bytes are free")
	if err := os.WriteFile(full, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, testers.Space{}, map[string]string{"path": dir}, false, 0, "0 bytes are free")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, testers.Space{}, map[string]string{"path": dir}, false, 0, "no inode")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	expect(t, testers.Space{}, map[string]string{"path": dir}, false, 0, "is read-only")
}

func TestCommand(t *testing.T) {
	t.Setenv("PAWL_DB", "secret")
	c := testers.Command{
		"well":    {"/bin/sh", "-c", "echo first; echo all is well"},
		"silent":  {"/bin/true"},
		"not":     {"/bin/sh", "-c", "echo it is away >&2; exit 3"},
		"may":     {"/bin/sh", "-c", "echo may 7; echo seven places"},
		"none":    {"/bin/sh", "-c", "echo may 0"},
		"many":    {"/bin/sh", "-c", "echo may many"},
		"env":     {"/bin/sh", "-c", `echo "[$PAWL_DB$PATH]"`},
		"args":    {"/bin/sh", "-c", `echo "$#: $1, $2"`, "sh"},
		"loud":    {"/bin/sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo the end"},
		"killed":  {"/bin/sh", "-c", "kill -9 $$"},
		"missing": {"/no/such/program"},
	}
	for _, tt := range []struct {
		name  string
		clear bool
		may   int
		says  string
	}{
		{"well", true, 0, "all is well"},
		{"silent", true, 0, "silent: exit code 0"},
		{"not", false, 0, "it is away"},
		{"may", true, 7, "seven places"},
		{"none", false, 0, "may 0"},
		{"many", false, 0, "does not say how many may go"},
		{"env", true, 0, "[" + os.Getenv("PATH") + "]"},
		{"loud", true, 0, "the end"},
		{"killed", false, 0, "signal: killed"},
		{"missing", false, 0, "no such file"},
		{"other", false, 0, `no program "other" is registered`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, c, map[string]string{"name": tt.name}, tt.clear, tt.may, tt.says)
		})
	}
	expect(t, c, map[string]string{"name": "args", "arg1": "$(id)", "arg2": "b c", "arg4": "no"}, true, 0, "2: $(id), b c")
}

func TestCommandIsKilled(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lives")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	c := testers.Command{"hangs": {"/bin/sh", "-c", `exec 3>"$1"; sleep 1000 & echo here >&3; wait`, "sh", name}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := c.Test(ctx, recovery.Question{Params: map[string]string{"name": "hangs"}})
		failed <- err
	}()
	lives, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer lives.Close()
	if _, err := lives.Read(make([]byte, len("here\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("a program that was killed has an answer")
	}
	if rest, err := io.ReadAll(lives); err != nil || len(rest) > 0 { // its end comes when nobody is left, its child included
		t.Errorf("%q, %v", rest, err)
	}
}

// What a program leaves running does not keep its test.
func TestCommandLeavesSomething(t *testing.T) {
	c := testers.Command{"leaves": {"/bin/sh", "-c", "sleep 1000 & echo may 3"}}
	expect(t, c, map[string]string{"name": "leaves"}, true, 3, "may 3")
}
