package runnertest

import (
	"errors"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// refused tries to launch anything of a job that was cleaned, also where its folder was made anew.
func (b Bench) refused(t *testing.T, k runner.Key, p runner.Plan) {
	t.Helper()
	must(t, b.Host.Files().Mkdir(t.Context(), path.Join(p.Dir, runner.Folder)))
	for _, again := range []runner.Key{
		k,
		{Job: k.Job, Attempt: k.Attempt, Launch: k.Launch + 1},
		{Job: k.Job, Attempt: k.Attempt + 1, Launch: k.Launch},
	} {
		if _, err := b.Runner.Launch(t.Context(), again, p); !errors.Is(err, runner.ErrRan) ||
			job.KindOf(err) != job.Conflict {
			t.Errorf("%s: %v", again, err)
		}
	}
	infos, err := b.Host.Files().List(t.Context(), path.Join(p.Dir, runner.Folder))
	if err != nil || len(infos) > 0 {
		t.Errorf("something was touched: %v, %v", infos, err)
	}
}

func (b Bench) past(t *testing.T, k runner.Key, dir string) runner.Past {
	t.Helper()
	p, err := b.Runner.Past(t.Context(), k, dir)
	must(t, err)
	return p
}

func (b Bench) marked(t *testing.T, newest int) []job.ID {
	t.Helper()
	ids, err := b.Runner.Marked(t.Context(), newest)
	must(t, err)
	return ids
}

func remembered(t *testing.T, b Bench) {
	if ids := b.marked(t, 0); len(ids) > 0 {
		t.Errorf("marks of %v before anything was launched", ids)
	}
	k, p := b.newJob(t, "echo ran >>ran; exit 3")
	h, e := b.run(t, k, p)
	b.settled(t, h)
	if m := b.past(t, k, p.Dir).Mark; m != nil {
		t.Errorf("a mark while the folder is there: %+v", m)
	}
	for range 2 {
		must(t, b.Runner.Clean(t.Context(), k, p.Dir))
		b.refused(t, k, p)
	}
	m := b.past(t, runner.Key{Job: k.Job}, p.Dir).Mark
	if m == nil || m.End == nil || m.At.IsZero() {
		t.Fatalf("mark %+v", m)
	}
	e.Key = runner.Key{Job: k.Job}
	if diff := cmp.Diff(e, *m.End); diff != "" {
		t.Errorf("the end in the mark (-want +got):\n%s", diff)
	}
	if got := b.read(t, p.Dir+"/ran"); got != "ran\n" {
		t.Errorf("it ran: %q", got)
	}
	// Who still has a handle, and has not heard of the end, hears of it.
	must(t, b.Host.Files().Remove(t.Context(), p.Dir))
	all, err := b.Runner.Probe(t.Context(), []runner.Handle{h})
	must(t, err)
	if all[0].State != runner.Ended || all[0].End == nil || all[0].End.Code != 3 || all[0].End.Key != k {
		t.Errorf("Probe: %+v", all[0])
	}

	k2, p2 := b.newJob(t, "true")
	h2, _ := b.run(t, k2, p2)
	b.settled(t, h2)
	must(t, b.Runner.Clean(t.Context(), k2, p2.Dir))
	if ids := b.marked(t, 0); !slices.Equal(ids, []job.ID{k.Job, k2.Job}) {
		t.Errorf("marked: %v, want %v", ids, []job.ID{k.Job, k2.Job})
	}
	if ids := b.marked(t, 1); !slices.Contains(ids, k2.Job) {
		t.Errorf("the newest of marks: %v, want %v", ids, k2.Job)
	}
	must(t, b.Runner.Forget(t.Context(), time.Hour))
	b.refused(t, k, p)
	for range 2 {
		must(t, b.Runner.Forget(t.Context(), 0))
	}
	if ids := b.marked(t, 0); len(ids) > 0 {
		t.Errorf("not forgotten: %v", ids)
	}
	b.launch(t, k, p)
}

func rememberedKilled(t *testing.T, b Bench) {
	k, p := b.newJob(t, "kill -9 0")
	b.settled(t, b.launch(t, k, p))
	// It is cleaned after a launch that was never made.
	k.Launch++
	if f, err := b.Runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Fatalf("%+v, %v", f, err)
	}
	must(t, b.Runner.Clean(t.Context(), k, p.Dir))
	b.refused(t, k, p)
	if m := b.past(t, k, p.Dir).Mark; m == nil || m.End != nil || m.At.IsZero() {
		t.Errorf("mark %+v", m)
	}
}

func notRemembered(t *testing.T, b Bench) {
	k, p := b.newJob(t, "true")
	if f, err := b.Runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Fatalf("%+v, %v", f, err)
	}
	must(t, b.Runner.Clean(t.Context(), k, p.Dir))
	if m := b.past(t, k, p.Dir).Mark; m != nil {
		t.Errorf("mark %+v", m)
	}
	must(t, b.Host.Files().Mkdir(t.Context(), path.Join(p.Dir, runner.Folder)))
	k.Launch++
	b.launch(t, k, p)
}

func beyond(t *testing.T, b Bench) {
	k, p := b.newJob(t, "exit 3")
	first := runner.Key{Job: k.Job}
	if diff := cmp.Diff(runner.Past{}, b.past(t, first, p.Dir)); diff != "" {
		t.Errorf("before anything (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(runner.Past{}, b.past(t, first, p.Dir+"/absent")); diff != "" {
		t.Errorf("without a folder (-want +got):\n%s", diff)
	}
	if f, err := b.Runner.Settle(t.Context(), k, p.Dir); err != nil || f.Started {
		t.Fatalf("%+v, %v", f, err)
	}
	var started []runner.Handle
	for range 2 { // launch 2 of attempt 1, launch 3 of attempt 2
		k.Launch++
		h, _ := b.run(t, k, p)
		b.settled(t, h)
		started = append(started, h)
		k.Attempt++
	}
	for after, want := range [][]runner.Handle{started, started, started[1:], nil} {
		got := b.past(t, runner.Key{Job: k.Job, Attempt: 1, Launch: after}, p.Dir)
		if diff := cmp.Diff(runner.Past{Started: want}, got); diff != "" {
			t.Errorf("beyond launch %d (-want +got):\n%s", after, diff)
		}
	}
}
