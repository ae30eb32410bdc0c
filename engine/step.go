package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A Run is one job in the custody of this process. It is used by one goroutine at a time.
type Run struct {
	// Job is the row as this process knows it. Steps read it. If the claim was the intent to
	// launch, that intent shows only after [Run.Launch].
	Job job.Job

	s       *session
	id      job.ID
	lane    job.Lane // whose slot it has
	epoch   int64
	claimed time.Time
	stepped bool        // a step has ended
	later   *job.Change // the change that lets the job wait for its moment; the step must stop for that
	wish    job.Wish    // the wish that it was claimed with
	intent  bool        // the claim was the intent to launch it, and the launch has not been decided yet
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

func newRun(s *session, j job.Job) *Run {
	r := &Run{Job: j, s: s, id: j.ID, lane: j.Lane, epoch: j.Epoch, claimed: j.Since, wish: j.Wish}
	if r.intent = j.Intended(); r.intent {
		r.Job.Launch, r.Job.Live = j.Launch-1, false
	}
	r.ctx, r.cancel = context.WithCancelCause(s.ctx)
	return r
}

// made returns the rest of change c if the claim was the intent to launch. Either c asks for that
// intent, or that launch never takes place.
func (r *Run) made(c job.Change) job.Change {
	if !r.intent {
		return c
	}
	r.intent = false
	r.Job.Launch++
	if c.Set.Intent {
		r.Job.Live, c.Set.Intent = true, false
	} else {
		c.Set.Over = true
	}
	return c
}

// Fence returns the fence under which this run writes.
func (r *Run) Fence() job.Fence { return job.Fence{Session: r.s.id} }

// First reports whether this is the first step since the job was claimed.
func (r *Run) First() bool { return !r.stepped }

// Record commits an entry while the job stays where it is, such as a launch intent or a manifest.
// It returns once the entry is durable. An empty e.State stands for the present state; nil work
// keeps the kind's progress. An error means that the step must stop and return [Back].
func (r *Run) Record(ctx context.Context, e job.Entry, set job.Patch, work json.RawMessage) error {
	if e.State == "" {
		e.State = r.Job.State
	}
	answered := make(chan error, 1)
	r.send(job.Change{Path: []job.Entry{e}, To: job.Worker, Set: set, Work: work}, func(err error) { answered <- err })
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Report keeps work in place of what the kind kept before, without a row of history: see
// [job.Report]. answered is called once, with nil when that is durable. It must not block. An error
// means that the step must stop and return [Back].
func (r *Run) Report(work json.RawMessage, answered func(error)) {
	r.send(job.Report(r.id, r.Job.Guard(r.Fence()), work), answered)
}

// Teller returns a function that writes events of the job's program, while this run holds the job.
// Any goroutine may call it.
func (r *Run) Teller() func(context.Context, job.CustomEvent) error {
	n := store.NewEvent{Tenant: r.Job.Tenant, Job: r.id, By: r.Job.Owner, Cause: job.CauseJob, Epoch: r.epoch}
	return func(ctx context.Context, e job.CustomEvent) error {
		n := n
		n.CustomEvent = e
		return r.s.e.addEvent(ctx, n)
	}
}

// addEvent writes an event. It tries again while the store cannot be reached.
func (e *Engine) addEvent(ctx context.Context, n store.NewEvent) error {
	eff, err := retry(ctx, e, "write an event", func() (store.Effects, error) {
		_, eff, err := e.cfg.Store.AddEvent(ctx, n)
		return eff, err
	})
	if err == nil || len(eff.Ready) > 0 {
		e.Follow(ctx, eff)
	}
	return err
}

// wished ends the step because of a wish, unless the job was claimed to carry out that wish.
func (r *Run) wished(w job.Wish) {
	if r.wish == w {
		return
	}
	if w == job.WishPause {
		r.cancel(ErrPaused)
		return
	}
	r.cancel(ErrCanceled)
}

// work runs the steps of the job until it leaves this process.
func (r *Run) work() {
	if r.Job.Wish != "" && !r.Job.Live {
		r.hand(back(&r.Job))
		return
	}
	// The tracer hears of the end before the slot is free: then the service may stop.
	ctx, told := r.s.e.cfg.Tracer.Run(r.ctx, &r.Job)
	over, stepped := false, func(job.Entry) {}
	hand := func(c job.Change) {
		over = true
		stepped(*c.Last())
		told(*c.Last())
		r.hand(c)
	}
	defer func() {
		if !over { // by runtime.Goexit, as testing's FailNow does
			ended := job.Entry{Code: job.TaskPanicked, Message: "the handler ended its goroutine"}
			hand(Retry(ended).change(r.s.e, &r.Job, r.Fence()))
		}
	}()
	kind := r.s.e.cfg.Kinds[r.Job.Kind]
	for {
		o := Back()
		if r.ctx.Err() == nil {
			var in context.Context
			in, stepped = r.s.e.cfg.Tracer.Step(ctx, &r.Job)
			o = r.step(leased{in, r.s, r.cancel}, kind)
		}
		if cause := context.Cause(r.ctx); cause != nil && o.failed() {
			if errors.Is(cause, ErrLeaseLost) {
				over = true
				stepped(job.Entry{})
				told(job.Entry{})
				r.s.leave(r, true)
				r.s.freed.set()
				return
			}
			o.set.Block = nil
			o = Back().Set(o.set)
		}
		c := o.change(r.s.e, &r.Job, r.Fence())
		if r.later != nil && o.verb == verbBack && r.ctx.Err() == nil {
			c = *r.later
		}
		if c.To != job.Worker {
			hand(c)
			return
		}
		stepped(*c.Last())
		stepped = func(job.Entry) {}
		r.stepped = true
		r.send(c, func(error) {})
	}
}

// A leased context is that of a step or a duty. If this process was frozen beyond its lease, all of
// it wakes up at once, and a step may be faster than the loop that renews. So Err also looks at the
// lease.
type leased struct {
	context.Context
	s *session
	// cancel ends this context or one above it. It must not end the context of the session: loops
	// still claim under that one.
	cancel context.CancelCauseFunc
}

func (c leased) Err() error {
	if c.s.lapse() {
		c.cancel(ErrLeaseLost)
	}
	return c.Context.Err()
}

// step runs one step. A panic fails the attempt and nothing else.
func (r *Run) step(ctx context.Context, kind Kind) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = Panicked(p, string(debug.Stack()))
		}
	}()
	if r.Job.Program() && r.Job.State == job.ProcessingInputs && r.First() {
		if _, err := r.moment(ctx, job.RateStarts, r.Job.Attempt, 0); err != nil {
			return Back()
		}
	}
	if b := r.blocks(ctx); b != nil {
		return Block(b)
	}
	return kind.Step(ctx, r)
}

