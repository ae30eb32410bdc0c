package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/observe"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is an observed service, which runs nothing yet.
type world struct {
	testing.TB
	*service.Service
	o     *observe.Observer
	store store.Store
	log   *bytes.Buffer
	stop  func()
}

func open(t *testing.T, c observe.Config, change ...func(*service.Config)) *world {
	t.Helper()
	st, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	w := &world{TB: t, log: &bytes.Buffer{}}
	c.Log = observe.NewLog(w.log, "json", slog.LevelDebug)
	w.o = observe.New(c)
	w.store = w.o.Store(st)
	cfg := service.Config{
		Tested:  func(tester string, r recovery.Outcome) { w.o.Tested(tester, string(r)) },
		Store:   w.store,
		Broker:  w.o.Broker(&local.Broker{}),
		Log:     slog.New(slog.DiscardHandler),
		Options: engine.Options{Tracer: w.o},
	}
	for _, f := range change {
		f(&cfg)
	}
	w.Service = service.New(cfg)
	w.o.Repaired(w.Service.Repaired)
	w.o.Removed(func(s job.State) int64 { return int64(len(s)) })
	w.o.Stalled(func() (map[job.Lane]int, int) { return map[job.Lane]int{job.LanePrepare: 1}, 2 })
	w.o.Jobs(w.store, "default")
	return w
}

// start runs the service until stop, or the end of the test.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Service.Run(ctx) }()
	w.stop = func() {
		if cancel(); w.stop == nil {
			return
		}
		w.stop = nil
		if err := <-ended; err != nil {
			w.Error(err)
		}
	}
	w.Cleanup(func() {
		if w.stop != nil {
			w.stop()
		}
	})
}

func (w *world) submit(ctx context.Context, reqs ...service.Request) []store.Submitted {
	w.Helper()
	jobs, err := w.Submit(ctx, reqs...)
	if err != nil {
		w.Fatal(err)
	}
	return jobs
}

