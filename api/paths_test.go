package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/proof/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/service"
)

// FuzzOutputPath asks for files of a job whose program runs, and has made links out of its folder.
// Whatever the path, nothing from outside comes, and nothing that Pawl keeps there for itself.
func FuzzOutputPath(f *testing.F) {
	secret := filepath.Join(f.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("outside"), 0o600); err != nil {
		f.Fatal(err)
	}
	svc := embedded.Open(f)
	svc.Start(f)
	spec, err := json.Marshal(job.Spec{
		Command: []string{"sh", "-c", `echo inside > a; mkdir -p d/e; echo inside > d/e/f; ln -s "$0" link; ln -s "$1" up; ln -s d/e/f f; ln -s .pawl own; ln -s . here; echo inside; exec sleep 600`, secret, filepath.Dir(secret)},
		Env:     map[string]string{"HUSH": "outside"},
	})
	if err != nil {
		f.Fatal(err)
	}
	s, err := job.ParseSpec(spec)
	if err != nil {
		f.Fatal(err)
	}
	answers, err := svc.Submit(f.Context(), service.Request{Spec: s})
	if err != nil {
		f.Fatal(err)
	}
	id := answers[0].ID
	f.Cleanup(func() {
		ctx := context.Background()
		if _, err := svc.Cancel(ctx, id); err != nil {
			f.Error(err)
		}
		if _, err := svc.Wait(ctx, id); err != nil {
			f.Error(err)
		}
	})
	log, err := svc.Log(f.Context(), id, service.LogQuery{Follow: true})
	if err != nil {
		f.Fatal(err)
	}
	defer log.Close()
	if _, err := io.ReadFull(log, make([]byte, len("inside\n"))); err != nil { // the links are there then
		f.Fatal(err)
	}
	view, err := svc.View(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	kept, err := os.ReadDir(filepath.Join(view.Folder, runner.Folder))
	if err != nil || len(kept) == 0 {
		f.Fatal(kept, err)
	}
	h := api.New(api.Config{Service: svc.Service, Log: slog.New(slog.DiscardHandler)})
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = "/v1/jobs/" + id.String() + "/output/" + path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	paths := map[string]int{
		"a": 200, "d/e/f": 200, "f": 200, "here/a": 200, "here/here/d/e/f": 200, "stdout": 200, "d": 422, "x": 404, "a/": 422,
		"link": 422, "up/secret": 422, "up": 422, "here/link": 422, ".pawl": 404,
	}
	for _, k := range kept {
		for _, folder := range []string{".pawl/", "own/", "here/.pawl/"} {
			paths[folder+k.Name()] = 404
		}
	}
	for path, status := range paths {
		if w := get(path); w.Code != status {
			f.Errorf("%s: %d, want %d: %s", path, w.Code, status, w.Body)
		}
		f.Add(path)
	}
	f.Add("../" + id.String() + "/a")
	f.Add("up/../a")
	f.Add(secret)
	f.Fuzz(func(t *testing.T, path string) {
		w := get(path)
		if w.Code >= 500 || strings.Contains(w.Body.String(), "outside") || w.Code == 200 && strings.TrimPrefix(w.Body.String(), "inside\n") != "" {
			t.Errorf("%q: %d %s", path, w.Code, w.Body)
		}
	})
}
