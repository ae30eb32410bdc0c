package store

import (
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// A limit that is set for a key on which none decided takes in the jobs that are there: those which stand under the key by
// themselves, as [job.Job.OwnKeys] says, and were submitted when that meant nothing. It is a walk along the jobs of the tenant that
// have not ended, and is owed with the limit: [Jobs].Pay goes on with it, a step at a time, and whoever finds it after a crash goes on
// from where it is. Jobs that are submitted meanwhile are under the limit already.
//
// Until it has taken in all, the limit lets nobody go: there are never more than it says, beside those who were under way. The end
// of the walk owes a look at its lines.
//
// One walk serves all limits of a tenant: each step takes its jobs in under every key on which a limit decides by then.

// mostWalked is how many jobs one step of a walk looks at.
const mostWalked = 1000

// Walked returns how many jobs a step of a walk looks at where limit rows are to be paid: it leaves as many for the other debts,
// for a walk is long and they are short.
func Walked(limit int) int { return min((limit+1)/2, mostWalked) }

// Uncounted returns the keys under which a job stands by itself, on which a limit decides, and which do not count for it yet.
func Uncounted(j *job.Job, decides func(key string) bool) []string {
	return slices.DeleteFunc(j.OwnKeys(), func(key string) bool { return slices.Contains(j.Limits, key) || !decides(key) })
}
