package api_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/testenv/embedded"
	"github.com/pawl-jobs/pawl/job"
)

// FuzzOutputPath asks for files of a job whose program has made links out of its folder. Whatever the path, nothing from
// outside comes, and nothing that Pawl keeps there for itself.
func FuzzOutputPath(f *testing.F) {
	secret := filepath.Join(f.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("outside"), 0o600); err != nil {
		f.Fatal(err)
	}
	svc := embedded.Open(f)
	svc.Start(f)
	spec, err := json.Marshal(job.Spec{
		Command: []string{"sh", "-c", `echo inside > a; mkdir -p d/e; echo inside > d/e/f; ln -s "$0" link; ln -s "$1" up; ln -s d/e/f f; ln -s .pawl own; ln -s . here`, secret, filepath.Dir(secret)},
		Env:     map[string]string{"HUSH": "outside"},
		Archive: &job.Archive{On: job.ArchiveNever}, // so that the folder stays
	})
	if err != nil {
		f.Fatal(err)
	}
	s, err := job.ParseSpec(spec)
	if err != nil {
		f.Fatal(err)
	}
	answers, err := svc.Submit(f.Context(), pawl.Request{Spec: s})
	if err != nil {
		f.Fatal(err)
	}
	if j, err := svc.Wait(f.Context(), answers[0].ID); err != nil || j.State != job.Finished {
		f.Fatal(j.State, j.Message, err)
	}
	h := api.New(api.Config{Service: svc.Service, Log: slog.New(slog.DiscardHandler)})
	get := func(path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = "/v1/jobs/" + answers[0].ID.String() + "/output/" + path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for path, status := range map[string]int{
		"a": 200, "d/e/f": 200, "f": 200, "here/a": 200, "here/here/d/e/f": 200, "stdout": 200, "d": 422, "x": 404, "a/": 422,
		"link": 422, "up/secret": 422, "up": 422, "here/link": 422, ".pawl": 404, ".pawl/job.json": 404, "own/job.json": 404, "here/.pawl/job.json": 404,
	} {
		if w := get(path); w.Code != status {
			f.Errorf("%s: %d, want %d: %s", path, w.Code, status, w.Body)
		}
		f.Add(path)
	}
	f.Add("../" + answers[0].ID.String() + "/a")
	f.Add("up/../a")
	f.Add(secret)
	f.Fuzz(func(t *testing.T, path string) {
		w := get(path)
		if w.Code >= 500 || strings.Contains(w.Body.String(), "outside") || w.Code == 200 && strings.TrimPrefix(w.Body.String(), "inside\n") != "" {
			t.Errorf("%q: %d %s", path, w.Code, w.Body)
		}
	})
}
