package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A line stands between a process and the database.
type line struct {
	store.Store
	mu     sync.Mutex
	cut    bool                          // nothing comes through
	submit func(*store.Submission) error // after the call: an error stands for a lost answer
	looks  int                           // calls that ask for schedules that are due
}

var errCut = job.Errorf(job.Unavailable, "cut off")

func (l *line) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *line) isCut() (cut bool) {
	l.set(func() { cut = l.cut })
	return cut
}

func (l *line) Submit(ctx context.Context, s store.Submission) ([]store.Submitted, store.Effects, error) {
	if l.isCut() {
		return nil, store.Effects{}, errCut
	}
	a, eff, err := l.Store.Submit(ctx, s)
	if err == nil && l.submit != nil {
		err = l.submit(&s)
	}
	return a, eff, err
}

func (l *line) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	if l.isCut() {
		return store.Renewal{}, errCut
	}
	return l.Store.Renew(ctx, r)
}

func (l *line) End(ctx context.Context, id job.ID) (store.Effects, error) {
	if l.isCut() {
		return store.Effects{}, job.Errorf(job.Closed, "the process has died")
	}
	return l.Store.End(ctx, id)
}

func (l *line) Resources(ctx context.Context, q store.ResourceQuery) ([]store.Resource, error) {
	if l.isCut() {
		return nil, errCut
	}
	if q.Next > 0 {
		l.set(func() { l.looks++ })
	}
	return l.Store.Resources(ctx, q)
}

// A process runs the jobs of a store.
type process struct {
	*service.Service
	line *line
	stop func()
}

// start starts a process.
func start(t *testing.T, st store.Store, bus *local.Broker, o engine.Options, submit func(*store.Submission) error) *process {
	l := &line{Store: st, submit: submit}
	svc := service.New(service.Config{Store: l, Broker: bus, Log: slog.New(slog.DiscardHandler), Options: o})
	service.Handle(svc, "tick", func(context.Context, *service.Task[json.RawMessage]) (struct{}, error) {
		return struct{}{}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	p := &process{Service: svc, line: l}
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !l.isCut() {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// kill ends a process as if it had died: its session stays until its lease is over.
func (p *process) kill() {
	p.line.set(func() { p.line.cut = true })
	p.stop()
}

func apply(t *testing.T, svc *service.Service, doc string) service.Resource[job.Schedule] {
	t.Helper()
	r, _, err := svc.Schedules().Apply(context.Background(), []byte(doc), service.AnyVersion)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const tick = `"jobs": [{"kind": "tick", "args": {}}]`

// dueOf returns when the jobs of a schedule were due, as their labels say, oldest first. Each job
// has its own place there.
func dueOf(t *testing.T, svc *service.Service, name string) (due []string) {
	t.Helper()
	q := store.Query{Limit: 1000, Filter: job.Where("label."+job.LabelSchedule, job.Is, name).
		And("created", job.AtLeast, "1990-01-01T00:00:00Z")}
	for {
		page, err := svc.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			due = append(due, j.Labels[job.LabelDue])
		}
		if page.Next == "" {
			slices.Sort(due)
			return due
		}
		q.Cursor = page.Next
	}
}

// walls returns the due times of a year by looking at a clock on a wall each minute.
func walls(zone *time.Location, from, to time.Time, named func(wall time.Time) bool, hourly bool) (due []string) {
	shown := map[string]bool{}
	last := wallOf(from.Add(-time.Minute), zone)
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		wall := wallOf(at, zone)
		is := named(wall) && (hourly || !shown[wall.String()])
		for skipped := last.Add(time.Minute); !hourly && skipped.Before(wall); skipped = skipped.Add(time.Minute) {
			is = is || named(skipped)
		}
		if is {
			due = append(due, at.Format(time.RFC3339))
		}
		if shown[wall.String()] = true; len(shown) > 3000 { // two days are enough
			shown = map[string]bool{wall.String(): true}
		}
		last = wall
	}
	return due
}

func wallOf(at time.Time, zone *time.Location) time.Time {
	l := at.In(zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
}

// TestYearOfTwoProcesses: for a year, or the days around two changes of the clock, two processes
// stop, start and die, and answers are lost. Each due time has its job, and one.
func TestYearOfTwoProcesses(t *testing.T) {
	t.Parallel()
	if testenv.Long() {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) { virtual.Test(t, func(t *testing.T) { days(t, seed, 366) }) })
		}
		return
	}
	for about, first := range map[string]int{"spring": 80, "autumn": 295} {
		t.Run(about, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) {
				time.Sleep(time.Duration(first) * 24 * time.Hour) // to before the clocks change
				days(t, 0, 20)
			})
		})
	}
}

