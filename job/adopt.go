package job

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// BuiltIn reports whether key begins like the keys that every job has by itself, such as "tenant"
// or "user/ada". A family of such keys counts too. See [Job.Keys].
func BuiltIn(key string) bool {
	first, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{limitTenant, limitUser, limitKind, limitSystem}, first)
}

// OwnKeys returns the keys that j has by itself: those of [Job.Keys], for the system and the
// partition that its request names.
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

// Under puts j, which has not ended, under further keys because limits were set for them. It
// returns the row as it is then, the keys of the turns that the job gets at once, and for a job
// that has not begun the change that sends it back to the gate.
//
// Nothing is stopped. A job that is under way gets turns of the new keys, even beyond their limits.
// So does a program in the hands of a worker, because its worker may not know of the limit and may
// go on to the launch. A job that has turns and goes on gets those of the new keys too, because a
// job has all turns of a tie or none.
//
// A job has not begun if it is ready, or if it waits in the gate with turns that it does not use
// yet. back, a change of the row that is returned, puts such a job into the line for its turn. A
// job that waits for its moment enters the line when the moment has come. It gives back the turns
// of its other keys.
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
	j.enter(j.Lacks(j.State)) // another line at most: a job that was in none does not enter one
	turns = slices.DeleteFunc(j.Turns(), func(key string) bool { return slices.Contains(had, key) })
	if j.Custody == Worker && len(turns) > 0 {
		j.Ties |= TieMet
	}
	return j, turns, nil
}

// Unused reports whether j has turns although nothing of it has begun.
func (j *Job) Unused() bool {
	return !j.Live && (j.Custody == Ready || j.Custody == Gate) && j.Ties&(tieTurns|TieKept) != 0
}

// underWay returns the ties that a job without limits would have if it had got its turns as others
// do. A program that a worker makes ready has two: it has a place among those that are made ready,
// and it will be launched.
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
