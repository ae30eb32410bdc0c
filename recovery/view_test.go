package recovery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery/fake"
	"github.com/pawl-jobs/pawl/service"
)

// why returns the sentence of a job.
func (w *world) why(id job.ID) string {
	w.Helper()
	v, err := w.svc.View(context.Background(), id)
	if err != nil {
		w.Fatal(err)
	}
	return v.Why
}

// limit sets a limit.
func (w *world) limit(l job.Limit) {
	w.Helper()
	if err := w.svc.SetLimit(context.Background(), l); err != nil {
		w.Fatal(err)
	}
}

// A blocked job says since when it is, and how many of its group were blocked before.
func TestBlockedInAGroup(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.blocked("other", on("attic"))
		var wants []string
		var ids []job.ID
		for i, stands := range []string{"first of them", "behind 1 of them", "behind 2 of them"} {
			since := time.Now().Local().Format(time.RFC3339)
			ids = append(ids, w.blocked(fmt.Sprint(i), on("lab")))
			wants = append(wants, "blocked by HOST_UNREACHABLE: lab is away, since "+since+", in group "+w.job(w.svc, ids[0]).Group+" of 3 jobs, "+stands+"; not tested yet; ")
			pass(time.Second)
		}
		for i, id := range ids {
			if got := w.why(id); !strings.HasPrefix(got, wants[i]) {
				t.Errorf("%q, want %q", got, wants[i])
			}
		}
	})
}

// Of several groups that close a line a job that waits there names one that still does, and says
// how many there are besides.
func TestClosedBySeveral(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		w.limit(job.Limit{Key: "gpu", Most: 5})
		hosts := []string{"attic", "cellar", "lab"}
		for _, host := range hosts {
			b := on(host)
			b.Line = "gpu"
			w.blocked(host, b)
		}
		spec := service.NewTask("work", "waits")
		spec.Limits = []string{"gpu"}
		a, err := w.svc.Submit(context.Background(), service.Request{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		groups, err := w.svc.Blocked(context.Background())
		if err != nil || len(groups) != len(hosts) {
			t.Fatalf("%+v, %v", groups, err)
		}
		says := func(want string) {
			t.Helper()
			if got := w.why(a[0].ID); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		closed := func(g *service.BlockedGroup, more string) string {
			return "; the line is closed since " + g.Since.Local().Format(time.RFC3339) + ": HOST_UNREACHABLE, " + g.Params["host"] + " is away (group " + g.Key + ")" + more + "; "
		}
		says(closed(&groups[0], " and 2 more"))
		// The first has cleared, and its line is open as far as it goes: that is not what keeps the job.
		w.limit(job.Limit{Key: "releases/" + groups[0].Key, Most: 1, Per: job.Duration(time.Hour)})
		if _, err := w.svc.ActOnGroup(context.Background(), "release", groups[0].Key); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		says(closed(&groups[1], " and 2 more"))
		for _, host := range hosts {
			w.tester.Set(host, fake.Knobs{Up: true})
		}
		pass(10 * time.Minute)
		w.is(a[0].ID, job.Finished)
	})
}

// Of the rate of releases limits say when the next job of the group may go: nobody asks for moments
// of it.
func TestReleasesInLimits(t *testing.T) {
	bubble(t, service.Config{}, func(w *world) {
		var ids []job.ID
		for i := range 3 {
			ids = append(ids, w.blocked(fmt.Sprint(i), on("lab")))
		}
		key := "releases/" + w.group(ids[0]).Key
		w.limit(job.Limit{Key: "releases/*", Most: 1, Per: job.Duration(20 * time.Second)})
		free := func() time.Duration {
			t.Helper()
			l, err := w.svc.Limit(context.Background(), key)
			if err != nil || l.FreeIn == nil {
				t.Fatalf("%+v, %v", l, err)
			}
			return time.Duration(*l.FreeIn) * time.Millisecond
		}
		if in := free(); in != 0 {
			t.Errorf("while it is blocked, %s is free in %v", key, in)
		}
		w.tester.Set("lab", fake.Knobs{Up: true})
		pass(time.Minute + 5*time.Second)
		w.is(ids[0], job.Finished)
		in := free()
		if in <= 10*time.Second || in > 16*time.Second {
			t.Errorf("a few seconds after one went %s is free in %v", key, in)
		}
		w.limit(job.Limit{Key: key, Most: 1, Per: job.Duration(20 * time.Second)})
		all, err := w.svc.Limits(context.Background())
		i := slices.IndexFunc(all, func(l service.LimitUse) bool { return l.Key == key })
		if err != nil || i < 0 || all[i].FreeIn == nil || *all[i].FreeIn != in.Milliseconds() {
			t.Errorf("%s is free in %v among %+v, %v", key, in, all, err)
		}
		pass(in - time.Millisecond)
		w.is(ids[1], job.Blocked)
		pass(2 * time.Millisecond)
		w.is(ids[1], job.Finished)
		pass(free() + time.Millisecond)
		w.is(ids[2], job.Finished)
		pass(time.Hour)
		if in := free(); in != 0 { // the group is no more
			t.Errorf("in the end %s is free in %v", key, in)
		}
	})
}
