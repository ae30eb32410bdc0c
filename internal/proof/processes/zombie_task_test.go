//go:build linux

package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/sqlite"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// A scene is what a frozen process does with a task when it wakes up.
type scene struct {
	name string
	// call is what it was doing in that moment: a call of the store was on its way to the database.
	// Empty: run freezes it.
	call string
	// run is its handler. Nil: it does not come to that.
	run   func(context.Context, *wire, *service.Task[string]) (string, error)
	kind  string            // of its job; "zombie" where empty
	ended bool              // the second run of the job has ended by then; otherwise it goes on
	want  map[string]string // what it was answered, or found
	free  bool              // nobody else has had the job when it wakes up
}

var errOfZombie = errors.New("error of the zombie")

// scenes are those with a task.
var scenes = []scene{
	// The first thing that a handler does when it wakes up is to look at its context.
	{name: "cause", want: map[string]string{"found": "context canceled: the process lost its lease: another may have the job now"}, run: func(ctx context.Context, w *wire, _ *service.Task[string]) (string, error) {
		w.freeze()
		w.tell("found", ctx.Err(), ": ", context.Cause(ctx))
		return "", ctx.Err()
	}},
	{name: "heartbeat", call: "renew", want: map[string]string{"renew": "fenced", "cause": service.ErrLeaseLost.Error()}, run: wait},
	{name: "claim", call: "claim", want: map[string]string{"claim": "fenced"}},
	{name: "log", want: map[string]string{"event": "has lost it: it stands at RUNNING/worker in epoch 4", "cause": service.ErrLeaseLost.Error()}, run: log},
	{name: "log of a job that ended", ended: true, want: map[string]string{"event": "has already ended FINISHED"}, run: log},
	{name: "checkpoint", call: "apply", kind: "steps", want: map[string]string{"apply": "RUNNING: fenced", "record": service.ErrLeaseLost.Error()}},
	{name: "output", call: "apply", ended: true, want: map[string]string{"apply": "FINISHED: fenced"}, run: output},
	{name: "finish", call: "apply", want: map[string]string{"apply": "FINISHED: fenced"}, run: output},
	{name: "finish of a job that nobody has taken", call: "apply", free: true, want: map[string]string{"apply": "FINISHED: fenced"}, run: output},
	{name: "error", call: "apply", want: map[string]string{"apply": "WAITING: fenced"}, run: func(context.Context, *wire, *service.Task[string]) (string, error) {
		return "", errOfZombie
	}},
	{name: "permanent error", call: "apply", want: map[string]string{"apply": "FAILED: fenced"}, run: func(context.Context, *wire, *service.Task[string]) (string, error) {
		return "", service.Permanent(errOfZombie)
	}},
	{name: "panic", call: "apply", want: map[string]string{"apply": "WAITING: fenced"}, run: func(context.Context, *wire, *service.Task[string]) (string, error) {
		panic(errOfZombie)
	}},
	// A handler that does not look at its context returns what it has.
	{name: "return", run: func(_ context.Context, w *wire, _ *service.Task[string]) (string, error) {
		w.freeze()
		w.tell("returns")
		return "result of the zombie", nil
	}, want: map[string]string{"returns": ""}},
}

// wait waits until it is told to stop, and tells why.
func wait(ctx context.Context, w *wire, _ *service.Task[string]) (string, error) {
	<-ctx.Done()
	w.tell("cause", context.Cause(ctx))
	return "", ctx.Err()
}

func log(ctx context.Context, w *wire, task *service.Task[string]) (string, error) {
	w.freeze()
	err := task.AddEvent(context.WithoutCancel(ctx), job.CustomEvent{Name: "note", Message: "note of the zombie"})
	w.tell("event", answer(err), ": ", err)
	return wait(ctx, w, task)
}

func output(context.Context, *wire, *service.Task[string]) (string, error) {
	return "result of the zombie", nil
}

