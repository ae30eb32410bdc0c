package job

import "slices"

// A State says how far a job has come in its life. Users see it.
type State string

// The states. Each comment has two parts: what is done in the state, and what moves the job on.
const (
	// a gate holds it: its time, its prerequisites, its place in an order, or its turn. The clock,
	// a prerequisite's end, or a turn that is free.
	Waiting State = "WAITING"
	Pending State = "PENDING" // nothing holds it. A worker's claim.
	// it waits for its moment to begin; the spec is resolved, inputs are checked, the folder is
	// made. The clock, then a worker.
	ProcessingInputs State = "PROCESSING_INPUTS"
	StagingInputs    State = "STAGING_INPUTS" // inputs are copied into the folder. A worker.
	// the program's own files, environment and launch script are put in place. A worker.
	StagingJob State = "STAGING_JOB"
	// it waits for its turn and its moment, and is launched. A turn that is free, or the clock,
	// then a worker.
	SubmittingJob State = "SUBMITTING_JOB"
	Queued        State = "QUEUED" // the scheduler of the execution system has it. The watcher.
	// the program or the handler of the task runs. The watcher of a program, the worker of a task.
	Running   State = "RUNNING"
	Archiving State = "ARCHIVING" // the program has ended; results are copied and verified. A worker.
	Blocked   State = "BLOCKED"   // a condition that may clear holds it. The recovery group of the condition.
	Paused    State = "PAUSED"    // a person holds it. Resume.
	Finished  State = "FINISHED"  // it did what was asked. Nothing: it is terminal.
	Failed    State = "FAILED"    // it did not, and is not tried again. Nothing: it is terminal.
	Canceled  State = "CANCELED"  // a person or a rule ended it; nothing of it runs any more. Nothing: it is terminal.
)

// States lists every state in the order of a job's life.
var States = []State{
	Waiting, Pending, ProcessingInputs, StagingInputs, StagingJob, SubmittingJob, Queued, Running, Archiving,
	Blocked, Paused, Finished, Failed, Canceled,
}

// Ends lists the states in which a job ends.
var Ends = []State{Finished, Failed, Canceled}

// Terminal reports whether nothing follows s.
func (s State) Terminal() bool { return s == Finished || s == Failed || s == Canceled }

// Working reports whether a worker, a host or a scheduler is at work in s. There the job can meet
// trouble.
func (s State) Working() bool {
	switch s {
	case ProcessingInputs, StagingInputs, StagingJob, SubmittingJob, Queued, Running, Archiving:
		return true
	}
	return false
}

// Custody says who is responsible for a job now. A job is in exactly one custody, because custody
// is one column.
type Custody string

// The custodies. Each comment has two parts: who holds the job, and what moves it on.
const (
	// nobody: it waits for a time, for prerequisites, for its turn or for its moment. The clock, a
	// prerequisite's end, or a turn that is free.
	Gate    Custody = "gate"
	Ready   Custody = "ready"   // its queue, unclaimed. A worker's claim.
	Worker  Custody = "worker"  // one session, under an epoch. The worker's next change, or the session's death.
	Monitor Custody = "monitor" // the execution system runs it; the watcher looks on. The watcher's news.
	// the recovery group of the condition that blocks it. A test that succeeds, or the end of its
	// policy unless something of the job may run.
	Recovery Custody = "recovery"
	User     Custody = "user" // a person: it is paused, and no program of it runs. Resume.
	None     Custody = "none" // nobody: it is terminal. Nothing, ever.
)

// Custodies lists every custody.
var Custodies = []Custody{Gate, Ready, Worker, Monitor, Recovery, User, None}

// A Place is where a job stands: its state and its custody.
type Place struct {
	State   State   `json:"state"`
	Custody Custody `json:"custody"`
}

func (p Place) String() string { return string(p.State) + "/" + string(p.Custody) }

// Legal reports whether a job may stand at p.
func (p Place) Legal() bool { return slices.Contains(places[p.State], p.Custody) }

