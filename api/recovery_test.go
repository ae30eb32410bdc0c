package api_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/fake"
)

// run runs a service until the test ends, and returns what asks its API and then waits until all is
// done that follows from it.
func run(t *testing.T, svc *service.Service) (call func(status int, into any, method, path, body string) string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	h := api.New(api.Config{Service: svc})
	call = func(status int, into any, method, path, body string) string {
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
	return call, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestRecovery is about jobs that are blocked, and that nobody tests.
func TestRecovery(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := service.New(service.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler), Principal: "ada"})
		var away atomic.Bool // what the jobs need is
		away.Store(true)
		service.Handle(svc, "mail", func(context.Context, *service.Task[struct{}]) (struct{}, error) {
			if away.Load() {
				return struct{}{}, service.Block("the post is closed", "door", map[string]string{"street": "7"})
			}
			return struct{}{}, nil
		})
		call, stop := run(t, svc)
		defer stop()
		view := func(id job.ID) (v service.View) {
			t.Helper()
			call(200, &v, "GET", "/v1/jobs/"+id.String(), "")
			return v
		}
		submit := func(spec string) job.ID {
			t.Helper()
			var a struct{ ID job.ID }
			call(202, &a, "POST", "/v1/jobs", spec)
			return a.ID
		}
		groups := func() []service.BlockedGroup {
			t.Helper()
			var list struct{ Items []service.BlockedGroup }
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
		if v.State != job.Blocked || v.Group != g.Key || !v.Until.Equal(begun.Add(2*time.Hour)) || !strings.Contains(v.Why, "of 2 jobs, behind 1 of them; not tested yet; tested next in 30s by door") {
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
		var done service.BulkAnswer
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

// working is a kind whose steps take as long as the service lives.
type working struct{}

func (working) Step(ctx context.Context, _ *engine.Run) engine.Outcome {
	<-ctx.Done()
	return engine.Back()
}

// TestClosedLine is about programs on a system that is disabled, and that is not tested unless
// somebody does what a tester would.
func TestClosedLine(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := service.New(service.Config{
			Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler), Principal: "ada", Machine: "m1",
			Kinds: map[string]engine.Kind{job.KindApp: working{}},
		})
		call, stop := run(t, svc)
		defer stop()
		call(200, nil, "POST", "/v1/systems/local/disable", "")
		submit := func() (v service.View) {
			t.Helper()
			var a struct{ ID job.ID }
			call(202, &a, "POST", "/v1/jobs", `{"command":["true"]}`)
			call(200, &v, "GET", "/v1/jobs/"+a.ID.String(), "")
			return v
		}
		blocked, waits := submit(), submit()
		if blocked.State != job.Blocked || blocked.Code != job.SystemDisabled || waits.State != job.Waiting {
			t.Fatalf("%+v\n%+v", blocked, waits)
		}
		if at := "SYSTEM_DISABLED, system local is disabled (group " + blocked.Group + "); not tested yet"; !strings.Contains(waits.Why, at) {
			t.Errorf("%s", waits.Why)
		}
		var l service.LimitUse
		call(200, &l, "GET", "/v1/limits/system%2Flocal", "")
		if !l.Shut || l.Places == nil || *l.Places != 0 || l.Waiting != 1 || l.Set != nil {
			t.Errorf("%+v", l)
		}
		call(200, nil, "PUT", "/v1/limits/system%2F*", `{"most":7}`)
		var list struct{ Items []service.LimitUse }
		call(200, &list, "GET", "/v1/limits", "")
		if len(list.Items) != 2 || !list.Items[1].Shut || list.Items[1].Set == nil || list.Items[1].Set.Most != 7 || list.Items[1].Set.Key != "system/*" {
			t.Errorf("%+v", list.Items)
		}

		// What may have become enabled is tested, also where its document was deleted.
		call(204, nil, "DELETE", "/v1/systems/local", "")
		var g service.BlockedGroup
		call(200, &g, "GET", "/v1/recovery/"+blocked.Group, "")
		if g.Behind != 1 || g.Line != "system/local" || !strings.Contains(g.Why, "about to be tested by enabled") {
			t.Errorf("%+v", g)
		}
		call(200, nil, "POST", "/v1/recovery/"+blocked.Group+"/release", "")
		for _, id := range []job.ID{blocked.ID, waits.ID} {
			var v service.View
			if call(200, &v, "GET", "/v1/jobs/"+id.String(), ""); v.State != job.ProcessingInputs {
				t.Errorf("%s: %s", v.State, v.Why)
			}
		}
	})
}

// TestPolicyOfAKind: what a tenant says of the jobs of a kind and a condition comes before what it
// says of the condition, and leaves other kinds alone.
func TestPolicyOfAKind(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := service.New(service.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
		for _, kind := range []string{"mail", "fax"} {
			service.Handle(svc, kind, func(context.Context, *service.Task[struct{}]) (struct{}, error) {
				return struct{}{}, service.Block("it is closed", "door", map[string]string{"of": kind})
			})
		}
		call, stop := run(t, svc)
		defer stop()
		call(201, nil, "PUT", "/v1/policies/TASK_BLOCKED", `{"stages":[{"every":"30s"}],"max_wait":"2h"}`)
		call(201, nil, "PUT", "/v1/policies/mail.TASK_BLOCKED", `{"stages":[{"every":"5m"}],"max_wait":"9h"}`)

		begun := time.Now()
		for _, kind := range []string{"mail", "fax"} {
			call(202, nil, "POST", "/v1/jobs", `{"kind":"`+kind+`"}`)
		}
		var groups struct{ Items []service.BlockedGroup }
		call(200, &groups, "GET", "/v1/recovery", "")
		every := map[string]time.Duration{}
		for _, g := range groups.Items {
			every[g.Params["of"]] = g.NextTest.Sub(begun)
		}
		if every["mail"] != 5*time.Minute || every["fax"] != 30*time.Second {
			t.Errorf("tested after %v, want mail after 5m and fax after 30s", every)
		}
		var jobs struct{ Jobs []service.View }
		call(200, &jobs, "GET", "/v1/jobs", "")
		for _, listed := range jobs.Jobs {
			var v service.View
			call(200, &v, "GET", "/v1/jobs/"+listed.ID.String(), "")
			if want := map[string]time.Duration{"mail": 9 * time.Hour, "fax": 2 * time.Hour}[v.Kind]; v.State != job.Blocked || !v.Until.Equal(begun.Add(want)) {
				t.Errorf("%s is %s until %v, want %v", v.Kind, v.State, v.Until.Sub(begun), want)
			}
		}
		if len(jobs.Jobs) != 2 {
			t.Errorf("%d jobs, want 2", len(jobs.Jobs))
		}
	})
}
