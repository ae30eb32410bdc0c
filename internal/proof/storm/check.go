package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

const tenant = "default"

// open opens the database to read it. A server that has died of its clock, when that was put right,
// is back in a moment.
func (s *storm) open(ctx context.Context) (store.Store, error) {
	for begin := time.Now(); ; {
		st, err := checks.OpenStore(ctx, s.dsn, s.folder(s.nodes[0].machine))
		if job.KindOf(err) != job.Unavailable || s.server == nil || time.Since(begin) > s.still || !pause(ctx,
			200*time.Millisecond) {
			return st, err
		}
	}
}

func (s *storm) query() (*sql.DB, error) {
	return checks.Open(s.dsn, s.folder(s.nodes[0].machine), "ro")
}

// A patience is how long is waited for what must come.
type patience struct {
	still    time.Duration // for the end of a job while some are left, once the weather is clear
	stop     time.Duration // for a process that was told to stop
	gone     time.Duration // for processes and connections to be gone, when all were stopped
	settling time.Duration // for what the last jobs leave to do
	idling   time.Duration // how long to look on while nothing is to be done
}

// usual has less time for a job than the minute after which a sweep comes by: what only that finds
// was forgotten.
var usual = patience{
	still: 50 * time.Second, stop: time.Minute, gone: 20 * time.Second, settling: 3 * lease,
	idling: 10 * time.Second,
}

