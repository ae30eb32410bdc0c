// Package store is the contract for the database that holds the jobs. Its methods are transactions
// of the domain, not queries.
//
// Every call is one transaction and takes many jobs at once. Every call can be repeated, since it
// may have been committed although its answer was lost; therefore callers make the ids. Times that
// decide anything are those of the database's clock.
//
// What a call means for others comes back as [Effects]: where there are ready jobs now, follow-ups
// to pay, a time to wake at. Effects are hints. To lose them costs a delay, and never a job.
//
// Errors have a kind of package job. Invalid and Conflict blame the request. Fenced says that a
// session or a duty is not alive any more. Unavailable says that the same call may succeed later.
// Closed follows Close. All methods are safe for concurrent use.
//
// Package job decides what jobs do, job/turns who gets a turn under a limit, and job/groups when
// blocked jobs go on. A store reads the rows for these decisions under its locks, and writes what
// was decided. Package storetest is the test suite that every store passes.
package store

import (
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Store is a database of jobs.
type Store interface {
	Jobs
	Leases
	Reader
	Resources
	Limits
	Groups

	// Close waits for calls that are under way and releases the database. It can be called again.
	Close() error
}

// Jobs writes jobs. Apply takes the changes of workers and watchers. The other methods make changes
// from rows that they have locked.
type Jobs interface {
	// Submit inserts jobs with their first event, all or none. If a job already has the idempotency
	// key, the external id or a unique key of a submission, the answer is that job. If its request
	// differs, the idempotency key and the external id are a Conflict. A repetition with the same
	// job id returns the same job. The id of another tenant's job is a Conflict.
	Submit(context.Context, Submission) ([]Submitted, Effects, error)

	// Claim moves ready jobs into the custody of a session and returns them. In the same
	// transaction it locks the session and checks its lease by the database's clock: the error is
	// Fenced if the session is not alive. A repetition with the same id returns the same jobs,
	// without those that have moved on; if all have moved on, it claims others. Without queues or
	// kinds it claims nothing. A session that was told to drain or to stop claims nothing either. A
	// job may be started only after Claim has returned. If a program is claimed for its launch, the
	// claim is also the intent to launch it: see [job.Claim].
	Claim(context.Context, Claim) ([]job.Job, error)

	// Apply makes changes, and answers each by its index. A job may appear only once. A session may
	// change the jobs that it holds, and a duty those in custody monitor and recovery. With any
	// other fence the outcome is Fenced. The repetition of an equal change gets the first answer
	// again. A different change with the same id is a Conflict or Fenced. An error means that no
	// change was made. Unless it is Unavailable or Closed, one of the changes is to blame; the
	// caller finds it by halving.
	//
	// With along it then claims, as Claim does, in the same transaction. It can claim the jobs that
	// the changes made ready or gave turns to. If slots are few, jobs that were ready before may
	// come first. If the changes made jobs ready that were not claimed, Effects.Ready has their
	// queues and kinds. A repetition with the same claim gets both answers again. A session that is
	// not alive claims nothing, and that is no error here.
	Apply(ctx context.Context, changes []job.Change, along *Claim) ([]Applied, []job.Job, Effects, error)

	// Wish writes down what a person wants of jobs. It carries the wish out at once for jobs that
	// no worker and no watcher holds. It answers each job by its index; for an unknown job
	// [Wished.Err] is NotFound.
	Wish(context.Context, Wish) ([]Wished, Effects, error)

	// Annotate changes labels, notes and visibility of jobs. It answers each job by its index:
	// NotFound, Invalid, or Conflict if it should hide a job that has not ended.
	Annotate(context.Context, Annotation) ([]error, error)

	// AddEvent writes an event of a user, or of the job itself, into a job's history. It is a
	// Conflict if the job has ended, if Launch or Epoch is not the one that runs, or if the job
	// already has [job.MaxJobEvents]. If an event of the job has the same key, nothing is written:
	// the answer is that event, also after the end of the job, or a Conflict if it says something
	// else. If the job is ready, Effects.Ready is its queue and kind, even with a Conflict: a claim
	// at the same moment may have passed over the job.
	AddEvent(context.Context, NewEvent) (Event, Effects, error)

	// Remove deletes jobs that have ended, with all that the database knows of them. It answers
	// each job by its index: NotFound, or Conflict if the job has not ended or still owes something
	// to others.
	Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error)

	// Due moves up to limit jobs whose time has come, and returns how many. It lets jobs out of
	// their schedule gate. It lets jobs of a clear group go when their moment comes. It fails jobs
	// of other groups that have waited too long. Effects.Due is the next time at which a job is
	// due.
	Due(ctx context.Context, limit int) (int, Effects, error)

	// Pay pays up to limit follow-ups, oldest first, and returns how many. It counts at least one
	// if it found follow-ups that were not needed any more. Effects.Owed says whether more are
	// left. If it returns 0 and more are left, others are paying them now.
	//
	// Only Pay gives free turns to the jobs that wait for them, as [turns.Keys.Hand] decides; for
	// each tenant one call at a time does that. If a new limit takes in jobs that are already
	// there, Pay does the next step. It also closes and opens the lines of groups.
	Pay(ctx context.Context, limit int) (int, Effects, error)

	// Expire closes sessions whose lease is over, and takes up to limit jobs from sessions that are
	// not alive. It returns how many it took; fewer than limit means that none is left.
	//
	// A process may have died between a commit and its effects. So if Expire closed a session, even
	// one without jobs, Effects cover all jobs: where there are ready jobs, up to MostUnserved,
	// whether something is owed, and when the first job is due.
	Expire(ctx context.Context, limit int) (int, Effects, error)

	// Recount looks for counts that are wrong, which happens only if something is broken, and
	// corrects up to limit of each kind. It compares counts of prerequisites with their rows, turns
	// with the jobs that have them, and lines with the follow-ups that are owed to them.
	Recount(ctx context.Context, limit int) (Recounted, Effects, error)
}

