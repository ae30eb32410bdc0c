package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/recovery/fake"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	storefake "github.com/pawl-jobs/pawl/store/fake"
)

func TestBlockedJobs(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		id := w.blocked("x", on("lab"))
		w.tester.Set("lab", fake.Knobs{Says: "no route\nto host\x00 " + strings.Repeat("é", 1000)})
		pass(time.Minute + time.Second)
		w.says(id, 1, "no route to host")
		if g := w.group(id); len(g.Result) > 510 || strings.ContainsAny(g.Result, "\x00\n") {
			t.Errorf("what a test says is kept as %q", g.Result)
		}
		w.tester.Set("lab", fake.Knobs{Err: errors.New("name not known")})
		pass(time.Minute)
		w.says(id, 2, "name not known")
		w.tester.Set("lab", fake.Knobs{Panic: true})
		pass(time.Minute)
		w.says(id, 3, "the tester panicked: as it was told to")
		w.is(id, job.Blocked)
		w.tester.Set("lab", fake.Knobs{Up: true})
		pass(time.Minute)
		w.is(id, job.Finished)
		if j := w.job(w.svc, id); j.Attempt != 1 || j.Recoveries != 1 {
			t.Errorf("job %+v", j)
		}
	})
}

func TestMayGo(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		var ids []job.ID
		for i := range 5 {
			ids = append(ids, w.blocked(fmt.Sprint(i), on("lab")))
		}
		w.tester.Set("lab", fake.Knobs{Up: true, May: 2})
		for tests := 1; tests <= 3; tests++ {
			pass(time.Minute + 2*time.Second)
			for i, id := range ids {
				if want := i < 2*tests; want != (w.job(w.svc, id).State == job.Finished) {
					t.Errorf("after %d tests job %d is %s", tests, i, w.job(w.svc, id).State)
				}
			}
		}
	})
}

// One answer is for all groups that ask the same: of these no more jobs go together than it says,
// and nobody is forgotten over that.
func TestMayGoTogether(t *testing.T) {
	for _, may := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(may), func(t *testing.T) {
			bubble(t, service.Config{}, func(w *world) {
				type blocked struct {
					of    *service.Service
					id    job.ID
					group string
				}
				var all []blocked
				other, late := w.other(), on("lab")
				late.Code = job.ConnectionTimeout
				for i := range 3 {
					for _, s := range []*service.Service{w.svc, other} {
						for _, b := range []*job.Block{on("lab"), late} {
							id := w.blockedAt(s, fmt.Sprint(i, b.Code), b)
							all = append(all, blocked{s, id, w.job(s, id).Group})
						}
					}
				}
				w.tester.Set("lab", fake.Knobs{Up: true, May: may})
				tests, gone, before := 0, 0, 0 // before: that had gone when the newest test was made
				for gone < len(all) && !t.Failed() {
					pass(time.Second)
					if n := len(w.tester.Calls("lab")); n > tests {
						tests, before = n, gone
					}
					gone = 0
					groups := map[string]bool{} // of which somebody has gone
					for _, b := range all {
						if w.job(b.of, b.id).State == job.Finished {
							gone++
							groups[b.group] = true
						}
					}
					if gone-before > may {
						t.Errorf("%d jobs have gone after test %d, and %d might", gone-before, tests, may)
					}
					if tests > 4 && len(groups) < 4 {
						t.Errorf("after %d tests somebody has gone of %d groups", tests, len(groups))
					}
					if tests > len(all)/may+2 {
						t.Errorf("after %d tests %d of %d jobs have gone", tests, gone, len(all))
					}
				}
			})
		})
	}
}

func TestTryNow(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		id := w.blocked("x", on("lab"))
		w.tester.Set("lab", fake.Knobs{Up: true})
		if _, err := w.svc.ActOnJobs(context.Background(), groups.TryNow, id); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Millisecond)
		w.is(id, job.Finished)
	})
}

func TestTryWhileATestIsUnderWay(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		id := w.blocked("x", on("lab"))
		w.tester.Set("lab", fake.Knobs{Takes: 10 * time.Second})
		pass(65 * time.Second)
		if _, err := w.svc.ActOnJobs(context.Background(), groups.TryNow, id); err != nil {
			t.Fatal(err)
		}
		pass(6 * time.Second) // it has found nothing
		if n := len(w.tester.Calls("lab")); n != 2 {
			t.Errorf("%d tests were begun, want 2", n)
		}
		w.tester.Set("lab", fake.Knobs{Up: true})
		pass(10 * time.Second)
		w.is(id, job.Finished)
	})
}