// blocks returns the block that keeps the job from its next step. A job that was launched or has
// ended is beyond that.
func (r *Run) blocks(ctx context.Context) *job.Block {
	j := &r.Job
	if r.s.e.cfg.Blocks == nil || j.Live || j.Wish != "" || j.State == job.Archiving {
		return nil
	}
	return r.s.e.cfg.Blocks(ctx, j)
}

// send hands a change that stays in this custody to the committer, and goes on from it. answered
// hears whether it was applied. If it was not, the run is over.
func (r *Run) send(c job.Change, answered func(error)) {
	c = r.made(c)
	c.Job, c.From = r.id, r.Job.Guard(r.Fence())
	r.Job, _ = r.Job.Apply(c, time.Now())
	lane := r.Job.Lane
	r.s.commit.send(c, func(a store.Applied, err error) {
		switch {
		case a.Outcome == store.Conflict && err != nil:
			r.cancel(err) // refused for good: see hand
		case err != nil || a.Outcome != store.OK:
			err = ErrLeaseLost
			r.cancel(err)
		default:
			r.s.move(r, lane)
			if a.Wish != "" {
				r.wished(a.Wish)
			}
		}
		answered(err)
	})
}

// hand gives the job out of the custody of this process. The slot is free once that is durable.
func (r *Run) hand(c job.Change) {
	c = r.made(c)
	r.handFrom(r.Job.Guard(r.Fence()), c)
}