// places is the table of legal places.
var places = map[State][]Custody{
	Waiting:          {Gate},
	Pending:          {Ready},
	ProcessingInputs: {Gate, Ready, Worker},
	StagingInputs:    {Ready, Worker},
	StagingJob:       {Ready, Worker},
	SubmittingJob:    {Gate, Ready, Worker},
	Queued:           {Monitor},
	Running:          {Monitor, Worker},
	Archiving:        {Ready, Worker},
	Blocked:          {Recovery},
	Paused:           {User},
	Finished:         {None},
	Failed:           {None},
	Canceled:         {None},
}

// Places returns the custodies in which a job in state s may be.
func Places(s State) []Custody { return slices.Clone(places[s]) }

// edges is the table of legal edges between states. On an edge from a state to itself only the
// custody changes, or something is recorded, such as the intent to launch or a manifest.
var edges = map[State][]State{
	Waiting:          {Waiting, Pending, Paused, Failed, Canceled},
	Pending:          {ProcessingInputs, Running, Waiting, Paused, Failed, Canceled},
	ProcessingInputs: {ProcessingInputs, StagingInputs, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	StagingInputs:    {StagingInputs, StagingJob, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	StagingJob:       {StagingJob, SubmittingJob, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	SubmittingJob:    {SubmittingJob, Queued, Running, Archiving, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	Queued:           {Queued, SubmittingJob, Running, Archiving, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	Running:          {Running, Queued, Archiving, Finished, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	Archiving:        {Archiving, Finished, Waiting, Pending, Blocked, Paused, Failed, Canceled},
	Blocked: {
		Waiting, Pending, ProcessingInputs, StagingInputs, StagingJob, SubmittingJob, Archiving,
		Paused, Failed, Canceled,
	},
	Paused: {Waiting, Pending, ProcessingInputs, StagingInputs, StagingJob, SubmittingJob, Archiving, Failed, Canceled},
}

// Edge reports whether a job may go from state a to state b.
func Edge(a, b State) bool { return slices.Contains(edges[a], b) }

// Begins reports whether a program has begun where a job goes from state a to state b, or may have
// begun and ended unseen: what it wrote is to be read from then on.
func Begins(a, b State) bool {
	launched := a == SubmittingJob || a == Queued
	return a != b && (b == Running || launched && b != SubmittingJob && b != Queued)
}

// Edges returns the states that may follow s. A terminal state has none.
func Edges(s State) []State { return slices.Clone(edges[s]) }

// Resumable reports whether work can go on in s after BLOCKED or PAUSED. It cannot in QUEUED and
// RUNNING: a program that ran has ended by then and goes on in ARCHIVING, and a task starts again
// from PENDING.
func Resumable(s State) bool {
	return Edge(Paused, s) && !s.Terminal()
}

// A Lane is a part of a worker's slots. Lanes keep long transfers from holding up launches and
// ends.
type Lane string

// The lanes, in the order in which a claim serves them.
const (
	LaneFinish  Lane = "finish"  // ARCHIVING
	LaneLaunch  Lane = "launch"  // SUBMITTING_JOB
	LanePrepare Lane = "prepare" // the states of a program before that
	LaneTask    Lane = "task"    // a task
	LaneAlone   Lane = "alone"   // any state: the job may be what kills its processes
)

// Lanes lists the lanes in the order in which a claim serves them.
var Lanes = []Lane{LaneFinish, LaneLaunch, LanePrepare, LaneTask, LaneAlone}

// LaneOf returns the lane of a job in state s. program tells a program from a task; suspect is
// [Job.Suspect].
func LaneOf(s State, program bool, suspect int) Lane {
	switch {
	case suspect >= AloneAt:
		return LaneAlone
	case !program:
		return LaneTask
	case s == Archiving:
		return LaneFinish
	case s == SubmittingJob:
		return LaneLaunch
	}
	return LanePrepare
}

// Takes reports whether jobs of a kind can be in l.
func (l Lane) Takes(kind string) bool {
	return l == LaneAlone || (l == LaneTask) == (kind != KindApp)
}