func days(t *testing.T, seed uint64, n int) {
	dice := rand.New(rand.NewPCG(seed, 1))
	st, bus := fake.New(nil), &local.Broker{}
	o := engine.Options{Lease: 3 * time.Hour, Sweep: -1}
	var mu sync.Mutex // guards the two that follow
	fates, lost := rand.New(rand.NewPCG(seed, 2)), 0
	lose := func(s *store.Submission) error {
		mu.Lock()
		defer mu.Unlock()
		if s.Advance != nil && fates.IntN(20) == 0 {
			lost++
			return errCut
		}
		return nil
	}
	berlin, _ := time.LoadLocation("Europe/Berlin")
	york, _ := time.LoadLocation("America/New_York")
	lord, _ := time.LoadLocation("Australia/Lord_Howe")
	begin := time.Now()
	end := begin.AddDate(0, 0, n)
	at := func(hour, minute int) func(time.Time) bool {
		return func(w time.Time) bool { return w.Hour() == hour && w.Minute() == minute }
	}
	want := map[string][]string{
		"night": walls(berlin, begin.Add(time.Minute), end, at(2, 30), false),
		"lord":  walls(lord, begin.Add(time.Minute), end, at(2, 15), false),
		"monday": walls(york, begin.Add(time.Minute), end, func(w time.Time) bool {
			return w.Weekday() == time.Monday && at(9, 0)(w)
		}, false),
		"hourly": walls(berlin, begin.Add(time.Minute), end, func(w time.Time) bool {
			return w.Weekday() == time.Sunday && w.Minute() == 15
		}, true),
	}
	for due := begin.Add(7 * time.Hour); due.Before(end); due = due.Add(7 * time.Hour) {
		want["seven"] = append(want["seven"], due.UTC().Format(time.RFC3339))
	}
	desk := service.New(service.Config{Store: st, Broker: bus, Log: slog.New(slog.DiscardHandler)})
	const rest = `, "catch_up": "all", "overlap": "allow", ` + tick + `}`
	apply(t, desk, `{"name": "night", "cron": "30 2 * * *", "time_zone": "Europe/Berlin"`+rest)
	apply(t, desk, `{"name": "lord", "cron": "15 2 * * *", "time_zone": "Australia/Lord_Howe"`+rest)
	apply(t, desk, `{"name": "monday", "cron": "0 9 * * MON", "time_zone": "America/New_York"`+rest)
	apply(t, desk, `{"name": "hourly", "cron": "15 * * * SUN", "time_zone": "Europe/Berlin"`+rest)
	apply(t, desk, `{"name": "seven", "every": "7h"`+rest)

	deaths, stops := 0, 0
	var ps [2]*process
	for time.Until(end) > 12*time.Hour {
		i := dice.IntN(2)
		switch {
		case ps[i] == nil:
			ps[i] = start(t, st, bus, o, lose)
		case dice.IntN(2) == 0:
			ps[i].kill()
			ps[i] = nil
			deaths++
		default:
			ps[i].stop()
			ps[i] = nil
			stops++
		}
		time.Sleep(min(time.Duration(dice.Int64N(int64(40*time.Hour))), time.Until(end)-12*time.Hour))
	}
	for i := range ps {
		if ps[i] == nil {
			ps[i] = start(t, st, bus, o, nil)
		}
	}
	time.Sleep(time.Until(end))
	for _, p := range ps {
		p.stop()
	}
	for name, due := range want {
		got := dueOf(t, desk, name)
		if missing, more := differ(due, got); missing != nil || more != nil {
			t.Errorf("schedule %s: %d due times, %d jobs; missing %v; too many %v", name, len(due), len(got), missing, more)
		}
	}
	if lost == 0 || deaths == 0 || stops == 0 {
		t.Errorf("%d answers were lost, %d processes died and %d stopped: the test shows nothing", lost, deaths, stops)
	}
	t.Logf("%d due times, %d answers lost, %d processes died, %d stopped", len(slices.Concat(slices.Collect(maps.Values(want))...)),
		lost, deaths, stops)
}

// differ returns what of want is not in got, and what of got is not in want or there twice.
func differ(want, got []string) (missing, more []string) {
	count := map[string]int{}
	for _, w := range want {
		count[w]--
	}
	for _, g := range got {
		count[g]++
	}
	for _, k := range slices.Sorted(maps.Keys(count)) {
		switch {
		case count[k] < 0:
			missing = append(missing, k)
		case count[k] > 0:
			more = append(more, k)
		}
	}
	return missing, more
}

