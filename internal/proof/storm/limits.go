package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/turns"
	"github.com/pawl-jobs/pawl/store"
)

// Limits are what was said of limits, as who says it knows.
type limits struct {
	s *storm

	mu   sync.Mutex
	said []saying // guarded by mu
}

// A saying is that so many jobs may have turns of a key, math.MaxInt for any number. If it was
// answered it was in force at some time between since and until.
type saying struct {
	key          string
	most         int
	since, until time.Duration
	answered     bool
	doubt        bool // there was a try of which nobody knows what became of it: it may be made at any time still
}

// The limits with which a storm begins. Those of the keys of places are changed.
var (
	first = []job.Limit{
		{Key: "lab/*", Most: 3, Weights: map[string]int{"ada": 3}},
		{Key: "pool", Most: 20, Weights: map[string]int{"ada": 3}},
		{Key: "kind/storm", Most: 60},
		{Key: "system/local", Most: 16},
		{Key: "system/local/user/*", Most: 10},
		begins, pace,
	}
	// begins is the rate of starts.
	begins = job.Limit{Key: job.RateOf(job.RateStarts, job.SystemLocal), Most: 60, Per: job.Duration(2 * time.Second)}
	// pace is the rate of launches. It is set anew from time to time, as what it is: whoever waits
	// for a moment is given another one then.
	pace   = job.Limit{Key: job.RateOf(job.RateLaunches, job.SystemLocal), Most: 30, Per: job.Duration(2 * time.Second)}
	places = map[string][]int{
		"lab/a": {0, 1, 2, math.MaxInt}, "lab/b": {1, 0}, "pool": {20, 2}, "kind/storm": {60, 20}, "system/local": {16, 0, 4, 8},
	}
)

// under puts a job under limits, and returns the keys of its turns that are made here.
func (s *storm) under(i int, spec *job.Spec) (keys []string) {
	rnd := s.random(fmt.Sprintf("limits of job %d", i))
	spec.Owner = []string{"ada", "ben", "cy"}[rnd.IntN(3)]
	kind := "kind/storm"
	if spec.Kind == "" {
		kind = "system/local"
		keys = append(keys, "system/local/user/"+spec.Owner)
	}
	n := rnd.IntN(10)
	if n < 3 {
		spec.Limits = append(spec.Limits, "lab/"+string(rune('a'+rnd.IntN(5))))
	}
	if n == 2 || n == 3 {
		spec.Limits = append(spec.Limits, "pool")
	}
	if n == 4 && rnd.IntN(2) == 0 {
		same := strconv.Itoa(rnd.IntN(4))
		spec.Unique = &job.Unique{Key: same, Until: job.WhileRunning}
		keys = append(keys, "unique/"+cmp.Or(spec.Kind, job.KindApp)+"/"+same)
	}
	return append(keys, slices.Concat(spec.Limits, []string{kind})...)
}

// begin sets the limits with which a storm begins.
func (l *limits) begin(ctx context.Context) error {
	rnd := l.s.random("first limits")
	for _, limit := range first {
		if err := l.say(ctx, rnd, limit); err != nil {
			return fmt.Errorf("limit %s: %w", limit.Key, err)
		}
	}
	return nil
}

// change changes limits until ctx ends, and sees that programs which never end by themselves do not
// keep all places.
func (l *limits) change(ctx context.Context) {
	rnd := l.s.random("limits")
	keys := []string{"kind/storm", "lab/a", "lab/b", "pool", "system/local", pace.Key}
	for pause(ctx, between(rnd, 300*time.Millisecond, 2*time.Second)) {
		key := keys[rnd.IntN(len(keys))]
		limit := pace
		if key != pace.Key {
			limit = job.Limit{Key: key, Most: places[key][rnd.IntN(len(places[key]))]}
		}
		if err := l.say(ctx, rnd, limit); err != nil && ctx.Err() == nil {
			l.s.breaks("limit: %s to %d: %v", key, limit.Most, err)
		}
		for _, p := range l.s.book.where(func(p *promise) bool {
			return p.endless && !p.asked &&
				time.Since(p.at) > 5*time.Second
		}) {
			servers := l.s.servers()
			if c, err := servers[rnd.IntN(len(servers))].client(1); err == nil {
				l.s.cancel(ctx, c, p, 0)
			}
		}
	}
}