func (r *Run) handFrom(g job.Guard, c job.Change) {
	c.Job, c.From = r.id, g
	r.s.commit.send(c, func(a store.Applied, err error) {
		if a.Outcome == store.Conflict && c.Last().Code != job.InternalError {
			// The store refused this change for good, or one before it. The job must not stay with
			// nobody at work on it.
			if err == nil {
				err = context.Cause(r.ctx)
			}
			r.s.e.cfg.Log.Error("a change was refused; the job fails", "job", r.id, "error", err)
			failed := Fail(job.Entry{Code: job.InternalError, Message: fmt.Sprint(err)})
			r.handFrom(a.Now, failed.change(r.s.e, &r.Job, r.Fence()))
			return
		}
		r.s.leave(r, a.Outcome == store.Fenced)
	})
}

// back returns the change that gives a job back as if it had never been claimed.
func back(j *job.Job) job.Change {
	c := job.Expired(j, false)
	c.Path[0].Message = ""
	return c
}

// An Outcome is the result of a step. Its zero value is that of [Back].
type Outcome struct {
	verb  verb
	entry job.Entry
	set   job.Patch
	work  json.RawMessage
}

type verb int

const (
	verbBack verb = iota
	verbNext
	verbLaunched
	verbRequeue
	verbRetry
	verbFail
	verbDone
	verbBlock
	verbSnooze
)

// Next goes on in state s, in this process.
func Next(s job.State) Outcome { return Outcome{verb: verbNext, entry: job.Entry{State: s}} }

// Launched hands the job to the watcher: its program runs, or waits in a scheduler. s is RUNNING or
// QUEUED.
func Launched(s job.State) Outcome { return Outcome{verb: verbLaunched, entry: job.Entry{State: s}} }

// Requeue gives the job back to its queue. It goes on in state s.
func Requeue(s job.State) Outcome { return Outcome{verb: verbRequeue, entry: job.Entry{State: s}} }

// Retry fails this attempt. While the job has attempts left, another one follows after a backoff.
func Retry(e job.Entry) Outcome { return Outcome{verb: verbRetry, entry: e} }

// Panicked is the outcome of a step that panicked with a value: Retry, with the stack in the
// history.
func Panicked(value any, stack string) Outcome {
	data, err := json.Marshal(map[string]string{"stack": stack})
	if err != nil {
		data = nil
	}
	return Retry(job.Entry{Code: job.TaskPanicked, Message: fmt.Sprintf("panic: %v", value), Data: data})
}

// Fail ends the job as FAILED, even if it has attempts left.
func Fail(e job.Entry) Outcome {
	e.State = job.Failed
	return Outcome{verb: verbFail, entry: e}
}

// Block makes the job wait until the block has cleared. Then it goes on in its present state, a
// task from its beginning.
func Block(b *job.Block) Outcome {
	block := *b
	return Outcome{
		verb: verbBlock, entry: job.Entry{State: job.Blocked, Code: b.Code, Message: b.Error()},
		set: job.Patch{Block: &block},
	}
}

// At returns o, which is of [Block], of a program that goes on in another state, one that is before
// the present one.
func (o Outcome) At(s job.State) Outcome {
	o.set.Resume = s
	return o
}

// Snooze makes a task wait for d. Then it runs again, in the same attempt.
func Snooze(d time.Duration, e job.Entry) Outcome {
	return Outcome{verb: verbSnooze, entry: e, set: job.Patch{Delay: min(max(0, d), job.MaxDelay)}}
}

// Cancel ends the job as CANCELED, because its handler says so.
func Cancel(e job.Entry) Outcome {
	e.State, e.Code = job.Canceled, job.CanceledByJob
	return Outcome{verb: verbFail, entry: e}
}

