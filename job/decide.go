package job

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Next is the gate: it returns the place of a job that wants to go on in state s at the time now.
// What may keep the job in custody gate is its due time, its prerequisites, its turn or its moment.
// Submit, release, resume, retry and requeue all go through Next.
func Next(j *Job, s State, now time.Time) Place {
	switch {
	case preparing(s) && j.Lacks(s) != 0: // others passed it: it is made ready anew when it is its turn
		return Place{Waiting, Gate}
	case s != Waiting && s != Pending:
		if j.Lacks(s) != 0 || waitsForMoment(s) && !j.Live && j.Due.After(now) {
			return Place{s, Gate}
		}
		return Place{s, Ready}
	case j.Due.After(now) || j.Needs > 0 || j.Lacks(s) != 0:
		return Place{Waiting, Gate}
	}
	return Place{Pending, Ready}
}

// Divert changes where c goes, by the wish that stands on the row, and reports whether it did. c
// leaves custody worker or monitor; j is the row before the change.
//
// A cancel that was committed before an end wins over it. While a launch may still run, the job
// stays where the launch can be stopped: with the watcher in monitor, with the worker that claims
// the job again, or in recovery until the trouble is over that keeps it from being stopped.
func Divert(j *Job, c Change) (Change, bool) {
	if j.Wish == "" || c.To == j.Custody || (j.Custody != Worker && j.Custody != Monitor) {
		return c, false
	}
	last := *c.Last()
	if live := (j.Live || c.Set.Intent) && !c.Set.Over; live {
		if j.Custody == Monitor || c.To != Gate {
			return c, false
		}
		// Nobody would stop the launch while the job waits for another attempt: it goes back to a
		// worker instead, in the state it is in.
		c.Set.Retry = false
		last.State, last.Code = j.State, ""
		if n := len(c.Path); n > 1 {
			last.State = c.Path[n-2].State
		}
		return bend(c, last, Ready), true
	}
	switch {
	case j.Wish == WishCancel:
		c.Set.Retry = false
		return bend(c, canceled(j, last), None), true
	case j.Wish == WishPause && (c.To == Gate || c.To == Ready || c.To == Recovery):
		if last.State != Blocked {
			c.Set.Resume = last.State
		}
		return bend(c, paused(j, last), User), true
	}
	return c, false
}

// bend returns c with another end.
func bend(c Change, end Entry, to Custody) Change {
	c.Path = slices.Clone(c.Path)
	*c.Last(), c.To, c.Set.Block = end, to, nil
	return c
}

// canceled returns the end that a cancel makes of last.
func canceled(j *Job, last Entry) Entry {
	msg := "canceled" + wisher(j)
	switch {
	case last.Message != "":
		msg += "; " + last.Message
	case last.State == Finished || last.State == Failed || last.State == Archiving:
		msg += "; the work had already ended"
	}
	return Entry{State: Canceled, Code: CanceledByUser, Message: msg, Data: last.Data}
}

// paused returns the end that a pause makes of last.
func paused(j *Job, last Entry) Entry {
	msg := "paused" + wisher(j) + ": it goes on when it is resumed"
	if last.Message != "" {
		msg += "; before that: " + last.Message
	}
	return Entry{State: Paused, Message: msg, Data: last.Data}
}

func wisher(j *Job) string {
	if j.WishedBy == "" {
		return ""
	}
	return " by " + j.WishedBy
}

// Obey returns the change that a wish makes at once, and whether there is one. It is called with
// the row locked, and j carries the wish already. A job in custody worker or monitor obeys later:
// by [Divert], or when what runs has been stopped.
func Obey(j *Job, w Wish, now time.Time) (Change, bool) {
	c := Change{Job: j.ID, From: j.Guard(Fence{})}
	switch {
	case j.Custody == None, j.Custody == Worker, j.Custody == Monitor:
		return c, false
	case w == WishResume:
		if j.Custody != User {
			return c, false
		}
		p := Next(j, j.Resume, now)
		c.Path, c.To = []Entry{{State: p.State}}, p.Custody
		return c, true
	case j.Live:
		// A launch may still run: the worker that claims the job finds out and stops it.
		if j.Custody != Recovery {
			return c, false
		}
		c.Path, c.To = []Entry{{State: j.Resume}}, Ready
		return c, true
	case w == WishCancel:
		last := Entry{State: j.State}
		if j.State == Archiving {
			last.Message = j.Message
		}
		c.Path, c.To = []Entry{canceled(j, last)}, None
		return c, true
	case w == WishPause && j.Custody != User:
		c.Set.Resume = j.State
		if j.State == Blocked {
			c.Set.Resume = j.Resume
		}
		c.Path, c.To = []Entry{paused(j, Entry{})}, User
		return c, true
	}
	return c, false
}

// Unmet returns the change that cancels a job because its prerequisite did not end as needed.
func Unmet(j, prerequisite *Job) Change {
	return Change{Job: j.ID, From: j.Guard(Fence{}), To: None, Path: []Entry{{
		State: Canceled, Code: PrerequisiteFailed,
		Message: "prerequisite " + prerequisite.Name + " (" + prerequisite.ID.String() + ") ended " +
			string(prerequisite.State),
	}}}
}

