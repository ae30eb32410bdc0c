package service_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
)

// all returns the events that a query yields by now.
func all(t *testing.T, svc *service.Service, q service.NewsQuery) (events []store.Event) {
	t.Helper()
	closed := make(chan struct{})
	close(closed)
	q.Until = closed
	for e, err := range svc.News(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// unsettling is a store that keeps the newest events back for a while, as if a change before them
// were under way.
type unsettling struct {
	store.Store
	until atomic.Pointer[time.Time]
}

func (u *unsettling) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	if t := u.until.Load(); t != nil && time.Now().Before(*t) {
		return store.Events{Cursor: q.Cursor, Unsettled: true}, nil
	}
	return u.Store.Events(ctx, q)
}

// TestNewsUnsettled: where nothing comes of what held events up, they come all the same, and soon.
func TestNewsUnsettled(t *testing.T) {
	u := &unsettling{}
	inBubble(t, func(db store.Store) store.Store { u.Store = db; return u }, func(n *newsroom) {
		came := n.follow("")
		settled := time.Now().Add(100 * time.Millisecond)
		u.until.Store(&settled)
		n.submit()
		<-came
		if late := time.Since(settled); late < 0 || late > time.Second {
			t.Errorf("it came %s after it was settled", late)
		}
	})
}

// wavering is a store that holds back what it has told already, from whoever does not say that it
// is known.
type wavering struct {
	store.Store
	wavers atomic.Bool
}

func (w *wavering) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	if w.wavers.Load() && q.Cursor == "" && q.Known == "" && !q.End {
		return store.Events{Cursor: "0", Unsettled: true}, nil
	}
	return w.Store.Events(ctx, q)
}

// TestNewsHeldBack: who comes when the store holds back what it has told the others misses nothing
// of it.
func TestNewsHeldBack(t *testing.T) {
	w := &wavering{}
	inBubble(t, func(db store.Store) store.Store { w.Store = db; return w }, func(n *newsroom) {
		early := n.follow("")
		first := n.submit()
		<-early
		w.wavers.Store(true)
		late := n.follow("")
		second := n.submit()
		<-early
		if got, want := []job.ID{<-late, <-late}, []job.ID{first, second}; !slices.Equal(got, want) {
			t.Errorf("it heard of %s, want %s", got, want)
		}
	})
}

// late is a store that says that nothing was committed yet when it is asked for the end, as if a
// change before all others were under way.
type late struct{ store.Store }

func (l late) Events(ctx context.Context, q store.EventQuery) (store.Events, error) {
	if q.End {
		return store.Events{Cursor: "0", Unsettled: true}, nil
	}
	return l.Store.Events(ctx, q)
}

// TestNewsOfAnotherProcess: who comes with a cursor from elsewhere hears nothing again that it has
// heard there.
func TestNewsOfAnotherProcess(t *testing.T) {
	inBubble(t, func(db store.Store) store.Store { return late{db} }, func(n *newsroom) {
		n.submit()
		was := all(n.t, n.svc, service.NewsQuery{})
		came := n.follow(was[len(was)-1].Cursor)
		if want, got := n.submit(), <-came; got != want {
			t.Errorf("it heard of %s, want %s", got, want)
		}
	})
}

// A newsroom is a service in a bubble whose news somebody follows.
type newsroom struct {
	t     *testing.T
	ctx   context.Context
	svc   *service.Service
	heard sync.WaitGroup
}

// inBubble has f see a service whose store is made by wrapping one.
func inBubble(t *testing.T, wrap func(store.Store) store.Store, f func(*newsroom)) {
	dir := t.TempDir()
	virtual.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		svc := service.New(service.Config{Store: wrap(db), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		n := &newsroom{t: t, ctx: ctx, svc: svc}
		defer n.heard.Wait()
		defer stop()
		f(n)
	})
}

// follow returns the jobs that each event behind a cursor is of, one after the other.
func (n *newsroom) follow(cursor string) <-chan job.ID {
	came := make(chan job.ID)
	n.heard.Go(func() {
		for e, err := range n.svc.News(n.ctx, service.NewsQuery{Cursor: cursor}) {
			if err != nil {
				continue
			}
			select {
			case came <- e.Job:
			case <-n.ctx.Done():
			}
		}
	})
	synctest.Wait() // it follows
	return came
}

func (n *newsroom) submit() job.ID {
	n.t.Helper()
	answers, err := n.svc.Submit(n.ctx, service.Request{Spec: service.NewTask("far", 0)})
	if err != nil {
		n.t.Fatal(err)
	}
	return answers[0].ID
}

