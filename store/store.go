// Package store is the contract for the database that holds the jobs: domain transactions, not
// queries.
//
// Every call is one transaction, takes many jobs at once, and can be repeated: it may have
// committed although its answer was lost. Ids are made by the caller for that reason. Time that
// decides anything is the database's.
//
// What a call means for others (queues that hold work now, follow-ups to pay, a time to wake at)
// comes back as [Effects]; they are hints, and losing them costs a delay, never a job.
//
// Errors have a kind of package job: Invalid and Conflict blame the request, Fenced says that a
// session or a duty is not alive any more, Unavailable that the same call may succeed later; Closed
// follows Close. All methods are safe for concurrent use.
//
// What jobs do is decided by package job, who gets a turn under a limit by job/turns, and when
// blocked jobs go on by job/groups. A store reads what these ask for under its locks, and writes
// what they have decided. Package storetest holds the suite that every store passes.
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

	// Close waits for calls under way and releases the database. It is safe to call twice.
	Close() error
}

// Jobs is the one write path. Apply hands it the changes of workers and watchers; the other calls
// make theirs from rows they have locked.
type Jobs interface {
	// Submit inserts jobs with their first event, all or none. A submission that names an
	// idempotency key, an external id or unique keys which a job already has is answered with that
	// job; the first two are a Conflict when the request is another one. Repeating a submission
	// with the same job id answers the same job; the id of another tenant's job is a Conflict.
	Submit(context.Context, Submission) ([]Submitted, Effects, error)

	// Claim moves ready jobs into the session's custody and returns them. It locks the session and
	// checks its lease by the database's clock in the same transaction: Fenced when it is not
	// alive. Repeated with the same id it answers the same jobs, less those that have moved on;
	// when all have, it claims anew. Without queues or kinds it claims nothing, nor does a session
	// that was told to drain or to stop. A job may only be started once Claim has returned. The
	// claim of a program that comes to its launch is the intent to launch it: see [job.Claim].
	Claim(context.Context, Claim) ([]job.Job, error)

	// Apply makes changes and answers each by its index. A job appears at most once. A session
	// decides on the jobs it holds, a duty on those in monitor and recovery; any other fence is
	// Fenced. A repeated change, the same to the letter, is answered as it was the first time;
	// another one under the same id is a Conflict or Fenced. An error means that none was applied;
	// a kind other than Unavailable and Closed lays the blame on one of them, to be found by
	// halving.
	//
	// With a claim it then claims as Claim does, in the same transaction: what the changes made
	// ready can be claimed, also what they handed a turn to; where slots are few, what was ready
	// before may come first. Of what the changes made ready, Effects name the lines of the jobs
	// that were not claimed. A repeat with the same claim answers both as before. A session that is
	// not alive claims nothing, which is no error here.
	Apply(ctx context.Context, changes []job.Change, along *Claim) ([]Applied, []job.Job, Effects, error)

	// Wish writes what a person wants of jobs, and carries it out at once on those that no worker
	// and no watcher holds. An unknown job is answered with NotFound in its place.
	Wish(context.Context, Wish) ([]Wished, Effects, error)

	// Annotate changes what may change of jobs at any time, and answers each job by its index:
	// NotFound, Invalid, or Conflict where a job that has not ended is to be hidden.
	Annotate(context.Context, Annotation) ([]error, error)

	// AddEvent writes an event of a user, or of the job itself, into a job's history. Conflict when
	// the job has ended, when Launch or Epoch is not the one that runs, and beyond
	// [job.MaxJobEvents]. Effects.Ready, which a Conflict may have too, is the line of a ready job:
	// a claim that came by meanwhile may have passed over it.
	AddEvent(context.Context, NewEvent) (Event, Effects, error)

	// Remove deletes jobs that have ended, with all that the database knows of them, and answers
	// each job by its index: NotFound, or Conflict where it has not ended or still owes something
	// to others.
	Remove(ctx context.Context, tenant string, ids []job.ID) ([]error, error)

	// Due moves up to limit jobs whose time has come: out of their schedule gate; out of a group
	// that is clear, when their moment has come to go; and out of one that is not when they have
	// waited for too long, and fail. Effects.Due is the next due time.
	Due(ctx context.Context, limit int) (int, Effects, error)

	// Pay pays up to limit rows of follow-ups, oldest first, and returns how many; of those that
	// owe nobody any more one at least is counted. Effects.Owed says whether more is left to pay.
	// None, and more is left: others are paying it now. Who waits for turns that are free gets them
	// here and nowhere else, one payer of a tenant at a time, as [turns.Keys.Hand] says. Limits
	// that take in jobs which are there go on with it by a step. Lines that groups close, or open,
	// do so here.
	Pay(ctx context.Context, limit int) (int, Effects, error)

	// Expire closes sessions whose lease is over, and takes up to limit jobs from sessions that are
	// not alive. It returns how many it took; fewer than limit means that none is left. Who died
	// may have died between a commit and its word of it: where this call closed a session, also one
	// that held nothing, Effects are those of all jobs: the lines that have ready ones,
	// MostUnserved of them at most, whether something is owed, and when the first is due.
	Expire(ctx context.Context, limit int) (int, Effects, error)

	// Recount looks for what is wrong only where something is broken, and corrects up to limit of
	// each: numbers of prerequisites are compared with the rows that they count, turns with the
	// jobs that have them, and lines with what is owed to them.
	Recount(ctx context.Context, limit int) (Recounted, Effects, error)
}