// A stepper is a kind that keeps notes of its own.
type stepper struct {
	w     *wire
	calls *atomic.Int64
}

func (k stepper) Step(ctx context.Context, r *engine.Run) engine.Outcome {
	if k.calls.Add(1) > 1 {
		k.w.tell("again")
		return engine.Done(json.RawMessage(`"result of the second run"`))
	}
	k.w.freezeNext("apply")
	err := r.Record(ctx, job.Entry{Message: "checkpoint of the zombie"}, job.Patch{}, json.RawMessage(`"checkpoint of the zombie"`))
	k.w.tell("record", err)
	return engine.Back()
}

// play registers what the process of a scene does.
func play(p *process, w *wire, s seat) {
	scene := sceneOf(s.Scene)
	if scene == nil {
		return
	}
	var calls atomic.Int64 // the second one may begin before the first has returned
	// With bounds of its own the context of a handler still tells what that of its run knows.
	service.Handle(p.Service, "zombie", func(ctx context.Context, task *service.Task[string]) (string, error) {
		if calls.Add(1) > 1 { // it has got its job back
			w.tell("again")
			return "result of the second run", nil
		}
		if scene.call != "" {
			w.freezeNext(scene.call)
		}
		return scene.run(ctx, w, task)
	}, service.TimeLimit(time.Hour), service.Stall(time.Hour))
}

func zombieTasks(t *testing.T) {
	dsn := shared(t)
	desk := join(t, dsn, service.Config{}, nil) // runs nothing
	seats := map[seat]string{}
	for _, s := range scenes {
		r := task("zombie", s.name)
		if s.kind != "" {
			r.Spec.Kind = s.kind
		}
		seats[seat{DSN: dsn, Scene: s.name, Job: submit(t, desk.Service, r)[0].ID, After: job.NewID()}] = ""
	}
	zombies := freezeAll(t, seats)

	// The second worker runs each job until it may end.
	second := join(t, dsn, service.Config{Options: engine.Options{Lease: zombieLease}}, nil)
	began, letGo := map[string]chan none{}, map[string]chan none{}
	for _, s := range scenes {
		began[s.name], letGo[s.name] = make(chan none, 10), make(chan none)
	}
	for _, kind := range []string{"zombie", "steps"} {
		service.Handle(second.Service, kind, func(ctx context.Context, task *service.Task[string]) (string, error) {
			began[task.Args] <- none{}
			await(ctx, letGo[task.Args])
			return "result of the second run", ctx.Err()
		})
	}
	start := func() { second.start(t) }
	for _, s := range slices.SortedFunc(slices.Values(scenes), func(a, b scene) int { return yes(b.free) - yes(a.free) }) {
		if !s.free && start != nil {
			start()
			start = nil
		}
		t.Run(s.name, func(t *testing.T) {
			z := zombies[s.name]
			outlived(t, desk.store, z) // also where it held nothing when it froze, so that another took the job at once
			if !s.free {
				await(t.Context(), began[s.name])
			}
			if s.ended {
				close(letGo[s.name])
				if _, err := desk.Wait(t.Context(), z.Job); err != nil {
					t.Fatal(err)
				}
			}
			before := desk.look(t, z.Job)
			suspect := !s.ended && !s.free && s.name != "claim"
			if before.Row.Suspect != yes(suspect) {
				t.Errorf("suspect %d, want %d: its process is taken for dead", before.Row.Suspect, yes(suspect))
			}

			z.wake(t)
			want := s.want
			for what, text := range want {
				if got := z.hear(t, what); !strings.Contains(got, text) {
					t.Errorf("%s: %q, want %q", what, got, text)
				}
			}
			desk.useful(t, z)
			if suspect {
				z.hear(t, "clear") // its process lives
				before.Row.Suspect = 0
			}
			if !s.free {
				if diff := cmp.Diff(before, desk.look(t, z.Job)); diff != "" {
					t.Errorf("it has changed what is seen of the job (-before it woke up, +after):\n%s", diff)
				}
			}
			if !s.ended {
				close(letGo[s.name])
			}
			switch j, err := desk.Wait(t.Context(), z.Job); {
			case err != nil:
				t.Fatal(err)
			case j.State != job.Finished || string(j.Result) != `"result of the second run"`:
				t.Errorf("the job is %s (%s), with the result %s", j.State, j.Message, j.Result)
			}
			history := fmt.Sprint(desk.look(t, z.Job).Events)
			if strings.Contains(history, "zombie") {
				t.Errorf("the history tells of what it wrote: %s", history)
			}
			renewed := 0
			for _, l := range z.leave(t) {
				switch {
				case l.What == "apply" && !strings.HasSuffix(l.Text, "fenced"):
					t.Errorf("a change of the session that was lost: %s", l.Text)
				case l.What == "renew":
					renewed++
				}
			}
			if most := yes(s.call == "renew"); renewed > most {
				t.Errorf("it sent %d heartbeats for the session that was lost, want %d: it knows that its lease is over", renewed, most)
			}
			storetest.Check(t, desk.store, "default", z.Job)
		})
	}
}

