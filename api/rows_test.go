package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// TestRowsThatCannotBeShown puts jobs into the store as no door lets them in: each answer shows
// them beside the others.
func TestRowsThatCannotBeShown(t *testing.T) {
	db, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	svc := service.New(service.Config{Store: db, Broker: &local.Broker{}})
	srv := httptest.NewServer(api.New(api.Config{Service: svc}))
	defer srv.Close()
	f := &face{T: t, url: srv.URL}
	good, bad := job.NewID(), job.NewID()
	row := func(id job.ID, due time.Time, notes string) store.New {
		return store.New{Job: job.Job{
			ID: id, Owner: "ada", Kind: "mail", Name: "letter", Queue: "default", Priority: 5, MaxAttempts: 1, Due: due,
			Request: json.RawMessage(`{"kind":"mail"}`), Notes: json.RawMessage(notes),
		}}
	}
	jobs := []store.New{
		row(good, time.Now().Add(time.Hour), `{}`),
		row(bad, time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600)), `{"no":`),
	}
	if _, _, err := db.Submit(t.Context(), store.Submission{Tenant: "default", By: "ada", Jobs: jobs}); err != nil {
		t.Fatal(err)
	}
	var page service.Views
	f.is(200, &page, "GET", "/v1/jobs?sort=created", "")
	if len(page.Jobs) != 2 || page.Jobs[0].ID != good || page.Jobs[0].Fault != "" || page.Jobs[1].ID != bad || !strings.Contains(page.Jobs[1].Fault, "due is the year 10000") {
		t.Errorf("%+v", page)
	}
	var one service.View
	if f.is(200, &one, "GET", "/v1/jobs/"+bad.String(), ""); !strings.Contains(one.Fault, "notes is no JSON") || one.Name != "letter" {
		t.Errorf("%+v", one)
	}
	f.is(200, nil, "GET", "/v1/jobs/"+bad.String()+"/history", "")
	if events := f.is(200, nil, "GET", "/v1/events", "").body; !strings.Contains(events, bad.String()) || !strings.Contains(events, good.String()) {
		t.Error(events)
	}
	f.is(200, nil, "POST", "/v1/jobs/"+bad.String()+"/cancel", "")
	f.is(200, nil, "GET", "/v1/jobs?sort=-ended", "")
}