// settle leaves limits with which all jobs come to their ends, where there are any.
func (l *limits) settle(ctx context.Context) error {
	l.mu.Lock()
	none := len(l.said) == 0
	l.mu.Unlock()
	if none {
		return nil
	}
	rnd := l.s.random("last limits")
	err := l.say(ctx, rnd, job.Limit{Key: "lab/a", Most: math.MaxInt})
	for _, limit := range append(first, job.Limit{Key: "lab/b", Most: 2}) {
		err = errors.Join(err, l.say(ctx, rnd, limit))
	}
	return err
}

// say sets a limit, or takes it away, again until that is answered.
func (l *limits) say(ctx context.Context, rnd *rand.Rand, limit job.Limit) error {
	at := ledger.Now()
	tries := 0
	err := l.s.insist(ctx, rnd, func(c *client.Client) error {
		tries++
		if limit.Most < math.MaxInt {
			_, err := c.SetLimit(ctx, limit)
			return err
		}
		err := c.RemoveLimit(ctx, limit.Key)
		if job.KindOf(err) == job.NotFound {
			err = nil
		}
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.changed()
	l.said = append(l.said, saying{limit.Key, limit.Most, at, ledger.Now(), err == nil, tries > 1 || err != nil})
	return err
}

func (s *storm) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Limits++
}

// may returns how many jobs at most could get a turn of a key at some time between from and to.
func (l *limits) may(key string, from, to time.Duration) int {
	if job.Implied(key) != nil {
		return 1
	}
	own, none := l.most(key, from, to)
	if !none {
		return own
	}
	if family, none := l.most(job.Family(key), from, to); !none {
		return max(own, family)
	}
	return math.MaxInt
}

// most returns the most that may have been set for a key between from and to, and whether it may
// have been without a limit of its own: as it was when from came, and all that was said since or
// may still be made.
func (l *limits) most(key string, from, to time.Duration) (most int, none bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := -1
	for i, s := range l.said {
		if s.key == key && s.answered && s.until < from {
			base = i
		}
	}
	none = base < 0
	for i, s := range l.said {
		switch {
		case s.key != key, s.since > to, i < base && !s.doubt:
		case s.most == math.MaxInt:
			none = true
		default:
			most = max(most, s.most)
		}
	}
	return most, none
}

// turns: at no time more jobs ran under a key than a limit let go that was in force at some time
// since they were there, and none beside another one that is to run alone.
func (c *checker) turns(ctx context.Context) {
	if c.restored() {
		return // of what was said nobody knows what was in force
	}
	running := map[string][]ledger.Span{}
	for _, s := range c.did.Spans {
		j := c.rows[s.Job]
		if j == nil || !checks.Rightful(ctx, j, s.Epoch, c.history) {
			continue
		}
		for _, key := range j.Limits {
			running[key] = append(running[key], s)
		}
		if p := c.promised(j.ID); p != nil && strings.Contains(p.unique, string(job.UntilDone)) {
			running[p.unique] = append(running[p.unique], s)
		}
		if j.Order != "" {
			running[j.Order] = append(running[j.Order], s)
			if first, ran := c.began[j.ID]; !ran || s.Begin < first {
				c.began[j.ID] = s.Begin
			}
		}
		c.sum.Spans++
	}
	for key, spans := range running {
		c.side(key, spans)
		if job.Ordered(key) {
			c.apiece(spans)
		}
	}
	for _, p := range c.book.where(func(p *promise) bool { return len(p.keys) > 0 }) {
		if j := c.rows[p.id]; j != nil {
			for _, key := range p.keys {
				if !slices.Contains(j.Limits, key) {
					c.broken(j.ID, "unlimited: job %s (%s) is to be under %s, and is under %q", j.ID, j.Name, key, j.Limits)
				}
			}
		}
	}
}

// side looks who ran side by side under a key.
func (c *checker) side(key string, spans []ledger.Span) {
	slices.SortFunc(spans, func(a, b ledger.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	var beside []ledger.Span
	for _, s := range spans {
		if s.End < s.Begin {
			continue // it ran for so short that there is no time of which it is known that it did
		}
		beside = append(slices.DeleteFunc(beside, func(o ledger.Span) bool { return o.End <= s.Begin }), s)
		since := s.Begin
		for _, o := range beside {
			since = min(since, c.book.since(o.Job))
		}
		if may := c.limits.may(key, since, s.Begin); len(beside) > may {
			var names []string
			for _, o := range beside {
				names = append(names, o.Job.String())
			}
			c.broken(s.Job, "limit: job %s ran beside %d others under %s at %s, and %d may have turns of it: %s",
				s.Job, len(beside)-1, key, s.Begin, may, strings.Join(names, " "))
			return
		}
		c.mu.Lock()
		c.sum.SideBySide = max(c.sum.SideBySide, len(beside))
		c.mu.Unlock()
	}
}

// paced: by the database's clock no time of the length of a rate holds more starts, or launches,
// than that lets go. Those of a time at which clocks were wrong are not looked at.
func (c *checker) paced(ctx context.Context) {
	if c.restored() {
		return
	}
	var starts, launches []checks.Span
	for _, j := range c.rows {
		if j.Program() {
			history := c.history(ctx, j.ID)
			starts, launches = append(starts, checks.Starts(history)...), append(launches, checks.Launches(history)...)
		}
	}
	for _, r := range []struct {
		done  string
		rate  *job.Limit
		spans []checks.Span
	}{{"began", &begins, starts}, {"was launched", &pace, launches}} {
		right := slices.DeleteFunc(r.spans, func(s checks.Span) bool {
			return c.wrong(s.From) || c.wrong(s.To) ||
				!c.rightUntil(s.To)
		})
		c.sum.Paced += len(right)
		if s, within := checks.TooMany(r.rate, right); s != nil {
			c.broken(s.Job, "pace: job %s %s by %s, and with it %d others within %v, %s",
				s.Job, r.done, s.To, r.rate.Most, within, r.rate.Terms())
		}
	}
}

// mostIdle is how long a place may be free beside a line once nothing goes wrong any more.
const mostIdle = 5 * lease

// An idler sees places that stay free beside a line. Two looks tell nothing of what was between
// them if that was long: on a busy machine it looks seldom.
type idler struct {
	s     *storm
	last  time.Time
	since map[string]time.Time
}

func (i *idler) look(ctx context.Context, st store.Store) error {
	all, err := st.Turns(ctx, store.TurnQuery{Tenant: tenant, Limit: 1000})
	if time.Since(i.last) > mostIdle/2 {
		i.since = nil
	}
	i.last = time.Now()
	free := map[string]time.Time{}
	for _, u := range all {
		k := turns.Key{Limit: u.Limit, Held: map[string]int{}}
		waiting := 0
		for _, share := range u.Owners {
			k.Held[share.Owner], waiting = share.Held, waiting+share.Waiting
		}
		if waiting == 0 || k.Free(u.Key) == 0 {
			continue
		}
		if free[u.Key] = i.since[u.Key]; free[u.Key].IsZero() {
			free[u.Key] = time.Now()
		}
		if idle := time.Since(free[u.Key]); idle > mostIdle {
			i.s.breaks("idle_place: of %s %d places have been free for %s, and %d jobs wait for them",
				u.Key, k.Free(u.Key), idle, waiting)
		}
	}
	i.since = free
	return err
}
