package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// BuiltIn reports whether jobs stand under a key, or keys of a family, by themselves: see
// [Job.Keys].
func BuiltIn(key string) bool {
	first, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{limitTenant, limitUser, limitKind, limitSystem}, first)
}

// OwnKeys returns the keys of [Job.Keys], as the request of j says.
func (j *Job) OwnKeys() []string {
	var asked struct {
		System    string
		Resources struct{ Partition string }
	}
	if j.Program() {
		json.Unmarshal(j.Request, &asked) //nolint:errcheck // it was read when it was submitted
	}
	return j.Keys(cmp.Or(asked.System, SystemLocal), asked.Resources.Partition)
}

// Under returns j, which has not ended, as it stands under more keys, because limits were set for
// them while it was there.
//
// Nobody is thrown out. What is under way gets its turns, whatever the limits say: their keys are
// answered. So does a program in the hands of a worker, who may know nothing of the limit and go on
// to its launch. A job that has turns, and whose work goes on, gets those of the new keys, too: it
// has all of a group or none.
//
// Nothing has begun of a job that is ready to run, to be made ready or to be launched, nor of one
// that waits in the gate with turns, for its moment or for other turns. For it back is the change,
// of the job that is answered, by which it goes to the line for its turn, or does when its moment
// has come; turns of other keys it gives back.
func (j Job) Under(keys []string) (under Job, turns []string, back *Change) {
	had := j.Turns()
	if len(j.Limits) == 0 {
		j.Ties |= TieLimited | j.underWay()
	}
	j.Limits = slices.Compact(slices.Sorted(slices.Values(slices.Concat(j.Limits, keys))))
	bare := j
	bare.Ties &^= tieTurns
	if (j.Custody == Ready || j.Unused()) && bare.Lacks(j.State) != 0 {
		e := Entry{State: j.State, Message: "a limit was set for " + strings.Join(keys, ", ")}
		if e.State == Pending {
			e.State = Waiting
		}
		back = &Change{Job: j.ID, From: j.Guard(Fence{}), To: Gate, Path: []Entry{e}}
		back.Set.Turns = TieLimited // it is, and has none
		return j, nil, back
	}
	j.enter(j.Lacks(j.State)) // another line at most: nobody who was in none comes into one
	turns = slices.DeleteFunc(j.Turns(), func(key string) bool { return slices.Contains(had, key) })
	if j.Custody == Worker && len(turns) > 0 {
		j.Ties |= TieMet
	}
	return j, turns, nil
}

// Unused reports whether j has turns while nothing of it has begun.
func (j *Job) Unused() bool {
	return !j.Live && (j.Custody == Ready || j.Custody == Gate) && j.Ties&(tieTurns|TieKept) != 0
}

// underWay returns the ties that a job which knew no limits would have, had it come by its turns as
// others do. Of a program that a worker makes ready these are two: it is one of those that are made
// ready, and it will be launched.
func (j *Job) underWay() Ties {
	switch {
	case j.Live:
		return TieTurn
	case j.Custody != Worker, j.State == Archiving:
		return 0
	case j.Program() && j.State != SubmittingJob:
		return TieAhead | TieTurn
	}
	return TieTurn
}