// Recounted says how much was wrong.
type Recounted struct {
	Needs int // numbers of prerequisites that jobs wait for
	Turns int // turns of jobs that are not there, or have no use for them
	Lines int // lines in which somebody waits beside a free place, and nobody owes it to them
}

// Leases holds sessions and duties. A process that works has one session for all its jobs.
type Leases interface {
	// Begin opens a session with a fresh random id. Repeating it is harmless while the session
	// lives.
	Begin(context.Context, Session) error

	// Renew is the heartbeat: it extends the lease, and answers everything a process must hear of.
	// Fenced when the session has ended or expired. A duty goes to a session that wants it where
	// nobody alive holds it, or where its holder was told to drain or to stop and the other was
	// not.
	Renew(context.Context, Renew) (Renewal, error)

	// SetMode sets the mode of a session. Its next renewal answers it, and Effects.Held names the
	// session so that it renews at once. NotFound where there is no such session; Conflict where it
	// has ended, or where it is to stop and another mode is given. It is repeatable.
	SetMode(ctx context.Context, session job.ID, m Mode) (Effects, error)

	// End closes a session in good order, also one whose lease has run out, and gives the jobs that
	// it holds back as if it had never claimed them. It is repeatable.
	End(ctx context.Context, session job.ID) (Effects, error)

	// Clear takes the suspicion from jobs that a process held when it lost its lease: it lives, so
	// they did not kill it. Those that expiry has taken from it, and that nobody has let go of
	// since, are cleared as [job.Job.Cleared] says; all others, and jobs that are not there, stay
	// as they are. It needs no session, raises no epoch, writes no history and is repeatable.
	// Effects.Ready are the lines of ready jobs that it moved to another lane.
	Clear(ctx context.Context, lost []Lost) (Effects, error)
}

