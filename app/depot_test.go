package app_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
)

// TestPlacesWithoutAHost: to know where the files of a job are takes neither a host nor files.
func TestPlacesWithoutAHost(t *testing.T) {
	h := open(t)
	j := h.end(h.submit(scripted("echo out")))
	if j.State != job.Finished {
		t.Fatalf("%s %s", j.Code, j.Message)
	}
	folder, results := app.Places(&j)
	f, err := app.New(app.Config{}).Files(&j)
	if err != nil || f.Folder != folder || f.Results != results {
		t.Errorf("%+v, %v; want %s and %s", f, err, folder, results)
	}
}
