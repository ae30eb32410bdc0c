// Package claims serves workers that are no processes of Pawl: programs in any language that claim
// tasks and report on them by calls.
//
// Such a worker has a session like any process, with a lease, and its jobs have the same epochs. It
// is told apart from others by a secret that it makes itself: the id of its session is a hash of
// that secret. So nothing of a worker is kept but in the database, every process can serve every
// worker, and each call can be repeated when its answer was lost. What a worker reports becomes a
// [job.Change], as what a handler returns does: there are no other rules for it.
//
// A [Desk] makes the calls. Claims that find nothing wait there, and are woken by announcements,
// one after the other.
package claims

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
	"github.com/pawl-jobs/pawl/store"
)

// Config configures a desk. All fields but Declared, Lease and Log are required.
type Config struct {
	Store  store.Store
	Engine *engine.Engine
	// Tenant is the tenant whose jobs are claimed.
	Tenant string
	// Queues returns the queues that exist.
	Queues func(context.Context) ([]string, error)
	// Declared returns the document of a kind, which says how long a run may take; nil: it has none.
	Declared func(ctx context.Context, kind string) (*kinds.Declared, error)
	// Lease is that of a worker that asks for none; 15 s by default.
	Lease time.Duration
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger
}

// A Desk serves workers. Its methods are safe for concurrent use.
type Desk struct {
	cfg     Config
	waiting waiting
	heard   heard
	times   times
}

