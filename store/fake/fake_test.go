package fake_test

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
	"github.com/pawl-jobs/pawl/store/storetest"
)

func TestMain(m *testing.M) {
	testenv.Draws(8, 25, 100)
	testenv.Main(m)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		o := &opener{clock: &clock{}}
		return o.Open(t), o
	})
}

// An opener opens a store with what the one before held.
type opener struct {
	*clock
	store *fake.Store
}

func (o *opener) Open(t *testing.T) store.Store {
	s := fake.New(o.Now)
	if o.store != nil {
		s.Restore(o.store.Snapshot())
	}
	o.store = s
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSnapshot(t *testing.T) {
	seeds := uint64(3)
	if testenv.Long() {
		seeds = 10
	}
	for seed := range seeds {
		p := newPair(t, seed)
		other := fake.New(p.clock.Now)
		p.other, p.strict = other, true
		p.steps(150)
		at, same := p.fake.Snapshot(), p.fake.Snapshot()
		for range 2 { // a snapshot may be restored again
			p.steps(150)
			if !reflect.DeepEqual(at, same) {
				t.Fatal("a snapshot has changed with its store")
			}
			if reflect.DeepEqual(at, p.fake.Snapshot()) {
				t.Fatal("nothing has changed meanwhile")
			}
			p.fake.Restore(at)
			other.Restore(at)
			if !reflect.DeepEqual(at, p.fake.Snapshot()) {
				t.Fatal("the store is not what it was")
			}
			p.look()
		}
	}
}

// What a restore takes back is as if it had never been, for those who were there as well.
func TestRestore(t *testing.T) {
	ctx, c := t.Context(), &clock{}
	s := fake.New(c.Now)
	id := task(t, s, store.New{}).ID
	begin := func() job.ID {
		t.Helper()
		session := job.NewID()
		if err := s.Begin(ctx, store.Session{ID: session, Lease: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return session
	}
	claim := func(session job.ID) ([]job.Job, error) {
		return s.Claim(ctx, store.Claim{
			ID: job.NewID(), Session: session, Queues: []string{job.DefaultQueue}, Kinds: []string{"send"}, Slots: map[job.Lane]int{job.LaneTask: 9},
		})
	}
	known := begin()
	at := s.Snapshot()
	unknown, late := begin(), task(t, s, store.New{})
	if jobs, err := claim(unknown); err != nil || len(jobs) != 2 {
		t.Fatalf("claimed %d jobs, %v", len(jobs), err)
	}
	c.Advance(time.Minute)
	s.Restore(at)

	if j, err := store.FindJob(ctx, s, "acme", id); err != nil || j.Custody != job.Ready || j.N != 1 {
		t.Errorf("the job is at %s, %v", j.Place, err)
	}
	if _, err := store.FindJob(ctx, s, "acme", late.ID); job.KindOf(err) != job.NotFound {
		t.Errorf("a later job: %v", err)
	}
	if _, err := claim(unknown); job.KindOf(err) != job.Fenced {
		t.Errorf("a later session: %v", err)
	}
	if jobs, err := claim(known); err != nil || len(jobs) != 1 || !jobs[0].Since.Equal(c.Now()) {
		t.Errorf("claimed %+v, %v", jobs, err)
	}
}

func TestCopies(t *testing.T) {
	s := fake.New(nil)
	n := store.New{Job: job.Job{Request: json.RawMessage(`{"a":1}`), Labels: map[string]string{"a": "1"}}}
	id := task(t, s, n).ID
	n.Job.Request[2], n.Job.Labels["a"] = 'b', "2"
	for range 2 {
		j, err := store.FindJob(t.Context(), s, "acme", id)
		if err != nil || string(j.Request) != `{"a":1}` || j.Labels["a"] != "1" {
			t.Errorf("the job was changed from outside: %s, %v, %v", j.Request, j.Labels, err)
		}
		j.Request[2], j.Labels["a"] = 'b', "2"
	}
}

// Without a clock of its own it has the time of the bubble.
func TestVirtualTime(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		s := fake.New(nil)
		task(t, s, store.New{Delay: time.Hour})
		for _, want := range []int{0, 1} {
			if n, _, err := s.Due(t.Context(), 10); n != want || err != nil {
				t.Errorf("%d are due, %v; want %d", n, err, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

// task submits a task.
func task(t *testing.T, s store.Store, n store.New) store.Submitted {
	t.Helper()
	n.Job.ID, n.Job.Kind, n.Job.Queue, n.Job.MaxAttempts = job.NewID(), "send", job.DefaultQueue, 1
	got, _, err := s.Submit(t.Context(), store.Submission{Tenant: "acme", Jobs: []store.New{n}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

// A clock stands still until it is advanced.
type clock struct {
	mu     sync.Mutex // guards offset
	offset time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(c.offset)
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}