// Reader reads. Overdue, Sessions, Unattended and Demand see all tenants, and so does Find unless
// its query names one; the others see one.
type Reader interface {
	// Find returns the jobs that a query names, in any order. See [FindJob] for one of a tenant.
	Find(ctx context.Context, q FindQuery) ([]job.Job, error)
	// List returns a page of jobs, without Request, Resolved, Work and Notes, and without Result
	// unless they are programs, whose result is small. Pages are stable under inserts: a job is on
	// exactly one, unless what the query sorts by changes meanwhile. What each term of a filter
	// means, and how far back it looks, stands with [job.Filter].
	List(ctx context.Context, q Query) (Page, error)
	// Count counts the jobs by state that a filter chooses.
	Count(ctx context.Context, tenant string, f job.Filter) (Counts, error)
	// Events returns events in the order in which they were committed. A cursor never passes a
	// transaction that is still open, so that following cursors misses nothing. One that is newer
	// than the database is Invalid: whoever has it would miss what comes until the database has
	// caught up.
	Events(ctx context.Context, q EventQuery) (Events, error)
	// Overdue returns jobs that ended longer ago, by the database's clock, than they are kept,
	// hidden ones too; those that still owe something to others are left out. They come tenant by
	// tenant and state by state, in the order of their ends. It reads about as many rows as it
	// returns, however many jobs are kept.
	Overdue(ctx context.Context, q OverdueQuery) (Overdue, error)
	// Sessions returns the sessions that have not ended, those that ended within SessionKept, and
	// of each machine that has no other session the one that ended last, if that was within
	// MachineKept; the newest first.
	Sessions(ctx context.Context) ([]SessionInfo, error)
	// Unattended returns the work that waits for a process that is not there. It reads from line to
	// line and from machine to machine, and of each no more than its first MostUnserved jobs.
	Unattended(ctx context.Context) (Unattended, error)
	// Demand returns, of each lane for which c has slots, the ready jobs that c could claim, and
	// the live sessions that may claim some of these too, the one of c among them: [Claim.ID] and
	// [Claim.Jobs] do not count.
	Demand(ctx context.Context, c Claim) (map[job.Lane]Demand, error)
}

// Limits holds jobs back until it is their turn. A job that is under limits waits in custody gate
// until it has a turn of each of its keys, and the change with which it needs them no longer gives
// them back. Turns are rows: there is nothing to count wrong.
type Limits interface {
	// ChangeLimit sets the limit of a key or of a family of keys, which is the key of the limit;
	// nil takes it away. See [SetLimit] and [RemoveLimit].
	//
	// A limit that is set holds from the next turn on: what runs is not thrown out. Where no limit
	// decided on the keys, it takes in the jobs that stand under them by themselves, as
	// [turns.NewKeys] says, and lets nobody go before Pay has come to the end of that:
	// Effects.Owed.
	//
	// A limit that is taken away and was not there is NotFound. If the limit of its family is a
	// rate, that counts as set anew.
	ChangeLimit(ctx context.Context, tenant, key string, to *job.Limit) (Effects, error)
	// Limits returns the limits of a tenant, by key.
	Limits(ctx context.Context, tenant string) ([]job.Limit, error)
	// Turns returns who has turns, and who waits for them, key by key.
	Turns(ctx context.Context, q TurnQuery) ([]Turns, error)
	// Behind counts the jobs of its tenant that stand before a job where it waits, up to limit. In
	// a line that are those of its owner, and in the line of an order all. Before one that is ready
	// are those of the same queue, kind, machine and lane that are claimed first, and before one
	// that is blocked those of its group that were blocked first, whoever owns them. All others are
	// behind nobody.
	Behind(ctx context.Context, j *job.Job, limit int) (int, error)

	// Reserve gives moments of keys that are under a rate, [job.Limit.Every] apart, in the order of
	// the asks, and answers each by its index. Each is given once, to whichever process asks: one
	// that nobody uses is lost, and there is nothing to repair. A rate that is set or removed holds
	// at once. Who was given a moment that was not [job.MaxSlotWait] asks for it again before using
	// it, and is given another one then; the jobs that wait in custody gate for theirs come out of
	// it when any rate of the tenant changes.
	Reserve(ctx context.Context, tenant string, asks []Ask) ([]Reserved, error)
	// Moments returns when moments are free of keys of which some were given, key by key; those
	// without a rate are left out.
	Moments(ctx context.Context, q TurnQuery) ([]Moments, error)
}

// SetLimit sets a limit.
func SetLimit(ctx context.Context, s Limits, tenant string, l job.Limit) (Effects, error) {
	return s.ChangeLimit(ctx, tenant, l.Key, &l)
}

// RemoveLimit takes a limit away. It is NotFound where there is none.
func RemoveLimit(ctx context.Context, s Limits, tenant, key string) (Effects, error) {
	return s.ChangeLimit(ctx, tenant, key, nil)
}

// A TurnQuery asks for the use of keys.
type TurnQuery struct {
	Tenant string
	Key    string // empty: all that are in use or waited for
	Limit  int    // 1 to 1000 keys; 100 by default
	After  string // only keys after this one
	// Holders says how many of the jobs that have turns of Key are named.
	Holders int
}

