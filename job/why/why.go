// Package why says in a sentence for people why a job is where it is, and since when it waits.
package why

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Alone says, behind [Stands], that no process is there to go on with j. It is empty if one is
// there (served: some process runs jobs of j's folder), or if none is needed.
func Alone(j *job.Job, served bool) string {
	switch {
	case served || j.Custody == job.None || j.Custody == job.User:
		return ""
	case j.Program():
		return "; no pawl runs in this folder now: pawl run goes on with it"
	}
	return "; no program runs in this folder now: start the one that handles " + j.Kind
}

// Stands says where j is. It says since when if j waits for a time, for other jobs, for a free
// slot, or for the end of a block.
func Stands(j *job.Job, now time.Time, served bool) string {
	since := "since " + j.Since.Local().Format(time.RFC3339)
	switch j.Custody {
	case job.None:
		if j.Message != "" {
			return string(j.Code) + ": " + j.Message
		}
		return string(j.Code)
	case job.Gate:
		switch {
		case !j.Due.IsZero() && j.State != job.Waiting:
			return j.Message + ", " + since + ", due in " + max(0, j.Due.Sub(now)).Round(time.Second).String()
		case !j.Due.IsZero() && j.Due.Before(now):
			return "was due at " + j.Due.Local().Format(time.RFC3339) + ", and waits " + since
		case !j.Due.IsZero():
			return "waits until " + j.Due.Local().Format(time.RFC3339) + ", " + since
		case j.Needs == 1:
			return "waits for the end of 1 other job, " + since
		case j.Needs > 0:
			return "waits for the end of " + strconv.Itoa(j.Needs) + " other jobs, " + since
		}
		switch key := job.LimitOf(j.Line); {
		case key == "":
			return "waits for its turn " + since
		case job.Ordered(key):
			return "waits for its turn in the order of " + job.OrderOf(key) + " " + since
		case job.Sole(key) && key != j.Line:
			return "waits to be made ready for its turn among the jobs with its key, " + since
		case job.Sole(key):
			return "waits until no other job with its key runs, " + since
		case key != j.Line:
			return "waits to be made ready for its turn of " + key + " " + since
		default:
			return "waits for its turn of " + key + " " + since
		}
	case job.Ready:
		if j.Lane == job.LaneAlone {
			return "waits to run alone " + since + ": the last " + strconv.Itoa(j.Suspect) +
				" processes that ran it died, and each process runs one such job at a time"
		}
		switch {
		case j.Program():
			return "waits for a process with a free slot, " + since
		case served:
			return "waits for a free slot of a program that handles " + j.Kind + ", " + since
		}
		return "waits for a program that handles " + j.Kind + ", " + since
	case job.Worker:
		if !served {
			return "the process that worked on it is gone"
		}
		return "a process works on it"
	case job.Monitor:
		next := map[job.Wish]string{"": ", and is to go on", job.WishCancel: ", and is to be ended"}[j.Wish]
		switch {
		case job.Suspended(j.Custody, j.Message):
			return "its program is " + j.Message + next
		case !served:
			return Unwatched(j)
		case j.Wish == job.WishPause && !strings.HasPrefix(j.Message, "cannot suspend "):
			return "its program is to be suspended"
		case j.Wish == job.WishCancel:
			return strings.TrimSuffix("its program is being ended: "+j.Message, ": ")
		case j.State == job.Queued:
			return cmp.Or(j.Message, "the scheduler of its system has it, "+since)
		}
		return strings.TrimSuffix("its program runs: "+j.Message, ": ")
	case job.Recovery:
		blocked := "blocked by " + string(j.Code) + ": " + j.Message + ", " + since
		switch j.Wish {
		case job.WishCancel:
			return "cannot be canceled yet: " + blocked
		case job.WishPause:
			return "cannot be paused yet: " + blocked
		}
		return blocked
	}
	return j.Message
}

// Unwatched says how a job does whose program nobody looks after: it goes on by itself.
func Unwatched(j *job.Job) string {
	if j.State == job.Queued {
		return "the scheduler of its system has it, or has run it meanwhile"
	}
	return "its program runs, or has ended meanwhile"
}
