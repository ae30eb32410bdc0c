package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/egress"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery/testers"
	"github.com/pawl-jobs/pawl/service"
)

// TestSources holds the sources of backends.go to the schemes that a job can name, and has a job
// take an input of each.
func TestSources(t *testing.T) {
	// for each scheme a server that has f.txt, with "roses" in it, and no other file; nil: another
	// scheme of the same source has one
	servers := map[string]http.Handler{
		"http": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/f.txt" {
				http.NotFound(w, r)
				return
			}
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("roses"))
		}),
		"https": nil,
	}

	sources, free := openSources(egress.All, 0)
	defer func() {
		for _, done := range free {
			if err := done(); err != nil {
				t.Error(err)
			}
		}
	}()
	schemes := slices.Sorted(maps.Keys(sources))
	if diff := cmp.Diff(slices.Sorted(slices.Values(job.WebSchemes())), schemes); diff != "" {
		t.Errorf("schemes (-job.WebSchemes +backends.sources):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(servers)), schemes); diff != "" {
		t.Errorf("schemes (-servers of this test +backends.sources):\n%s", diff)
	}

	for _, scheme := range schemes {
		t.Run(scheme+": nobody there", func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			_, err = sources[scheme].Stat(t.Context(), scheme+"://"+l.Addr().String()+"/f.txt")
			b := job.Blocking(err)
			if b == nil {
				t.Fatalf("it blocks no job: %v", err)
			}
			if testers.All(nil, nil)[b.Tester] == nil {
				t.Errorf("there is no tester %q", b.Tester)
			}
		})
		if servers[scheme] == nil {
			continue
		}
		t.Run(scheme+": an input", func(t *testing.T) {
			server := httptest.NewServer(servers[scheme])
			defer server.Close()
			at := scheme + "://" + server.Listener.Addr().String()
			j, said := runJob(t, fmt.Sprintf(`{"command": ["cat", "f.txt"], "inputs": [{"from": "%s/f.txt"},
				{"from": "%[1]s/none.txt", "optional": true}]}`, at))
			if j.State != job.Finished || said != "roses" {
				t.Errorf("%s %s; it printed %q", j.State, j.Message, said)
			}
		})
		t.Run(scheme+": no input", func(t *testing.T) {
			server := httptest.NewServer(servers[scheme])
			defer server.Close()
			from := scheme + "://" + server.Listener.Addr().String() + "/none.txt"
			j, _ := runJob(t, fmt.Sprintf(`{"command": ["true"], "inputs": [{"from": %q}]}`, from))
			if j.Code != job.InputMissing || j.Message != "input "+from+" is not there" {
				t.Errorf("%s %s", j.Code, j.Message)
			}
		})
	}
}

// runJob runs a job in a folder of its own, and returns it with what it printed.
func runJob(t *testing.T, spec string) (job.Job, string) {
	t.Helper()
	n, err := Open(t.Context(), filepath.Join(t.TempDir(), "data"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := n.Submit(t.Context(), service.Request{Given: json.RawMessage(spec)})
	if err != nil {
		t.Fatal(err)
	}
	j, err := n.Wait(t.Context(), got[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := os.ReadFile(filepath.Join(n.Dir, "archive", "default", j.ID.String(), "stdout"))
	return j, string(out)
}