// Recounted is how much was wrong.
type Recounted struct {
	Needs int // counts of prerequisites
	Turns int // turns whose jobs are gone or do not need them
	Lines int // lines in which a job waits although a turn is free and no follow-up gives it
}

// Leases holds sessions and duties. A process that works has one session for all its jobs.
type Leases interface {
	// Begin opens a session. The caller makes a new random id for it. Begin can be repeated while
	// the session lives.
	Begin(context.Context, Session) error

	// Renew is the heartbeat of a session. It extends the lease, and returns all that the process
	// must know. The error is Fenced if the session has ended or expired.
	//
	// Renew gives a duty to a session that wants it if no live session holds it. It also moves a
	// duty from a session that was told to drain or to stop to one that was not.
	Renew(context.Context, Renew) (Renewal, error)

	// SetMode sets the mode of a session. The session hears it with its next renewal, and is in
	// Effects.Held, so that it renews at once. It is NotFound if there is no such session. It is a
	// Conflict if the session has ended, or if it is to stop and m is another mode. It can be
	// repeated.
	SetMode(ctx context.Context, session job.ID, m Mode) (Effects, error)

	// End closes a session in good order, even if its lease has run out. It gives the jobs that the
	// session holds back as if they had never been claimed. It can be repeated.
	End(ctx context.Context, session job.ID) (Effects, error)

	// Clear takes the suspicion from jobs that a process held when it lost its lease. The process
	// is alive, so the jobs did not kill it. A job is cleared, as [job.Job.Cleared] says, if expiry
	// took it from the process and it has not been released since. All other jobs stay as they are,
	// and unknown ones are ignored. Clear needs no session, raises no epoch, writes no history, and
	// can be repeated. Effects.Ready has the queues and kinds of ready jobs that it moved to
	// another lane.
	Clear(ctx context.Context, lost []Lost) (Effects, error)
}

// Reader reads. Overdue, Sessions, Unattended and Demand see all tenants. So does Find, unless its
// query names one. The other methods see one tenant.
type Reader interface {
	// Find returns the jobs that a query names, in any order. [FindJob] finds one job of a tenant.
	Find(ctx context.Context, q FindQuery) ([]job.Job, error)
	// List returns a page of jobs. The jobs come without Request, Resolved, Work and Notes; only
	// programs come with Result, which is small for them. Pages are stable under inserts: a job is
	// on exactly one page, unless the value by which the list is sorted changes meanwhile.
	// [job.Filter] says what each term of a filter means, and how far back it looks.
	List(ctx context.Context, q Query) (Page, error)
	// Count counts the jobs that a filter chooses, by state.
	Count(ctx context.Context, tenant string, f job.Filter) (Counts, error)
	// Events returns events in the order in which they were committed. A cursor never passes a
	// transaction that is still open, so a reader that follows cursors misses nothing. A cursor
	// that is newer than the database is Invalid: its reader would miss events until the database
	// has caught up.
	Events(ctx context.Context, q EventQuery) (Events, error)
	// Overdue returns jobs, hidden ones too, that ended so long ago by the database's clock that
	// they need not be kept. It leaves out jobs that still owe something to others. They come by
	// tenant, then by state, in the order of their ends. It reads about as many rows as it returns,
	// however many jobs there are.
	Overdue(ctx context.Context, q OverdueQuery) (Overdue, error)
	// Sessions returns the sessions that have not ended and those that ended within SessionKept,
	// newest first. If a machine has none of these, it also returns the one that ended last there,
	// if that was within MachineKept.
	Sessions(ctx context.Context) ([]SessionInfo, error)
	// Unattended returns the work that waits for a process that is missing. It reads at most the
	// first MostUnserved jobs of each queue and kind, and of each machine.
	Unattended(ctx context.Context) (Unattended, error)
	// Demand returns, for each lane in which c has slots, how many ready jobs c could claim, and
	// the live sessions that may claim some of them too, c's own among them. It ignores [Claim.ID]
	// and [Claim.Jobs].
	Demand(ctx context.Context, c Claim) (map[job.Lane]Demand, error)
}