// end waits for the end of a job.
func (w *world) end(id job.ID) job.Job {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
	defer cancel()
	j, err := w.Wait(ctx, id)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// scrape returns what /metrics says.
func (w *world) scrape() string {
	w.Helper()
	rec := httptest.NewRecorder()
	w.o.Metrics().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		w.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

// sample returns the value of a metric with its labels as they are printed; "" when there is none.
func sample(metrics, name string) string {
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (w *world) expect(metrics string, want map[string]string) {
	w.Helper()
	got := map[string]string{}
	for name := range want {
		got[name] = sample(metrics, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("metrics (-want +got)\n%s", diff)
	}
}

func TestMetricsOfJobs(t *testing.T) {
	w := open(t, observe.Config{Version: "1.2.3"})
	service.Handle(w.Service, "good", func(context.Context, *service.Task[int]) (int, error) { return 1, nil })
	service.Handle(w.Service, "bad", func(context.Context, *service.Task[int]) (int, error) {
		return 0,
			service.Permanent(errors.New("no"))
	})
	jobs := w.submit(t.Context(), service.Request{Spec: service.NewTask("good", 1)},
		service.Request{Spec: service.NewTask("bad", 1)})
	before := w.scrape()
	w.expect(before, map[string]string{
		`pawl_jobs{state="PENDING"}`:            "2",
		`pawl_jobs{state="RUNNING"}`:            "0",
		`pawl_session_live`:                     "0",
		`pawl_jobs_claimed_total`:               "0",
		`pawl_jobs_ended_total{state="FAILED"}`: "",
		`pawl_store_operation_duration_seconds_count{operation="submit",result="ok"}`: "1",
		`pawl_store_operation_jobs_sum{operation="submit"}`:                           "2",
		`pawl_sessions_begun_total`:                                                   "0",
	})
	if w.o.Session() == nil {
		t.Error("a process without a session counts as live")
	}
	w.start()
	if j := w.end(jobs[0].ID); j.State != job.Finished {
		t.Fatal(j.State, j.Message)
	}
	if j := w.end(jobs[1].ID); j.State != job.Failed {
		t.Fatal(j.State, j.Message)
	}
	if err := w.o.Session(); err != nil {
		t.Error(err)
	}
	w.expect(w.scrape(), map[string]string{
		`pawl_session_live`:          "1",
		`pawl_sessions_begun_total`:  "1",
		`pawl_jobs_claimed_total`:    "2",
		`pawl_jobs{state="PENDING"}`: "2", // read a moment ago
	})
	w.stop()
	if w.o.Session() == nil {
		t.Error("a process whose session has ended counts as live")
	}
	w.expect(w.scrape(), map[string]string{ // an end can be seen before it has been counted
		`pawl_jobs_ended_total{state="FINISHED"}`:   "1",
		`pawl_jobs_ended_total{state="FAILED"}`:     "1",
		`pawl_changes_total{outcome="applied"}`:     "2",
		`pawl_changes_total{outcome="fenced"}`:      "",
		`pawl_launches_total`:                       "0",
		`pawl_wakeups_lost_total`:                   "0",
		`pawl_repairs_total`:                        "0",
		`pawl_jobs_removed_total{state="FAILED"}`:   "6",
		`pawl_jobs_removed_total{state="CANCELED"}`: "8",
	})
}

// A process that lost its lease ends its old session when it has a new one.
func TestEndOfALostSession(t *testing.T) {
	w := open(t, observe.Config{})
	lost, newest := job.NewID(), job.NewID()
	for _, id := range []job.ID{lost, newest} {
		if err := w.store.Begin(t.Context(), store.Session{ID: id, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.store.End(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if err := w.o.Session(); err != nil {
		t.Error(err)
	}
	if _, err := w.store.End(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	if w.o.Session() == nil {
		t.Error("a process whose session has ended counts as live")
	}
}

func TestBlockedJobs(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		o := observe.New(observe.Config{Log: slog.New(slog.DiscardHandler)})
		w := &world{TB: t, o: o, store: o.Store(fake.New(nil))}
		w.Service = service.New(service.Config{
			Store: w.store, Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler),
			Tested: func(tester string, r recovery.Outcome) { o.Tested(tester, string(r)) },
		})
		o.Jobs(w.store, "default")
		var away atomic.Bool
		away.Store(true)
		look := func(context.Context, map[string]string) error {
			if away.Load() {
				return errors.New("it is away")
			}
			return nil
		}
		service.HandleTester(w.Service, "away", look)
		service.Handle(w.Service, "good", func(context.Context, *service.Task[int]) (int, error) {
			if away.Load() {
				return 0, service.Block("it is away", "go/away", nil)
			}
			return 1, nil
		})
		service.Handle(w.Service, "bad", func(context.Context, *service.Task[int]) (int, error) {
			return 0, &job.Block{
				Code: job.HostUnreachable, Tester: "nobody\n",
				Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(10 * time.Second), Times: 1}}},
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		w.submit(ctx, service.Request{Spec: service.NewTask("good", 1)}, service.Request{Spec: service.NewTask("good", 2)},
			service.Request{Spec: service.NewTask("bad", 1)})
		time.Sleep(time.Second)
		w.expect(w.scrape(), map[string]string{
			`pawl_blocked_jobs{code="TASK_BLOCKED"}`: "2", `pawl_blocked_jobs{code="HOST_UNREACHABLE"}`: "1",
			`pawl_recovery_blocks_total{code="TASK_BLOCKED"}`: "2",
		})
		time.Sleep(10 * time.Second)
		away.Store(false)
		time.Sleep(10 * time.Second)
		w.expect(w.scrape(), map[string]string{
			`pawl_blocked_jobs{code="TASK_BLOCKED"}`:                                      "",
			`pawl_recovery_tests_total{result="not_clear",tester="go/away"}`:              "1",
			`pawl_recovery_tests_total{result="clear",tester="go/away"}`:                  "1",
			`pawl_recovery_tests_total{result="error",tester="unknown"}`:                  "1",
			`pawl_recovery_releases_total{code="TASK_BLOCKED"}`:                           "2",
			`pawl_recovery_wait_seconds_count{code="TASK_BLOCKED"}`:                       "2",
			`pawl_recovery_wait_seconds_bucket{code="TASK_BLOCKED",le="9"}`:               "0",
			`pawl_recovery_wait_seconds_bucket{code="TASK_BLOCKED",le="27"}`:              "2",
			`pawl_recovery_failures_total{code="HOST_UNREACHABLE"}`:                       "1",
			`pawl_recovery_reblocks_total{code="TASK_BLOCKED"}`:                           "",
			`pawl_store_operation_duration_seconds_count{operation="tested",result="ok"}`: "3",
		})
		away.Store(true)
		w.submit(ctx, service.Request{Spec: service.NewTask("good", 3)})
		time.Sleep(time.Second)
		if got := sample(w.scrape(), `pawl_recovery_reblocks_total{code="TASK_BLOCKED"}`); got != "1" {
			t.Errorf("%q jobs were blocked by what had cleared just before", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestOldestReadyJob(t *testing.T) {
	w := open(t, observe.Config{})
	if _, _, err := w.Queues().Apply(t.Context(), []byte(`{"name":"night"}`), 0); err != nil {
		t.Fatal(err)
	}
	task := service.NewTask("good", 1)
	task.Queue = "night"
	w.submit(t.Context(), service.Request{Spec: task})
	m := w.scrape()
	if got := sample(m, `pawl_queue_oldest_ready_seconds{queue="default"}`); got != "0" {
		t.Errorf("of an empty queue: %q", got)
	}
	if got := sample(m, `pawl_queue_oldest_ready_seconds{queue="night"}`); got == "0" || got == "" {
		t.Errorf("of a queue with a job: %q", got)
	}
}

func TestUnservedJobs(t *testing.T) {
	w := open(t, observe.Config{})
	w.Handle("good")
	w.start()
	w.submit(t.Context(), service.Request{Spec: service.NewTask("nobody", 1)}, service.Request{Spec: service.NewTask("nobody", 2)})
	w.end(w.submit(t.Context(), service.Request{Spec: service.NewTask("good", 1)})[0].ID)
	m := w.scrape()
	if got := sample(m, `pawl_jobs_unserved{kind="nobody",queue="default"}`); got != "2" {
		t.Errorf("%q jobs of a kind that nobody handles", got)
	}
	if got := sample(m, `pawl_jobs_unserved{kind="good",queue="default"}`); got != "" {
		t.Errorf("%q jobs of a kind that is handled", got)
	}
}

// launch leaves a program on a machine.
func (w *world) launch(machine string) {
	w.Helper()
	id, session := job.NewID(), job.NewID()
	n := store.New{Job: job.Job{
		ID: id, Owner: "ann", Kind: job.KindApp, Name: "far", Queue: job.DefaultQueue,
		Machine: machine, Watch: machine, Priority: 5, MaxAttempts: 1, Request: []byte(`{}`),
	}}
	_, _, err := w.store.Submit(w.Context(), store.Submission{Tenant: "default", By: "ann", Jobs: []store.New{n}})
	if err == nil {
		err = w.store.Begin(w.Context(), store.Session{ID: session, Lease: time.Minute})
	}
	if err != nil {
		w.Fatal(err)
	}
	held, err := w.store.Claim(w.Context(), store.Claim{
		ID: job.NewID(), Session: session, Queues: []string{job.DefaultQueue}, Kinds: []string{job.KindApp},
		Machine: machine, Slots: map[job.Lane]int{job.LanePrepare: 1},
	})
	if err != nil || len(held) != 1 {
		w.Fatalf("claimed %d, %v", len(held), err)
	}
	j := held[0]
	for _, c := range []job.Change{
		{To: job.Worker, Path: []job.Entry{
			{State: job.StagingInputs},
			{State: job.StagingJob},
			{State: job.SubmittingJob},
		}},
		{To: job.Worker, Path: []job.Entry{{State: job.SubmittingJob}}, Set: job.Patch{Intent: true}},
		{To: job.Monitor, Path: []job.Entry{{State: job.Running}}},
	} {
		c.Job, c.From = id, j.Guard(job.Fence{Session: session})
		if as, _, _, err := w.store.Apply(w.Context(), []job.Change{c}, nil); err != nil || as[0].Outcome != store.OK {
			w.Fatalf("%+v, %v", as, err)
		}
		if j, err = store.FindJob(w.Context(), w.store, "default", id); err != nil {
			w.Fatal(err)
		}
	}
}

func TestUnwatchedPrograms(t *testing.T) {
	w := open(t, observe.Config{})
	w.launch("m9")
	if got := sample(w.scrape(), `pawl_jobs_unwatched{watch="m9"}`); got != "1" {
		t.Errorf("%q programs on a machine where nobody is", got)
	}
}

func TestLimits(t *testing.T) {
	w := open(t, observe.Config{})
	for key, most := range map[string]int{"gpu/*": 1, "unused": 3} {
		if err := w.SetLimit(t.Context(), job.Limit{Key: key, Most: most}); err != nil {
			t.Fatal(err)
		}
	}
	spec := service.NewTask("noop", 1)
	spec.Limits = []string{"gpu/a"}
	w.submit(t.Context(), service.Request{Spec: spec})
	w.submit(t.Context(), service.Request{Spec: spec})
	for {
		_, eff, err := w.store.Pay(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if !eff.Owed {
			break
		}
	}
	page := w.scrape()
	for metric, want := range map[string]string{
		`pawl_limit_turns{limit="gpu/*"}`: "1", `pawl_limit_waiting{limit="gpu/*"}`: "1",
		`pawl_limit_idle{limit="gpu/*"}`:   "0",
		`pawl_limit_turns{limit="unused"}`: "0",
	} {
		if got := sample(page, metric); got != want {
			t.Errorf("%s is %q, want %s", metric, got, want)
		}
	}
}

// TestIdleTurns has free places stand beside jobs that wait: nobody has paid yet what whoever freed
// them owes.
func TestIdleTurns(t *testing.T) {
	w := open(t, observe.Config{})
	for _, key := range []string{"gpu", "other"} {
		if err := w.SetLimit(t.Context(), job.Limit{Key: key, Most: 2}); err != nil {
			t.Fatal(err)
		}
	}
	spec := service.NewTask("noop", 1)
	spec.Limits = []string{"gpu"}
	var ids []job.ID
	for range 3 {
		ids = append(ids, w.submit(t.Context(), service.Request{Spec: spec})[0].ID)
	}
	look := func(when, turns, waiting, idle string) {
		t.Helper()
		o := observe.New(observe.Config{Log: slog.New(slog.DiscardHandler)}) // one that has not read yet
		o.Jobs(w.store, "default")
		other := &world{TB: t, o: o}
		other.expect(other.scrape(), map[string]string{
			`pawl_limit_turns{limit="gpu"}`: turns, `pawl_limit_waiting{limit="gpu"}`: waiting,
			`pawl_limit_idle{limit="gpu"}`:   idle,
			`pawl_limit_idle{limit="other"}`: "0",
		})
		if t.Failed() {
			t.Fatal(when)
		}
	}
	pay := func() {
		t.Helper()
		for owed := true; owed; {
			_, eff, err := w.store.Pay(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			owed = eff.Owed
		}
	}
	pay()
	look("all is paid", "2", "1", "0")
	wish := store.Wish{Tenant: "default", By: "ann", Wish: job.WishCancel, Jobs: ids[:2]}
	// whoever asked for it dies before it pays
	if _, eff, err := w.store.Wish(t.Context(), wish); err != nil || !eff.Owed {
		t.Fatal(eff.Owed, err)
	}
	look("two have ended, and one waits", "0", "1", "1")
	pay()
	look("it is paid", "1", "0", "0")
	w.submit(t.Context(), service.Request{Spec: spec}, service.Request{Spec: spec}, service.Request{Spec: spec})
	pay()
	look("three wait or have come", "2", "2", "0")
	if eff, err := store.SetLimit(t.Context(), w.store, "default", job.Limit{Key: "gpu", Most: 3}); err != nil ||
		!eff.Owed {
		t.Fatal(eff.Owed, err)
	}
	look("a place was made", "2", "2", "1")
	pay()
	look("it is paid", "3", "1", "0")
}

// TestManyKeys counts the turns of more keys than are read at once, and what stands behind more
// keys of Pawl's own than are looked at.
func TestManyKeys(t *testing.T) {
	w := open(t, observe.Config{})
	for _, l := range []job.Limit{{Key: "user/*", Most: 2000}, {Key: "lab/*", Most: 1}} {
		if err := w.SetLimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	reqs := make([]service.Request, 1001)
	for i := range reqs {
		reqs[i].Spec = service.NewTask("noop", i)
		reqs[i].Spec.Limits = []string{fmt.Sprintf("lab/%04d", i)}
		reqs[i].Spec.Unique = &job.Unique{Key: strconv.Itoa(i), Until: job.WhileRunning}
	}
	w.submit(t.Context(), reqs...)
	last := service.NewTask("noop", -1)
	last.Limits = reqs[1000].Spec.Limits // the key that is not among the first thousand
	w.submit(t.Context(), service.Request{Spec: last})
	for {
		_, eff, err := w.store.Pay(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if !eff.Owed {
			break
		}
	}
	w.expect(w.scrape(), map[string]string{
		`pawl_limit_turns{limit="user/*"}`: "1001", `pawl_limit_waiting{limit="user/*"}`: "0",
		`pawl_limit_turns{limit="lab/*"}`: "1001", `pawl_limit_waiting{limit="lab/*"}`: "1",
		`pawl_limit_idle{limit="lab/*"}`: "0",
	})
}

// TestNames holds the table of the documentation to what is scraped, and the names to the rules of
// Prometheus.
func TestNames(t *testing.T) {
	w := open(t, observe.Config{})
	w.Handle("noop")
	w.HandleTrouble("trouble")
	if err := w.SetLimit(t.Context(), job.Limit{Key: "gpu", Most: 1}); err != nil {
		t.Fatal(err)
	}
	w.start()
	stays := w.submit(t.Context(), service.Request{Spec: service.NewTask("trouble", "stays")})[0].ID
	for e, err := range w.Events(t.Context(), stays, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.State == job.Blocked {
			break
		}
	}
	for _, what := range []string{"passes", "fails"} {
		w.end(w.submit(t.Context(), service.Request{Spec: service.NewTask("trouble", what)})[0].ID)
	}
	w.end(w.submit(t.Context(), service.Request{Spec: service.NewTask("noop", 1)})[0].ID)
	w.submit(t.Context(), service.Request{Spec: service.NewTask("nobody", 1)}) // has a line that is told of
	w.launch("m9")
	w.o.Answered(t.Context(), observe.Request{Operation: "whoami", Status: 200})
	w.stop() // an end can be seen before it has been counted
	m := w.scrape()
	var got []string
	for _, f := range regexp.MustCompile(`(?m)^# TYPE (pawl_\S+) (\S+)$`).FindAllStringSubmatch(m, -1) {
		name, kind := f[1], f[2]
		got = append(got, name)
		if (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
	text, err := os.ReadFile("../../docs/operations/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range regexp.MustCompile("(?m)^\\| `(pawl_[a-z_]+)[`{]").FindAllStringSubmatch(string(text), -1) {
		want = append(want, f[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/operations/monitoring.md and /metrics (-document +scraped)\n%s", diff)
	}
	for _, other := range []string{"go_goroutines", "process_open_fds"} {
		if sample(m, other) == "" {
			t.Errorf("no %s", other)
		}
	}
	if id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`).FindString(m); id != "" {
		t.Errorf("an id is a label: %s", id)
	}
}

// Handle registers a task that does nothing.
func (w *world) Handle(kind string) {
	service.Handle(w.Service, kind, func(context.Context, *service.Task[int]) (int, error) { return 0, nil })
}

// HandleTrouble registers a task that is blocked: for ever, twice by what clears, or until it
// fails.
func (w *world) HandleTrouble(kind string) {
	service.HandleTester(w.Service, "never", func(context.Context, map[string]string) error { return errors.New("no") })
	service.HandleTester(w.Service, "soon", func(context.Context, map[string]string) error { return nil })
	runs := 0
	service.Handle(w.Service, kind, func(_ context.Context, t *service.Task[string]) (int, error) {
		b := &job.Block{Code: job.TaskBlocked, Tester: "go/never"}
		switch t.Args {
		case "fails":
			b.Params, b.Policy = map[string]string{"x": "y"},
				job.Policy{Stages: []job.Stage{{Every: job.Duration(job.MinEvery), Times: 1}}}
		case "passes":
			if runs++; runs == 3 {
				return 0, nil
			}
			b.Tester, b.Policy = "go/soon", job.Policy{Stages: []job.Stage{{Every: job.Duration(job.MinEvery)}}}
		}
		return 0, b
	})
}

func TestSlowCallsAreLoggedWithoutArguments(t *testing.T) {
	w := open(t, observe.Config{Slow: time.Nanosecond})
	ctx := observe.With(t.Context(), slog.String("request", "r1"))
	w.submit(ctx, service.Request{Spec: service.NewTask("secret-kind", "hush")})
	text := w.log.String()
	for _, want := range []string{"slow call of the database", `"operation":"submit"`, `"jobs":1`, `"request":"r1"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, hidden := range []string{"hush", "secret-kind"} {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is in the log: %s", hidden, text)
		}
	}
	w.log.Reset()
	w.o.SetSlow(time.Hour)
	w.submit(ctx, service.Request{Spec: service.NewTask("secret-kind", "hush")})
	if w.log.Len() > 0 {
		t.Errorf("what is fast is logged: %s", w.log)
	}
}

func TestResultsOfCalls(t *testing.T) {
	w := open(t, observe.Config{})
	if _, err := w.Job(t.Context(), job.NewID()); err == nil {
		t.Fatal("a job is there")
	}
	w.expect(w.scrape(), map[string]string{`pawl_store_operation_duration_seconds_count{operation="job",result="not_found"}`: "1"})
}

// deaf is a broker that sends nothing.
type deaf struct{ broker.Broker }

func (deaf) Announce(context.Context, ...job.QueueKind) error { return errors.New("deaf") }
func (deaf) Publish(context.Context, string, []byte) error    { return errors.New("deaf") }

func TestLostWakeUps(t *testing.T) {
	w := open(t, observe.Config{})
	b := w.o.Broker(deaf{})
	if b.Announce(t.Context()) == nil || b.Publish(t.Context(), "news", nil) == nil {
		t.Error("the errors are lost")
	}
	w.expect(w.scrape(), map[string]string{`pawl_wakeups_lost_total`: "2"})
}

func TestRequests(t *testing.T) {
	w := open(t, observe.Config{Slow: time.Minute})
	var id string
	var open string
	h := w.o.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id = r.Header.Get("X-Request-Id")
		open = w.scrape()
		took := time.Second
		if r.URL.Path != "/v1/fast" {
			took = time.Hour
		}
		w.o.Answered(r.Context(), observe.Request{Operation: "op", Status: 404, Took: took})
	}))
	ask := func(method, target, requestID string) {
		w.log.Reset()
		r := httptest.NewRequest(method, target, nil)
		if requestID != "" {
			r.Header.Set("X-Request-Id", requestID)
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
		if want := r.Header.Get("X-Request-Id"); want != requestID {
			t.Errorf("the header of the request itself was changed to %q", want)
		}
		var line map[string]any
		if err := json.Unmarshal(w.log.Bytes(), &line); err != nil || line["request"] != id {
			t.Errorf("the log says %s of request %s", w.log, id)
		}
	}
	ask(http.MethodGet, "/v1/events?follow=true", "mine.1")
	if id != "mine.1" {
		t.Errorf("id %q", id)
	}
	w.expect(open, map[string]string{"pawl_http_requests_open": "1", "pawl_event_streams_open": "1"})
	ask(http.MethodPost, "/v1/jobs/x/events", "not sane")
	if id == "not sane" || len(id) < 16 {
		t.Errorf("id %q", id)
	}
	w.expect(open, map[string]string{"pawl_http_requests_open": "1", "pawl_event_streams_open": "0"})
	w.expect(w.scrape(), map[string]string{
		"pawl_http_requests_open": "0", "pawl_event_streams_open": "0",
		`pawl_http_request_duration_seconds_count{operation="op",status="4xx"}`: "2",
	})
	for target, slow := range map[string]bool{
		"/v1/slow": true, "/v1/slow?wait=2h": false,
		"/v1/slow?follow=true": false, "/v1/fast": false,
		"/v1/claims": true, "POST /v1/claims": false, "POST /v1/claims/renew": false, "POST /v1/claims/finish": true,
	} {
		method, at, given := strings.Cut(target, " ")
		if !given {
			method, at = http.MethodGet, target
		}
		ask(method, at, "")
		if got := strings.Contains(w.log.String(), "slow request"); got != slow {
			t.Errorf("%s: %s", target, w.log)
		}
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	level := &slog.LevelVar{}
	log := observe.NewLog(&b, "text", level).With("a", 1)
	ctx := observe.With(observe.With(t.Context(), slog.String("request", "r")), slog.String("job", "j"))
	log.InfoContext(ctx, "hello")
	log.InfoContext(ctx, "named already", "job", "j")
	log.DebugContext(ctx, "hidden")
	level.Set(slog.LevelDebug)
	log.Debug("shown")
	got := regexp.MustCompile(`time=\S+ `).ReplaceAllString(b.String(), "")
	if want := "level=INFO msg=hello a=1 request=r job=j\nlevel=INFO msg=\"named already\" a=1 job=j " +
		"request=r\nlevel=DEBUG msg=shown a=1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