// bubble runs a test with one process in virtual time, which begins at midnight.
func bubble(t *testing.T, test func(t *testing.T, p *process)) {
	t.Helper()
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		p := start(t, fake.New(nil), &local.Broker{}, engine.Options{}, nil)
		defer func() { p.stop() }()
		test(t, p)
	})
}

// clock writes due times as times of the day.
func clock(due []string) string {
	for i, d := range due {
		at, _ := time.Parse(time.RFC3339, d)
		due[i] = at.Format("15:04:05")
	}
	return strings.Join(due, " ")
}

func expect(t *testing.T, svc *service.Service, name, want string) {
	t.Helper()
	synctest.Wait()
	if got := clock(dueOf(t, svc, name)); got != want {
		t.Errorf("schedule %s at %s: jobs were due at %q, want %q", name, time.Now().UTC().Format(time.TimeOnly), got, want)
	}
}

func TestCatchUp(t *testing.T) {
	for _, c := range []struct{ policy, overlap, want string }{
		{"none", "skip", "00:10:00 00:50:00"},
		{"one", "skip", "00:10:00 00:40:00 00:50:00"},
		{"all", "allow", "00:10:00 00:20:00 00:30:00 00:40:00 00:50:00"},
	} {
		t.Run(c.policy, func(t *testing.T) {
			bubble(t, func(t *testing.T, p *process) {
				apply(t, p.Service, `{"name": "s", "cron": "*/10 * * * *", "catch_up": "`+c.policy+`", "overlap": "`+
					c.overlap+`", `+tick+`}`)
				time.Sleep(15 * time.Minute)
				p.kill()
				time.Sleep(30 * time.Minute)
				other := start(t, p.line.Store, &local.Broker{}, engine.Options{}, nil)
				defer other.stop()
				time.Sleep(6 * time.Minute)
				expect(t, other.Service, "s", c.want)
			})
		})
	}
	t.Run("what is only late is not missed", func(t *testing.T) {
		bubble(t, func(t *testing.T, p *process) {
			apply(t, p.Service, `{"name": "s", "cron": "*/10 * * * *", "catch_up": "none", `+tick+`}`)
			time.Sleep(10*time.Minute - time.Second)
			p.kill()
			other := start(t, p.line.Store, &local.Broker{}, engine.Options{}, nil)
			defer other.stop()
			time.Sleep(time.Minute)
			expect(t, other.Service, "s", "00:10:00")
		})
	})
	t.Run("the last hundred", func(t *testing.T) {
		bubble(t, func(t *testing.T, p *process) {
			apply(t, p.Service, `{"name": "s", "every": "1s", "catch_up": "all", "overlap": "allow", `+tick+`}`)
			p.kill()
			time.Sleep(time.Hour)
			other := start(t, p.line.Store, &local.Broker{}, engine.Options{}, nil)
			defer other.stop()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			due := dueOf(t, other.Service, "s")
			if n := len(due); n < job.MostCaughtUp || n > job.MostCaughtUp+1 || !strings.HasSuffix(due[n-1], "T01:00:00Z") {
				t.Errorf("%d jobs, the last one due at %s", n, due[n-1])
			}
		})
	})
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		st := fake.New(nil)
		p := start(t, st, &local.Broker{}, engine.Options{}, nil)
		defer p.stop()
		slow := service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
		const long = `"jobs": [{"kind": "slow", "args": {}}]}` // nobody runs these
		apply(t, slow, `{"name": "skip", "every": "1m", `+long)
		apply(t, slow, `{"name": "allow", "every": "1m", "overlap": "allow", `+long)
		apply(t, p.Service, `{"name": "wake", "every": "1m", `+tick+`}`)
		time.Sleep(3*time.Minute + time.Second)
		expect(t, p.Service, "skip", "00:01:00")
		expect(t, p.Service, "allow", "00:01:00 00:02:00 00:03:00")
		jobs, err := p.RunSchedule(t.Context(), "", "skip")
		if err != nil || len(jobs) != 1 || !jobs[0].Existed {
			t.Errorf("run: %+v, %v", jobs, err)
		}
		if _, err := p.Cancel(t.Context(), jobs[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect(t, p.Service, "skip", "00:01:00 00:04:00")
	})
}

