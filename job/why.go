package job

import (
	"strconv"
	"time"
)

// Why says in one sentence why j stands where it stands. served is whether some process runs jobs in j's folder now.
func (j *Job) Why(now time.Time, served bool) string {
	stands := j.reason(now, served)
	switch {
	case served || j.Custody == None || j.Custody == User:
		return stands
	case j.Program():
		return stands + "; no pawl runs in this folder now: pawl run goes on with it"
	}
	return stands + "; no program runs in this folder now: start the one that handles " + j.Kind
}

func (j *Job) reason(now time.Time, served bool) string {
	switch j.Custody {
	case None:
		if j.Message != "" {
			return string(j.Code) + ": " + j.Message
		}
		return string(j.Code)
	case Gate:
		switch {
		case !j.Due.IsZero() && j.State != Waiting:
			return j.Message + ", due in " + max(0, j.Due.Sub(now)).Round(time.Second).String()
		case !j.Due.IsZero() && j.Due.Before(now):
			return "was due at " + j.Due.Local().Format(time.RFC3339)
		case !j.Due.IsZero():
			return "waits until " + j.Due.Local().Format(time.RFC3339)
		case j.Needs == 1:
			return "waits for the end of 1 other job"
		case j.Needs > 0:
			return "waits for the end of " + strconv.Itoa(j.Needs) + " other jobs"
		}
		switch key := LimitOf(j.Line); {
		case key == "":
			return "waits for its turn"
		case Ordered(key):
			return "waits for its turn in the order of " + OrderOf(key)
		case Sole(key) && key != j.Line:
			return "waits to be made ready for its turn among the jobs with its key"
		case Sole(key):
			return "waits until no other job with its key runs"
		case key != j.Line:
			return "waits to be made ready for its turn of " + key
		default:
			return "waits for its turn of " + key
		}
	case Ready:
		if j.Lane == LaneAlone {
			return "waits to run alone: the last " + strconv.Itoa(j.Suspect) + " processes that ran it died, and each process runs one such job at a time"
		}
		switch {
		case j.Program():
			return "waits for a process with a free slot"
		case served:
			return "waits for a free slot of a program that handles " + j.Kind
		}
		return "waits for a program that handles " + j.Kind
	case Worker:
		if !served {
			return "the process that worked on it is gone"
		}
		return "a process works on it"
	case Monitor:
		switch {
		case j.Wish == WishPause:
			return "its program is suspended"
		case !served:
			return "its program runs, or has ended meanwhile"
		}
		return "its program runs"
	case Recovery:
		return "blocked by " + string(j.Code) + ": " + j.Message
	}
	return j.Message
}