func yes(b bool) int {
	if b {
		return 1
	}
	return 0
}

// zombiesOnSQLite: the database of a folder has one process, which holds the folder's lock as long
// as it is there, frozen or not. So nobody else can have its jobs. It has lost its lease all the
// same, and runs them again itself.
func zombiesOnSQLite(t *testing.T) {
	seats, folders := map[seat]string{}, map[string]string{}
	for _, name := range []string{"cause", "heartbeat", "checkpoint", "finish", "error"} {
		dir := t.TempDir()
		st, svc := openFolder(t, dir)
		r := task("zombie", name)
		if kind := sceneOf(name).kind; kind != "" {
			r.Spec.Kind = kind
		}
		seats[seat{Dir: dir, Scene: name, Job: submit(t, svc, r)[0].ID}] = ""
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		folders[name] = dir
	}
	zombies := freezeAll(t, seats)
	for name, dir := range folders {
		t.Run(name, func(t *testing.T) {
			z := zombies[name]
			if st, err := sqlite.Open(t.Context(), dir, sqlite.Options{}); job.KindOf(err) != job.Locked {
				t.Errorf("another process opens the folder: %v", err)
				if err == nil {
					st.Close()
				}
			}
			reader, err := sqlite.Open(t.Context(), dir, sqlite.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			outlived(t, reader, z)
			if err := reader.Close(); err != nil {
				t.Error(err)
			}

			z.wake(t)
			for what, text := range sceneOf(name).want {
				if got := z.hear(t, what); !strings.Contains(got, text) {
					t.Errorf("%s: %q, want %q", what, got, text)
				}
			}
			z.hear(t, "again")
			z.leave(t)
			st, svc := openFolder(t, dir)
			defer st.Close()
			j, err := svc.Job(t.Context(), z.Job)
			if err != nil || j.State != job.Finished || string(j.Result) != `"result of the second run"` {
				t.Errorf("the job is %s (%s), with the result %s, %v", j.State, j.Message, j.Result, err)
			}
			storetest.Check(t, st, "default")
		})
	}
}

// outlived waits until the lease of a frozen process is over, also if a renewal was not yet
// committed when it froze.
func outlived(t *testing.T, rows store.Reader, z *zombie) {
	t.Helper()
	until(t, "its lease is over", func() (bool, error) {
		all, err := rows.Sessions(t.Context())
		return !slices.ContainsFunc(all, func(s store.SessionInfo) bool {
			return s.Process.PID == z.process.Process.Pid && time.Since(s.Until) < zombieLease/2
		}), err
	})
}

func openFolder(t *testing.T, dir string) (*sqlite.Store, *service.Service) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st, service.New(service.Config{Store: st, Broker: &local.Broker{}})
}
