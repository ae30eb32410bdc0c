package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A family says of all keys together on which it decides what each of them says for itself.
func TestLimitOfAFamily(t *testing.T) {
	t.Parallel()
	svc := service.New(service.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler)})
	for _, l := range []job.Limit{
		{Key: "gpu/*", Most: 1, Weights: map[string]int{"bob": 2}},
		{Key: "gpu/own", Most: 5},
	} {
		if err := svc.SetLimit(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	under := func(owner string, keys ...string) {
		r := task("any", 0)
		r.Spec.Owner, r.Spec.Limits = owner, keys
		submit(t, svc, r)
	}
	under("ann", "gpu/a")
	under("ann", "gpu/b")
	under("bob", "gpu/b")
	under("bob", "gpu/own")
	l, err := svc.Limit(t.Context(), "gpu/*")
	if err != nil || l.InUse != 2 || l.Waiting != 1 || l.KeysInUse != 2 ||
		!slices.Equal(l.Keys, []string{"gpu/a", "gpu/b"}) || l.Set.Most != 1 || l.Jobs != nil {
		t.Errorf("%+v, %v", l, err)
	}
	if want := []service.LimitShare{
		{Owner: "ann", Weight: 1, InUse: 2},
		{Owner: "bob", Weight: 2, Waiting: 1},
	}; !slices.Equal(l.Owners, want) {
		t.Errorf("its owners are %+v, want %+v", l.Owners, want)
	}
	if l, err := svc.Limit(t.Context(), "gpu/b"); err != nil || l.InUse != 1 || l.Waiting != 1 ||
		l.KeysInUse != 0 || len(l.Jobs) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// A move is a task that goes in order with others.
type move struct {
	Name    string
	Version int
	Fails   int // attempts
}

// TestOrder has tasks of one key done, by whom they are due and who fails.
func TestOrder(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // when a bubble begins
	for _, tt := range []struct {
		name  string
		order job.Order
		moves []move
		due   map[string]time.Duration
		want  []string
	}{
		{
			"by creation",
			job.Order{},
			[]move{{Name: "c"}, {Name: "a"}, {Name: "b"}},
			nil,
			[]string{"c", "a", "b"},
		},
		{
			"who is not due yet holds nobody up, and then stands where it was",
			job.Order{},
			[]move{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}},
			map[string]time.Duration{"a": 90 * time.Second}, // while c runs
			[]string{"b", "c", "a", "d"},
		},
		{
			"by due time, also one that has passed",
			job.Order{By: "due"},
			[]move{{Name: "now"}, {Name: "late"}, {Name: "later"}, {Name: "past"}},
			map[string]time.Duration{"late": 70 * time.Second, "later": 80 * time.Second, "past": -time.Hour},
			[]string{"past", "now", "late", "later"},
		},
		{
			"by a field",
			job.Order{By: "args.Version"},
			[]move{{Name: "ten", Version: 10}, {Name: "two", Version: 2}, {Name: "minus", Version: -1}},
			nil,
			[]string{"minus", "two", "ten"},
		},
		{
			"who fails is waited for",
			job.Order{},
			[]move{{Name: "a", Fails: 2}, {Name: "b", Fails: 10}, {Name: "c"}},
			nil,
			[]string{"a fails", "a fails", "a", "b fails", "b fails", "b fails", "c"},
		},
		{
			"who fails is passed",
			job.Order{Failing: job.OrderPass},
			[]move{{Name: "a", Fails: 2}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}, {Name: "g"}},
			nil,
			[]string{"a fails", "b", "c", "d", "e", "a fails", "f", "g", "a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, svc *service.Service, run func()) {
				var done []string
				service.Handle(svc, "move", func(ctx context.Context, task *service.Task[move]) (struct{}, error) {
					begun := len(done)
					time.Sleep(time.Minute)
					name, failed := task.Args.Name, task.Job.Attempt <= task.Args.Fails
					if len(done) != begun {
						t.Errorf("%s ran beside %s", name, done[begun:])
					}
					if failed {
						done = append(done, name+" fails")
						return struct{}{}, errors.New("as it was told")
					}
					done = append(done, name)
					return struct{}{}, nil
				})
				reqs := make([]service.Request, len(tt.moves))
				for i, m := range tt.moves {
					spec := service.NewTask("move", m)
					order := tt.order
					order.Key = "moves"
					spec.Order, spec.Owner, spec.Priority = &order, fmt.Sprint("owner", i%2), new(9-i)
					spec.Retry = &job.RetryPolicy{
						MaxAttempts: 3,
						Backoff: job.Backoff{
							Kind: job.BackoffConstant,
							Base: job.Duration(4*time.Minute - time.Second),
						},
					}
					if after, set := tt.due[m.Name]; set {
						spec.NotBefore = now.Add(after)
					}
					reqs[i].Spec = spec
				}
				jobs := submit(t, svc, reqs...)
				run()
				for _, j := range jobs {
					if _, err := svc.Wait(t.Context(), j.ID); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(tt.want, done); diff != "" {
					t.Errorf("(-want +done)\n%s", diff)
				}
			})
		})
	}
}

