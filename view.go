package pawl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A View is a job as people look at it: the row without Work, which its kind keeps for itself, with [job.Job.Deadline] as Until, and what follows
// from it at this moment.
type View struct {
	job.Job
	Why      string        `json:"why,omitempty"`      // one sentence: why it stands where it stands
	Progress *job.Progress `json:"progress,omitempty"` // of the step under way, where that is known
	Folder   string        `json:"folder,omitempty"`   // the job's folder, while it is there
	Results  string        `json:"results,omitempty"`  // the folder of its archive, once that is there
	// Started is when what it runs began, of its newest run; zero: it has not run. Ran is how long that has been RUNNING, or
	// was. In lists both are there of what is RUNNING, and of programs that ended.
	Started time.Time     `json:"started,omitzero"`
	Ran     *job.Duration `json:"ran,omitempty"` // nil: it has not run
	// Fault says what of the row is left out because it cannot be shown; empty: nothing is.
	Fault string `json:"fault,omitempty"`
	// Unserved says that it is ready, and that no live process is there that claims jobs such as this one.
	Unserved bool `json:"unserved,omitempty"`
	// MachineGone is set while no process lives on the machine to which the job belongs.
	MachineGone *Gone `json:"machine_gone,omitempty"`
}

// Views is a page of jobs as people look at them, without Request, Resolved, Work, Notes and
// folders, without Result unless they are programs, and with messages of 512 bytes at most.
type Views struct {
	Jobs  []View    `json:"jobs"`
	Next  string    `json:"next,omitempty"` // the cursor of the next page; empty: this is the last
	Since time.Time `json:"since,omitzero"` // only jobs submitted since then were looked at; see [job.Filter.Window]
}

// View returns one job with everything about it.
func (s *Service) View(ctx context.Context, id job.ID) (View, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return View{}, err
	}
	l, err := s.look(ctx, j)
	if err != nil {
		return View{}, err
	}
	among, err := s.among(ctx, &j)
	if err != nil {
		return View{}, err
	}
	v := s.view(&j, l, among)
	if v.Started, v.Ran, err = s.run(ctx, &j); err != nil {
		return View{}, err
	}
	k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper)
	if !ok {
		return v, nil
	}
	f, err := k.Files(&j)
	if err != nil {
		return v, nil //nolint:nilerr // it has no files: that is no error of a view
	}
	there := func(name string) string {
		if name == "" {
			return ""
		}
		if _, err := f.FS.Stat(ctx, name); err != nil {
			return ""
		}
		return name
	}
	v.Folder, v.Results = there(f.Folder), there(f.Results)
	return v, nil
}

// listedMessage is how many bytes of a message a list shows.
const listedMessage = 512

// Views returns a page of jobs, newest first; see [store.Reader.List].
func (s *Service) Views(ctx context.Context, q store.Query) (Views, error) {
	page, err := s.List(ctx, q)
	if err != nil {
		return Views{}, err
	}
	l, err := s.look(ctx, page.Jobs...)
	if err != nil {
		return Views{}, err
	}
	vs := Views{Jobs: make([]View, len(page.Jobs)), Next: page.Next, Since: page.Since}
	for i := range page.Jobs {
		page.Jobs[i].Message = job.Shorten(page.Jobs[i].Message, listedMessage)
		v := s.view(&page.Jobs[i], l, "")
		switch {
		case v.State == job.Running:
			v.Started, v.Ran = v.Since, ranFor(s.Now().Sub(v.Since))
		case v.Kind == job.KindApp && v.Result != nil:
			v.Started, v.Ran = programRan(v.Result)
		}
		vs.Jobs[i] = v
	}
	return vs, nil
}

// run returns when what j runs began, of its newest run, and how long it has been RUNNING, as its history tells.
func (s *Service) run(ctx context.Context, j *job.Job) (started time.Time, ran *job.Duration, err error) {
	if j.N == 1 {
		return started, nil, nil // it was submitted, and nothing else
	}
	var total time.Duration
	var since time.Time // of the state RUNNING; zero: it is another
	for e, err := range s.News(ctx, NewsQuery{Job: j.ID, Until: closed()}) {
		if err != nil {
			return started, nil, err
		}
		switch {
		case e.State == job.Running && since.IsZero():
			if since = e.At; started.IsZero() {
				started = e.At
			}
		case e.State != job.Running && !since.IsZero():
			total, since = total+e.At.Sub(since), time.Time{}
		}
		if e.State == job.Pending || e.State == job.Waiting { // it begins anew
			started, total = time.Time{}, 0
		}
	}
	if started.IsZero() {
		return started, nil, nil
	}
	if !since.IsZero() {
		total += s.Now().Sub(since)
	}
	return started, ranFor(total), nil
}

// programRan reads out of the result of a program when it began and how long it ran.
func programRan(result json.RawMessage) (time.Time, *job.Duration) {
	var r struct {
		Started time.Time     `json:"started"`
		Ran     *job.Duration `json:"ran"`
	}
	if json.Unmarshal(result, &r) != nil {
		return time.Time{}, nil
	}
	return r.Started, r.Ran
}

// ranFor is a time for which something ran, to the millisecond.
func ranFor(d time.Duration) *job.Duration {
	ran := job.Duration(max(0, d).Round(time.Millisecond))
	return &ran
}

// mostBehind is up to where the jobs are counted that stand before one.
const mostBehind = 10_000

