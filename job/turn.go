package job

import (
	"slices"
	"time"
)

// The ties of a job that is under limits, after those of job.go. TieOrder, TieAhead and TieTurn
// stand for turns: see [Job.TurnKeys]. A job has all turns of a tie or none, except with TieKept.
const (
	TieLimited Ties = 8 << iota // it is under limits
	TieAhead                    // it has a place among the programs that are made ready
	TieTurn                     // it has its turns
	TieKept                     // it waits in a line, and has the turns of the same tie that come before it
	TieMet                      // a limit was set while a worker had it, and it has not changed since

	TieOrder // it is the job of its order that goes
	TiePass  // the jobs behind it go while it is in trouble

	tieTurns = TieAhead | TieTurn
)

// TurnKeys returns the keys of the turns that a tie stands for, sorted.
func (j *Job) TurnKeys(tie Ties) []string {
	switch tie {
	case TieOrder:
		return []string{j.Order}
	case TieAhead:
	default:
		return j.Limits
	}
	keys := make([]string, len(j.Limits))
	for i, k := range j.Limits {
		keys[i] = AheadOf(k)
	}
	return keys
}

// Lacks returns the tie that j must get before it goes on in state s; 0: none. A job in an order
// must first be the one that goes. A task then needs its turns before it runs. A program needs a
// place before it is made ready, and its turns before it is launched.
func (j *Job) Lacks(s State) Ties {
	switch {
	case j.Ties&TieLimited == 0, j.Live:
	case s != Waiting && s != Pending && s != SubmittingJob && !preparing(s):
	case j.Order != "" && j.Ties&TieOrder == 0:
		return TieOrder
	case len(j.Limits) == 0, preparing(s):
	case s == SubmittingJob, !j.Program() && (s == Waiting || s == Pending):
		return TieTurn &^ j.Ties
	case (s == Waiting || s == Pending) && j.Ties&TieTurn == 0:
		return TieAhead &^ j.Ties
	}
	return 0
}

// GivesBack reports whether c may give back turns: the job was under limits, and it does not go on
// to what it has the turns for.
func (c *Change) GivesBack() bool {
	return c.From.Limited && c.To != Worker && c.To != Monitor && c.From.Place.State != Archiving &&
		c.Last().State != SubmittingJob
}

// keep gives up the turns that j does not need in state s of a custody. Only a program that met a
// limit in the hands of its worker has both kinds of turns, and only while the worker makes it
// ready: see [Job.Under].
func (j *Job) keep(s State, custody Custody) {
	use := tieTurns
	both := j.Ties&tieTurns == tieTurns
	switch {
	case j.Live:
		if both {
			use = TieTurn
		}
	case s.Terminal(), s == Paused, s == Waiting, s == Archiving:
		use = 0
	case s == Blocked, j.Program() && s != SubmittingJob && s != Queued && s != Running:
		if !both || custody != Worker {
			use = TieAhead
		}
	case both:
		use = TieTurn
	}
	j.Ties &^= tieTurns &^ use
	if s.Terminal() {
		j.Ties &^= TieOrder
	}
}

// preparing reports whether a program is made ready in s.
func preparing(s State) bool { return s == ProcessingInputs || s == StagingInputs || s == StagingJob }

// pass lets the jobs behind j go while j is in trouble, and gives up the turns that they may need.
// A job whose results are archived stays the one that goes: it needs no turn to go on there.
func (j *Job) pass() {
	next := j.State
	switch {
	case j.Ties&TiePass == 0, j.Live:
		return
	case next == Paused, next == Blocked:
		next = j.Resume
	case next != Waiting || j.Due.IsZero():
		return
	}
	passed := *j
	if passed.Ties &^= TieOrder | tieTurns; passed.Lacks(next) == TieOrder {
		j.Ties = passed.Ties
	}
}

// enter sets the line in which j waits for its turn. There is none unless a turn is all that j
// lacks. A job that is in one of its lines stays there.
func (j *Job) enter(lacks Ties) {
	was := j.Line
	j.Line = ""
	if lacks == 0 || j.Custody != Gate || !j.Due.IsZero() || j.State == Waiting && j.Needs > 0 {
		return
	}
	keys := j.TurnKeys(lacks)
	if j.Line = keys[0]; slices.Contains(keys, was) {
		j.Line = was
	}
}

// InLine returns j with the line in which it waits. It is called for a new job, when the time of a
// job has come, and when its last prerequisite has ended. If j comes into a line, it waits for its
// turns since now.
func (j Job) InLine(now time.Time) Job {
	was := j.Line
	if j.enter(j.Lacks(j.State)); was == "" && j.Line != "" {
		j.Since = now
	}
	return j
}

// First returns the keys of the turns that a new job needs before it goes anywhere.
func (j *Job) First() []string {
	if len(j.Limits) == 0 && j.Order == "" {
		return nil
	}
	limited := *j
	limited.Ties = TieLimited
	return limited.TurnKeys(limited.Lacks(Pending))
}

// Entering returns a new job with its first turns, if all of them are free and the job waits for
// nothing else. Otherwise it returns j unchanged. free holds the keys that have a free turn.
func (j Job) Entering(free map[string]bool, now time.Time) Job {
	lacks := j.Lacks(Pending)
	if lacks == 0 || lacks == TieOrder && len(j.Limits) > 0 || j.Due.After(now) || j.Needs > 0 {
		return j
	}
	for _, key := range j.TurnKeys(lacks) {
		if !free[key] {
			return j
		}
	}
	j.Ties |= lacks
	return j
}

// withTurns are the ties that stand for turns.
var withTurns = [...]Ties{TieOrder, TieAhead, TieTurn}

// Turns returns the keys of all turns that j has.
func (j *Job) Turns() (keys []string) {
	for _, tie := range withTurns {
		if j.Ties&tie != 0 {
			keys = append(keys, j.TurnKeys(tie)...)
		}
	}
	return append(keys, j.Kept()...)
}

// Granted returns the change by which a job that waits in a line gets all turns that it lacks.
func Granted(j *Job) Change {
	s := j.State
	if s == Waiting {
		s = Pending
	}
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: Ready, Path: []Entry{{State: s}}}
	c.Set.Turns = j.Lacks(j.State)
	return c
}

// Moved returns j in a line. With kept it has the turns of the same tie that come before it.
func (j Job) Moved(line string, kept bool) Job {
	if line != j.Line {
		j.Line, j.Passed = line, j.Passed+1
	}
	if j.Ties &^= TieKept; kept {
		j.Ties |= TieKept
	}
	return j
}

// Returned returns the keys of the turns that the change from before to after gives back.
func Returned(before, after *Job) []string {
	var keys []string
	for _, tie := range withTurns {
		if before.Ties&tie != 0 && after.Ties&tie == 0 {
			keys = append(keys, before.TurnKeys(tie)...)
		}
	}
	if before.Ties&TieKept != 0 && after.Ties&(TieKept|before.Lacks(before.State)) == 0 {
		keys = append(keys, before.Kept()...)
	}
	return keys
}

// Kept returns the keys of the turns that j has already while it waits in a line for the others of
// the same tie.
func (j *Job) Kept() []string {
	if j.Ties&TieKept == 0 {
		return nil
	}
	keys := j.TurnKeys(j.Lacks(j.State))
	return keys[:slices.Index(keys, j.Line)]
}

// HasTurn reports whether j has a turn of key.
func (j *Job) HasTurn(key string) bool {
	for _, tie := range withTurns {
		if j.Ties&tie != 0 && slices.Contains(j.TurnKeys(tie), key) {
			return true
		}
	}
	return slices.Contains(j.Kept(), key)
}
