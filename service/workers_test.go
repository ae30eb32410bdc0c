package service_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// begin begins a session of another process, which is alive for the length of a lease.
func begin(t *testing.T, svc *service.Service, lease time.Duration, p store.Process) job.ID {
	t.Helper()
	s := store.Session{ID: job.NewID(), Process: p, Lease: lease}
	if err := svc.Store().Begin(context.Background(), s); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// view looks at a job when what was seen earlier is forgotten.
func view(t *testing.T, svc *service.Service, id job.ID) service.View {
	t.Helper()
	time.Sleep(2 * time.Second)
	v, err := svc.View(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	list, err := svc.Views(context.Background(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if at := slices.IndexFunc(list.Jobs, func(l service.View) bool { return l.ID == id }); at < 0 ||
		!agrees(list.Jobs[at].Why, v.Why) || list.Jobs[at].Unserved != v.Unserved {
		t.Errorf("the list has another view of %s than %q", id, v.Why)
	}
	return v
}

// agrees reports whether a list says of a job what its own view says, but for where it stands among
// others.
func agrees(list, view string) bool {
	same := 0
	for same < min(len(list), len(view)) && list[same] == view[same] {
		same++
	}
	return strings.HasSuffix(view, list[same:])
}

func TestWorkers(t *testing.T) {
	t.Run("they show what they do", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, run func()) {
			ctx := context.Background()
			hold := make(chan struct{})
			service.Handle(svc, "hold", func(context.Context, *service.Task[int]) (int, error) { <-hold; return 0, nil })
			gone := begin(t, svc, time.Second, store.Process{Host: "other"})
			time.Sleep(2 * time.Second)
			run()
			synctest.Wait()
			ids := submit(t, svc, task("hold", 1), task("hold", 2))
			synctest.Wait()
			time.Sleep(10 * time.Second)
			all, err := svc.Workers(ctx)
			if err != nil || len(all) != 2 {
				t.Fatalf("%+v, %v", all, err)
			}
			w, other := all[0], all[1]
			if w.State != service.WorkerLive || w.Held != 2 || w.Oldest == nil ||
				w.Slots[job.LaneTask] != (service.Slots{Used: 2, All: 50}) || len(w.Slots) != 1 || w.PID == 0 {
				t.Errorf("the one that lives is %+v", w)
			}
			if other.ID != gone || other.State != service.WorkerGone || other.Host != "other" ||
				!other.Since.Equal(other.Renewed) {
				t.Errorf("the one that is gone is %+v", other)
			}
			v, err := svc.Worker(ctx, w.ID)
			if err != nil || len(v.Jobs) != 2 || v.Jobs[0].ID != w.Oldest.ID || v.Jobs[0].Request != nil ||
				v.Jobs[0].Why != "a process works on it" {
				t.Errorf("%+v, %v", v, err)
			}
			close(hold)
			for _, id := range ids {
				if _, err := svc.Wait(ctx, id.ID); err != nil {
					t.Error(err)
				}
			}
			if v, err := svc.Worker(ctx, w.ID); err != nil || v.Jobs == nil || len(v.Jobs) != 0 || v.Oldest != nil {
				t.Errorf("%+v, %v", v, err)
			}
			if _, err := svc.Worker(ctx, job.NewID()); job.KindOf(err) != job.NotFound {
				t.Errorf("%v", err)
			}
			for id, want := range map[job.ID]job.ErrorKind{gone: job.Conflict, job.NewID(): job.NotFound} {
				if _, err := svc.SetMode(ctx, id, store.Drain); job.KindOf(err) != want {
					t.Errorf("%v, want %s", err, want)
				}
			}
		})
	})

	t.Run("jobs of another tenant are counted, and not shown", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			ctx := context.Background()
			others := service.New(service.Config{Store: svc.Store(), Broker: &local.Broker{}, Tenant: "other"})
			submit(t, others, task("hold", 1))
			id := begin(t, svc, time.Hour,
				store.Process{Host: "h", Kinds: []string{"hold"}, Slots: map[job.Lane]int{job.LaneTask: 1}})
			_, err := svc.Store().Claim(ctx, store.Claim{
				ID: job.NewID(), Session: id, Queues: []string{job.DefaultQueue}, Kinds: []string{"hold"},
				Slots: map[job.Lane]int{job.LaneTask: 1},
			})
			if err != nil {
				t.Fatal(err)
			}
			if v, err := svc.Worker(ctx, id); err != nil || v.Held != 1 || len(v.Jobs) != 0 || v.Oldest == nil ||
				!v.Oldest.ID.IsZero() {
				t.Errorf("%+v, %v", v, err)
			}
			if v, err := others.Worker(ctx, id); err != nil || v.Held != 1 || len(v.Jobs) != 1 ||
				v.Oldest.ID != v.Jobs[0].ID {
				t.Errorf("%+v, %v", v, err)
			}
		})
	})

	t.Run("a worker over HTTP uses a slot for each job in its hands", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			submit(t, svc, task("mail", 1), task("mail", 2), task("mail", 3))
			session := job.NewID()
			for _, c := range []struct{ ask, used, all int }{{2, 2, 2}, {1, 3, 3}, {1000, 3, 1000}} {
				ask := claims.Ask{Kinds: []string{"mail"}, Slots: c.ask}
				if _, err := svc.Claims().Claim(t.Context(), t.Context(), session, ask); err != nil {
					t.Fatal(err)
				}
				v, err := svc.Worker(t.Context(), session)
				if want := (service.Slots{Used: c.used, All: c.all}); err != nil || v.Slots[job.LaneTask] != want {
					t.Errorf("asked for %d it shows %+v, want %+v, %v", c.ask, v.Slots, want, err)
				}
			}
		})
	})

	t.Run("where nobody lives, all are gone", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			begin(t, svc, time.Hour, store.Process{})
			none := service.New(service.Config{
				Store: svc.Store(), Broker: &local.Broker{},
				Served: func(context.Context) bool { return false },
			})
			if all, err := none.Workers(context.Background()); err != nil || len(all) != 1 ||
				all[0].State != service.WorkerGone {
				t.Errorf("%+v, %v", all, err)
			}
		})
	})
}