// New returns a desk. It does no I/O.
func New(c Config) *Desk {
	if c.Lease <= 0 {
		c.Lease = 15 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return &Desk{
		cfg: c, waiting: waiting{listen: c.Engine.Listen}, heard: heard{of: map[job.ID]heardOf{}},
		times: times{of: map[job.ID]appointment{}},
	}
}

// Heard is told of the queues and kinds where jobs became ready: see [engine.Config].
func (d *Desk) Heard(where []job.QueueKind) { d.waiting.announce(where) }

// Bounds of what workers ask for.
const (
	MaxSlots = 1000 // jobs of a claim, and of a report
	MaxKinds = 100
	MinLease = time.Second
	MaxLease = time.Hour
)

// Bounds of the secret of a worker, in bytes.
const (
	MinSecret = 32
	MaxSecret = 256
)

// SessionOf returns the id of the session of the worker that has a secret. Nobody can make the
// secret of an id.
func SessionOf(secret string) (job.ID, error) {
	if n := len(secret); n < MinSecret || n > MaxSecret {
		return job.ID{}, job.Errorf(job.Invalid, "the secret of the worker has %d bytes: make a random one of %d to %d "+
			"bytes when the worker starts, such as with openssl rand -hex 16, and keep it as long as it runs",
			n, MinSecret, MaxSecret)
	}
	sum := sha256.Sum256([]byte("pawl worker 1\n" + secret))
	id := job.ID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of version 8: its maker decides what is in it
	return id, nil
}

// An Ask asks for tasks.
type Ask struct {
	// An id for the call, made by the caller. A call that is repeated with the same id answers the
	// same jobs.
	ID job.ID `json:"id,omitzero"`

	// A name for the worker, for people.
	Worker string `json:"worker,omitempty" maxLength:"64" example:"mailer"`

	// The machine that the worker runs on, for people.
	Host string `json:"host,omitempty" maxLength:"255"`

	// The id of its process there, for people.
	PID int `json:"pid,omitempty" minimum:"0"`

	// The version of the worker, for people.
	Version string `json:"version,omitempty" maxLength:"64"`

	// The kinds of task that the worker handles.
	Kinds []string `json:"kinds" minItems:"1" maxItems:"100" example:"[\"mail\"]"`

	// The only queues from which it takes tasks; all by default.
	Queues []string `json:"queues,omitempty" example:"[\"default\"]"`

	// How many tasks it has room for now.
	Slots int `json:"slots" minimum:"1" maximum:"1000" example:"4"`

	// How long the worker may be silent before its tasks go to others, 1s to 1h; that of the service
	// by default.
	Lease job.Duration `json:"lease,omitempty" example:"30s"`

	// How long to wait if no task is ready; half a lease at most.
	Wait job.Duration `json:"wait,omitempty" example:"30s"`
}

// A Claim is the answer to an [Ask].
type Claim struct {
	Session job.ID
	Lease   time.Duration
	Mode    store.Mode // other than Work: there are no jobs for the worker any more
	Jobs    []Task
}

// A Task is a job in the hands of a worker.
type Task struct {
	// The id of the job.
	ID job.ID `json:"id"`

	// The proof of this run: pass it back in each report.
	Epoch int64 `json:"epoch"`

	// Its kind.
	Kind string `json:"kind"`

	// Its name, for people.
	Name string `json:"name"`

	// The queue in which it waited.
	Queue string `json:"queue"`

	// Its user.
	Owner string `json:"owner"`

	// Its arguments.
	Args json.RawMessage `json:"args,omitempty"`

	// The version of its arguments; missing: 1.
	ArgsVersion int `json:"args_version,omitempty"`

	// Its labels.
	Labels map[string]string `json:"labels,omitempty"`

	// The number of the attempt, from 1.
	Attempt int `json:"attempt"`

	// Attempts in all.
	MaxAttempts int `json:"max_attempts"`

	// How often a crash or a condition interrupted it.
	Recoveries int `json:"recoveries,omitempty"`

	// What an earlier run has kept last; missing: nothing.
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`

	// When it was submitted.
	Created time.Time `json:"created"`

	// The trace in which it was submitted, as a W3C traceparent.
	Trace string `json:"trace,omitempty"`
}

func taskOf(j *job.Job) Task {
	var spec struct {
		Args    json.RawMessage `json:"args"`
		Version int             `json:"args_version"`
	}
	json.Unmarshal(j.Request, &spec) //nolint:errcheck // it was read when the job was submitted
	return Task{
		ID: j.ID, Epoch: j.Epoch, Kind: j.Kind, Name: j.Name, Queue: j.Queue, Owner: j.Owner, Args: spec.Args,
		ArgsVersion: spec.Version, Labels: j.Labels, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		Recoveries: j.Recoveries, Checkpoint: ReadWork(j).Checkpoint, Created: j.Created, Trace: j.Trace,
	}
}

var kindOf = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// check completes an ask, or says what is wrong with it.
func (d *Desk) check(ctx context.Context, a *Ask) error {
	var wrong job.SpecError
	add := func(path, value, what, remedy string) {
		wrong.Add(job.Problem{Path: path, Value: value, What: what, Remedy: remedy})
	}
	if a.Slots < 1 || a.Slots > MaxSlots {
		add("slots", itoa(a.Slots), "is out of range", "give how many jobs the worker has room for now: 1 to "+itoa(MaxSlots))
	}
	switch {
	case len(a.Kinds) == 0:
		add("kinds", "", "is missing", "name the kinds of task that the worker handles")
	case len(a.Kinds) > MaxKinds:
		add("kinds", itoa(len(a.Kinds)), "are too many", "name up to "+itoa(MaxKinds))
	}
	for i, k := range a.Kinds {
		switch {
		case k == job.KindApp:
			add("kinds["+itoa(i)+"]", k, "is no task", "leave it out: Pawl runs programs itself")
		case !kindOf.MatchString(k):
			add("kinds["+itoa(i)+"]", k, "is not a kind", "give up to 64 of A-Z a-z 0-9 . _ -")
		}
	}
	if a.Lease == 0 {
		a.Lease = job.Duration(d.cfg.Lease)
	}
	if l := a.lease(); l < MinLease || l > MaxLease {
		add("lease", l.String(), "is out of range", "give 1s to 1h, or leave it out")
	}
	if a.Worker == "" {
		a.Worker = "worker"
	}
	for _, f := range []struct {
		path, text string
		most       int
	}{{"worker", a.Worker, 64}, {"host", a.Host, 255}, {"version", a.Version, 64}} {
		if len(f.text) > f.most || !utf8.ValidString(f.text) || strings.Contains(f.text, "\x00") {
			add(f.path, job.Shorten(f.text, 40), "is too long, or is no text", "keep it to "+itoa(f.most)+" bytes")
		}
	}
	known, err := d.cfg.Queues(ctx)
	if err != nil {
		return err
	}
	for i, q := range a.Queues {
		if !slices.Contains(known, q) {
			add("queues["+itoa(i)+"]", q, "is no queue", "name queues that exist, or leave it out for all: see pawl get queues")
		}
	}
	if len(wrong.Problems) > 0 {
		return &wrong
	}
	if len(a.Queues) == 0 {
		a.Queues = known
	}
	if a.ID.IsZero() {
		a.ID = job.NewID()
	}
	slices.Sort(a.Kinds)
	a.Kinds = slices.Compact(a.Kinds)
	return nil
}

// process is what the session of the worker tells of it.
func (d *Desk) process(a *Ask) store.Process {
	return store.Process{
		Worker: a.Worker, Host: a.Host, PID: a.PID, Version: a.Version,
		Roles: []store.Role{store.RoleWorker}, Queues: a.Queues, Kinds: a.Kinds, Tenants: []string{d.cfg.Tenant},
		Slots: map[job.Lane]int{job.LaneTask: a.Slots},
	}
}

// Claim claims jobs for the worker of a session, which begins with its first claim. If there are
// none it waits until some are ready, or until wait ends. The error is of kind Fenced if the
// session has ended: then the worker makes a new secret.
func (d *Desk) Claim(ctx, wait context.Context, session job.ID, a Ask) (Claim, error) {
	if err := d.check(ctx, &a); err != nil {
		return Claim{}, err
	}
	w := d.waiting.join(a.where())
	defer w.leave()
	mode, err := d.begin(ctx, session, &a)
	if err != nil {
		return Claim{}, err
	}
	answer := Claim{Session: session, Lease: a.lease(), Mode: mode, Jobs: []Task{}}
	wait, over := context.WithTimeout(wait, d.patience(&a))
	defer over()
	looks := 0
	for mode == store.Work {
		jobs, all, err := d.take(ctx, session, &a)
		if err != nil {
			return Claim{}, err
		}
		w.took(all)
		if len(jobs) > 0 {
			answer.Jobs = jobs
			return answer, nil
		}
		if all {
			continue // what it got was over, and there may be more
		}
		if mode, err = d.alive(ctx, session, &a); err != nil {
			return Claim{}, err
		}
		if answer.Mode = mode; mode != store.Work {
			break
		}
		// It may have passed over jobs that another claim had locked, and then did not take.
		woken, err := w.wait(ctx, wait, again(looks))
		if err != nil || woken == nothing {
			return answer, err
		}
		if looks++; woken == announced {
			looks = 1
		}
	}
	// A worker that was told to drain or to stop asks again and again.
	select {
	case <-wait.Done():
	case <-ctx.Done():
		return answer, context.Cause(ctx)
	}
	return answer, nil
}

func (a *Ask) lease() time.Duration { return time.Duration(a.Lease) }

// where returns the queues and kinds from which a claims.
func (a *Ask) where() []job.QueueKind {
	where := make([]job.QueueKind, 0, len(a.Queues)*len(a.Kinds))
	for _, q := range a.Queues {
		for _, k := range a.Kinds {
			where = append(where, job.QueueKind{Queue: q, Kind: k})
		}
	}
	return where
}

// patience is how long a claim waits at most: then the worker is heard of again in time.
func (d *Desk) patience(a *Ask) time.Duration { return a.lease() / 2 }

// take makes one claim. all says that there were as many jobs as a asks for.
func (d *Desk) take(ctx context.Context, session job.ID, a *Ask) (jobs []Task, all bool, err error) {
	if ctx.Err() != nil { // there is nobody to whom the jobs could go
		return nil, false, context.Cause(ctx)
	}
	slots, err := d.slots(ctx, session, a)
	if err != nil {
		return nil, false, err
	}
	rows, err := d.cfg.Store.Claim(ctx, store.Claim{
		ID: a.ID, Session: session, Queues: a.Queues, Kinds: a.Kinds, Tenants: []string{d.cfg.Tenant},
		Slots: slots,
	})
	if err != nil {
		return nil, false, d.ended(session, err)
	}
	if len(rows) > 0 {
		d.cfg.Engine.Follow(ctx, store.Effects{}) // the history has grown
	}
	second, err := d.second(ctx, session, a.ID, rows)
	if err != nil {
		return nil, false, err
	}
	jobs = make([]Task, 0, len(rows))
	timed := false
	var changes []job.Change
	for i := range rows {
		j := &rows[i]
		switch {
		case j.Wish != "", // it came while the job was claimed
			second && j.Lane == job.LaneAlone:
			changes = append(changes, d.cfg.Engine.Change(engine.Back(), j, session))
		case j.Result != nil: // a run before decided it in a transaction, and died
			changes = append(changes, d.cfg.Engine.Change(engine.Decided(j.Result), j, session))
		default:
			jobs = append(jobs, taskOf(j))
			is, err := d.timed(ctx, j.Kind)
			timed = timed || is || err != nil
		}
	}
	if timed {
		d.watch(ctx, session)
	}
	if len(changes) == 0 {
		return jobs, len(rows) >= a.Slots, nil
	}
	a.ID = job.NewID() // that claim has been answered
	_, err = d.apply(ctx, changes)
	return jobs, len(rows) >= a.Slots, err
}

// apply makes changes, and follows their effects.
func (d *Desk) apply(ctx context.Context, changes []job.Change) ([]store.Applied, error) {
	answers, _, eff, err := d.cfg.Store.Apply(ctx, changes, nil)
	if err == nil {
		d.cfg.Engine.Follow(ctx, eff)
	}
	return answers, err
}
