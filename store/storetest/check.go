package storetest

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// TB is the part of testing.TB that Check needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Check verifies the jobs of a tenant: all of them, or those with the given ids.
//
//   - Each history is numbered from 1 without gaps, follows the tables of edges and places, and
//     ends where the row is.
//   - The epoch was raised by each change of custody, and by nothing else.
//   - Nothing follows the event of an end.
//   - The fields of the row agree with each other.
func Check(t TB, s store.Store, tenant string, ids ...job.ID) {
	t.Helper()
	all := len(ids) == 0
	if all {
		count := map[job.State]int{}
		for _, j := range listAll(t, s, store.Query{Tenant: tenant, Limit: 1000}) {
			ids = append(ids, j.ID)
			count[j.State]++
		}
		counted, err := s.Count(context.Background(), tenant, nil)
		if err != nil {
			t.Fatalf("count: %v", err)
		}
		for _, state := range job.States {
			if counted.States[state] != count[state] {
				t.Errorf("Count says that %d jobs are %s, the list has %d", counted.States[state], state, count[state])
			}
		}
	}
	jobs := findAll(t, s, tenant, ids)
	var histories map[job.ID][]job.Event
	if all {
		histories = readHistories(t, s, tenant, jobs)
	}
	for i, id := range ids {
		j, found := jobs[id]
		if !found {
			t.Errorf("job %s: it is not there", id)
			continue
		}
		events := histories[id]
		if !all || i < alone {
			own := readHistory(t, s, &j)
			if all && !cmp.Equal(own, events) {
				t.Errorf("job %s: its own events are %+v, those among the events of all %+v", id, own, events)
			}
			events = own
		}
		checkNotes(t, &j, events)
		checkHistory(t, &j, changesOf(events))
		checkRow(t, &j)
	}
}

// alone is how many histories [Check] reads one by one, too, when it reads those of all jobs.
const alone = 3

// findAll returns the jobs that are there, by their ids.
func findAll(t TB, s store.Store, tenant string, ids []job.ID) map[job.ID]job.Job {
	t.Helper()
	jobs := make(map[job.ID]job.Job, len(ids))
	for some := range slices.Chunk(ids, 500) {
		found, err := s.Find(context.Background(), store.FindQuery{Tenant: tenant, IDs: some})
		if err != nil {
			t.Fatalf("find %d jobs: %v", len(some), err)
		}
		for _, j := range found {
			jobs[j.ID] = j
		}
	}
	return jobs
}

// changesOf returns the events that tell of a change.
func changesOf(events []job.Event) []job.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e job.Event) bool { return e.Sub != 0 })
}

// checkNotes verifies the events that users and the job itself wrote: each belongs to the change
// before it, is numbered behind it without gaps, and names itself; none follows the end.
func checkNotes(t TB, j *job.Job, events []job.Event) {
	t.Helper()
	var before job.Event
	for _, e := range events {
		note := e.Cause == job.CauseUser || e.Cause == job.CauseJob
		switch {
		case note != (e.Sub != 0), note != (e.Name != ""):
			t.Errorf("job %s: event %d.%d is called %q, by %s", j.ID, e.N, e.Sub, e.Name, e.Cause)
		case !note:
		case before.State.Terminal():
			t.Errorf("job %s: event %d.%d follows the end", j.ID, e.N, e.Sub)
		case e.N != before.N || e.Sub != before.Sub+1 || e.State != before.State || e.Custody != before.Custody:
			t.Errorf("job %s: event %d.%d at %s/%s follows %d.%d at %s/%s", j.ID, e.N, e.Sub, e.State, e.Custody,
				before.N, before.Sub, before.State, before.Custody)
		}
		before = e
	}
}

func checkHistory(t TB, j *job.Job, events []job.Event) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("job %s: "+format, append([]any{j.ID}, args...)...)
		for _, e := range events {
			t.Logf("%4d  epoch %d  %s/%s  %s by %q %s %s", e.N, e.Epoch, e.State, e.Custody, e.Cause, e.Actor,
				e.Code, e.Message)
		}
	}
	if len(events) == 0 {
		fail("it has no history")
		return
	}
	for i, e := range events {
		at := job.Place{State: e.State, Custody: e.Custody}
		switch {
		case e.Job != j.ID:
			fail("event %d is of job %s", i+1, e.Job)
		case e.N != int64(i+1):
			fail("event %d has number %d", i+1, e.N)
		case !at.Legal():
			fail("event %d is at %s, which is no legal place", e.N, at)
		case e.Code != "" && !e.Code.Known():
			fail("event %d has the unknown code %s", e.N, e.Code)
		case e.State.Terminal() && e.Code == "":
			fail("event %d ends the job without a code", e.N)
		case e.Cause == "":
			fail("event %d has no cause", e.N)
		}
		if i == 0 {
			if e.Cause != job.CauseSubmit {
				fail("the first event has cause %q", e.Cause)
			}
			continue
		}
		before := events[i-1]
		if before.State.Terminal() {
			fail("event %d follows the end", e.N)
		}
		if !job.Edge(before.State, e.State) {
			fail("event %d: there is no edge from %s to %s", e.N, before.State, e.State)
		}
		if e.At.Before(before.At) {
			fail("event %d is at %v, before its predecessor at %v", e.N, e.At, before.At)
		}
		// Event.Epoch is that of the row before the change. What it was before the first one is the
		// store's affair.
		if i == 1 {
			if raised := e.Epoch - before.Epoch; raised != 0 && raised != 1 {
				fail("event %d has epoch %d after %d", e.N, e.Epoch, before.Epoch)
			}
			continue
		}
		want := before.Epoch
		if before.Custody != events[i-2].Custody {
			want++
		}
		if e.Epoch != want {
			fail("event %d has epoch %d, want %d", e.N, e.Epoch, want)
		}
	}
	last := events[len(events)-1]
	if at := (job.Place{State: last.State, Custody: last.Custody}); at != j.Place || last.N != j.N {
		fail("the row is at %s with n %d, the history at %s with n %d", j.Place, j.N, at, last.N)
	}
	if last.Code != j.Code || last.Message != j.Message {
		fail("the row says %s %q, the history %s %q", j.Code, j.Message, last.Code, last.Message)
	}
	if len(events) == 1 {
		return
	}
	want := last.Epoch
	if last.Custody != events[len(events)-2].Custody {
		want++
	}
	if j.Epoch != want {
		fail("the row has epoch %d, want %d", j.Epoch, want)
	}
}