// among says of a job that waits where it stands among others, and of the one condition that blocks it how that stands. It follows what
// [job.Job.Stands] says; a list does without.
func (s *Service) among(ctx context.Context, j *job.Job) (string, error) {
	switch {
	case j.Line != "":
		return s.inLine(ctx, j)
	case j.Group != "":
		return s.inGroup(ctx, j)
	case j.Custody != job.Ready:
		return "", nil
	}
	behind, err := s.cfg.Store.Behind(ctx, j, mostBehind)
	return standing(behind, "first of its kind", "of its kind", "of its kind") + " in queue " + j.Queue, err
}

// inLine says of a job that waits for its turn who goes before it, and how many have one.
func (s *Service) inLine(ctx context.Context, j *job.Job) (string, error) {
	turns, err := s.cfg.Store.Turns(ctx, store.TurnQuery{Tenant: j.Tenant, Key: j.Line})
	if err != nil || len(turns) == 0 {
		return "", err
	}
	closed := ""
	if turns[0].Shut {
		if closed, err = s.shut(ctx, j); err != nil {
			return "", err
		}
	}
	held, waiting := 0, 0
	for _, o := range turns[0].Owners {
		held, waiting = held+o.Held, waiting+o.Waiting
	}
	behind, err := s.cfg.Store.Behind(ctx, j, mostBehind)
	if err != nil {
		return "", err
	}
	stands := standing(behind, "first of its owner's jobs", "of its owner's jobs", "of its owner's jobs")
	if job.Ordered(j.Line) {
		stands = standing(behind, "the next one", "job", "jobs")
	}
	holds := many(held, "has one", "have one")
	if l := turns[0].Limit; l != nil && j.Line == job.LimitOf(j.Line) && l.Most > 0 && !turns[0].Shut {
		holds = fmt.Sprintf("%d of %d have one", held, l.Most)
	}
	if job.Sole(j.Line) {
		ids, err := s.cfg.Store.Holders(ctx, j.Tenant, j.Line, 1)
		if err != nil {
			return "", err
		}
		if holds = "nobody has it"; len(ids) > 0 {
			holds = "job " + ids[0].String() + " has it"
		}
	}
	return stands + "; " + holds + ", and " + many(waiting, "waits", "wait") + closed, nil
}

// shut says what closes the line in which a job waits: of several groups the first that is not clear yet, and how many there are besides.
func (s *Service) shut(ctx context.Context, j *job.Job) (string, error) {
	groups, err := s.groups(ctx, store.GroupQuery{Tenant: j.Tenant, Line: job.LimitOf(j.Line)})
	if err != nil || len(groups) == 0 {
		return "", err
	}
	g := &groups[max(0, slices.IndexFunc(groups, func(g store.Group) bool { return g.Clear.IsZero() }))]
	is := " (group " + g.Key + ")"
	if more := len(groups) - 1; more > 0 {
		is += fmt.Sprintf(" and %d more", more)
	}
	if !g.Clear.IsZero() {
		return "; the line opens by and by after " + string(g.Block.Code) + is + ": " + g.Stands(s.engine.Now()), nil
	}
	return "; the line is closed since " + g.Waits().Local().Format(time.RFC3339) + ": " + string(g.Block.Code) + ", " + g.Block.Message +
		is + "; " + g.Stands(s.engine.Now()), nil
}

// inGroup says of a blocked job with how many others it is, how many of them were blocked before it, and what becomes of that.
func (s *Service) inGroup(ctx context.Context, j *job.Job) (string, error) {
	groups, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: j.Tenant, Key: j.Group})
	if err != nil || len(groups) == 0 {
		return "", err
	}
	behind, err := s.cfg.Store.Behind(ctx, j, mostBehind)
	if err != nil {
		return "", err
	}
	g := &groups[0]
	why := ", in group " + g.Key + " of " + many(g.Jobs, "job", "jobs") + standing(behind, "first of them", "of them", "of them") + "; " + g.Stands(s.engine.Now())
	switch {
	case j.Live:
		why += "; it has no deadline, for launch " + strconv.Itoa(j.Launch) + " of it may still run"
	case !g.Fails(j.Until).IsZero():
		why += "; it fails at " + j.Until.Local().Format(time.RFC3339) + " unless that clears"
	}
	return why, nil
}

// standing says behind how many others a job stands, and what it is where that is none.
func standing(behind int, first, one, more string) string {
	switch behind {
	case 0:
		return ", " + first
	case mostBehind:
		return ", behind " + many(behind, one, more) + " or more"
	}
	return ", behind " + many(behind, one, more)
}

// many returns a number with the words for it.
func many(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// view is a job as people look at it, with what is known of where it stands among others.
func (s *Service) view(j *job.Job, l look, among string) View {
	j.Message = job.Text(j.Message)
	v := View{Job: *j, Why: j.Stands(time.Now(), l.served) + among + j.Alone(l.served)}
	v.Work, v.Until = nil, j.Deadline()
	v.Fault = v.Mend()
	l.note(&v, among)
	if p, ok := s.Progress(j); ok {
		v.Progress = &p
	}
	return v
}

// Progress tells how far the step of j that this process does has come; false where there is nothing to tell.
func (s *Service) Progress(j *job.Job) (job.Progress, bool) {
	k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper)
	if !ok || j.Custody != job.Worker {
		return job.Progress{}, false
	}
	return k.Progress(j)
}