// TestEqualIsSeen looks at a job that waits while one that is equal runs.
func TestEqualIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, svc *service.Service, run func()) {
		going := make(chan bool)
		service.Handle(svc, "move", func(context.Context, *service.Task[move]) (struct{},
			error,
		) {
			<-going
			return struct{}{}, nil
		})
		reqs := make([]service.Request, 2)
		for i := range reqs {
			reqs[i].Spec = service.NewTask("move", move{})
			reqs[i].Spec.Unique = &job.Unique{Key: "a/b", Until: job.WhileRunning}
			reqs[i].Spec.Owner = "ada"
		}
		since := time.Now()
		jobs := submit(t, svc, reqs...)
		run()
		time.Sleep(time.Minute)
		synctest.Wait()
		v, err := svc.View(t.Context(), jobs[1].ID)
		want := "waits until no other job with its key runs, since " + since.Local().Format(time.RFC3339) +
			", first of its owner's jobs; job " + jobs[0].ID.String() + " has it, and 1 waits"
		if err != nil || v.Why != want {
			t.Errorf("%q, want %q, %v", v.Why, want, err)
		}
		close(going)
		for _, j := range jobs {
			if _, err := svc.Wait(t.Context(), j.ID); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOrderIsSeen looks at jobs that wait in an order, and at the order.
func TestOrderIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, svc *service.Service, run func()) {
		going := make(chan bool)
		service.Handle(svc, "move", func(context.Context, *service.Task[move]) (struct{},
			error,
		) {
			<-going
			return struct{}{}, nil
		})
		reqs := make([]service.Request, 4)
		for i := range reqs {
			reqs[i].Spec = service.NewTask("move", move{})
			reqs[i].Spec.Order = &job.Order{Key: "account/4711"}
			reqs[i].Spec.Owner = []string{"ada", "bob"}[i%2]
		}
		reqs[3].Spec.Delay = job.Duration(time.Minute)
		since := []time.Time{1: time.Now(), 2: time.Now(), 3: time.Now().Add(time.Minute)}
		jobs := submit(t, svc, reqs...)
		run()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i, want := range []string{"a process works on it", ", the next one", ", behind 1 job", ", behind 2 jobs"} {
			v, err := svc.View(t.Context(), jobs[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				want = "waits for its turn in the order of account/4711 since " +
					since[i].Local().Format(time.RFC3339) + want + "; job " + jobs[0].ID.String() +
					" has it, and 3 wait"
			}
			if v.Why != want || v.Order != "order/account%2F4711" {
				t.Errorf("%d, of the order %q: %q, want %q", i, v.Order, v.Why, want)
			}
		}

		set := &job.Limit{Key: "order/account%2F4711", Most: 1}
		want := service.LimitUse{
			Key: set.Key, Set: set, InUse: 1, Waiting: 3, Jobs: []job.ID{jobs[0].ID},
			Owners: []service.LimitShare{
				{Owner: "ada", Weight: 1, InUse: 1, Waiting: 1},
				{Owner: "bob", Weight: 1, Waiting: 2},
			},
		}
		if l, err := svc.Limit(t.Context(), set.Key); err != nil || !cmp.Equal(want, l) {
			t.Errorf("%v\n%s", err, cmp.Diff(want, l))
		}
		all, err := svc.Limits(t.Context())
		if err != nil || !slices.ContainsFunc(all,
			func(l service.LimitUse) bool { return l.Key == set.Key && l.Waiting == 3 }) {
			t.Errorf("%+v, %v", all, err)
		}
		if err := svc.SetLimit(t.Context(), job.Limit{Key: set.Key, Most: 2}); err == nil ||
			!strings.Contains(err.Error(), "begins with order") {
			t.Errorf("a limit is set for an order: %v", err)
		}

		close(going)
		for _, j := range jobs {
			if _, err := svc.Wait(t.Context(), j.ID); err != nil {
				t.Fatal(err)
			}
		}
		if l, err := svc.Limit(t.Context(), set.Key); err != nil ||
			!cmp.Equal(service.LimitUse{Key: set.Key, Set: set}, l) {
			t.Errorf("an order that nobody is in: %+v, %v", l, err)
		}
		if _, err := svc.Limit(t.Context(), "ahead/"+set.Key); job.KindOf(err) != job.NotFound {
			t.Errorf("what nobody takes turns of: %v", err)
		}
	})
}