func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		ctx := context.Background()
		if r := apply(t, p.Service, `{"name": "s", "cron": "*/10 * * * *", `+tick+`}`); r.Next.Format("15:04") != "00:10" {
			t.Errorf("next %v", r.Next)
		}
		time.Sleep(11 * time.Minute)
		if r, err := p.Schedules().Disable(ctx, "s", true, service.AnyVersion); err != nil || !r.Next.IsZero() {
			t.Errorf("disabled: %+v, %v", r, err)
		}
		if times, err := p.NextDue(ctx, "s", 2); err != nil || times[0].Format("15:04") != "00:20" {
			t.Errorf("next: %v, %v", times, err)
		}
		time.Sleep(24 * time.Minute)
		if jobs, err := p.RunSchedule(ctx, "", "s"); err != nil || len(jobs) != 1 || jobs[0].Existed {
			t.Errorf("run: %v, %v", jobs, err)
		}
		r, err := p.Schedules().Disable(ctx, "s", false, service.AnyVersion)
		if err != nil || r.Next.Format("15:04") != "00:40" {
			t.Errorf("enabled: %+v, %v", r, err)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if due := dueOf(t, p.Service, "s"); len(due) != 3 || due[0] != "" || clock(due[1:]) != "00:10:00 00:40:00" {
			t.Errorf("due %v", due)
		}
		if err := p.Schedules().Delete(ctx, "s", service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(dueOf(t, p.Service, "s")); n != 3 {
			t.Errorf("%d jobs after it was deleted", n)
		}
	})
}

// TestChange: a document changes between the look and the submission of its due time.
func TestChange(t *testing.T) {
	for _, c := range []struct{ about, doc, want string }{
		{"other jobs are those of the due time", `"cron": "*/10 * * * *", "description": "new"`, "00:10:00 00:20:00"},
		{"other times are counted from the change", `"cron": "*/15 * * * *"`, "00:15:00"},
		{"paused", `"cron": "*/10 * * * *", "disabled": true`, ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			virtual.Test(t, func(t *testing.T) {
				st := fake.New(nil)
				desk := service.New(service.Config{Store: st, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
				p := start(t, &changing{Store: st, change: sync.OnceFunc(func() {
					time.Sleep(time.Second)
					apply(t, desk, `{"name": "s", `+c.doc+`, `+tick+`}`)
				})}, &local.Broker{}, engine.Options{}, nil)
				defer p.stop()
				apply(t, p.Service, `{"name": "s", "cron": "*/10 * * * *", `+tick+`}`)
				time.Sleep(21 * time.Minute)
				expect(t, p.Service, "s", c.want)
			})
		})
	}
}

// changing calls change before the first submission of a due time.
type changing struct {
	store.Store
	change func()
}

func (c *changing) Submit(ctx context.Context, s store.Submission) ([]store.Submitted, store.Effects, error) {
	if s.Advance != nil && len(s.Jobs) > 0 {
		c.change()
	}
	return c.Store.Submit(ctx, s)
}

func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		ctx := context.Background()
		apply(t, p.Service, `{"name": "s", "every": "10m", "jobs": [{"kind": "tick", "queue": "night"}]}`)
		time.Sleep(10*time.Minute + time.Second)
		r, err := p.Schedules().Resource(ctx, "s")
		if err != nil || !strings.Contains(r.Trouble, "jobs[0].queue (night): is unknown") {
			t.Errorf("%+v, %v", r, err)
		}
		if _, _, err := p.Queues().Apply(ctx, []byte(`{"name": "night"}`), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		expect(t, p.Service, "s", "00:10:00")
		if r, err = p.Schedules().Resource(ctx, "s"); err != nil || r.Trouble != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestIdle: schedules cost nothing while none is due.
func TestIdle(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		for i := range 500 {
			apply(t, p.Service, fmt.Sprintf(`{"name": "s%d", "cron": "0 0 1 7 *", %s}`, i, tick))
		}
		synctest.Wait()
		var before, after int
		p.line.set(func() { before = p.line.looks })
		time.Sleep(time.Hour)
		p.line.set(func() { after = p.line.looks })
		if after-before > 7 { // it looks every ten minutes, also without schedules
			t.Errorf("%d looks in an hour", after-before)
		}
	})
}

func TestTenantsAndOwners(t *testing.T) {
	bubble(t, func(t *testing.T, p *process) {
		theirs := service.New(service.Config{
			Store: p.line.Store, Broker: &local.Broker{}, Tenant: "acme", Log: slog.New(slog.DiscardHandler),
		})
		apply(t, theirs.As("ada"), `{"name": "s", "every": "1m", `+tick+`}`)
		apply(t, p.Service, `{"name": "s", "every": "1m", "owner": "bob", `+tick+`}`)
		time.Sleep(61 * time.Second)
		for owner, svc := range map[string]*service.Service{"ada": theirs, "bob": p.Service} {
			expect(t, svc, "s", "00:01:00")
			if page, err := svc.List(t.Context(), store.Query{}); err != nil || page.Jobs[0].Owner != owner || page.Jobs[0].Name != "s" {
				t.Errorf("%+v, %v", page.Jobs[0], err)
			}
		}
	})
}
