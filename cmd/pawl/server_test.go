package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/job"
)

// testToken is the only one that a server of tests knows.
const testToken = "pawl_test"

// testServer is the program "server DIR [PORT]": it runs jobs in a folder and serves the API to whoever has the token, and
// leaves its URL and the token in the folder, until it is told to stop.
func testServer() {
	if err := serveForTest(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveForTest(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	port := "0"
	if len(args) > 1 {
		port = args[1]
	}
	n, err := openNode(ctx, dir, nodeOptions{})
	if err != nil {
		return err
	}
	defer n.close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{serverFile: "http://" + l.Addr().String(), tokenFile: testToken} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
			return err
		}
	}
	stopping := make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: api.New(api.Config{
		Service: n.Service, Stopping: stopping, Log: quiet,
		Auth: func(r *http.Request) (api.Caller, error) {
			if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+testToken)) == 1 {
				return api.Caller{Principal: "ada"}, nil
			}
			return api.Caller{}, job.Errorf(job.Denied, "there is no token, or not one that this server knows")
		},
	})}
	context.AfterFunc(ctx, func() {
		close(stopping)
		srv.Shutdown(context.Background())
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	fmt.Println("serves", l.Addr())
	return errors.Join(n.Run(ctx), ignoreClosed(<-served))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func TestServerOf(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(serverFile, "http://127.0.0.1:8477\n")
	write(tokenFile, "of the folder\n")
	given := write("given", " from a file\n")
	for _, tt := range []struct {
		args          []string
		server, token string // of the environment
		want          *server
		wrong         string
	}{
		{},
		{server: "https://lab", want: &server{url: "https://lab"}},
		{server: "https://lab", args: []string{"--dir", dir}},
		{server: "https://lab", args: []string{"--server="}},
		{server: "https://lab", args: []string{"--server=https://other/pawl/"}, want: &server{url: "https://other/pawl"}},
		{server: "https://lab", token: "t", want: &server{url: "https://lab", token: "t"}},
		{server: "https://lab", token: "t", args: []string{"--token-file", given}, wrong: "does not hold one token"},
		{server: "https://lab", token: "t", args: []string{"--token-file", write("one", "from-a-file\n")}, want: &server{url: "https://lab", token: "from-a-file"}},
		{server: "https://lab", args: []string{"--token-file", "/nonexistent"}, wrong: "no such file"},
		{args: []string{"--dir", dir, "--server", "http://127.0.0.1:8477/"}, want: &server{url: "http://127.0.0.1:8477", token: "of the folder"}},
		{args: []string{"--dir", dir, "--server", "http://127.0.0.1:8478"}, want: &server{url: "http://127.0.0.1:8478"}},
		{args: []string{"--dir", dir, "--server", "http://localhost:8477"}, want: &server{url: "http://localhost:8477"}},
		{token: "t", args: []string{"--dir", dir, "--server", "http://127.0.0.1:8477"}, want: &server{url: "http://127.0.0.1:8477", token: "t"}},
	} {
		t.Run(fmt.Sprint(tt.server, tt.token, tt.args), func(t *testing.T) {
			t.Setenv(serverVariable, tt.server)
			t.Setenv(tokenVariable, tt.token)
			t.Setenv("XDG_STATE_HOME", t.TempDir())
			cmd := &cobra.Command{Run: func(*cobra.Command, []string) {}}
			placeFlags(cmd)
			cmd.SetArgs(tt.args)
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			got, err := serverOf(cmd)
			switch {
			case tt.wrong != "":
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v", err)
				}
			case err != nil || (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want:
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
	for url, want := range map[string]bool{
		"http://localhost:1": true, "http://127.0.0.1:1": true, "http://127.1.2.3": true, "http://[::1]:1/x": true,
		"http://lab": false, "https://10.0.0.1": false, "http://localhost.evil.org": false,
	} {
		if got := (&server{url: url}).here(); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}

// TestExitCodes reads the table of exit codes.
func TestExitCodes(t *testing.T) {
	for i, c := range exitCodes {
		if c.code != i || c.meaning == "" {
			t.Errorf("the row %d of the table is of code %d", i, c.code)
		}
	}
}
