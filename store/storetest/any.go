package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// What the jobs and filters of listAny are made of. Patterns mean something to a database, too.
var (
	anyNames  = []string{"a", "b", "Ab", "a[b]", "a.b", "a_b", "ä%"}
	anyOwners = []string{ann, "bob", "b*b"}
	anyQueues = []string{job.DefaultQueue, "q2"}
	anyApps   = []string{"", "blast", "gmx"}
	anyLabels = []string{"x", "y/z.k", "X"}
	anyValues = []string{"", "1", "2", "[1]", "1*"}
	anyPaths  = []string{"/data", "/scratch", "/home"} // what is full: one group each, of one code
	anyTexts  = []string{"it did not work", "a\nb", "no [a-z]* here", "ärger"}
	anyArgs   = []string{ // of tasks
		`{}`, `{"n":1}`, `{"n":1.0}`, `{"n":"1"}`, `{"n":null}`, `{"n":10e-1}`, `{"n":[1,{"b":2,"a":1.50}]}`, `[]`,
		`{"n":[1,{"a":1.5,"b":2}]}`, `{"n":1e400}`, `{"n":true}`, `{"n":{"m":"x y"}}`, `{"n.m":"x y"}`, `null`,
	}
	anyArgValues = []string{"1", "1e0", `"1"`, "null", "true", `[1,{"a":1.5,"b":2}]`, "x y", `{"m":"x y"}`, "1e400", ""}
	anyGlobs     = []string{
		"*", "?", "a*", "*b", "a?b", "*[b]", "[a-z]*", "?b?", "**", "*ä*", "*\n*", "a_b", "*%",
		"1\\*", "",
	}
)

// listAny lists and counts by random filters among random jobs, and compares with what
// [job.Filter.Match] says of each.
func listAny(w *world) {
	open, parent := w.open, w.t
	rapid.Check(parent, func(t *rapid.T) {
		s, clock := open(parent)
		defer over(s)
		m := &world{TB: t, s: s, clock: clock, ctx: parent.Context()}
		jobs, from := m.populate(t)
		for range 8 {
			f := anyFilter(t, jobs, from)
			q := store.Query{
				Tenant: acme, Filter: f, Sort: draw(t, "sort", store.Sorts),
				Limit: rapid.IntRange(1, len(jobs)+1).Draw(t, "limit"),
			}
			m.listed(q, jobs)
		}
	})
}

