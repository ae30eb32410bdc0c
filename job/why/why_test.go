package why_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/why"
)

func TestWhy(t *testing.T) {
	now := time.Now()
	since := " since " + now.Local().Format(time.RFC3339)
	place := func(s job.State, c job.Custody) job.Place { return job.Place{State: s, Custody: c} }
	running, queued := place(job.Running, job.Monitor), place(job.Queued, job.Monitor)
	for _, c := range []struct {
		job    job.Job
		served bool
		want   string
	}{
		{job.Job{Kind: "app", Place: running}, true, "its program runs"},
		{job.Job{Kind: "app", Place: running, Message: "job 7 on n1"}, true, "its program runs: job 7 on n1"},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishPause, Message: "job 7 on n1"},
			true, "its program is to be suspended",
		},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishPause, Message: "to be suspended by ada"},
			true, "its program is to be suspended",
		},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishPause, Message: "to be suspended by ada"},
			false, "its program runs, or has ended meanwhile; no pawl runs",
		},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishPause, Message: "cannot suspend the program: no"},
			true, "its program runs: cannot suspend the program: no",
		},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishPause, Message: "suspended by ada"},
			false, "its program is suspended by ada; no pawl runs",
		},
		{
			job.Job{Kind: "app", Place: queued, Wish: job.WishPause, Message: "suspended by ada: it is held"},
			true, "its program is suspended by ada: it is held",
		},
		{
			job.Job{Kind: "app", Place: running, Message: "suspended by ada"},
			true, "its program is suspended by ada, and is to go on",
		},
		{
			job.Job{Kind: "app", Place: running, Wish: job.WishCancel, Message: "suspended by ada"},
			true, "its program is suspended by ada, and is to be ended",
		},
		{job.Job{Kind: "app", Place: running, Wish: job.WishCancel}, true, "its program is being ended"},
		{
			job.Job{Kind: "app", Place: queued, Wish: job.WishCancel, Message: "cannot end it"},
			true, "its program is being ended: cannot end it",
		},
		{job.Job{Kind: "app", Place: queued}, true, "the scheduler of its system has it," + since},
		{job.Job{Kind: "app", Place: queued, Message: "waits for free resources"}, true, "waits for free resources"},
		{
			job.Job{Kind: "app", Place: running},
			false, "its program runs, or has ended meanwhile; no pawl runs in this folder now",
		},
		{
			job.Job{Kind: "app", Place: queued, Message: "waits for nodes"},
			false,
			"the scheduler of its system has it, or has run it meanwhile; no pawl runs in this folder now",
		},
		{job.Job{Kind: "app", Place: place(job.Archiving, job.Worker)}, false, "the process that worked on it is gone; no pawl runs"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Due: now.Add(time.Hour)}, true, "waits until " + now.Add(time.Hour).Local().Format(time.RFC3339) + "," + since},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Due: now.Add(-time.Hour)}, false, "was due at " + now.Add(-time.Hour).Local().Format(time.RFC3339) + ", and waits" + since + "; no pawl runs"},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Needs: 1}, true, "waits for the end of 1 other job," + since},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Needs: 2}, true, "waits for the end of 2 other jobs," + since},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Line: "ahead/gpu"}, true, "waits to be made ready for its turn of gpu" + since},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "gpu"}, true, "waits for its turn of gpu" + since},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "order/a%2Fb%25"}, true, "waits for its turn in the order of a/b%" + since},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready)}, true, "waits for a free slot of a program that handles mail," + since},
		{job.Job{Kind: "mail", Place: place(job.Waiting, job.Gate), Line: "unique/mail/a%2Fb"}, true, "waits until no other job with its key runs," + since},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate), Line: "ahead/unique/app/a"}, true, "waits to be made ready for its turn among the jobs with its key," + since},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready)}, false, "waits for a program that handles mail," + since + "; no program runs in this folder now: start the one that handles mail"},
		{job.Job{Kind: "mail", Place: place(job.Pending, job.Ready), Lane: job.LaneAlone, Suspect: 2}, true, "waits to run alone" + since + ": the last 2 processes that ran it died"},
		{job.Job{Kind: "app", Place: place(job.Pending, job.Ready)}, true, "waits for a process with a free slot," + since},
		{job.Job{Kind: "app", Place: place(job.Waiting, job.Gate)}, true, "waits for its turn" + since},
		{job.Job{Kind: "app", Place: place(job.SubmittingJob, job.Gate), Message: "waits for its moment", Due: now.Add(time.Minute)}, true, "waits for its moment," + since + ", due in 1m0s"},
		{job.Job{Kind: "app", Place: place(job.Blocked, job.Recovery), Code: job.TaskBlocked, Message: "away"}, true, "blocked by TASK_BLOCKED: away," + since},
		{
			job.Job{
				Kind: "app", Place: place(job.Blocked, job.Recovery), Code: job.TaskBlocked, Message: "away",
				Wish: job.WishCancel,
			},
			true, "cannot be canceled yet: blocked by TASK_BLOCKED: away," + since,
		},
		{
			job.Job{
				Kind: "app", Place: place(job.Blocked, job.Recovery), Code: job.TaskBlocked, Message: "away",
				Wish: job.WishPause,
			},
			true, "cannot be paused yet: blocked by TASK_BLOCKED: away," + since,
		},
		{job.Job{Kind: "app", Place: place(job.Paused, job.User), Message: "paused by ada"}, false, "paused by ada"},
		{job.Job{Kind: "app", Place: place(job.Finished, job.None), Code: job.NormalCompletion}, false, "NORMAL_COMPLETION"},
	} {
		c.job.Since = now
		got := why.Stands(&c.job, now, c.served) + why.Alone(&c.job, c.served)
		if !strings.HasPrefix(got, c.want) || c.served && strings.Contains(got, ";") {
			t.Errorf("%s, served %t: %q, want %q", c.job.Place, c.served, got, c.want)
		}
	}
}
