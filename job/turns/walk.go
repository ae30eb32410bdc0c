package turns

import (
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// A new limit takes in the jobs that are there already. Where no limit decided on a key until now,
// jobs may stand under it without counting for it: they were submitted when the key meant nothing.
// Others may have turns of it that no limit asked for.
//
// The store finds them in a walk along all living jobs of the tenant, some at a time. Each step is
// a payment of follow-ups, so after a crash another process goes on where the last step ended. New
// jobs are under the limit from the start. Until the walk has ended the limit grants nothing: so
// there are never more turns than it allows, beside those of jobs that already run.
//
// All new limits of a tenant share one walk: a step takes its jobs in under each of them.

// maxWalked is how many jobs one step of a walk looks at.
const maxWalked = 1000

// WalkSize returns how many jobs one step of a walk looks at, in a payment of up to limit
// follow-ups. A walk is long and other follow-ups are short: they keep half of the payment.
func WalkSize(limit int) int { return min((limit+1)/2, maxWalked) }

// NewKeys returns the keys under which a walk puts j. These are its own keys ([job.Job.OwnKeys])
// that a limit decides on, if j does not count for them yet; and, if j has turns that it does not
// use yet, those of its keys whose limit still walks.
//
// For example: j runs on the system "gpu", and a limit of that system is set only now. Then its key
// "system/gpu" is new.
func NewKeys(j *job.Job, decides, walks func(key string) bool) []string {
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

// A Range is all keys from From on, up to but without To.
type Range struct{ From, To string }

// Ranges returns the keys that the limit of key decides on: the key itself, or all keys of a family
// such as "user/*", and the keys of the places ahead of these ([job.AheadOf]).
func Ranges(key string) []Range {
	from, to := key, key+"\x01" // no key has that
	if prefix, family := strings.CutSuffix(key, "/*"); family {
		from, to = prefix+"/", prefix+"0" // which comes after the slash
	}
	return []Range{{from, to}, {job.AheadOf(from), job.AheadOf(to)}}
}