func TestHungTests(t *testing.T) {
	t.Run("are cut off, and delay nobody", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			w.tester.Set("hung", fake.Knobs{Hangs: true})
			w.tester.Set("lab", fake.Knobs{Up: true})
			other := w.other()
			hung, id := w.blocked("x", on("hung")), w.blockedAt(other, "y", on("lab"))
			pass(time.Minute + time.Second)
			w.isAt(other, id, job.Finished)
			w.says(hung, 0, "")
			pass(30 * time.Second)
			w.says(hung, 1, "no answer within 30s")
			pass(time.Minute)
			w.says(hung, 2, "no answer within 30s")
		})
	})
	t.Run("that do not hear of it keep their place at their host, and nobody else's", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			deaf := make(chan struct{})
			w.tester.Set("hung", fake.Knobs{Deaf: deaf, Up: true})
			w.tester.Set("lab", fake.Knobs{Up: true})
			var ids []job.ID
			for i := range 3 {
				b := on("hung")
				b.Params["port"] = fmt.Sprint(i)
				ids = append(ids, w.blocked(fmt.Sprint(i), b))
			}
			other := w.other()
			id := w.blockedAt(other, "y", on("lab"))
			pass(time.Minute + time.Second)
			w.isAt(other, id, job.Finished)
			pass(30 * time.Second)
			w.says(ids[0], 1, "no answer within 30s")
			w.says(ids[2], 1, "an earlier test has not returned")
			pass(time.Hour)
			if most := w.tester.Most("hung"); most != 2 || len(w.tester.Calls("hung")) != 2 {
				t.Errorf("%d of %d tests of a host at once, want 2", most, len(w.tester.Calls("hung")))
			}
			w.says(ids[0], w.group(ids[0]).Tests, "an earlier test has not returned")
			if n := w.group(ids[0]).Tests; n < 55 {
				t.Errorf("the policy does not go on: %d tests", n)
			}
			close(deaf)
			w.tester.Set("hung", fake.Knobs{Up: true})
			pass(time.Minute + time.Second)
			for _, id := range ids {
				w.is(id, job.Finished)
			}
		})
	})
	t.Run("of many hosts leave places to others", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			for i := range 40 {
				host := fmt.Sprint("hung", i)
				w.tester.Set(host, fake.Knobs{Hangs: true})
				w.blocked(host, on(host))
			}
			pass(2 * time.Minute) // they are known not to answer
			w.tester.Set("lab", fake.Knobs{Up: true})
			other := w.other()
			id := w.blockedAt(other, "y", on("lab"))
			pass(time.Minute + time.Second)
			w.isAt(other, id, job.Finished)
		})
	})
	t.Run("of a process that stops do not keep it", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			deaf := make(chan struct{})
			w.tester.Set("hung", fake.Knobs{Deaf: deaf})
			w.blocked("x", on("hung"))
			pass(time.Minute + time.Second)
			begun := time.Now()
			w.stop()
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("it took %v", took)
			}
			close(deaf)
			w.start()
		})
	})
}

// However many tests hang, of whatever tenant, a host that is not asked by them is tested at its
// times.
func TestHungTestsOfMany(t *testing.T) {
	all := 100 // there are 32 places
	if testenv.Long() {
		all = 320
	}
	hung := fake.Knobs{Hangs: true}
	t.Run("hosts of one tenant, when nothing is known of any", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			w.away(w.svc, all, hung)
			w.onTime(w.other(), "lab", 0)
		})
	})
	t.Run("hosts of one tenant, of which it is known", func(t *testing.T) {
		testenv.Aside(t)
		bubble(t, service.Config{}, func(w *world) {
			w.away(w.svc, 100, hung)
			pass(5 * time.Minute) // each has had a test
			w.onTime(w.svc, "lab", 0)
		})
	})
	t.Run("hosts of one tenant that answered before", func(t *testing.T) {
		testenv.Aside(t)
		bubble(t, service.Config{}, func(w *world) {
			hosts := w.away(w.svc, all, fake.Knobs{})
			pass(90 * time.Second)
			for _, host := range hosts {
				w.tester.Set(host, hung)
			}
			w.onTime(w.other(), "lab", 0)
		})
	})
	t.Run("hosts of the same tenant, beside one that answers", func(t *testing.T) {
		testenv.Aside(t)
		bubble(t, service.Config{}, func(w *world) {
			id := w.blocked("x", on("known"))
			pass(90 * time.Second)
			w.says(id, 1, "known is down")
			w.away(w.svc, all, hung)
			w.onTime(w.svc, "known", 0)
		})
	})
	t.Run("hosts of five tenants", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			for i := range 5 {
				w.away(w.as(fmt.Sprint("tenant", i)), all/5, hung)
			}
			w.onTime(w.other(), "lab", 0)
		})
	})
	t.Run("hosts of more tenants, but for the first test", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			for i := range 20 {
				w.away(w.as(fmt.Sprint("tenant", i)), all/20, hung)
			}
			w.onTime(w.other(), "lab", 30*time.Second)
		})
	})
	t.Run("doors of one host", func(t *testing.T) {
		bubble(t, service.Config{}, func(w *world) {
			for i := range 40 {
				door := fmt.Sprint("lab:", 1000+i)
				w.tester.Set(door, hung)
				w.blocked(door, on(door))
			}
			pass(time.Second)
			other := w.other()
			id := w.blockedAt(other, "y", on("lab:22"))
			w.tester.Set("lab:22", fake.Knobs{Up: true})
			pass(time.Minute + 32*time.Second) // the turn after that of those who were first
			w.isAt(other, id, job.Finished)
		})
	})
}

