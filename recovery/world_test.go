package recovery_test

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/fake"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	storefake "github.com/pawl-jobs/pawl/store/fake"
)

// A hundred years are lived in the long tests alone.
func TestMain(m *testing.M) {
	testenv.Draws(25, 25, 100)
	goleak.VerifyTestMain(m)
}

// A world is a service whose tasks are blocked by what a test wants, in a bubble of virtual time.
type world struct {
	testing.TB
	store  store.Store
	broker *local.Broker
	tester *fake.Tester
	cfg    service.Config
	svc    *service.Service

	mu     sync.Mutex
	blocks map[string]*job.Block // guarded by mu: what blocks tasks, by their argument

	faces int // how often tasks were blocked by many hosts

	quit context.CancelFunc
	done chan error
}

func bubble(t *testing.T, cfg service.Config, test func(w *world)) {
	t.Helper()
	t.Parallel()
	virtual.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		w.start()
		test(w)
		w.stop()
	})
}

func newWorld(t testing.TB, cfg service.Config) *world {
	w := &world{TB: t, store: storefake.New(nil), broker: &local.Broker{}, tester: &fake.Tester{}, cfg: cfg, blocks: map[string]*job.Block{}}
	if cfg.Store != nil {
		w.store = cfg.Store
	}
	w.cfg.Store, w.cfg.Broker, w.cfg.Log = w.store, w.broker, slog.New(slog.DiscardHandler)
	w.cfg.Testers = map[string]recovery.Tester{recovery.SSH: w.tester, recovery.Scheduler: w.tester}
	maps.Copy(w.cfg.Testers, cfg.Testers)
	w.svc = w.service(w.cfg)
	return w
}

// service is a process of the world, or the face of another tenant.
func (w *world) service(cfg service.Config) *service.Service {
	s := service.New(cfg)
	service.Handle(s, "work", func(_ context.Context, t *service.Task[string]) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if b := w.blocks[t.Args]; b != nil {
			return "", b
		}
		return "done", nil
	})
	return s
}

// other is the face of another tenant.
func (w *world) other() *service.Service { return w.as("other") }

// as is the face of a tenant.
func (w *world) as(tenant string) *service.Service {
	cfg := w.cfg
	cfg.Tenant = tenant
	return w.service(cfg)
}

func (w *world) start() {
	ctx, quit := context.WithCancel(context.Background())
	w.quit, w.done = quit, make(chan error, 1)
	go func() { w.done <- w.svc.Run(ctx) }()
	synctest.Wait()
}

func (w *world) stop() {
	w.Helper()
	w.quit()
	if err := <-w.done; err != nil {
		w.Errorf("Run: %v", err)
	}
}

// on is a block by a host that does not answer.
func on(host string) *job.Block {
	return &job.Block{
		Code: job.HostUnreachable, Message: host + " is away", Tester: recovery.SSH, Params: map[string]string{"host": host},
		Policy: job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Minute), Times: 0}}},
	}
}

// set sets what blocks the tasks with an argument; nil: nothing does.
func (w *world) set(arg string, b *job.Block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocks[arg] = b
}

// blocked submits a task, and has it blocked.
func (w *world) blocked(arg string, b *job.Block) job.ID {
	w.Helper()
	return w.blockedAt(w.svc, arg, b)
}

func (w *world) blockedAt(s *service.Service, arg string, b *job.Block) job.ID {
	w.Helper()
	w.set(arg, b)
	id := w.submit(s, arg)
	if j := w.job(s, id); j.State != job.Blocked {
		w.Fatalf("job %s is %s: %s", id, j.Place, j.Message)
	}
	w.set(arg, nil) // once it goes on, it comes to its end
	return id
}

func (w *world) submit(s *service.Service, arg string) job.ID {
	w.Helper()
	a, err := s.Submit(context.Background(), service.Request{Spec: service.NewTask("work", arg)})
	if err != nil {
		w.Fatal(err)
	}
	synctest.Wait()
	return a[0].ID
}

func (w *world) job(s *service.Service, id job.ID) job.Job {
	w.Helper()
	j, err := s.Job(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// is checks where a job stands.
func (w *world) is(id job.ID, want job.State) {
	w.Helper()
	w.isAt(w.svc, id, want)
}

func (w *world) isAt(s *service.Service, id job.ID, want job.State) {
	w.Helper()
	if j := w.job(s, id); j.State != want {
		w.Errorf("job %s is %s, want %s: %s", id, j.Place, want, j.Message)
	}
}

// group returns the group of a blocked job.
func (w *world) group(id job.ID) service.BlockedGroup {
	w.Helper()
	g, err := w.svc.BlockedBy(context.Background(), w.job(w.svc, id).Group)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

// says checks what the newest test of the group of a job said.
func (w *world) says(id job.ID, tests int, want string) {
	w.Helper()
	if g := w.group(id); g.Tests != tests || !strings.Contains(g.Result, want) {
		w.Errorf("%d tests, and the newest says %q; want %d, and %q", g.Tests, g.Result, tests, want)
	}
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// synctestRun is a bubble with a world that the test starts and stops by itself.
func synctestRun(t *testing.T, test func(w *world)) {
	t.Helper()
	virtual.Test(t, func(t *testing.T) { test(newWorld(t, service.Config{})) })
}
