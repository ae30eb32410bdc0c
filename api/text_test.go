package api_test

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// TestBadText sends what is no text through every door: the answer is the same for each database,
// and never a defect.
func TestBadText(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"sqlite": func(t *testing.T) store.Store {
			db, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return db
		},
		"postgres": func(t *testing.T) store.Store {
			dsn := testenv.Postgres(t).Database(t)
			m, err := postgres.NewMigrator(dsn, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.Up(t.Context()), m.Close()); err != nil {
				t.Fatal(err)
			}
			db, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return db
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			t.Cleanup(func() { db.Close() })
			svc := service.New(service.Config{Store: db, Broker: &local.Broker{}, Machine: "m1"})
			srv := httptest.NewServer(api.New(api.Config{Service: svc, Log: slog.New(slog.DiscardHandler)}))
			t.Cleanup(srv.Close)
			f := &face{T: t, url: srv.URL}
			var a struct{ ID string }
			f.is(202, &a, "POST", "/v1/jobs", later)
			one := "/v1/jobs/" + a.ID
			for _, bad := range []string{"%00", "%ff", "a%00b", "%c3%28", "%ed%a0%80"} {
				for _, path := range []string{
					"/v1/jobs/" + bad, one + "/output/" + bad, "/v1/queues/" + bad, "/v1/limits/" + bad, "/v1/workers/" + bad, "/v1/runs/" + bad,
					"/v1/recovery/" + bad, "/v1/schemas/" + bad, "/" + bad, "/v1/jobs?cursor=" + bad, "/v1/jobs?filter=name%3D" + bad,
					"/v1/jobs?sort=" + bad, "/v1/events?after=" + bad, "/v1/events?type=" + bad, "/v1/lookup?job=" + bad, "/v1/counts?filter=label.x%3D" + bad,
					one + "/logs?stream=" + bad, "/v1/jobs?" + bad + "=1",
				} {
					if r := f.call("GET", path, ""); r.code != 400 {
						t.Errorf("GET %s: %d %s", path, r.code, r.body)
					}
				}
				for _, path := range []string{"/v1/queues/" + bad, "/v1/policies/" + bad, "/v1/limits/" + bad} {
					if r := f.call("PUT", path, `{}`); r.code != 400 {
						t.Errorf("PUT %s: %d %s", path, r.code, r.body)
					}
				}
			}
			for _, header := range []string{"Idempotency-Key", "Last-Event-ID", "If-Match", "X-Request-Id"} {
				if r := f.call("POST", "/v1/jobs", later, header, "a\xffb"); r.code != 400 {
					t.Errorf("%s: %d %s", header, r.code, r.body)
				}
			}
			const nul = `\u0000`
			for _, c := range []struct{ method, path, body string }{
				{"POST", "/v1/jobs", `{"command":["true"],"name":"X"}`},
				{"POST", "/v1/jobs", `{"command":["true"],"external_id":"X"}`},
				{"POST", "/v1/jobs", `{"command":["true"],"owner":"X"}`},
				{"POST", "/v1/jobs", `{"command":["true"],"labels":{"a":"X"}}`},
				{"POST", "/v1/jobs", `{"command":["true"],"labels":{"X":"a"}}`},
				{"POST", "/v1/jobs", `{"command":["X"]}`},
				{"POST", "/v1/jobs", `{"command":["true"],"env":{"A":"X"}}`},
				{"POST", "/v1/jobs", `{"command":["true"],"stdout":"X"}`},
				{"POST", "/v1/jobs", `{"command":["true"],"inputs":[{"from":"/a","name":"X"}]}`},
				{"POST", "/v1/jobs", `{"command":["true"],"inputs":[{"from":"/X"}]}`},
				{"POST", "/v1/jobs", `{"command":["true"],"archive":{"include":["X"]}}`},
				{"POST", "/v1/jobs", `{"command":["true"],"limits":["X"]}`},
				{"POST", "/v1/jobs", `{"kind":"mail","order":{"key":"X"}}`},
				{"POST", "/v1/jobs", `{"kind":"mail","unique":{"key":"X"}}`},
				{"POST", "/v1/jobs", `{"kind":"mail","unique":{"args":["X"]}}`},
				{"POST", "/v1/jobs", `{"kind":"mail","args":"X","notes":{"X":"X"}}`},
				{"POST", one + "/events", `{"name":"X"}`},
				{"POST", one + "/events", `{"name":"a","message":"X"}`},
				{"POST", one + "/events", `{"name":"a","data":{"X":"X"}}`},
				{"PATCH", one + "/annotations", `{"labels":{"a":"X"},"notes":{"X":"X"}}`},
				{"PATCH", one + "/annotations", `{"notes":{"X":"X"}}`},
				{"PUT", "/v1/queues/q", `{"description":"X"}`},
				{"PUT", "/v1/systems/local", `{"description":"X"}`},
				{"PUT", "/v1/policies/p", `{"description":"X","max_wait":"1h"}`},
				{"PUT", "/v1/retentions/default", `{"description":"X"}`},
				{"PUT", "/v1/limits/x%2fy", `{"most":1,"description":"X"}`},
				{"PUT", "/v1/runs/x", `{"path":"/X","sum":"X","jobs":[{"command":["true"]}]}`},
				{"PUT", "/v1/runs/" + service.RunKey("/\x00"), `{"path":"/X","sum":"X","call":"X","jobs":[{"command":["true"]}]}`},
				{"POST", "/v1/bulk", `{"action":"X","filter":"name=X"}`},
				{"POST", "/v1/bulk", `{"action":"cancel","filter":"name=X"}`},
			} {
				if r := f.call(c.method, c.path, strings.ReplaceAll(c.body, "X", nul)); r.code >= 500 {
					t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, r.code, r.body)
				}
				if r := f.call(c.method, c.path, strings.ReplaceAll(c.body, "X", "\xff")); r.code != 400 && r.code != 422 {
					t.Errorf("%s %s %s in bad UTF-8: %d %s", c.method, c.path, c.body, r.code, r.body)
				}
			}
			f.is(200, nil, "GET", "/v1/jobs", "")
			f.is(200, nil, "GET", one, "")
			f.is(200, nil, "GET", one+"/history", "")
		})
	}
}
