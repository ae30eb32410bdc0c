package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/service"
)

// An order is a job that somebody wants, and how it ends if it is left alone.
type order struct {
	name     string
	spec     json.RawMessage
	state    job.State
	attempts int
	program  bool
	endless  bool          // a program that ends only when somebody ends it
	again    int           // how often it may have been submitted once more
	keys     []string      // of turns that it takes
	ordered  string        // the key in whose order it stands
	unique   string        // what it has in common with those of which there is one
	lapses   bool          // it may fail for it was blocked for too long
	since    time.Duration // when it was about to be submitted
	begun    time.Time     // the same by a clock that may be wrong
}

// namePrefix is how the names of all jobs begin, before their numbers.
const namePrefix = "storm-"

// order makes job number i.
func (s *storm) order(i int) order {
	rnd := s.random(fmt.Sprintf("job %d", i))
	o := order{name: fmt.Sprint(namePrefix, i), state: job.Finished, attempts: 1}
	spec := job.Spec{Name: o.name}
	args := map[string]any{}
	switch n := rnd.IntN(100); {
	case n < 50: // it does nothing
	case n < 60:
		args["millis"], args["deaf"] = rnd.IntN(200), n < 54
	case n < 67:
		args["fails"], o.attempts = 1, 2
	case n < 70:
		args["fails"], o.attempts, o.state = 9, 3, job.Failed
	case n < 85:
		spec.Delay = job.Duration(time.Duration(rnd.IntN(8000)) * time.Millisecond)
	case n < 86: // it is long enough to be there when its process dies, again and again
		args["millis"] = 1000 + rnd.IntN(2000)
	default:
		o.program = true
	}
	retry := job.RetryPolicy{MaxAttempts: 3, Backoff: job.Backoff{
		Kind: job.BackoffConstant,
		Base: job.Duration(50 * time.Millisecond),
	}}
	if o.program {
		retry.MaxAttempts = 2
		s.program(rnd, &o, &spec)
	}
	needs := s.trouble.needs(i, &spec)
	o.lapses = spec.Recovery != nil
	if !o.program {
		if needs != "" {
			args["needs"] = needs
		}
		text, err := json.Marshal(args)
		if err != nil {
			panic(err) // plain data
		}
		spec.Kind, spec.Args = "storm", text
	}
	spec.Retry = &retry
	o.keys = s.under(i, &spec)
	o.unique = s.alone(i, &spec)
	o.ordered = s.inOrder(i, &spec)
	var err error
	if o.spec, err = json.Marshal(spec); err != nil {
		panic(err)
	}
	return o
}

// program makes a job a program on the machine of whoever accepts it.
func (s *storm) program(rnd *rand.Rand, o *order, spec *job.Spec) {
	millis, end := rnd.IntN(300), "0"
	switch n := rnd.IntN(20); {
	case n < 4:
		millis += 2000
	case n < 6:
		end, o.attempts = "$((PAWL_ATTEMPT < 2))", 2
	case n < 8:
		end, o.attempts, o.state = "3", 2, job.Failed
	case n < 9:
		o.endless, millis = true, 1_000_000
	}
	script := s.script(millis, end)
	if rnd.IntN(2) == 0 {
		spec.Script = script
	} else {
		spec.Command = []string{"/bin/sh", "-c", script}
	}
	if rnd.IntN(3) == 0 {
		spec.Inputs = []job.Input{{From: s.dir + "/input", To: "in"}}
	}
}

// script notes that it was started, takes a while, notes when that was, and ends.
func (s *storm) script(millis int, end string) string {
	return fmt.Sprintf(`read begin _ < /proc/uptime; echo launch $PAWL_JOB_ID $PAWL_ATTEMPT $$ >> %[1]q
sleep %[2]d.%03[3]d
read end _ < /proc/uptime; echo span $PAWL_JOB_ID $PAWL_ATTEMPT 0 $begin $end >> %[1]q
echo $PAWL_JOB_ID $PAWL_ATTEMPT; exit %[4]s`,
		s.jobsLedger(), millis/1000, millis%1000, end)
}

// people is what those who use the service send their calls by: they do not wait for ever.
var people = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{
	MaxIdleConnsPerHost: 4,
	IdleConnTimeout:     5 * time.Second,
}}

