package checks

import (
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Poisoned reports whether a job, by its history, was rightly found to be what kills its processes.
// Nothing tells a job that does from one that is at work whenever a process is killed, so here it
// is enough that the rule was kept: its process died as often as it takes, and no step of it came
// to its end in between. A worker that gives it back, for it has to stop or the job to wait for its
// turn or its moment, proves nothing. A death that also fulfils a wish says both, the wish first.
func Poisoned(history []store.Event) bool {
	expired := job.Expired(&job.Job{}, true)
	died := expired.Last().Message
	crashes := 0
	var before job.Event
	for _, e := range history {
		switch stepped := e.State != before.State || e.Custody != before.Custody; {
		case e.Code == job.Poison, e.Cause == job.CauseExpired && strings.HasSuffix(e.Message, died):
			crashes++
		case (e.Custody == job.Ready || e.Custody == job.Gate) && e.Code == "" &&
			(e.State == before.State || e.State == job.Pending || e.State == job.Waiting): // given back
		case e.Cause == job.CauseWork && stepped: // one that a wish turned may have been broken off, which proves nothing
			crashes = 0
		}
		before = e.Event
	}
	return crashes >= job.PoisonAt
}