// TestNews lets many follow at once, who come at any time and with any cursor, some of them too
// slow for what the feed keeps. Each must see what the store has from its cursor on, in order, with
// nothing left out and nothing twice.
func TestNews(t *testing.T) {
	keeps := []int{20}
	if testenv.Every() {
		keeps = append(keeps, 1, 10_000)
	}
	for _, keep := range keeps {
		svc := onDisk(t)
		svc.KeepEvents(keep)
		ctx := within(t)
		const jobs, followers = 150, 24
		var last job.ID // guarded by mu
		type seen struct {
			from   string
			events []store.Event
		}
		watched := make([]seen, followers)
		var mu sync.Mutex
		cursors := []string{""} // guarded by mu
		var followed sync.WaitGroup
		start := make([]chan struct{}, followers)
		for i := range followers {
			start[i] = make(chan struct{})
			followed.Go(func() {
				<-start[i]
				mu.Lock()
				watched[i].from = cursors[rand.N(len(cursors))]
				mu.Unlock()
				slow := rand.N(3) == 0
				for e, err := range svc.News(ctx, service.NewsQuery{Cursor: watched[i].from}) {
					if err != nil {
						t.Error(err)
						return
					}
					watched[i].events = append(watched[i].events, e)
					mu.Lock()
					cursors = append(cursors, e.Cursor)
					done := e.Job == last && e.State.Terminal()
					mu.Unlock()
					if done {
						return
					}
					if slow {
						runtime.Gosched()
					}
				}
			})
		}
		for i := range jobs {
			if i%(jobs/followers) == 0 && i/(jobs/followers) < followers {
				close(start[i/(jobs/followers)])
			}
			a := submit(t, svc, task("none", i))
			if rand.N(2) == 0 {
				if _, err := svc.Cancel(ctx, a[0].ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		a := submit(t, svc, task("none", 0))
		mu.Lock()
		last = a[0].ID
		mu.Unlock()
		if _, err := svc.Cancel(ctx, last); err != nil {
			t.Fatal(err)
		}
		followed.Wait()
		for _, w := range watched {
			if diff := cmp.Diff(all(t, svc, service.NewsQuery{Cursor: w.from}), w.events); diff != "" {
				t.Fatalf("keeping %d, from %q (-want +got):\n%s", keep, w.from, diff)
			}
		}
	}
}

func TestNewsOfJobs(t *testing.T) {
	svc := onDisk(t)
	ctx := within(t)
	mail := task("mail", 0)
	mail.Spec.Labels = map[string]string{"team": "red"}
	a, b := submit(t, svc, mail)[0].ID, submit(t, svc, task("count", 0))[0].ID
	if _, err := svc.Pause(ctx, a); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Cancel(ctx, a, b); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		q    service.NewsQuery
		want []store.Event // of those that are there, by job and number
	}{
		{"of one job", service.NewsQuery{Job: a}, events(a, 1, 2, 3)},
		{"by a label", service.NewsQuery{Filter: job.Where("label.team", job.Is, "red")}, events(a, 1, 2, 3)},
		{"by what it is as of the event", service.NewsQuery{Filter: job.WhereState(job.Pending, job.Paused)}, append(events(a, 1), append(events(b, 1), events(a, 2)...)...)},
		{"by type", service.NewsQuery{Types: []string{"CANCELED"}}, append(events(a, 3), events(b, 2)...)},
		{"by both", service.NewsQuery{Types: []string{"CANCELED"}, Filter: job.Where("kind", job.Is, "count")}, events(b, 2)},
		{"of a job that is not there", service.NewsQuery{Job: job.NewID()}, nil},
	} {
		var got []store.Event
		for _, e := range all(t, svc, c.q) {
			got = append(got, store.Event{Event: job.Event{Job: e.Job, N: e.N}})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	for _, err := range svc.News(ctx, service.NewsQuery{Cursor: "!"}) {
		if job.KindOf(err) != job.Invalid {
			t.Errorf("a cursor that is none: %v", err)
		}
	}
	t.Run("an end of the context is the error", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		gone := errors.New("gone")
		var last error
		for e, err := range svc.News(ctx, service.NewsQuery{}) {
			if last = err; e.Job == b && e.State == job.Canceled {
				cancel(gone)
			}
		}
		if !errors.Is(last, gone) {
			t.Errorf("%v", last)
		}
	})
}

// events are those of a job with some numbers.
func events(id job.ID, ns ...int64) (list []store.Event) {
	for _, n := range ns {
		list = append(list, store.Event{Event: job.Event{Job: id, N: n}})
	}
	return list
}

// A job may be deleted before anybody here has read of its end: nothing is left that could tell of
// it.
func TestNewsOfAJobThatIsDeletedUnseen(t *testing.T) {
	bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
		id := submit(t, svc, task("mail", 0))[0].ID
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, err := range svc.News(t.Context(), service.NewsQuery{Job: id}) {
				last = err
			}
			ended <- last
		}()
		synctest.Wait()
		behind := svc.Store() // of whom this process hears nothing
		if _, _, err := behind.Wish(t.Context(), store.Wish{Tenant: "default", Wish: job.WishCancel, Jobs: []job.ID{id}}); err != nil {
			t.Fatal(err)
		}
		if _, err := behind.Remove(t.Context(), "default", []job.ID{id}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; job.KindOf(err) != job.NotFound {
			t.Errorf("it ends with %v", err)
		}
	})
}