// away blocks tasks of a tenant, each by a host of its own that behaves as it is told, and returns
// the hosts.
func (w *world) away(s *service.Service, n int, k fake.Knobs) (hosts []string) {
	w.Helper()
	w.faces++
	for i := range n {
		host := fmt.Sprint("away", w.faces, "-", i)
		hosts = append(hosts, host)
		w.tester.Set(host, k)
		w.blockedAt(s, host, on(host))
	}
	return hosts
}

// onTime blocks a task by a host that answers, and watches its tests for ten minutes. The first may
// be late.
func (w *world) onTime(s *service.Service, host string, late time.Duration) {
	w.Helper()
	w.tester.Set(host, fake.Knobs{Takes: 100 * time.Millisecond})
	pass(time.Second) // it comes after all others
	before := len(w.tester.Calls(host))
	at := time.Now()
	id := w.blockedAt(s, host, on(host))
	if before > 0 { // it is tested already
		at = w.tester.Calls(host)[before-1].At
	}
	const tests = 10
	pass(time.Until(at.Add(tests*time.Minute + 30*time.Second)))
	calls := w.tester.Calls(host)[before:]
	if len(calls) != tests {
		w.Errorf("%s was tested %d times within %d min", host, len(calls), tests)
	}
	for i, c := range calls {
		due, bound := at.Add(time.Duration(i+1)*time.Minute), time.Second
		if i == 0 {
			bound += late
		}
		if wait := c.At.Sub(due); wait > bound {
			w.Errorf("test %d of %s came %v after its time", i+1, host, wait)
		}
	}
	w.tester.Set(host, fake.Knobs{Up: true})
	pass(time.Minute)
	w.isAt(s, id, job.Finished)
}

func TestTestsOfAHost(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.tester.Set("lab", fake.Knobs{Takes: 2 * time.Second, Up: true})
		var ids []job.ID
		for i := range 10 {
			b := on("lab")
			b.Params["port"] = fmt.Sprint(i)
			ids = append(ids, w.blocked(fmt.Sprint(i), b))
		}
		pass(time.Minute + 11*time.Second) // two at a time
		for _, id := range ids {
			w.is(id, job.Finished)
		}
		if most, n := w.tester.Most("lab"), len(w.tester.Calls("lab")); most != 2 || n != 10 {
			t.Errorf("%d tests of a host at once, of %d", most, n)
		}
	})
}

// Behind more groups than are asked for at once, all of a host that does not answer, others are
// tested in time.
func TestManyGroups(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.tester.Set("hung", fake.Knobs{Hangs: true})
		w.tester.Set("lab", fake.Knobs{Up: true})
		for i := range 450 {
			b := on("hung")
			b.Params["port"] = fmt.Sprint(i)
			w.blocked(fmt.Sprint(i), b)
		}
		pass(time.Second)
		id := w.blocked("y", on("lab"))
		pass(time.Minute + time.Second)
		w.is(id, job.Finished)
		if most := w.tester.Most("hung"); most != 2 {
			t.Errorf("%d tests of a host at once", most)
		}
	})
}