// Limits holds jobs back until they have turns. A job under limits waits in custody gate until it
// has a turn of each of its keys. It gives them back with the change after which it does not need
// them. Turns are rows, so no counter can be wrong.
type Limits interface {
	// ChangeLimit sets or removes the limit of a key, or of a family of keys. key is that of the
	// limit; to is nil to remove it. See [SetLimit] and [RemoveLimit].
	//
	// A new limit holds from the next turn on, and stops no running job. If the keys had no limit
	// before, it takes in the jobs that are under them already, as [turns.NewKeys] says. It grants
	// nothing until Pay has finished that: Effects.Owed. A job that begins before Pay comes to it,
	// for it had all other turns that it needs, counts as one that runs.
	//
	// It is NotFound to remove a limit that is not set. When the limit of a key is removed and its
	// family has a rate, that rate counts as newly set.
	ChangeLimit(ctx context.Context, tenant, key string, to *job.Limit) (Effects, error)
	// Limits returns the limits of a tenant, sorted by key.
	Limits(ctx context.Context, tenant string) ([]job.Limit, error)
	// Turns returns the use of keys, sorted by key: how many turns each owner has, and how many
	// jobs wait.
	Turns(ctx context.Context, q TurnQuery) ([]Turns, error)
	// Behind counts the jobs of the same tenant that stand before a job where it waits, up to
	// limit. In the line of a limit these are jobs of the same owner. In the line of an order they
	// are all jobs. For a ready job they are those of its queue, kind, machine and lane that are
	// claimed first. For a blocked job they are those of its group that were blocked first, of any
	// owner. For every other job it is 0.
	Behind(ctx context.Context, j *job.Job, limit int) (int, error)

	// Reserve gives moments of keys that have a rate, [job.Limit.Every] apart, in the order of the
	// asks. It answers each ask by its index. A moment is given once, to any process that asks. A
	// moment that is not used is lost, and nothing needs repair. A rate that is set or removed
	// holds at once.
	//
	// A caller with a moment further away than [job.MaxSlotWait] asks again before it uses it, and
	// gets another one then. When any rate of a tenant changes, the jobs that wait in custody gate
	// for their moments come out of it.
	Reserve(ctx context.Context, tenant string, asks []Ask) ([]Reserved, error)
	// Moments returns when the next moments are free, for the keys that have a rate and gave
	// moments, sorted by key.
	Moments(ctx context.Context, q TurnQuery) ([]Moments, error)
}

// SetLimit sets the limit of l.Key.
func SetLimit(ctx context.Context, s Limits, tenant string, l job.Limit) (Effects, error) {
	return s.ChangeLimit(ctx, tenant, l.Key, &l)
}

// RemoveLimit removes a limit. The error is NotFound if there is none.
func RemoveLimit(ctx context.Context, s Limits, tenant, key string) (Effects, error) {
	return s.ChangeLimit(ctx, tenant, key, nil)
}

// A TurnQuery asks for the use of keys.
type TurnQuery struct {
	Tenant string
	Key    string // empty: all keys that are in use or that jobs wait for
	Limit  int    // 1 to 1000 keys; 100 by default
	After  string // only keys after this one
	// Holders is how many of the jobs that have a turn of Key are named. Default: none.
	Holders int
}

// Turns is the use of a key.
type Turns struct {
	Key    string
	Limit  *job.Limit // the limit that holds: its own, or that of its family; nil: none
	Shut   bool       // a blocked group closes the line; then Limit says how many jobs may go
	Owners []Share
	// Holders are jobs that have a turn, grouped by owner; see [TurnQuery].
	Holders []job.ID
}