// Abandon returns the change by which a cancel with force ends j at once, in any custody. j has not
// ended and carries the wish already. If something of it may still run, it ends with the code
// [Abandoned], and the message says what and where. Otherwise it ends like any cancel.
func Abandon(j *Job) Change {
	last := Entry{State: j.State}
	if j.State == Archiving {
		last.Message = j.Message
	}
	end := canceled(j, last)
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: None}
	switch {
	case j.Live:
		c.Set.Over = true
		end.Code, end.Message = Abandoned, "abandoned"+wisher(j)+": launch "+strconv.Itoa(j.Launch)
		if system, _, apart := strings.Cut(j.Watch, "/"); apart {
			end.Message += " on system " + system
		} else if j.Machine != "" {
			end.Message += " on machine " + j.Machine
		}
		end.Message += " may still run"
	case j.Custody == Worker && !j.Program():
		end.Code, end.Message = Abandoned, "abandoned"+wisher(j)+": its handler may still run, in session "+
			j.Session.String()
	}
	c.Path = []Entry{end}
	return c
}

// Expired returns the change that takes j from a session that died. crashed is false if the session
// ended in good order. If a program was launched, the worker that claims the job next finds it
// again. A job ends here after too many crashes: see [PoisonAt] and [MaxRecoveries].
func Expired(j *Job, crashed bool) Change {
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: Ready}
	e := Entry{State: j.State}
	if !j.Program() {
		e.State = Pending
	}
	if crashed {
		e.Message = "the process that ran it died"
		c.Set.Recovery, c.Set.Crash = true, true
	} else {
		e.Message = "the process that ran it gave it back"
	}
	switch {
	case !crashed || j.Live:
	case j.Suspect+1 >= PoisonAt:
		c.To = None
		e = Entry{State: Failed, Code: Poison, Message: "each of the last " + strconv.Itoa(j.Suspect+1) +
			" processes that ran it died, and in " + strconv.Itoa(PoisonAt-AloneAt) +
			" of them it was the only suspect; see its history"}
	case j.Recoveries+1 > MaxRecoveries:
		c.To = None
		e = Entry{State: Failed, Code: RecoveryLimit, Message: "interrupted by crashes too often; see its history"}
	}
	c.Path = []Entry{e}
	return c
}

// MaxRecoveries is how often a job may be interrupted, by crashes and blocks, over all its
// attempts. It is large on purpose: it ends a job that would go round for ever, not one that has a
// bad week.
const MaxRecoveries = 1000

// Retry returns the change after a failed attempt: another attempt after a backoff while there is
// one left, FAILED otherwise. e says what failed. rnd is a random number in [0, 1) for the jitter.
func Retry(j *Job, f Fence, p RetryPolicy, e Entry, rnd float64) Change {
	c := Change{Job: j.ID, From: j.Guard(f)}
	if j.Attempt >= j.MaxAttempts {
		e.State = Failed
		c.Path, c.To = []Entry{e}, None
		return c
	}
	c.Set.Retry = true
	c.Set.Delay = p.Backoff.Delay(j.Attempt, rnd)
	e.State, c.To = Waiting, Gate
	if c.Set.Delay <= 0 {
		e.State, c.To = Pending, Ready
	}
	c.Path = []Entry{e}
	return c
}

// Snooze returns the change that makes a task wait for d, in the same attempt.
func Snooze(j *Job, f Fence, e Entry, d time.Duration) Change {
	c := Change{Job: j.ID, From: j.Guard(f), To: Gate}
	c.Set.Delay = min(d, MaxDelay)
	if e.State = Waiting; d <= 0 {
		e.State, c.To = Pending, Ready
	}
	c.Path = []Entry{e}
	return c
}

// Delay returns how long to wait after an attempt, counted from 1, before the next one.
// [Spec.RetryPolicy] has filled in the defaults of b. rnd is a random number in [0, 1) for the
// jitter.
func (b Backoff) Delay(attempt int, rnd float64) time.Duration {
	d := float64(b.Base)
	switch b.Kind {
	case BackoffLinear:
		d *= float64(attempt)
	case BackoffExponential:
		d *= math.Pow(2, float64(attempt-1))
	}
	if limit := float64(b.Max); limit > 0 && d > limit {
		d = limit
	}
	d = min(d, float64(MaxDelay))
	if b.Jitter {
		d *= rnd
	}
	return time.Duration(d)
}

// A Debt is something that a change owes to other jobs. It is written with the change and paid
// right after it.
type Debt string

// The debts.
const (
	DebtDependants Debt = "dependants" // jobs that wait for the end of this one must be told
	DebtTurns      Debt = "turns"      // free turns of a key must go to the jobs that wait for them
)

// An Owed is one debt of a change.
type Owed struct {
	Debt Debt
	Key  string // of DebtTurns: the key
}

