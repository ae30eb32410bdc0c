package checks

import (
	"slices"
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
		// one that a wish diverted may have been broken off, which proves nothing
		case e.Cause == job.CauseWork && stepped:
			crashes = 0
		}
		before = e.Event
	}
	return crashes >= job.PoisonAt
}

// Deadly reports whether a job was found to be what kills the watchers that look at its ends. A job
// that a watcher looked at whenever it was killed is found so, too.
func Deadly(history []store.Event) bool {
	return slices.ContainsFunc(history, func(e store.Event) bool {
		const said = "looks at what the program left have killed the process that looked"
		return strings.Contains(e.Message, said) || strings.Contains(string(e.Data), said)
	})
}