// A Share is the part of one owner in the use of a key.
type Share struct {
	Owner   string
	Held    int // turns, with those that jobs keep while they wait for others
	Waiting int // jobs in the line
}

// Resources holds typed documents: systems, queues, and other things that are configured.
type Resources interface {
	// Put writes a document. Its Version must be the stored one, or 0 for a new document. Otherwise
	// it is the Conflict of [OtherVersion]. An [Advance] does not raise the version.
	Put(context.Context, Resource) (Resource, error)
	// Resources returns documents, sorted by tenant and name. [FindResource] returns one.
	Resources(ctx context.Context, q ResourceQuery) ([]Resource, error)
	// Delete removes the document of a version, or of [AnyVersion]. It is NotFound if there is no
	// document, and the Conflict of [OtherVersion] if it is at another version. It is a Conflict for
	// a queue or a system with a job that has not ended. A job that is submitted at that moment may
	// find the system gone, and waits for it.
	Delete(ctx context.Context, tenant, kind, name string, version int64) error
}

// AnyVersion stands for whatever version a document has.
const AnyVersion = -1

// A SchemaVersion tells the version of a database's schema.
type SchemaVersion struct {
	Version int64 // the version of the database; 0: it has no schema
	Known   int64 // the version that this Pawl works with
	Fits    bool  // this Pawl can work with it
}

// A Submission holds the jobs of one call.
type Submission struct {
	Tenant string // Invalid unless [job.CheckTenant] accepts it
	By     string // the principal that submits
	// Key is the idempotency key of the call; empty: none. It is kept for KeepKey, with the ids of
	// its jobs.
	Key  string
	Jobs []New
	// Advance is made with the jobs, or alone if there are none; nil: none is. The call is Fenced if
	// the document or its due times are not there as it says, or Through is still to come.
	Advance *Advance
	// Queues says, by name, what is checked of the queues of new jobs.
	Queues map[string]QueueCheck
}

// A QueueCheck is checked in the transaction that inserts jobs into a queue.
type QueueCheck struct {
	Document bool // the queue must have a document, or the call is Invalid
	// Most is how many jobs may wait in the queue, in custody gate or ready; 0: any number. More
	// jobs are Exhausted, or Invalid if the jobs of the call alone are too many.
	Most int
}

// KeepKey is how long an idempotency key is kept.
const KeepKey = 24 * time.Hour

// New is one job to be made. The spec in Job.Request is complete and valid. The store fills in
// place, epoch and times.
type New struct {
	// Job needs ID, Owner, Kind, Name, Queue, Machine, Priority, MaxAttempts, ExternalID, Labels,
	// Limits and Request. It needs Due if a time gates it. In an order it needs Order, and Rank as
	// [job.Spec.Rank] gives it, which the store completes with [job.Job.RankAt]. Then it also needs
	// the tie [job.TieLimited], and [job.TiePass] if it lets others pass.
	Job job.Job
	// Delay gates the job until the database's now + Delay.
	Delay  time.Duration
	After  []After
	Unique []Unique
	// Optional are more keys of turns, beside Job.Limits. The job is under those of them that have
	// a limit when it is submitted. They are [job.Job.OwnKeys]: a limit that is set later finds the
	// job by them.
	Optional []string
	// Index has the arguments by which an index finds the job, each with its [job.Spec.ArgsKey]. It
	// stays as it is for as long as the job is there. A term with [job.Term.From] is looked up in it.
	Index map[string]string
	// Refusal is the reason not to accept the job. The call fails with it, unless the job is there
	// already.
	Refusal error
	// Fingerprint is that of the request. ExternalID and Submission.Key compare it.
	Fingerprint [32]byte
}

// After is a prerequisite: a job of the same tenant that must end first.
type After struct {
	Job  job.ID
	Need job.Need
}

// Unique is a key that no other job of the tenant and kind may hold at the same time.
type Unique struct {
	Mode job.UniqueMode
	Key  string
}

// Submitted is the answer for one submitted job.
type Submitted struct {
	ID      job.ID
	Place   job.Place // zero: an earlier call with the same Key made the job, and it has been removed since
	Existed bool      // the job was there before this call
}