// Done ends the job as FINISHED with a result, which may be nil.
func Done(result json.RawMessage) Outcome {
	return Outcome{
		verb: verbDone, entry: job.Entry{State: job.Finished, Code: job.NormalCompletion},
		set: job.Patch{Result: result},
	}
}

// Decided is [Done] with a result that may be empty JSON, which is none.
func Decided(result json.RawMessage) Outcome {
	if s := string(result); s == "null" || s == "{}" {
		result = nil
	}
	return Done(result)
}

// Back gives the job back as if it had never been claimed. A step that was told to stop returns it.
func Back() Outcome { return Outcome{} }

// Set returns o with p recorded in the same change. A result or block that p leaves out is that of
// o.
func (o Outcome) Set(p job.Patch) Outcome {
	result, block := o.set.Result, o.set.Block
	o.set = p
	if p.Result == nil {
		o.set.Result = result
	}
	if p.Block == nil {
		o.set.Block = block
	}
	return o
}

// Fails reports whether the outcome ends j as FAILED.
func (o Outcome) Fails(j *job.Job) bool {
	return o.verb == verbFail && o.entry.State == job.Failed || o.verb == verbRetry && j.Attempt >= j.MaxAttempts
}

// Kept returns o with a result, unless o has one.
func (o Outcome) Kept(result json.RawMessage) Outcome {
	if o.set.Result == nil {
		o.set.Result = result
	}
	return o
}

// Explain returns o with a message and evidence for the history.
func (o Outcome) Explain(message string, data json.RawMessage) Outcome {
	o.entry.Message, o.entry.Data = message, data
	return o
}

// Work returns o with new progress of the kind in place of the old.
func (o Outcome) Work(w json.RawMessage) Outcome {
	o.work = w
	return o
}

// failed reports whether the step did not do what it was called for.
func (o Outcome) failed() bool {
	return o.verb == verbBack || o.verb == verbRetry || o.verb == verbFail || o.verb == verbBlock
}

// Change returns what o makes of a task that a session holds which is no session of this process,
// such as that of a worker elsewhere.
func (e *Engine) Change(o Outcome, j *job.Job, session job.ID) job.Change {
	return o.change(e, j, job.Fence{Session: session})
}

// change returns what o makes of the job j, which the holder of f works on.
func (o Outcome) change(e *Engine, j *job.Job, f job.Fence) job.Change {
	c := job.Change{Job: j.ID, From: j.Guard(f), Path: []job.Entry{o.entry}}
	switch o.verb {
	case verbBack:
		c = back(j)
		c.From.Fence = f
		c.Path[0].Message, c.Path[0].Data = o.entry.Message, o.entry.Data
	case verbNext:
		c.To = job.Worker
		if j.Lacks(o.entry.State) != 0 { // it waits for its turn, and any worker goes on with it then
			c.To = job.Ready
		}
	case verbLaunched:
		c.To = job.Monitor
	case verbRequeue:
		c.To = job.Ready
	case verbRetry:
		spec, err := job.ParseSpec(j.Request)
		if err != nil {
			spec = job.Spec{}
		}
		spec.Kind = j.Kind
		c = job.Retry(j, f, spec.RetryPolicy(), o.entry, chance())
	case verbFail, verbDone:
		c.To = job.None
	case verbSnooze:
		c = job.Snooze(j, f, o.entry, o.set.Delay)
	case verbBlock:
		c.To = job.Recovery
		if o.set.Resume = cmp.Or(o.set.Resume, j.State); !j.Program() {
			o.set.Resume = job.Pending
		}
		o.set.Block.Policy = e.policy(j, o.set.Block)
	}
	delay, retry := c.Set.Delay, c.Set.Retry
	c.Set = o.set
	c.Set.Delay, c.Set.Retry = max(delay, o.set.Delay), retry || o.set.Retry
	c.Set.Clear = o.verb != verbBack // the process has outlived the step, however it came to its end
	c.Work = o.work
	return c
}