func TestOneProbe(t *testing.T) {
	private := &ofTenants{}
	bubble(t, service.Config{Testers: map[string]recovery.Tester{"mine": private}}, func(w *world) {
		w.tester.Set("lab", fake.Knobs{Up: true})
		other := w.other()
		quota := on("lab")
		quota.Code = job.ConnectionTimeout
		ids := []job.ID{w.blocked("x", on("lab")), w.blocked("y", quota)}
		pass(20 * time.Second)
		theirs := w.blockedAt(other, "z", on("lab"))
		own := *on("lab")
		own.Tester = "mine"
		ids = append(ids, w.blocked("own", &own))
		pass(20 * time.Second)
		blocked := w.blockedAt(other, "theirs", &own)
		pass(30 * time.Second)
		w.is(ids[0], job.Finished)
		w.is(ids[1], job.Finished)
		if j := w.job(other, theirs); j.State != job.Finished {
			t.Errorf("of another tenant it is %s", j.Place)
		}
		if n := len(w.tester.Calls("")); n != 1 {
			t.Errorf("%d tests, want one for all", n)
		}
		pass(time.Minute)
		w.is(ids[2], job.Finished)
		if j := w.job(other, blocked); j.State != job.Blocked {
			t.Errorf("what is so for one tenant lets the job of another go: %s", j.Place)
		}
		if n := private.asked.Load(); n != 2 {
			t.Errorf("%d tests of two tenants, want one each", n)
		}
	})
}

// ofTenants has cleared for the tenant "default".
type ofTenants struct{ asked atomic.Int64 }

func (o *ofTenants) Private() {}

func (o *ofTenants) Test(_ context.Context, q recovery.Question) (recovery.Answer, error) {
	o.asked.Add(1)
	return recovery.Answer{Clear: q.Tenant == "default"}, nil
}

func TestUnknownTesters(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		b := on("lab")
		b.Tester, b.Policy = "nobody", job.Policy{Stages: []job.Stage{{Every: job.Duration(time.Minute), Times: 3}}}
		id := w.blocked("x", b)
		pass(time.Minute + time.Second)
		w.says(id, 1, "no tester nobody is known here")
		pass(2*time.Minute + time.Second)
		w.is(id, job.Failed)
		if j := w.job(w.svc, id); j.Code != job.RecoveryTimeout || !strings.Contains(j.Message, "its group was tested 3 times") {
			t.Errorf("it ended %s: %s", j.Code, j.Message)
		}
	})
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	var params atomic.Value
	away.Store(true)
	synctestRun(t, func(w *world) {
		service.HandleTester(w.svc, "payments", func(_ context.Context, p map[string]string) error {
			params.Store(p["at"])
			if away.Load() {
				return errors.New("no payments today")
			}
			return nil
		})
		service.HandleTester(w.svc, "exits", func(context.Context, map[string]string) error {
			runtime.Goexit()
			return nil
		})
		w.start()
		b := job.Blocking(service.Block("payments are away", "go/payments", map[string]string{"at": "bank"}))
		id := w.blocked("x", b)
		e := *b
		e.Tester = "go/exits"
		exits := w.blocked("y", &e)
		pass(11 * time.Second)
		w.says(id, 1, "no payments today")
		w.says(exits, 1, "the tester ended its goroutine")
		away.Store(false)
		pass(10 * time.Second)
		w.is(id, job.Finished)
		if params.Load() != "bank" {
			t.Errorf("it was asked about %v", params.Load())
		}
		w.stop()
	})
}

func TestEnabled(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		ctx := context.Background()
		if _, err := w.svc.Systems().Disable(ctx, job.SystemLocal, true, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		about := func(code job.Code, kind, name string) *job.Block {
			return &job.Block{Code: code, Tester: recovery.Enabled, Params: map[string]string{"kind": kind, "name": name}}
		}
		system := w.blocked("system", about(job.SystemDisabled, job.KindSystem, job.SystemLocal))
		app := w.blocked("app", about(job.AppDisabled, "app", "blast"))
		tenant := w.blocked("tenant", about(job.TenantSuspended, "tenant", "default"))
		nothing := w.blocked("nothing", about(job.AppDisabled, "app", ""))
		if _, err := w.store.Put(ctx, store.Resource{Tenant: store.Site, Kind: "tenant", Name: "default", Doc: []byte(`{"disabled":true}`)}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute + time.Second)
		w.says(system, 1, "system local is disabled")
		w.says(app, 1, "not enabled: there is no app blast")
		w.says(tenant, 1, "tenant default is disabled")
		w.says(nothing, 1, "parameters kind and name are needed")
		if _, err := w.svc.Systems().Disable(ctx, job.SystemLocal, false, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Millisecond)
		w.is(system, job.Finished)
		for _, doc := range []store.Resource{
			{Tenant: store.Site, Kind: "tenant", Name: "default", Version: 1, Doc: []byte(`{}`)}, {Tenant: "default", Kind: "app", Name: "blast", Doc: []byte(`{"name":"blast"}`)},
		} {
			if _, err := w.store.Put(ctx, doc); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		w.is(tenant, job.Finished)
		w.is(app, job.Finished)
	})
}