// A Claim asks for ready jobs.
type Claim struct {
	ID      job.ID // made by the caller
	Session job.ID
	Queues  []string
	Kinds   []string
	// Machine is the machine whose jobs may be claimed, beside jobs that belong to no machine.
	Machine string
	// Tenants are the only tenants whose jobs may be claimed; empty: all. Such a claim reads past
	// the jobs of other tenants that stand before its own. A claim for few queues does not read
	// those of other queues.
	Tenants []string
	// Slots is how many jobs to claim in each lane. Within a lane priority decides, then age. A
	// process has one slot of [job.LaneAlone] for all kinds together.
	Slots map[job.Lane]int
	// Jobs, if there are any, are the only jobs to claim.
	Jobs []job.ID
	// Handed is for a claim along with changes. The caller says that it knows of no ready jobs but
	// those to which the changes give turns. Then a store may claim only these.
	Handed bool
}

// Applied is the answer for one change.
type Applied struct {
	Outcome Outcome
	// Now is where the job is after the change. If the change was not applied, it is where the job
	// is now. Its Fence is that of the change.
	Now  job.Guard
	Wish job.Wish // the wish on the row
}

// An Outcome is what happened to a change.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "applied"
	Diverted Outcome = "diverted" // applied, but a wish led elsewhere: see Now
	Fenced   Outcome = "fenced"   // session, duty or epoch is out of date: stop working on the job
	Conflict Outcome = "conflict" // the epoch is right, but the job is elsewhere
)

// A Wish is what a person wants of jobs.
type Wish struct {
	Tenant string
	By     string // the principal, for the history
	Wish   job.Wish
	Jobs   []job.ID
	// Force carries a cancel out at once, even on a job whose launch may still run. The job ends
	// with ABANDONED, and Pawl gives its launch up.
	Force bool
}

// An Annotation changes the fields of jobs that may change at any time.
type Annotation struct {
	Tenant string
	Jobs   []job.ID
	job.Annotation
	Replace bool  // replace Labels and Notes instead of merging them
	Hidden  *bool // nil: unchanged
}

// A NewEvent is an event to be written; see [job.CustomEvent].
type NewEvent struct {
	Tenant string
	Job    job.ID
	By     string
	Cause  job.Cause // [job.CauseUser] or [job.CauseJob]
	Launch int       // the launch of the program that writes it; else 0
	Epoch  int64     // the epoch of the job whose holder writes it; else 0
	job.CustomEvent
}

// Wished is the answer to a wish for one job.
type Wished struct {
	// Err is NotFound, or Conflict with the reason why the wish makes no sense. It is nil if the
	// job had obeyed before: it was CANCELED for a cancel, or PAUSED for a pause.
	Err   error
	Place job.Place
	// Done says that the job has obeyed. Otherwise a worker or a watcher will obey.
	Done bool
}

// Renew asks for another lease.
type Renew struct {
	Session job.ID
	Lease   time.Duration
	// Queues, Kinds, Tenants and Machine say whose jobs the process claims, as in [Claim]. They are
	// for Renewal.Ready.
	Queues  []string
	Kinds   []string
	Tenants []string
	Machine string
	// Process and Used tell the changes since the last renewal: of the process, and of its slots in
	// use. Nil: nothing has changed.
	Process *Process
	Used    map[job.Lane]int
	// Duties are the duties that the process wants to get or to keep.
	Duties []string
}

// Renewal is what a process hears with each heartbeat.
type Renewal struct {
	// Now is the database's time. Held counts the jobs that the session has held since before
	// HeldBefore, which is the renewal before last. If the process counts differently, it asks
	// Reader.Find for them, and gives back those that it does not know.
	Now        time.Time
	HeldBefore time.Time
	Held       int
	Wishes     []StandingWish
	// NextExpiry is the earliest end of a lease among the other sessions that are not closed; zero:
	// there are none.
	NextExpiry time.Time
	// Ready says where there are ready jobs for this process. A queue and kind may also be there
	// because many jobs of other tenants hide whether there are.
	Ready  []job.QueueKind
	Duties []Duty // the duties that the session has now
	Mode   Mode   // the mode of the session
	// Unpaid says that follow-ups have not been paid for longer than a third of the lease, which is
	// one renewal.
	Unpaid bool
	// Due is when the first of all jobs that are behind a schedule gate or blocked is due. It may
	// have passed. Zero: no job waits for a time.
	Due time.Time
}

// Lost is a job as a process held it when it lost its lease.
type Lost struct {
	Job   job.ID
	Epoch int64
}

// StandingWish is a wish for a job in the session's custody.
type StandingWish struct {
	Job   job.ID
	Epoch int64
	Wish  job.Wish
}

// A Duty is work that one process does for all. Term is raised each time the holder changes.
type Duty struct {
	Name string
	Term int64
}
