package processes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.Stopping(m),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

type none = struct{}

// submit submits jobs, which must be accepted.
func submit(t *testing.T, svc *service.Service, rs ...service.Request) []store.Submitted {
	t.Helper()
	answers, err := svc.Submit(context.Background(), rs...)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

func task(kind string, args any) service.Request {
	return service.Request{Spec: service.NewTask(kind, args)}
}

// shared returns a database for many processes.
func shared(t *testing.T) (dsn string) {
	t.Helper()
	return sharedOn(t, testenv.Postgres(t))
}

// sharedOn is shared on a server.
func sharedOn(t *testing.T, server *testenv.Server) (dsn string) {
	t.Helper()
	dsn = server.Database(t)
	m, err := postgres.NewMigrator(dsn, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Up(t.Context()), m.Close()); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// A process is one of many on a database: it has connections and wake-ups of its own.
type process struct {
	*service.Service
	store store.Store
}

// join opens a process on a database, which ends with the test. between stands between its service
// and the database; nil: nothing does.
func join(t *testing.T, dsn string, cfg service.Config, between func(store.Store) store.Store) *process {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	bus, err := pgnotify.Open(t.Context(), pgnotify.Config{DSN: dsn, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	st, err := postgres.Open(t.Context(), dsn, postgres.Options{Conns: 4, Readers: 1, Renewals: bus.Do, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	cfg.Store, cfg.Broker, cfg.Log = st, bus, log
	if between != nil {
		cfg.Store = between(st)
	}
	return &process{service.New(cfg), cfg.Store}
}

// start runs jobs until the test ends.
func (p *process) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// finished waits until all jobs of answers have finished.
func (p *process) finished(t *testing.T, answers []store.Submitted) {
	t.Helper()
	for _, a := range answers {
		if j, err := p.Wait(t.Context(), a.ID); err != nil || j.State != job.Finished {
			t.Fatalf("job %s: %s (%s: %s), %v", a.ID, j.State, j.Code, j.Message, err)
		}
	}
}

// until asks again and again until the answer is yes.
func until(t *testing.T, what string, ask func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if !testenv.Until(ctx, func() bool {
		yes, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}) {
		t.Fatalf("it does not come: %s", what)
	}
}

// counted returns how many processes are in state s. One that lost its session, for it was slow, is
// listed with the one that it began then, too.
func counted(t *testing.T, p *process, s service.WorkerState) (n int, err error) {
	all, err := p.Workers(t.Context())
	for _, w := range all {
		if w.State == s {
			n++
		}
	}
	return n, err
}

// processVariable names the database in the environment of a process that [TestPoisonSideBySide]
// starts.
const processVariable = "PAWL_TEST_PROCESS"

// TestPoisonSideBySide: one of 200 jobs kills every process that runs it. There are two of them,
// and each that dies is started again.
func TestPoisonSideBySide(t *testing.T) {
	if dsn := os.Getenv(processVariable); dsn != "" {
		p := join(t, dsn, service.Config{Options: engine.Options{Lease: 2 * time.Second}}, nil)
		service.Handle(p.Service, "work", killing)
		p.start(t)
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // it ends with whoever started the processes
			t.Error(err)
		}
		return
	}
	testenv.Aside(t)

	t.Parallel()
	dsn := shared(t)
	desk := join(t, dsn, service.Config{}, nil) // submits, and runs nothing
	stdin, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var deaths atomic.Int64
	var seats sync.WaitGroup
	for range 2 {
		seats.Go(func() {
			for deaths.Load() <= job.PoisonAt {
				c := exec.Command(os.Args[0], "-test.run=^TestPoisonSideBySide$")
				c.Env, c.Stdin = append(os.Environ(), processVariable+"="+dsn), stdin
				out, err := c.CombinedOutput()
				if err == nil {
					return
				}
				if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
					t.Errorf("a process: %v\n%s", err, out)
					return
				}
				deaths.Add(1)
			}
		})
	}
	leave := sync.OnceFunc(func() {
		end.Close()
		seats.Wait()
		stdin.Close()
	})
	t.Cleanup(leave)
	until(t, "two processes", func() (bool, error) {
		n, err := counted(t, desk, service.WorkerLive)
		return n == 2, err
	})
	reqs := make([]service.Request, 200)
	for i := range reqs {
		reqs[i] = task("work", i)
	}
	answers := submit(t, desk.Service, reqs...)
	accused := 0
	for i, a := range answers {
		j, err := desk.Wait(t.Context(), a.ID)
		switch {
		case err != nil:
			t.Fatal(err)
		case i != poison && j.Recoveries > 0:
			accused++
		}
		judge(t, i, &j)
	}
	leave()
	// A process that was starved for as long as its lease counts as dead, too: it has a session more
	// that is gone than it has deaths.
	gone, err := counted(t, desk, service.WorkerGone)
	if err != nil {
		t.Fatal(err)
	}
	if d := int(deaths.Load()); d > job.PoisonAt || gone < job.PoisonAt {
		t.Errorf("%d processes died and %d sessions are gone, want %d of both", d, gone, job.PoisonAt)
	}
	if accused == 0 {
		t.Error("no neighbour was held in a crash: the test shows nothing")
	}
	storetest.Check(t, desk.store, "default")
}

// A party is the three processes of [TestSharesSideBySide], which keep pace: none claims before all
// have seen the jobs, and none looks again before all have claimed. So no share is left by one that
// is slow.
type party struct {
	all           int
	looks, claims atomic.Int64
	seen, claimed chan none // closed when all have
}

// A member of a party stands between one process and the database.
type member struct {
	store.Store
	*party
	told   bool      // that there are others; used by the loop that renews
	knows  chan none // closed when the process has made use of that
	looked atomic.Bool
	took   atomic.Bool
}

func (m *member) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	if m.told {
		select {
		case <-m.knows:
		default:
			close(m.knows)
		}
	}
	a, err := m.Store.Renew(ctx, r)
	m.told = m.told || err == nil && !a.NextExpiry.IsZero()
	return a, err
}

func (m *member) Demand(ctx context.Context, c store.Claim) (map[job.Lane]store.Demand, error) {
	if m.looked.Load() {
		await(ctx, m.claimed)
	}
	d, err := m.Store.Demand(ctx, c)
	if err == nil && d[job.LaneTask].Ready > 0 && !m.looked.Swap(true) {
		if m.looks.Add(1) == int64(m.all) {
			close(m.seen)
		}
		await(ctx, m.seen)
	}
	return d, err
}

func (m *member) Claim(ctx context.Context, c store.Claim) ([]job.Job, error) {
	jobs, err := m.Store.Claim(ctx, c)
	if err == nil && m.looked.Load() && !m.took.Swap(true) && m.claims.Add(1) == int64(m.all) {
		close(m.claimed)
	}
	return jobs, err
}

func await(ctx context.Context, c chan none) {
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// TestSharesSideBySide: few long jobs are spread over all processes.
func TestSharesSideBySide(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	const jobs, slots = 12, 10
	for _, processes := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d processes", processes), func(t *testing.T) {
			t.Parallel()
			dsn := shared(t)
			together := &party{all: processes, seen: make(chan none), claimed: make(chan none)}
			began, letGo := make(chan int, 2*jobs), make(chan none)
			cfg := service.Config{Options: engine.Options{Lease: 6 * time.Second, Slots: map[job.Lane]int{job.LaneTask: slots}}}
			var members []*member
			var all []*process
			for i := range processes {
				m := &member{party: together, knows: make(chan none)}
				p := join(t, dsn, cfg, func(s store.Store) store.Store {
					m.Store = s
					return m
				})
				service.Handle(p.Service, "nap", func(ctx context.Context, _ *service.Task[int]) (none, error) {
					began <- i
					await(ctx, letGo)
					return none{}, nil
				})
				members, all = append(members, m), append(all, p)
			}
			for _, p := range all {
				p.start(t)
			}
			for _, m := range members {
				await(t.Context(), m.knows)
			}
			reqs := make([]service.Request, jobs)
			for i := range reqs {
				reqs[i] = task("nap", i)
			}
			answers := submit(t, all[0].Service, reqs...)
			got := make([]int, processes)
			for range jobs {
				got[<-began]++
			}
			for i, n := range got {
				if n < jobs/processes-1 || n > jobs/processes+1 {
					t.Errorf("process %d has %d of %d jobs, want %d", i, n, jobs, jobs/processes)
				}
			}
			close(letGo)
			all[0].finished(t, answers)
			storetest.Check(t, all[0].store, "default")
		})
	}
}

// A barrier stands before a server, and can be shut.
type barrier struct {
	net.Listener
	server string

	mu    sync.Mutex
	shut  bool       // guarded by mu
	conns []net.Conn // guarded by mu: those that lead through
}

// newBarrier returns a barrier before the server of a database, and the database behind it.
func newBarrier(t *testing.T, dsn string) (b *barrier, behind string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b = &barrier{Listener: l, server: u.Host}
	u.Host = l.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.set(true)
		all.Wait()
	})
	return b, u.String()
}