// submit submits all jobs, alone, a few at once, or in bulk, evenly over the time there is. What
// was begun is done: until it is acknowledged nobody knows whether a submission was accepted.
func (s *storm) submit(ctx context.Context) {
	rnd := s.random("submit")
	var all sync.WaitGroup
	defer all.Wait()
	open := make(chan struct{}, 8)
	begun := time.Now()
	for from := 0; from < s.jobs; {
		n := []int{1, 1, 1, 3, 20, 200}[rnd.IntN(6)]
		n = min(n, s.jobs-from)
		orders := make([]order, n)
		for i := range orders {
			orders[i] = s.order(from + i)
			orders[i].since, orders[i].begun = ledger.Now(), time.Now()
		}
		key, twice, seed := job.NewID().String(), rnd.IntN(5) == 0, rnd.Uint64()
		open <- struct{}{}
		all.Go(func() {
			defer func() { <-open }()
			var calls sync.WaitGroup
			calls.Go(func() { s.accepted(rand.New(rand.NewPCG(seed, 1)), key, orders) })
			if twice {
				calls.Go(func() { s.accepted(rand.New(rand.NewPCG(seed, 2)), key, orders) })
			}
			calls.Wait()
		})
		from += n
		// All are submitted in nine tenths of the time.
		pause(ctx, time.Until(begun.Add(time.Duration(float64(s.duration)*0.9*float64(from)/float64(s.jobs)))))
	}
}

// mostPatience is for how long somebody tries to have a call answered.
const mostPatience = 5 * time.Minute

// accepted submits jobs under a key, again until that is acknowledged.
func (s *storm) accepted(rnd *rand.Rand, key string, orders []order) {
	specs := make([]json.RawMessage, len(orders))
	for i, o := range orders {
		specs[i] = o.spec
	}
	ctx, stop := context.WithTimeout(context.Background(), mostPatience)
	defer stop()
	var answers []store.Submitted
	err := s.insist(ctx, rnd, func(c *client.Client) (err error) {
		answers, err = c.Submit(ctx, key, specs...)
		return err
	})
	switch {
	case job.KindOf(err) == job.Conflict && s.book.knows(orders):
		return // the same call was answered to somebody else, and of the jobs one was deleted since
	case job.KindOf(err) == job.Conflict && s.recall(ctx, rnd, orders):
		return
	case err != nil:
		s.breaks("unanswered: the submission of %s and %d others: %v", orders[0].name, len(orders)-1, err)
		return
	}
	for i, a := range answers {
		s.answeredWith(ctx, rnd, orders[i], a.ID)
	}
}

// recall looks up by their names jobs whose submission was answered to nobody before one of them
// was deleted. That can only be one with a unique key, which others were answered with. It reports
// whether all are accounted for.
func (s *storm) recall(ctx context.Context, rnd *rand.Rand, orders []order) bool {
	for _, o := range orders {
		var page service.Views
		named, err := job.ParseFilter("name="+o.name, time.Now())
		if err == nil {
			err = s.insist(ctx, rnd, func(c *client.Client) (err error) {
				page, err = c.List(ctx, store.Query{Filter: named, Sort: store.Oldest})
				return err
			})
		}
		switch {
		case err == nil && len(page.Jobs) > 0: // the first, before those that were submitted once more
			s.met(o, &page.Jobs[0])
		case err == nil && o.unique != "":
			s.book.meet(o)
		default:
			return false
		}
	}
	return true
}

// insist makes a call of one server after the other, until one answers it. An error that is the
// answer is returned.
func (s *storm) insist(ctx context.Context, rnd *rand.Rand, call func(*client.Client) error) error {
	servers := s.servers()
	for {
		c, err := servers[rnd.IntN(len(servers))].client(1)
		if err == nil {
			err = call(c)
		}
		if err == nil || answered(err) {
			return err
		}
		if !pause(ctx, between(rnd, 20*time.Millisecond, 500*time.Millisecond)) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// answered reports whether an error is what the service answers to a call, rather than a call that
// was not answered.
func answered(err error) bool {
	switch job.KindOf(err) {
	case job.Invalid, job.NotFound, job.Conflict, job.Denied:
		return true
	}
	return false
}