// counting is a store that counts calls, and fails those of tests for a while.
type counting struct {
	store.Store
	tests, tested atomic.Int64
	fail          atomic.Bool
}

func (c *counting) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) {
	c.tests.Add(1)
	return c.Store.Tests(ctx, duty, limit)
}

func (c *counting) Tested(ctx context.Context, f job.Fence, found []groups.Test) (store.Effects, error) {
	c.tested.Add(1)
	if c.fail.Load() {
		return store.Effects{}, job.Errorf(job.Unavailable, "the database is away")
	}
	return c.Store.Tested(ctx, f, found)
}

func TestIdle(t *testing.T) {
	t.Parallel()
	synctestRun(t, func(w *world) {
		c := &counting{Store: w.store}
		w.cfg.Store = c
		w.svc = w.service(w.cfg)
		w.start()
		pass(time.Hour)
		if n := c.tests.Load(); n != 1 {
			t.Errorf("an idle process asked %d times what is due", n)
		}
		w.stop()
	})
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	synctestRun(t, func(w *world) {
		c := &counting{Store: w.store}
		w.cfg.Store = c
		w.svc = w.service(w.cfg)
		w.start()
		id := w.blocked("x", on("lab"))
		w.tester.Set("lab", fake.Knobs{Up: true})
		c.fail.Store(true)
		pass(70 * time.Second)
		w.is(id, job.Blocked)
		c.fail.Store(false)
		pass(10 * time.Second)
		w.is(id, job.Finished)
		if n := len(w.tester.Calls("")); n != 1 || c.tested.Load() < 2 {
			t.Errorf("%d tests, which were written down in %d calls", n, c.tested.Load())
		}
		w.stop()
	})
}

// The duty goes to another process, and with it what its first holder had begun.
func TestAnotherHolder(t *testing.T) {
	t.Parallel()
	synctestRun(t, func(w *world) {
		w.start()
		w.tester.Set("lab", fake.Knobs{Takes: 20 * time.Second, Up: true})
		id := w.blocked("x", on("lab"))
		other := newWorld(t, service.Config{Store: w.store})
		other.tester.Set("lab", fake.Knobs{Up: true})
		other.start()
		pass(65 * time.Second)
		w.stop()
		pass(10 * time.Second)
		other.is(id, job.Finished)
		if a, b := len(w.tester.Calls("lab")), len(other.tester.Calls("lab")); a != 1 || b != 1 {
			t.Errorf("%d and %d tests, want one of each", a, b)
		}
		other.stop()
	})
}

// What can be tested on one machine only is tested there, also by a process that only watches its
// programs.
func TestOfAMachine(t *testing.T) {
	t.Parallel()
	synctestRun(t, func(w *world) {
		w.cfg.Machine = "here"
		w.svc = w.service(w.cfg)
		w.start()
		w.tester.Set("lab", fake.Knobs{Up: true})
		b := on("lab")
		b.Machine = "there"
		id := w.blocked("x", b)
		pass(time.Hour)
		w.says(id, 0, "")
		cfg := service.Config{Store: w.store, Machine: "there", Options: engine.Options{Roles: []store.Role{store.RoleWatcher}}}
		there := newWorld(t, cfg)
		there.tester.Set("lab", fake.Knobs{Up: true})
		there.start()
		pass(6 * time.Second)
		w.is(id, job.Finished)
		if len(w.tester.Calls("")) != 0 || len(there.tester.Calls("")) != 1 {
			t.Errorf("%d tests here, and %d there", len(w.tester.Calls("")), len(there.tester.Calls("")))
		}
		there.stop()
		w.stop()
	})
}

func TestRoles(t *testing.T) {
	r := recovery.New(recovery.Config{Store: storefake.New(nil), Machine: "m", Testers: map[string]recovery.Tester{"go/f": recovery.Func(nil), "tcp": recovery.Func(nil)}})
	var names []string
	for _, d := range r.Duties() {
		names = append(names, fmt.Sprint(d.Name, " ", d.Roles))
	}
	want := "recovery [recovery], recovery@m [recovery watcher], recovery/go/f [recovery worker], recovery/go/f@m [recovery worker watcher]"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("duties\n%s, want\n%s", got, want)
	}
}