// carry leads a connection to the server until one of both sides, or the barrier, closes it.
func (b *barrier) carry(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", b.server)
	if err != nil {
		return
	}
	defer up.Close()
	b.mu.Lock()
	shut := b.shut
	b.conns = append(b.conns, c, up)
	b.mu.Unlock()
	if shut {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(c, up)
		c.Close()
	})
	io.Copy(up, c)
	up.Close()
	back.Wait()
}

// set shuts the barrier, with all connections that lead through, or opens it.
func (b *barrier) set(shut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = shut
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// TestLeaseLostSideBySide: a process is cut off for longer than its lease. Another one takes its
// jobs, which are suspects until the first has come back.
func TestLeaseLostSideBySide(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	dsn := shared(t)
	const jobs = 3
	cfg := service.Config{Options: engine.Options{Lease: 3 * time.Second}}
	barrier, behind := newBarrier(t, dsn)
	began, lost, letGo := make(chan int, 4*jobs), make(chan error, 4*jobs), make(chan none)
	var all []*process
	for i, dsn := range []string{behind, dsn} {
		p := join(t, dsn, cfg, nil)
		service.Handle(p.Service, "hold", func(ctx context.Context, _ *service.Task[int]) (none, error) {
			began <- i
			select {
			case <-letGo:
				return none{}, nil
			case <-ctx.Done():
				lost <- context.Cause(ctx)
				return none{}, ctx.Err()
			}
		})
		all = append(all, p)
	}
	all[0].start(t)
	reqs := make([]service.Request, jobs)
	for i := range reqs {
		reqs[i] = task("hold", i)
	}
	answers := submit(t, all[1].Service, reqs...)
	start := func(i int) {
		t.Helper()
		for range jobs {
			if got := <-began; got != i {
				t.Fatalf("process %d has a job, want %d", got, i)
			}
		}
	}
	suspected := func(n int) (yes bool, err error) {
		for _, a := range answers {
			j, err := all[1].Job(t.Context(), a.ID)
			if err != nil || j.Suspect != n || j.State != job.Running {
				return false, err
			}
		}
		return true, nil
	}
	start(0)
	all[1].start(t)
	barrier.set(true)
	for range jobs {
		if err := <-lost; !errors.Is(err, service.ErrLeaseLost) {
			t.Errorf("a handler was stopped with %v", err)
		}
	}
	start(1)
	if yes, err := suspected(1); !yes {
		t.Errorf("what the other process took is no suspect, %v", err)
	}
	barrier.set(false)
	until(t, "the first process comes back, and clears its jobs", func() (bool, error) { return suspected(0) })
	close(letGo)
	all[1].finished(t, answers)
	storetest.Check(t, all[1].store, "default")
}
