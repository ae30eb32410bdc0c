package target

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/internal/node"
)

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
	write(node.ServerFile, "http://127.0.0.1:7295\n")
	write(auth.TokenFile, "of the folder\n")
	given := write("given", " from a file\n")
	for _, tt := range []struct {
		args          []string
		server, token string // of the environment
		want          *Server
		wrong         string
	}{
		{},
		{server: "https://lab", want: &Server{url: "https://lab"}},
		{server: "https://lab", args: []string{"--dir", dir}},
		{server: "https://lab", args: []string{"--server="}},
		{
			server: "https://lab", args: []string{"--server=https://other/pawl/"},
			want: &Server{url: "https://other/pawl"},
		},
		{server: "https://lab", token: "t", want: &Server{url: "https://lab", token: "t"}},
		{server: "https://lab", token: "t", args: []string{"--token-file", given}, wrong: "does not hold one token"},
		{
			server: "https://lab", token: "t", args: []string{"--token-file", write("one", "from-a-file\n")},
			want: &Server{url: "https://lab", token: "from-a-file"},
		},
		{server: "https://lab", args: []string{"--token-file", "/nonexistent"}, wrong: "no such file"},
		{
			args: []string{"--dir", dir, "--server", "http://127.0.0.1:7295/"},
			want: &Server{url: "http://127.0.0.1:7295", token: "of the folder"},
		},
		{
			args: []string{"--dir", dir, "--server", "http://127.0.0.1:7296"},
			want: &Server{url: "http://127.0.0.1:7296"},
		},
		{
			args: []string{"--dir", dir, "--server", "http://localhost:7295"},
			want: &Server{url: "http://localhost:7295"},
		},
		{
			token: "t", args: []string{"--dir", dir, "--server", "http://127.0.0.1:7295"},
			want: &Server{url: "http://127.0.0.1:7295", token: "t"},
		},
	} {
		t.Run(fmt.Sprint(tt.server, tt.token, tt.args), func(t *testing.T) {
			t.Setenv(serverVariable, tt.server)
			t.Setenv(tokenVariable, tt.token)
			t.Setenv("XDG_STATE_HOME", t.TempDir())
			cmd := &cobra.Command{Run: func(*cobra.Command, []string) {}}
			Flags(cmd)
			cmd.SetArgs(tt.args)
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			got, err := ServerOf(cmd)
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
		if got := (&Server{url: url}).Here(); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}
