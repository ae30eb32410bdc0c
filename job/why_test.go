package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func TestWhy(t *testing.T) {
	now := time.Now()
	place := func(s job.State, c job.Custody) job.Place { return job.Place{State: s, Custody: c} }
	for _, c := range []struct {
		job    job.Job
		served bool
		want   string
	}{
		{job.Job{Kind: "app", Place: place(job.Running, job.Monitor)}, true, "its program runs"},
		{job.Job{Kind: "app", Place: place(job.Running, job.Monitor), Wish: job.WishPause}, true, "its program is suspended"},
		{job.Job{Kind: "app", Place: place(job.Running, job.Monitor)}, false, "its program runs, or has ended meanwhile; no pawl runs in this folder now"},
		{job.Job{Kind: "app", Place: place(job.Archiving, job.Worker)}, false, "the process that worked on it is gone; no pawl runs"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Due: now.Add(time.Hour)}, true, "waits until"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Due: now.Add(-time.Hour)}, false, "was due at"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Needs: 1}, true, "waits for the end of 1 other job"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Needs: 2}, true, "waits for the end of 2 other jobs"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Line: "ahead/gpu"}, true, "waits to be made ready for its turn of gpu"},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "gpu"}, true, "waits for its turn of gpu"},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "order/a%2Fb%25"}, true, "waits for its turn in the order of a/b%"},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready)}, true, "waits for a free slot of a program that handles mail"},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "unique/mail/a%2Fb"}, true, "waits until no other job with its key runs"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Line: "ahead/unique/app/a"}, true, "waits to be made ready for its turn among the jobs with its key"},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready)}, false, "waits for a program that handles mail; no program runs in this folder now: start the one that handles mail"},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready), Lane: job.LaneAlone, Suspect: 2}, true, "waits to run alone: the last 2 processes that ran it died"},
		{job.Job{Kind: "app", Place: place(job.Paused, job.User), Message: "paused by ada"}, false, "paused by ada"},
		{job.Job{Kind: "app", Place: place(job.Finished, job.None), Code: job.NormalCompletion}, false, "NORMAL_COMPLETION"},
	} {
		got := c.job.Why(now, c.served)
		if !strings.HasPrefix(got, c.want) || c.served && strings.Contains(got, ";") {
			t.Errorf("%s, served %t: %q, want %q", c.job.Place, c.served, got, c.want)
		}
	}
}