// populate makes jobs that differ in everything that a filter can look at, and returns them as they
// are in the end, in the order of submission. From some time on all tasks have an index of the
// argument n.
func (w *world) populate(t *rapid.T) (_ []job.Job, from time.Time) {
	var ids []job.ID
	many := rapid.IntRange(1, 25).Draw(t, "jobs")
	indexed := rapid.IntRange(0, many).Draw(t, "indexed")
	for i := range many {
		if i == indexed {
			w.clock.Advance(time.Microsecond)
		}
		n := newTask(withPriority(rapid.IntRange(4, 6).Draw(t, "priority")), named(draw(t, "name", anyNames)),
			inQueue(draw(t, "queue", anyQueues)))
		switch rapid.IntRange(0, 3).Draw(t, "named") {
		case 0: // as a job that was given no name
			n.Job.Name += "-" + n.Job.ID.Short()
		case 1: // as such a job of another id
			n.Job.Name += "-" + job.NewID().Short()
		}
		n.Job.Owner, n.Job.App = draw(t, "owner", anyOwners), draw(t, "app", anyApps)
		if rapid.Bool().Draw(t, "program") {
			n.Job.Kind, n.Job.Machine, n.Job.Watch = job.KindApp, machine, machine
		} else {
			withArgs(t, &n, draw(t, "args", anyArgs), i >= indexed || rapid.Bool().Draw(t, "too early"))
		}
		for _, k := range anyLabels {
			if rapid.Bool().Draw(t, "labeled") {
				labeled(k, draw(t, "value", anyValues))(&n)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "external") == 0 {
			n.Job.ExternalID = "x" + strconv.Itoa(i)
		}
		if rapid.IntRange(0, 5).Draw(t, "delay") == 0 {
			n.Delay = 1000 * time.Hour
		}
		ids = append(ids, w.add(n))
		w.clock.Advance(draw(t, "pause", []time.Duration{0, time.Microsecond, time.Hour, 80 * time.Hour}))
		if rapid.Bool().Draw(t, "move") {
			w.moveAny(t, w.session(), ids)
		}
	}
	jobs := make([]job.Job, len(ids))
	for i, id := range ids {
		jobs[i] = w.job(id)
	}
	if indexed == many {
		return jobs, jobs[many-1].Created.Add(time.Hour)
	}
	return jobs, jobs[indexed].Created
}

// withArgs gives a task arguments, and perhaps an index of the argument n.
func withArgs(t *rapid.T, n *store.New, args string, indexed bool) {
	n.Job.Request = json.RawMessage(`{"kind":"` + n.Job.Kind + `","args":` + args + `}`)
	if indexed {
		key, err := (&job.Spec{Args: json.RawMessage(args)}).ArgsKey("n")
		if err != nil {
			t.Fatal(err)
		}
		n.Index = map[string]string{"n": key}
	}
}

// moveAny does something with some jobs.
func (w *world) moveAny(t *rapid.T, session job.ID, ids []job.ID) {
	c := wanted(session, 2)
	c.Queues = anyQueues
	claimed := w.claim(c)
	if len(claimed) > 0 {
		j := claimed[0]
		switch rapid.IntRange(0, 3).Draw(t, "fate") {
		case 0:
			w.apply(finish(w.step(j), by(session)))
		case 1:
			c := move(j, by(session), job.None, job.Failed)
			c.Path[0].Message = draw(t, "message", anyTexts)
			w.apply(c)
		case 2:
			c := move(j, by(session), job.Recovery, job.Blocked)
			c.Set.Block.Params = map[string]string{"path": draw(t, "path", anyPaths)}
			w.apply(c)
		}
	}
	some := rapid.SliceOfN(rapid.SampledFrom(ids), 1, 4).Draw(t, "some")
	w.wishAll(draw(t, "wish", []job.Wish{job.WishCancel, job.WishPause, job.WishResume}), some...)
	yes := rapid.IntRange(0, 3).Draw(t, "hide") > 0
	value := draw(t, "value", anyValues)
	a := store.Annotation{Tenant: acme, Jobs: some, Hidden: &yes}
	a.Labels = map[string]*string{draw(t, "label", anyLabels): &value, draw(t, "no label", anyLabels): nil}
	if _, err := w.s.Annotate(w.ctx, a); err != nil {
		w.Fatalf("annotate: %v", err)
	}
}

// step brings a program to where it can be finished.
func (w *world) step(j job.Job) job.Job {
	if !j.Program() {
		return j
	}
	w.apply(move(j, by(j.Session), job.Worker, job.StagingInputs, job.StagingJob, job.SubmittingJob, job.Archiving))
	return w.job(j.ID)
}

// anyFilter returns a filter that chooses some of the jobs, perhaps. Tasks have an index of the
// argument n since from.
func anyFilter(t *rapid.T, jobs []job.Job, from time.Time) (f job.Filter) {
	if rapid.IntRange(0, 3).Draw(t, "arg") == 0 {
		field := draw(t, "argument", []string{"n", "n", "n", "n.m", "none"})
		f = f.And(job.ArgsField+field, draw(t, "is", []job.Op{job.Is, job.Is, job.IsNot}),
			rapid.SliceOfNDistinct(rapid.SampledFrom(anyArgValues), 1, 3, rapid.ID).Draw(t, "values")...)
		if field == "n" && rapid.Bool().Draw(t, "of a kind") {
			f[0].From = from
			f = f.And("kind", job.Is, task)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "terms") {
		field := rapid.SampledFrom(job.FilterFields).Draw(t, "field")
		name := field.Name
		if rapid.IntRange(0, 4).Draw(t, "label") == 0 {
			name, field.Type = job.LabelField+draw(t, "key", anyLabels), job.FieldWord
		}
		like := draw(t, "like", jobs)
		ops := []job.Op{job.Is, job.Is, job.IsNot}
		values := []string{}
		switch field.Type {
		case job.FieldState:
			values = append(values, string(draw(t, "state", job.States)), string(like.State))
		case job.FieldCustody:
			values = append(values, string(draw(t, "custody", job.Custodies)), string(like.Custody))
		case job.FieldFlag:
			values = []string{"true", "false"}
		case job.FieldNumber:
			ops = append(ops, job.Less, job.AtMost, job.More, job.AtLeast)
			values = append(values, "5", "1", "+05")
		case job.FieldTime:
			ops = []job.Op{job.Less, job.AtMost, job.More, job.AtLeast}
			at := draw(t, "time", []time.Time{like.Created, like.Since, like.Since.Add(time.Hour)}).Add(draw(t,
				"off", []time.Duration{0, 0, -1, 1, -time.Microsecond, time.Hour}))
			values = append(values, at.Format(time.RFC3339Nano))
		case job.FieldID:
			ops = append(ops, job.Like)
			values = append(values, like.ID.String(), job.NewID().String())
		case job.FieldGroup:
			b := full()
			b.Params = map[string]string{"path": draw(t, "path", anyPaths)}
			values = append(values, b.Group(acme), strings.ToUpper(full().Group(acme)), full().Group("other"))
			if like.Group != "" {
				values = append(values, like.Group)
			}
		default:
			ops = append(ops, job.Like)
			values = append(values, draw(t, "name", anyNames), draw(t, "owner", anyOwners),
				draw(t, "queue", anyQueues), draw(t, "app", anyApps),
				draw(t, "value", anyValues), draw(t, "text", anyTexts), like.Kind, like.Name, like.Stem(),
				like.ExternalID, like.Machine, string(like.Code), string(like.Wish))
		}
		op := draw(t, "op", ops)
		if op == job.Like {
			values = []string{draw(t, "glob", anyGlobs), draw(t, "glob", anyGlobs)}
			if field.Type == job.FieldID {
				values = append(values, strings.ToUpper(like.ID.String()[:20])+"*")
			}
		}
		if op != job.Is && op != job.IsNot && op != job.Like {
			values = values[:1]
		}
		f = f.And(name, op, rapid.Permutation(values).Draw(t,
			"values")[:rapid.IntRange(1, len(values)).Draw(t, "of")]...)
	}
	return f
}

// listed compares the pages of a query and the counts of its filter with what its filter matches.
func (w *world) listed(q store.Query, jobs []job.Job) {
	first, err := w.s.List(w.ctx, q)
	if err != nil {
		w.Fatalf("list %s: %v", q.Filter, err)
	}
	counts, err := w.s.Count(w.ctx, acme, q.Filter)
	// the clock may run on
	if err != nil || counts.Since.IsZero() != first.Since.IsZero() || counts.Since.Before(first.Since) {
		w.Fatalf("count %s: since %v, %v; the list since %v", q.Filter, counts.Since, err, first.Since)
	}
	if back := q.Filter.Window(jobs[len(jobs)-1].Created); first.Since.IsZero() != back.IsZero() {
		w.Errorf("%s looks back to %v", q.Filter, first.Since)
	}
	type place struct {
		job.Job
		at int // in the order of submission
	}
	var want []place
	states := map[job.State]int{}
	byEnd := q.Sort == store.FirstEnd || q.Sort == store.LastEnded
	for i, j := range jobs {
		if !q.Filter.Match(&j) || j.Created.Before(first.Since) {
			continue
		}
		states[j.State]++
		if !byEnd || j.State.Terminal() {
			want = append(want, place{j, i})
		}
	}
	slices.SortFunc(want, func(a, b place) int {
		if q.Sort[0] == '-' {
			a, b = b, a
		}
		order := 0
		switch {
		case byEnd:
			order = a.Ended.Compare(b.Ended)
		case q.Sort == store.ByName || q.Sort == store.ByNameRev:
			order = strings.Compare(a.Stem(), b.Stem())
		}
		return cmp.Or(order, cmp.Compare(a.at, b.at))
	})
	ids := make([]job.ID, len(want))
	for i := range want {
		ids[i] = want[i].ID
	}
	what := fmt.Sprintf("%s by %s, %d to a page", q.Filter, q.Sort, q.Limit)
	equal(w, what, fmtIDs(jobIDs(listAll(w, w.s, q))), fmtIDs(ids))
	equal(w, what+", counted", counts.States, states)
}