// Turns is the use of a key.
type Turns struct {
	Key    string
	Limit  *job.Limit // that decides: its own, or that of its family; nil: none
	Shut   bool       // a group that is blocked closes the line; Limit says how many it lets go
	Owners []Share
	// Holders are jobs that have turns, those of an owner together; see [TurnQuery].
	Holders []job.ID
}

// A Share is what an owner has of the turns of a key.
type Share struct {
	Owner   string
	Held    int // turns, those included that jobs keep while they wait for others
	Waiting int // jobs that stand in its line
}

// Resources holds typed documents: systems, queues, and what else is configured and not run.
type Resources interface {
	// Put writes a document. Version must be the stored one (0: it must be new), else Conflict.
	Put(context.Context, Resource) (Resource, error)
	// Resources returns documents, by tenant and name. See [FindResource] for one.
	Resources(ctx context.Context, q ResourceQuery) ([]Resource, error)
	// Delete removes a document; removing one that is not there is NotFound. A queue is not removed
	// while a job that has not ended is in it: Conflict.
	Delete(ctx context.Context, tenant, kind, name string) error
}

// A SchemaVersion says how old the schema of a database is.
type SchemaVersion struct {
	Version int64 // of the database; 0: it has none
	Known   int64 // that which this Pawl works with
	Fits    bool  // this Pawl can work with it
}

// A Submission is one call's jobs.
type Submission struct {
	Tenant string // Invalid, unless it is a name as [job.CheckTenant] says
	By     string // the principal that submits
	// Key is the idempotency key of the call; empty: none. It is kept with the ids it made for
	// KeepKey.
	Key  string
	Jobs []New
	// Queues says what is checked of the queues of jobs that are inserted, by name.
	Queues map[string]QueueCheck
}

// A QueueCheck is checked in the transaction that inserts jobs into a queue.
type QueueCheck struct {
	Document bool // Invalid, unless the queue has a document
	// Most is how many jobs may wait in it, in custody gate or ready; 0: any number. More are
	// Exhausted, or Invalid where those of the call are too many by themselves.
	Most int
}

// KeepKey is how long an idempotency key is kept.
const KeepKey = 24 * time.Hour

// New is one job to be made. The spec in Job.Request is complete and valid; the store fills in
// place, epoch and times.
type New struct {
	// Job needs ID, Owner, Kind, Name, Queue, Machine, Priority, MaxAttempts, ExternalID, Labels,
	// Limits, Request; Due when a time gates it; and in an order Order, Rank as [job.Spec.Rank]
	// says, which the store makes one by [job.Job.RankAt], and the ties [job.TieLimited] and, where
	// it lets others pass, [job.TiePass].
	Job job.Job
	// Delay gates the job until the database's now + Delay.
	Delay  time.Duration
	After  []After
	Unique []Unique
	// Optional are more keys of turns, beside those of Job.Limits: the job is under those of them
	// for which a limit is set by then. They are [job.Job.OwnKeys]: a limit that is set later finds
	// the job by these.
	Optional []string
	// Refusal is what speaks against the job. The call fails with it, unless the job is there
	// already.
	Refusal error
	// Fingerprint of the request, for ExternalID and Submission.Key.
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

// Submitted answers one submission.
type Submitted struct {
	ID      job.ID
	Place   job.Place // zero: the job was made by this call, of its Key, and has been removed
	Existed bool      // the job was there before this call
}

// A Claim asks for ready jobs.
type Claim struct {
	ID      job.ID // made by the caller
	Session job.ID
	Queues  []string
	Kinds   []string
	// Machine is the machine whose own jobs may be claimed beside those of no machine.
	Machine string
	// Tenants are the only ones whose jobs may be claimed; empty: all. A claim that is narrowed so
	// passes over the jobs of others that stand before its own; one that is narrowed by queues does
	// not see them.
	Tenants []string
	// Slots says how many jobs to claim in each lane. Within a lane priority decides, then age. Of
	// [job.LaneAlone] a process has one slot, whatever the kinds.
	Slots map[job.Lane]int
	// Jobs, when there are any, are the only ones to claim.
	Jobs []job.ID
	// Handed says of a claim along with changes that nothing is ready as far as the caller knows,
	// but for those to whom the changes hand turns. A store may claim these alone.
	Handed bool
}

// Applied answers one change.
type Applied struct {
	Outcome Outcome
	// Now is where the job stood after the change, or stands when it was not applied; its Fence is
	// that of the change.
	Now  job.Guard
	Wish job.Wish // that stands on the row
}

// An Outcome is what became of a change.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "applied"
	Diverted Outcome = "diverted" // applied, but diverted by a wish: see Now
	Fenced   Outcome = "fenced"   // session, duty or epoch is not the newest: stop working on the job
	Conflict Outcome = "conflict" // the epoch is right but the job stands elsewhere
)