// Owes returns what the change from before to after owes to other jobs. It is nil for a plain task.
func Owes(before, after *Job) []Owed {
	if before.Ties|after.Ties == 0 && after.Line == "" {
		return nil
	}
	var owed []Owed
	if after.Ties&TieDependants != 0 && after.State.Terminal() && !before.State.Terminal() {
		owed = append(owed, Owed{Debt: DebtDependants})
	}
	for _, key := range Returned(before, after) {
		owed = append(owed, Owed{DebtTurns, key})
	}
	if after.Line != "" && after.Line != before.Line {
		owed = append(owed, Owed{DebtTurns, after.Line})
	}
	return owed
}

// A Need says which end of a prerequisite is good enough.
type Need string

// The needs.
const (
	NeedFinished Need = "finished" // FINISHED; any other end cancels the job that waits
	NeedEnded    Need = "ended"    // any end
)

// Met reports whether an end in state s is good enough.
func (n Need) Met(s State) bool { return n == NeedEnded || s == Finished }

// A UniqueMode says how long a job holds its unique key. The job takes the key at its submission.
// Once it has given up the key, it never takes it again.
type UniqueMode string

// The modes.
const (
	UntilStart   UniqueMode = "start"   // until it is claimed for the first time
	UntilDone    UniqueMode = "done"    // until it has ended
	WhileRunning UniqueMode = "running" // in a spec: a limit of 1, so that equal jobs never run at once
)

// Releases returns the modes of the unique keys that the change from before to after gives up.
func Releases(before, after *Job) []UniqueMode {
	var modes []UniqueMode
	done := after.State.Terminal() && !before.State.Terminal()
	start := after.Custody == Worker && before.Custody != Worker
	if after.Ties&TieUniqueStart != 0 && (start || done) {
		modes = append(modes, UntilStart)
	}
	if after.Ties&TieUniqueDone != 0 && done {
		modes = append(modes, UntilDone)
	}
	return modes
}

// Apply returns the row that c makes of j, and the path as it goes into the history. Guard and
// fence have been checked before, and a wish has changed c with [Divert]. A store writes what Apply
// returns, and decides nothing itself.
func (j Job) Apply(c Change, now time.Time) (Job, []Entry) {
	if c.Reports() {
		j.Work = c.Work
		return j, nil
	}
	c.Path = Plain(c.Path)
	if c.Set.Delay > 0 {
		j.Due = now.Add(c.Set.Delay)
	}
	if c.Set.Retry {
		j.Ties &^= tieTurns // a new attempt takes its place in line like others
	}
	switch c.Set.Turns {
	case 0:
	case TieOrder: // beside its other turns
		j.Ties |= TieOrder
	default:
		j.Ties = j.Ties&^(tieTurns|TieKept) | c.Set.Turns
	}
	if c.Set.Intent {
		j.Launch++
		j.Live = true
	}
	if c.Set.Over {
		j.Live = false
	}
	limited := j.Ties&TieLimited != 0
	if limited {
		j.Ties &^= TieMet
		j.keep(c.Last().State, c.To)
		if b := c.Set.Block; b != nil && b.Apart && !j.Live {
			j.Ties &^= TieAhead
		}
	}
	if c.To == Gate || c.To == Ready {
		// The gate has the last word on where a job waits.
		p := Next(&j, c.Last().State, now)
		if p.State != c.Last().State {
			end := *c.Last()
			end.State = p.State
			c = bend(c, end, p.Custody)
		}
		c.To = p.Custody
	}
	if c.To != j.Custody {
		j.Epoch++
		j.Session, j.Claim, j.Since = c.Set.Session, c.Set.Claim, now
	}
	j.Place = c.Target()
	last := c.Last()
	j.N += int64(len(c.Path))
	j.Code, j.Message = last.Code, last.Message
	j.Resume, j.Group, j.Until = "", "", time.Time{}
	if j.State == Blocked || j.State == Paused {
		j.Resume = c.Set.Resume
	}
	if j.State == Blocked && c.Set.Block != nil {
		j.Group = c.Set.Block.Group(j.Tenant)
		if wait := c.Set.Block.Wait(); wait > 0 {
			j.Until = now.Add(wait)
		}
	}
	if c.Set.Retry {
		j.Attempt++
	}
	if c.Set.Recovery {
		j.Recoveries++
	}
	if c.Set.Crash {
		j.Suspect++
	}
	if c.Set.Clear {
		j.Suspect = 0
	}
	j.Lane = LaneOf(j.State, j.Program(), j.Suspect)
	if c.Set.Resolved != nil && j.Resolved == nil {
		j.Resolved = c.Set.Resolved
	}
	if c.Set.Result != nil {
		j.Result = c.Set.Result
	}
	if c.Work != nil {
		j.Work = c.Work
	}
	switch {
	case j.State.Terminal():
		j.Ended, j.Wish, j.Due = now, "", time.Time{}
	case j.State == Paused:
		j.Wish = ""
		if j.Resume != Waiting { // it asks for its moment again
			j.Due = time.Time{}
		}
	case j.Custody != Gate:
		j.Due = time.Time{}
	}
	if limited {
		if !j.Due.After(now) {
			j.Due = time.Time{}
		}
		j.keep(j.State, j.Custody)
		j.pass()
		if j.enter(j.Lacks(j.State)); j.Line == "" {
			j.Ties &^= TieKept
		}
	}
	return j, c.Path
}
