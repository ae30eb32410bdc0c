package store

import (
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A limit that is set for a key on which none decided takes in the jobs that are there: those which
// stand under the key by themselves, as [job.Job.OwnKeys] says, and were submitted when that meant
// nothing; and those that have turns of the key, which meant nothing either, and of which nothing
// has begun. It is a walk along the jobs of the tenant that have not ended, and is owed with the
// limit: [Jobs].Pay goes on with it, a step at a time, and whoever finds it after a crash goes on
// from where it is. Jobs that are submitted meanwhile are under the limit already.
//
// Until it has taken in all, the limit lets nobody go: there are never more than it says, beside
// those who were under way. The end of the walk owes a look at its lines.
//
// One walk serves all limits of a tenant: each step takes its jobs in under every key on which a
// limit decides by then.

// mostWalked is how many jobs one step of a walk looks at.
const mostWalked = 1000

// Walked returns how many jobs a step of a walk looks at where limit rows are to be paid: it leaves
// as many for the other debts, for a walk is long and they are short.
func Walked(limit int) int { return min((limit+1)/2, mostWalked) }

// Uncounted returns the keys under which a walk puts a job: those under which it stands by itself,
// on which a limit decides, and which do not count for it yet; and those of which it has turns that
// it does not use, and on which a limit decides that walks.
func Uncounted(j *job.Job, decides, walks func(key string) bool) []string {
	keys := slices.DeleteFunc(j.OwnKeys(),
		func(key string) bool { return slices.Contains(j.Limits, key) || !decides(key) })
	if !j.Unused() {
		return keys
	}
	for _, key := range j.Limits {
		if walks(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// A Span is some keys that follow each other: From, and those before To.
type Span struct{ From, To string }

// Spans returns the keys on whose turns a limit would decide. Of a family these are more: all that
// begin as they do.
func Spans(key string) []Span {
	from, to := key, key+"\x01" // no key has that
	if prefix, family := strings.CutSuffix(key, "/*"); family {
		from, to = prefix+"/", prefix+"0" // which comes after the slash
	}
	return []Span{{from, to}, {job.AheadOf(from), job.AheadOf(to)}}
}