func TestUnserved(t *testing.T) {
	t.Run("a ready job says that nobody is there for it", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			since := "since " + time.Now().Local().Format(time.RFC3339)
			ids := []job.ID{
				submit(t, svc, task("mail", 1))[0].ID, submit(t, svc, task("mail", 2))[0].ID,
				submit(t, svc, task("mail", 3))[0].ID,
			}
			submit(t, svc, task("fax", 1))
			says := func(unserved bool, why string) {
				t.Helper()
				why += since
				for i, stands := range []string{
					", first of its kind", ", behind 1 of its kind",
					", behind 2 of its kind",
				} {
					want := why + stands + " in queue default"
					if v := view(t, svc, ids[i]); v.Unserved != unserved || v.Why != want {
						t.Errorf("unserved %t: %s; want %t: %s", v.Unserved, v.Why, unserved, want)
					}
				}
			}
			const nobody = "no live process claims jobs of kind mail in queue default"
			says(true, nobody+"; ready ")
			serves := store.Process{Queues: []string{job.DefaultQueue}, Kinds: []string{"mail"}}
			begin(t, svc, time.Hour, store.Process{Queues: []string{"night"}, Kinds: []string{"mail"}})
			begin(t, svc, time.Hour, store.Process{
				Queues: []string{job.DefaultQueue}, Kinds: []string{"mail"},
				Tenants: []string{"other"},
			})
			says(true, nobody+"; ready ")
			w := begin(t, svc, 30*time.Second, serves)
			says(false, "waits for a free slot of a program that handles mail, ")
			if all, err := svc.Unattended(context.Background()); err != nil || len(all.Unserved) != 1 {
				t.Errorf("%+v, %v", all, err)
			}
			if _, err := svc.SetMode(context.Background(), w, store.Drain); err != nil {
				t.Fatal(err)
			}
			says(true, nobody+": those that would were told to drain; ready ")
			time.Sleep(30 * time.Second)
			says(true, nobody+"; ready ")
			if all, err := svc.Unattended(context.Background()); err != nil || len(all.Unserved) != 2 ||
				all.Unserved[1].Jobs != 3 {
				t.Errorf("%+v, %v", all, err)
			}
		})
	})

	t.Run("a program whose system does not answer says since when", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			far := service.New(service.Config{
				Store: svc.Store(), Broker: &local.Broker{}, Machine: "m1",
				Kinds: map[string]engine.Kind{job.KindApp: launcher{}}, Log: slog.New(slog.DiscardHandler),
			})
			if _, _, err := far.Systems().Apply(context.Background(), []byte(`{"name": "lab", "host": {"kind": "ssh",
				"address": "lab.example.org", "user": "ada", "keys": "everywhere"}}`), 0); err != nil {
				t.Fatal(err)
			}
			id := submit(t, far, service.Request{Spec: job.Spec{Command: []string{"true"}, System: "lab"}})[0].ID
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error)
			go func() { ended <- far.Run(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
			if v := view(t, svc, id); v.SystemSilent != nil || v.Why != "its program runs" {
				t.Errorf("%+v: %s", v.SystemSilent, v.Why)
			}
			silence := store.Silence{Since: time.Now().UTC(), Message: "ssh to lab: refused"}
			begin(t, svc, time.Minute, store.Process{Silent: map[string]store.Silence{"watch/lab/eve": silence}})
			if v := view(t, svc, id); v.SystemSilent != nil {
				t.Errorf("another account is silent, and %+v: %s", v.SystemSilent, v.Why)
			}
			begin(t, svc, time.Minute, store.Process{Silent: map[string]store.Silence{"watch/lab/ada": silence}})
			want := "its program runs; system lab does not answer since " + silence.Since.Local().Format(time.RFC3339) +
				": ssh to lab: refused"
			if v := view(t, svc, id); v.SystemSilent == nil || v.SystemSilent.System != "lab" ||
				!v.SystemSilent.Since.Equal(silence.Since) || v.Why != want {
				t.Errorf("%+v: %s", v.SystemSilent, v.Why)
			}
			time.Sleep(time.Minute) // who said so is gone
			if v := view(t, svc, id); v.SystemSilent != nil || v.Why != "its program runs" {
				t.Errorf("%+v: %s", v.SystemSilent, v.Why)
			}
		})
	})

	t.Run("a job of a machine that is gone says since when", func(t *testing.T) {
		bubble(t, func(t *testing.T, svc *service.Service, _ func()) {
			ctx := context.Background()
			local := service.New(service.Config{
				Store: svc.Store(), Broker: &local.Broker{}, Machine: "m1",
				Kinds: map[string]engine.Kind{job.KindApp: launcher{}}, Log: slog.New(slog.DiscardHandler),
			})
			program := func(delay time.Duration) job.ID {
				t.Helper()
				return submit(t, local, service.Request{Spec: job.Spec{
					Command: []string{"true"},
					Delay:   job.Duration(delay),
				}})[0].ID
			}
			ready, later := program(0), program(time.Hour)
			says := func(gone bool, since time.Time, wants map[job.ID]string) {
				t.Helper()
				for id, want := range wants {
					v := view(t, svc, id)
					if (v.MachineGone != nil) != gone || gone && !v.MachineGone.Since.Equal(since) ||
						!strings.HasPrefix(v.Why, want) {
						t.Errorf("%+v: %q; want gone %t since %v: %q", v.MachineGone, v.Why, gone, since, want)
					}
				}
			}
			since := "since " + time.Now().Local().Format(time.RFC3339)
			until := "waits until " + time.Now().Add(time.Hour).Local().Format(time.RFC3339) + ", " + since
			says(true, time.Time{}, map[job.ID]string{ready: "waits for a process of machine m1, where no " +
				"process is; ready " + since + ", first", later: until +
				"; it belongs to machine m1, where no process is"})

			if v := view(t, local, ready); v.MachineGone != nil { // this process is there
				t.Errorf("%+v", v.MachineGone)
			}
			p := store.Process{Machine: "m1", Queues: []string{job.DefaultQueue}, Kinds: []string{job.KindApp}}
			begin(t, svc, time.Minute, p)
			says(false, time.Time{}, map[job.ID]string{
				ready: "waits for a process with a free slot, " + since,
				later: until,
			})
			heard := func() time.Time {
				t.Helper()
				all, err := svc.Workers(ctx)
				if err != nil {
					t.Fatal(err)
				}
				return all[0].Renewed
			}()
			time.Sleep(time.Minute)
			is := "machine m1, which is gone since " + heard.Local().Format(time.RFC3339)
			says(true, heard, map[job.ID]string{
				ready: "waits for a process of " + is + "; ready " + since,
				later: until + "; it belongs to " + is,
			})
			if v := view(t, svc, ready); !v.Unserved {
				t.Error("it does not show as unserved")
			}

			// One that went in good order was there until its end.
			w := begin(t, svc, time.Hour, p)
			time.Sleep(time.Minute)
			at := time.Now()
			if _, err := svc.Store().End(ctx, w); err != nil {
				t.Fatal(err)
			}
			says(true, at.Truncate(time.Microsecond),
				map[job.ID]string{ready: "waits for a process of machine m1, which is gone since " +
					at.Local().Format(time.RFC3339)})

			// A program runs on, and nobody looks after it.
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- local.Run(running) }()
			synctest.Wait()
			says(false, time.Time{}, map[job.ID]string{ready: "its program runs"})
			at = time.Now()
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			says(true, at.Truncate(time.Microsecond), map[job.ID]string{
				ready: "its program runs, or has ended meanwhile, on machine m1, which is gone since " +
					at.Local().Format(time.RFC3339),
			})
			if v := view(t, svc, ready); v.Unserved {
				t.Error("it shows as unserved")
			}
			if _, err := svc.Cancel(ctx, later); err != nil {
				t.Fatal(err)
			}
			says(false, time.Time{}, map[job.ID]string{later: "CANCELED_BY_USER"})
		})
	})
}