func checkRow(t TB, j *job.Job) {
	t.Helper()
	held := j.Custody == job.Worker
	for _, rule := range []struct {
		holds bool
		what  string
	}{
		{j.Place.Legal(), "stands at a legal place"},
		{held == !j.Session.IsZero(), "has a session in custody worker, and there only"},
		{held == !j.Claim.IsZero(), "has a claim in custody worker, and there only"},
		{j.State.Terminal() == !j.Ended.IsZero(), "has an end time when it has ended"},
		{!j.State.Terminal() || !j.Live, "has no live launch after its end"},
		{!j.State.Terminal() || j.Wish == "", "has no wish after its end"},
		{j.Wish != job.WishResume, "has no standing wish to resume"},
		{j.Lane == job.LaneOf(j.State, j.Program(), j.Suspect), "is in the lane of its state, or alone"},
		{
			j.Due.IsZero() || j.Custody == job.Gate || j.Custody == job.User,
			"is due only at a gate or when it comes back to it",
		},
		{j.Needs >= 0, "waits for no negative number of jobs"},
		{
			j.Needs == 0 || j.Custody == job.Gate || j.Custody == job.User || j.State.Terminal(),
			"goes on only when its prerequisites have ended",
		},
		{
			(j.State == job.Blocked || j.State == job.Paused) == (j.Resume != ""),
			"knows where to resume when blocked or paused",
		},
		{(j.State == job.Blocked) == (j.Group != ""), "is in a group when blocked"},
		{j.Until.IsZero() || j.State == job.Blocked, "fails at some time only when blocked"},
		{j.Resume == "" || job.Edge(j.State, j.Resume), "can resume where it wants to"},
		{j.Attempt >= 1, "counts attempts from 1"},
		{!j.Live || j.Launch > 0, "has launched what is live"},
		{!j.Created.IsZero() && !j.Since.Before(j.Created), "was made before it came to its place"},
	} {
		if !rule.holds {
			t.Errorf("job %s: it is not true that it %s: %+v", j.ID, rule.what, *j)
		}
	}
}

// patience is how long to wait for what a store must show in the end, such as an event that follows
// the end of every transaction that was open beside it. A sound test run never waits for long.
const patience = 20 * time.Second

// readHistories returns all events of a tenant, at least as many changes of each of its jobs as the
// row has made.
func readHistories(t TB, s store.Store, tenant string, jobs map[job.ID]job.Job) map[job.ID][]job.Event {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	events, changes, missing := map[job.ID][]job.Event{}, map[job.ID]int64{}, int64(0)
	for _, j := range jobs {
		missing += j.N
	}
	q := store.EventQuery{Tenant: tenant, Limit: 10000}
	for more := true; more || missing > 0; {
		got, err := s.Events(ctx, q)
		if err != nil {
			t.Fatalf("events (%d changes are missing): %v", missing, err)
		}
		for _, e := range got.Events {
			events[e.Job] = append(events[e.Job], e.Event)
			if e.Sub > 0 {
				continue
			}
			if changes[e.Job]++; changes[e.Job] <= jobs[e.Job].N {
				missing--
			}
		}
		more, q.Cursor = len(got.Events) == q.Limit || got.Unsettled, got.Cursor
		runtime.Gosched()
	}
	return events
}

// readHistory returns all events of j, at least up to the number that its row has.
func readHistory(t TB, s store.Store, j *job.Job) []job.Event {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	var events []job.Event
	q := store.EventQuery{Tenant: j.Tenant, Job: j.ID, Limit: 10000}
	for changes, more := int64(0), true; more || changes < j.N; {
		got, err := s.Events(ctx, q)
		if err != nil {
			t.Fatalf("events of job %s (%d of %d changes so far): %v", j.ID, changes, j.N, err)
		}
		if got.Cursor == "" {
			t.Fatalf("events of job %s: the cursor is empty", j.ID)
		}
		for _, e := range got.Events {
			events = append(events, e.Event)
			if e.Sub == 0 {
				changes++
			}
		}
		more, q.Cursor = len(got.Events) == q.Limit || got.Unsettled, got.Cursor
		runtime.Gosched()
	}
	return events
}

// listAll reads every page of q. It fails when a job is on two.
func listAll(t TB, s store.Store, q store.Query) []job.Job {
	t.Helper()
	var all []job.Job
	seen := map[job.ID]bool{}
	for {
		page, err := s.List(context.Background(), q)
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		for _, j := range page.Jobs {
			if seen[j.ID] {
				t.Errorf("job %s is on two pages", j.ID)
			}
			seen[j.ID] = true
		}
		all = append(all, page.Jobs...)
		if page.Next == "" {
			return all
		}
		q.Cursor = page.Next
	}
}
