package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Worker is a process as people look at it: its session, and what follows from it at this time.
type Worker struct {
	ID    job.ID      `json:"id"` // the id of its session
	State WorkerState `json:"state"`
	// Since is when it began; when it was heard of last if it is gone; when it ended if it has
	// ended.
	Since time.Time `json:"since"`
	store.Process
	Slots   map[job.Lane]Slots `json:"slots,omitempty"`
	Held    int                `json:"held"`             // jobs in its hands
	Oldest  *OldestJob         `json:"oldest,omitempty"` // the job that it has had for longest
	Started time.Time          `json:"started"`
	Renewed time.Time          `json:"renewed"` // when it was heard of last
	Until   time.Time          `json:"until"`   // the end of its lease
}

// Slots says how many slots of a lane there are.
type Slots struct {
	Used int `json:"used"` // as the process told last; a worker over HTTP uses one for each job in its hands
	All  int `json:"all"`
}

// An OldestJob is the job that a process has had in its hands for longest.
type OldestJob struct {
	ID    job.ID    `json:"id,omitzero"` // zero: it is a job of another tenant
	Since time.Time `json:"since"`
}

// A WorkerState says what a process does.
type WorkerState string

// The states of workers.
const (
	WorkerLive     WorkerState = "live"
	WorkerDraining WorkerState = "draining" // it claims nothing more, and its jobs end
	WorkerStopping WorkerState = "stopping" // the same, and then the process ends
	WorkerEnded    WorkerState = "ended"    // it ended in good order
	WorkerGone     WorkerState = "gone"     // it was not heard of for longer than its lease
)

// WorkerStates lists all states of workers.
var WorkerStates = []WorkerState{WorkerLive, WorkerDraining, WorkerStopping, WorkerEnded, WorkerGone}

// HeldJobs is how many of a worker's jobs are listed at most.
const HeldJobs = 100

// A WorkerView is a worker with the jobs in its hands.
type WorkerView struct {
	Worker
	// Jobs are the jobs of the caller's tenant, at most HeldJobs, without Request, Resolved, Work,
	// Result, Notes and folders. The job that it has had for longest is first.
	Jobs []View `json:"jobs"`
}

// Workers returns the processes that are there, and those that were there a short time ago: see
// [store.Reader.Sessions].
func (s *Service) Workers(ctx context.Context) ([]Worker, error) {
	sessions, err := s.sessions.now(ctx)
	if err != nil {
		return nil, err
	}
	served := s.cfg.Served(ctx)
	all := make([]Worker, len(sessions))
	for i := range sessions {
		all[i] = s.worker(&sessions[i], served)
	}
	return all, nil
}

// Worker returns one process. The error is of kind NotFound if there is none.
func (s *Service) Worker(ctx context.Context, id job.ID) (WorkerView, error) {
	all, err := s.Workers(ctx)
	if err != nil {
		return WorkerView{}, err
	}
	at := slices.IndexFunc(all, func(w Worker) bool { return w.ID == id })
	if at < 0 {
		return WorkerView{}, job.Errorf(job.NotFound, "there is no worker %s: see pawl workers", id)
	}
	v := WorkerView{Worker: all[at], Jobs: []View{}}
	held, err := s.cfg.Store.Find(ctx, store.FindQuery{Session: id})
	if err != nil {
		return WorkerView{}, err
	}
	slices.SortStableFunc(held, func(a, b job.Job) int { return a.Since.Compare(b.Since) })
	l, err := s.look(ctx, held...)
	if err != nil {
		return WorkerView{}, err
	}
	for i := range held {
		j := &held[i]
		if j.Tenant != s.cfg.Tenant || len(v.Jobs) == HeldJobs {
			continue
		}
		j.Request, j.Resolved, j.Result, j.Notes = nil, nil, nil, nil
		v.Jobs = append(v.Jobs, s.view(j, l, ""))
	}
	return v, nil
}

// SetMode tells a process to drain, to stop, or to go on as usual. The error is of kind Conflict if
// it has ended or must stop already, and of kind NotFound if there is no such process.
func (s *Service) SetMode(ctx context.Context, id job.ID, c store.Mode) (Worker, error) {
	eff, err := s.cfg.Store.SetMode(ctx, id, c)
	switch job.KindOf(err) {
	case job.NotFound:
		return Worker{}, job.Errorf(job.NotFound, "there is no worker %s: see pawl workers", id)
	case job.Conflict:
		return Worker{}, job.Errorf(job.Conflict,
			"worker %s has ended, or was told to stop, which is not taken back: see pawl workers", id)
	}
	if err != nil {
		return Worker{}, err
	}
	s.engine.Follow(ctx, eff)
	v, err := s.Worker(ctx, id)
	return v.Worker, err
}

// Unattended returns the jobs of all tenants that wait for a process that is not there: ready jobs
// that nobody claims, and programs on machines where nobody watches.
func (s *Service) Unattended(ctx context.Context) (store.Unattended, error) {
	return s.cfg.Store.Unattended(ctx)
}

// worker returns a session as people look at it. served says whether any process lives, if that is
// known otherwise.
func (s *Service) worker(i *store.SessionInfo, served bool) Worker {
	w := Worker{
		ID: i.ID, State: WorkerLive, Since: i.Started, Process: i.Process, Held: i.Held, Started: i.Started,
		Renewed: i.Renewed, Until: i.Until,
	}
	switch {
	case !i.Ended.IsZero() && !i.Crashed:
		w.State, w.Since = WorkerEnded, i.Ended
	case !i.Live || !served:
		w.State, w.Since = WorkerGone, i.Renewed
	case i.Mode == store.Stop:
		w.State = WorkerStopping
	case i.Mode == store.Drain:
		w.State = WorkerDraining
	}
	if len(i.Process.Slots) > 0 {
		w.Slots = map[job.Lane]Slots{}
		for lane, n := range i.Process.Slots {
			slots := Slots{All: n}
			switch {
			case w.State == WorkerEnded || w.State == WorkerGone:
			case i.Process.Worker != "": // it says only for how many more it has room
				slots = Slots{Used: i.Held, All: max(n, i.Held)}
			default:
				slots.Used = i.Used[lane]
			}
			w.Slots[lane] = slots
		}
	}
	if i.Held > 0 {
		w.Oldest = &OldestJob{Since: i.Oldest.Since}
		if i.Oldest.Tenant == s.cfg.Tenant {
			w.Oldest.ID = i.Oldest.Job
		}
	}
	return w
}

// sessions remembers the sessions that are there, for views of jobs. It knows a change within
// keepSessions.
type sessions struct {
	store store.Store

	mu   sync.Mutex
	read time.Time           // guarded by mu; zero: never
	all  []store.SessionInfo // guarded by mu
}

const keepSessions = time.Second

// there returns the sessions as they were within keepSessions. Callers do not change them.
func (s *sessions) there(ctx context.Context) ([]store.SessionInfo, error) {
	s.mu.Lock()
	all, fresh := s.all, time.Since(s.read) < keepSessions
	s.mu.Unlock()
	if fresh {
		return all, nil
	}
	return s.now(ctx)
}

// now reads the sessions.
func (s *sessions) now(ctx context.Context) ([]store.SessionInfo, error) {
	read := time.Now()
	all, err := s.store.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if read.After(s.read) {
		s.all, s.read = all, read
	}
	return all, nil
}
