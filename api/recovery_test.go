package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store/fake"
)

// TestRecovery is about jobs that are blocked, and that nobody tests.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := pawl.New(pawl.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler), Principal: "ada"})
		var away atomic.Bool // what the jobs need is
		away.Store(true)
		pawl.Handle(svc, "mail", func(context.Context, *pawl.Task[struct{}]) (struct{}, error) {
			if away.Load() {
				return struct{}{}, pawl.Block("the post is closed", "door", map[string]string{"street": "7"})
			}
			return struct{}{}, nil
		})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		h := api.New(api.Config{Service: svc})
		call := func(status int, into any, method, path, body string) string {
			t.Helper()
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(w, r)
			if w.Code != status {
				t.Fatalf("%s %s: %d, want %d: %s", method, path, w.Code, status, w.Body)
			}
			if into != nil {
				if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			return w.Body.String()
		}
		view := func(id job.ID) (v pawl.View) {
			t.Helper()
			call(200, &v, "GET", "/v1/jobs/"+id.String(), "")
			return v
		}
		submit := func(spec string) job.ID {
			t.Helper()
			var a struct{ ID job.ID }
			call(202, &a, "POST", "/v1/jobs", spec)
			synctest.Wait()
			return a.ID
		}
		groups := func() []pawl.BlockedGroup {
			t.Helper()
			var list struct{ Items []pawl.BlockedGroup }
			call(200, &list, "GET", "/v1/recovery", "")
			return list.Items
		}

		call(201, nil, "PUT", "/v1/policies/TASK_BLOCKED", `{"stages":[{"every":"30s"}]}`)
		call(201, nil, "PUT", "/v1/policies/short", `{"max_wait":"2h"}`)
		if text := call(422, nil, "POST", "/v1/jobs", `{"kind":"mail","recovery":{"policy":"long"}}`); !strings.Contains(text, "recovery.policy (long): is unknown: give one that pawl get policies lists, or make it") {
			t.Error(text)
		}
		call(422, nil, "POST", "/v1/jobs", `{"kind":"mail","recovery":{"stages":[{"every":"1ms"}]}}`)

		begun := time.Now()
		one := submit(`{"kind":"mail"}`)
		two := submit(`{"kind":"mail","recovery":{"policy":"short"}}`)
		list := groups()
		if len(list) != 1 || list[0].Jobs != 2 || list[0].Code != job.TaskBlocked || list[0].Tester != "door" || list[0].Params["street"] != "7" || list[0].Line != "" {
			t.Fatalf("%+v", list)
		}
		g := list[0]
		if every := time.Duration(g.Policy.Stages[0].Every); every != 30*time.Second || !g.NextTest.Equal(begun.Add(every)) {
			t.Errorf("%+v", g)
		}
		v := view(two)
		if v.State != job.Blocked || v.Group != g.Key || !v.Until.Equal(begun.Add(2*time.Hour)) || !strings.Contains(v.Why, "of 2 jobs; not tested yet; tested next in 30s by door") {
			t.Errorf("%+v", v)
		}
		if v := view(one); !v.Until.IsZero() || strings.Contains(v.Why, "it fails at") {
			t.Errorf("%+v", v)
		}

		at := "/v1/recovery/" + g.Key
		time.Sleep(time.Second)
		call(200, &g, "POST", at+"/try", "")
		if !strings.Contains(g.Why, "about to be tested by door") {
			t.Errorf("%+v", g)
		}
		call(409, nil, "POST", "/v1/jobs/"+submit(`{"kind":"other"}`).String()+"/release", "")
		call(200, &v, "POST", "/v1/jobs/"+two.String()+"/give-up", "")
		if v.State != job.Failed || v.Code != job.RecoveryGivenUp || !strings.Contains(v.Message, "given up by ada; it was blocked by TASK_BLOCKED: the post is closed") {
			t.Errorf("%+v", v)
		}
		call(409, nil, "POST", "/v1/jobs/"+two.String()+"/try", "")

		three := submit(`{"kind":"mail"}`)
		away.Store(false)
		call(200, nil, "POST", "/v1/jobs/"+three.String()+"/release", "")
		if v := view(three); v.State != job.Finished {
			t.Errorf("%+v", v)
		}
		var done pawl.BulkAnswer
		call(200, &done, "POST", "/v1/bulk", `{"action":"try","filter":"kind=mail"}`)
		if done.Matched != 3 || done.Done != 1 || done.Refused != 2 || done.Refusals[0].Code != job.Conflict {
			t.Errorf("%+v", done)
		}
		call(200, &g, "POST", at+"/release", "")
		if v := view(one); v.State != job.Finished {
			t.Errorf("%+v", v)
		}
		if list := groups(); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		call(404, nil, "GET", at, "")
		call(404, nil, "POST", at+"/give-up", "")

		away.Store(true)
		four := submit(`{"kind":"mail"}`)
		call(200, &g, "POST", at+"/give-up", "")
		if v := view(four); v.State != job.Failed || v.Code != job.RecoveryGivenUp {
			t.Errorf("%+v", v)
		}
	})
}