// drain has all jobs come to their ends, once nothing goes wrong any more.
func (s *storm) drain(ctx context.Context) error {
	s.clear()
	st, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := s.trouble.settle(ctx); err != nil {
		return fmt.Errorf("enable the system: %w", err)
	}
	if err := s.limits.settle(ctx); err != nil {
		return fmt.Errorf("set the last limits: %w", err)
	}
	idle := &idler{s: s}
	rnd := s.random("drain")
	least, since, said := -1, time.Now(), time.Now()
	for {
		ours, err := unended(ctx, st, tenant)
		theirs, err2 := unended(ctx, st, strangerTenant)
		if err := errors.Join(err, err2, idle.look(ctx, st)); err != nil {
			// A server may die once more of its clock, which steps now, and come back by itself.
			if time.Since(since) < s.still && pause(ctx, 200*time.Millisecond) {
				continue
			}
			return fmt.Errorf("read what is left: %w", err)
		}
		s.letGo(ctx, rnd, ours)
		left := slices.Concat(ours, theirs)
		switch {
		case len(left) == 0:
			s.printf("all jobs have ended")
			s.strangers.leave(ctx)
			return nil
		case least < 0 || len(left) < least:
			least, since = len(left), time.Now()
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				s.printf("%d jobs have not ended", least)
			}
		case time.Since(since) > s.still:
			for _, j := range left {
				s.breaks("stuck: job %s is %s since %s and nothing moves it", j.ID, j.Place, j.Since.Format(time.TimeOnly))
				s.tell(j.ID)
			}
			s.interrogate()
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// unended returns the jobs of a tenant that have not ended.
func unended(ctx context.Context, st store.Reader, tenant string) (left []job.Job, err error) {
	for j, err := range checks.Jobs(ctx, st, tenant, job.Unended()) {
		if err != nil {
			return nil, err
		}
		left = append(left, j)
	}
	return left, nil
}

// interrogate makes all processes tell what they are doing.
func (s *storm) interrogate() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	for _, n := range s.nodes {
		if p := n.now(); p != nil {
			p.Killed.Store(true)
			p.Signal(syscall.SIGQUIT)
			s.printf("what %s was doing is in %s", n.name, p.Said)
		}
	}
	s.living.Wait()
}

// check looks at everything that is left.
func (s *storm) check(ctx context.Context) error {
	if err := s.idle(ctx); err != nil {
		return err
	}
	s.sum.Restored = s.restored()
	for _, e := range s.ears {
		if !s.restored() {
			if err := e.rest(ctx); err != nil {
				s.breaks("events: %s: %v", e.name, err)
			}
		}
		s.sum.Events += e.events
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	return s.judge(ctx)
}

// judge looks at what is left when nothing runs any more.
func (s *storm) judge(ctx context.Context) error {
	did, err := s.deeds()
	if err != nil {
		return err
	}
	if err := s.left(ctx); err != nil {
		return err
	}
	st, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	c := &checker{
		storm: s, store: st, did: did, began: map[job.ID]time.Duration{}, theirs: map[job.ID]job.Job{},
		byName: map[string]int{},
	}
	if err := c.read(ctx); err != nil {
		return err
	}
	c.accepted()
	c.apart()
	c.ran()
	c.turns(ctx)
	c.paced(ctx)
	c.orders(ctx)
	c.blocked(ctx)
	for _, p := range s.book.where(func(*promise) bool { return true }) {
		if j := c.rows[p.id]; j != nil {
			c.job(ctx, j, p)
		}
	}
	c.histories(ctx)
	if !c.restored() {
		c.heard(ctx)
	}
	c.folders()
	return nil
}

// idle: with nothing to do, processes ask the database for nothing but their renewals, three in a
// lease, and what a sweep asks. Who follows events meanwhile costs nothing.
func (s *storm) idle(ctx context.Context) error {
	s.settled.Store(true)
	if s.server == nil {
		return nil
	}
	db, err := s.query()
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
		return fmt.Errorf("count what idle processes ask (install the server's contrib package): %w", err)
	}
	pause(ctx, s.settling)
	if _, err := db.ExecContext(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return err
	}
	begun := time.Now()
	pause(ctx, s.idling)
	all, err := checks.Column(ctx, db, `SELECT calls || ' ' || substr(query, 1, 100) FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
			AND query NOT LIKE '%pg_stat_statements%' ORDER BY calls DESC`)
	if err != nil {
		return err
	}
	asked := 0
	for _, line := range all {
		n, _, _ := strings.Cut(line, " ")
		calls, err := strconv.Atoi(n)
		if err != nil {
			return err
		}
		asked += calls
	}
	took := time.Since(begun)
	renewals := float64(len(s.nodes)) * float64(took) / float64(lease/3)
	s.printf("idle: %d statements in %s, %.0f renewals are due", asked, took.Round(time.Second), renewals)
	if most := renewals*1.2 + 20; float64(asked) > most {
		s.breaks("idle: %d statements of %d idle processes in %s, at most %.0f are expected: %q",
			asked, len(s.nodes), took, most, all)
	}
	return nil
}

// left: nothing is left in the database, nor connected to it.
func (s *storm) left(ctx context.Context) error {
	rows, err := checks.Rows(ctx, s.dsn, s.folder(s.nodes[0].machine), s.gone)
	for _, what := range rows {
		s.breaks("%s", what)
		if id, found := idIn(what); found {
			s.tell(id)
		}
	}
	return err
}

// A checker compares promises and deeds with the database.
type checker struct {
	*storm
	store  store.Store
	did    *ledger.Ledger
	began  map[job.ID]time.Duration // when jobs ran first; see [checker.turns]
	rows   map[job.ID]*job.Job
	theirs map[job.ID]job.Job // of the other tenant
	byName map[string]int
}

func (c *checker) read(ctx context.Context) (err error) {
	if c.rows, err = checks.Whole(ctx, c.store, tenant, c.broken); err != nil {
		return err
	}
	for _, j := range c.rows {
		c.byName[j.Name]++
		c.sum.States[string(j.State)]++
	}
	for j, err := range checks.Jobs(ctx, c.store, strangerTenant, nil) {
		if err != nil {
			return err
		}
		c.theirs[j.ID] = j
	}
	return nil
}

// accepted: what was accepted is exactly one job, unless it was deleted, nothing else is there, and
// all have ended.
func (c *checker) accepted() {
	most, names := map[string]int{}, map[string]bool{}
	for _, p := range c.book.where(func(*promise) bool { return true }) {
		c.sum.Jobs++
		most[p.name] += p.again
		names[p.name] = true
		j, back := c.rows[p.id], c.restored()
		switch {
		case back && (p.deleting || p.at.After(c.saved.from)): // the database may know nothing of it
		case p.deleted && j != nil:
			c.broken(p.id, "deleted: job %s (%s) was deleted, and is there", p.id, p.name)
		case p.deleted:
			c.sum.Deleted++
		case j == nil && !p.deleting:
			c.sum.Lost++
			c.broken(p.id, "lost: job %s (%s) is not there", p.id, p.name)
		case j != nil && j.Name != p.name:
			c.broken(p.id, "stranger: job %s is %s, and was accepted as %s", p.id, j.Name, p.name)
		case j != nil && !j.State.Terminal():
			c.sum.Lost++
			c.broken(p.id, "lost: job %s (%s) was left %s", p.id, p.name, j.Place)
		}
	}
	for _, name := range c.book.others() {
		c.sum.Met++
		names[name] = true
	}
	if len(names) != c.jobs {
		c.breaks("accepted: %d jobs of %d", len(names), c.jobs)
	}
	for name, n := range c.byName {
		if n > 1+most[name] {
			c.breaks("twice: %d jobs are %s, which was submitted once and resubmitted %d times at most", n, name, most[name])
		}
	}
	for id, j := range c.rows {
		if !strings.HasPrefix(j.Name, namePrefix) {
			c.broken(id, "stranger: job %s (%s) was never submitted", id, j.Name)
		}
	}
}

// job: it ended as it should, and ran as often as it says.
func (c *checker) job(ctx context.Context, j *job.Job, p *promise) {
	if !j.State.Terminal() {
		return
	}
	if c.restored() {
		return // its history is another one than what people saw
	}
	history := c.history(ctx, j.ID)
	c.inTime(j, history)
	if j.State == job.Finished && !p.program {
		c.result(j, p)
	}
	if j.Code == job.Poison {
		if c.sum.Poison++; !checks.Poisoned(history) {
			c.broken(j.ID, "poison: job %s (%s) ended as POISON, and few of its processes had died", j.ID, p.name)
		}
		return
	}
	switch {
	case checks.Deadly(history):
		c.sum.Poison++
	case p.granted && j.State != job.Canceled:
		c.broken(j.ID, "cancel_forgotten: job %s (%s) was canceled and ended %s", j.ID, p.name, j.State)
	case j.State == job.Canceled && p.asked:
	case c.trouble.ended(j, p):
	case c.noSpace(j, p):
	case j.State != p.state:
		c.broken(j.ID, "wrong_end: job %s (%s) ended %s (%s: %s), want %s", j.ID, p.name, j.State, j.Code, j.Message, p.state)
	case j.Attempt != p.attempts:
		c.broken(j.ID, "wrong_attempts: job %s (%s) ended %s (%s) at attempt %d, want %d",
			j.ID, p.name, j.State, j.Code, j.Attempt, p.attempts)
	default:
		for a := 1; a <= j.Attempt; a++ {
			if !c.did.Began(j.ID, a) {
				c.broken(j.ID, "not_run: attempt %d of job %s (%s, %s) was never started", a, j.ID, p.name, j.State)
			}
		}
		if p.program {
			c.output(j, p)
		}
	}
}

// result: it is that of the last run. What an earlier one returned, which others took the job from,
// counts for nothing.
func (c *checker) result(j *job.Job, p *promise) {
	var r struct{ Epoch int64 }
	if err := json.Unmarshal(j.Result, &r); err != nil {
		c.broken(j.ID, "result: task %s (%s): %q: %v", j.ID, p.name, j.Result, err)
		return
	}
	if newest := c.did.Newest(j.ID); r.Epoch != newest || r.Epoch != j.Epoch-1 {
		c.broken(j.ID, "result: task %s (%s) has the result of epoch %d; it ran in epoch %d last, and its end made epoch %d",
			j.ID, p.name, r.Epoch, newest, j.Epoch)
	}
}

// output: results are what the last attempt wrote.
func (c *checker) output(j *job.Job, p *promise) {
	if j.State != job.Finished || p.deleting { // files go before the row does
		return
	}
	_, results := app.Places(j)
	got, err := os.ReadFile(filepath.Join(results, "stdout"))
	if want := fmt.Sprintf("%s %d\n", j.ID, j.Attempt); err != nil || string(got) != want {
		c.broken(j.ID, "archive: job %s (%s): its stdout holds %q (%v), want %q", j.ID, p.name, got, err, want)
	}
}

// noSpace reports whether a disk may have been full while a program was at work, which does not
// look whether it could write.
func (c *checker) noSpace(j *job.Job, p *promise) bool {
	return p.program && (c.wrongTimes() && (c.wrong(j.Created) || c.wrong(j.Ended)) || c.disks.wasFull(j.Created, j.Ended))
}

// wrong reports whether a time is not one of the storm: a clock told it that was wrong by an hour.
func (s *storm) wrong(t time.Time) bool {
	return t.Before(s.began.Add(-time.Minute)) || t.After(time.Now().Add(time.Minute))
}

// wrongTimes reports whether times in the database may be wrong.
func (s *storm) wrongTimes() bool { return !s.rightUntil(time.Now()) }

// rightUntil reports whether times in the database are right up to t.
func (s *storm) rightUntil(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.astray.IsZero() || t.Before(s.astray)
}

func (c *checker) history(ctx context.Context, id job.ID) []store.Event {
	page, err := c.store.Events(ctx, store.EventQuery{Tenant: tenant, Job: id, Limit: 10_000})
	if err != nil {
		c.breaks("database: %v", err)
	}
	return page.Events
}

// broken notes what does not hold of a job, and tells its story.
func (c *checker) broken(id job.ID, format string, args ...any) {
	c.breaks(format, args...)
	c.tell(id)
}