// A Wish is what a person wants of jobs.
type Wish struct {
	Tenant string
	By     string // the principal, for the history
	Wish   job.Wish
	Jobs   []job.ID
	// Force carries out a cancel at once on a job whose launch may still run: it ends as ABANDONED,
	// and the launch is given up.
	Force bool
}

// An Annotation changes jobs in what may change at any time.
type Annotation struct {
	Tenant string
	Jobs   []job.ID
	job.Annotation
	Replace bool  // Labels and Notes take the place of those that are there
	Hidden  *bool // nil: as it is
}

// A NewEvent is an event to be written; see [job.Note].
type NewEvent struct {
	Tenant string
	Job    job.ID
	By     string
	Cause  job.Cause // [job.CauseUser] or [job.CauseJob]
	Launch int       // of a program that writes it: the number of its launch; else 0
	Epoch  int64     // of a task that writes it: that of the job in its hands; else 0
	job.CustomEvent
}

// Wished answers a wish for one job.
type Wished struct {
	// Err is NotFound, or Conflict with the reason why the wish has no meaning here. It is nil
	// where the job had obeyed before: CANCELED when it is to be canceled, PAUSED when it is to be
	// paused.
	Err   error
	Place job.Place
	// Done says that the job has obeyed; otherwise a worker or a watcher will obey.
	Done bool
}

// Renew asks for another lease.
type Renew struct {
	Session job.ID
	Lease   time.Duration
	// Queues, Kinds and Tenants that the process serves and Machine where it runs, for
	// Renewal.Ready; as in [Claim].
	Queues  []string
	Kinds   []string
	Tenants []string
	Machine string
	// Process and Used are what has changed of the process, and of its slots in use, since it told
	// last; nil: nothing.
	Process *Process
	Used    map[job.Lane]int
	// Duties that the process wants to have or to keep.
	Duties []string
}

// Renewal is what a process hears with each heartbeat.
type Renewal struct {
	// Now is the database's time; Held counts the jobs of the session that it has held since before
	// HeldBefore (the renewal before last). A process that counts otherwise asks Reader.Find for
	// them, and gives back the strangers.
	Now        time.Time
	HeldBefore time.Time
	Held       int
	Wishes     []Standing
	// NextExpiry is the earliest end of the lease of another session that is not closed; zero:
	// there is none.
	NextExpiry time.Time
	// lines this process serves that hold ready work; or may hold some, behind much of other
	// tenants
	Ready  []job.QueueKind
	Duties []Duty // those that it has now
	Mode   Mode   // of the session
	// Unpaid says that follow-ups have been unpaid for longer than a third of the lease, which is
	// one renewal.
	Unpaid bool
	// Due is when the first of all jobs behind a schedule gate, or blocked, is due, as in
	// Effects.Due of a Due; zero: none waits for a time. It may have passed.
	Due time.Time
}

// Lost is a job as a process held it when it lost its lease.
type Lost struct {
	Job   job.ID
	Epoch int64
}

// Standing is a wish on a job in the session's custody.
type Standing struct {
	Job   job.ID
	Epoch int64
	Wish  job.Wish
}

// A Duty is something that one process does for all. Term is raised by each change of its holder.
type Duty struct {
	Name string
	Term int64
}
