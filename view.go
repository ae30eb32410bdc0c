package pawl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// Unserved says that it is ready, and that no live process is there that claims jobs such as this one.
	Unserved bool `json:"unserved,omitempty"`
	// MachineGone is set while no process lives on the machine to which the job belongs.
	MachineGone *Gone `json:"machine_gone,omitempty"`
}

// Views is a page of jobs as people look at them, without Request, Resolved, Work, Result, Notes and folders.
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
	v := s.view(&j, l)
	if err := errors.Join(s.inLine(ctx, &v), s.inGroup(ctx, &v)); err != nil {
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
		vs.Jobs[i] = s.view(&page.Jobs[i], l)
	}
	return vs, nil
}

// mostBehind is up to where the jobs are counted that stand before one.
const mostBehind = 10_000

// inLine says of a job that waits for its turn since when, who goes before it, and how many have one.
func (s *Service) inLine(ctx context.Context, v *View) error {
	if v.Line == "" {
		return nil
	}
	turns, err := s.cfg.Store.Turns(ctx, store.TurnQuery{Tenant: v.Tenant, Key: v.Line})
	if err != nil || len(turns) == 0 {
		return err
	}
	closed := ""
	if turns[0].Shut {
		if closed, err = s.shut(ctx, v); err != nil {
			return err
		}
	}
	held, waiting := 0, 0
	for _, o := range turns[0].Owners {
		held, waiting = held+o.Held, waiting+o.Waiting
	}
	behind, err := s.cfg.Store.Behind(ctx, &v.Job, mostBehind)
	if err != nil {
		return err
	}
	holds := many(held, "has one", "have one")
	if job.Sole(v.Line) {
		ids, err := s.cfg.Store.Holders(ctx, v.Tenant, v.Line, 1)
		if err != nil {
			return err
		}
		if holds = "nobody has it"; len(ids) > 0 {
			holds = "job " + ids[0].String() + " has it"
		}
	}
	stands := v.Job.Why(time.Now(), true)
	since := " since "
	if job.Sole(v.Line) && !job.Ordered(v.Line) {
		since = ", since " // it is the wait that began then, and not what the other job does
	}
	v.Why = stands + since + v.Since.Local().Format(time.RFC3339) + standing(v.Line, behind) + "; " + holds + ", and " + many(waiting, "waits", "wait") + closed + strings.TrimPrefix(v.Why, stands)
	return nil
}

// shut says what closes the line in which a job waits.
func (s *Service) shut(ctx context.Context, v *View) (string, error) {
	groups, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: v.Tenant, Limit: 1000})
	if err != nil {
		return "", err
	}
	for i := range groups {
		g := &groups[i]
		if g.Block.Line != job.LimitOf(v.Line) || g.Places < 0 {
			continue
		}
		if !g.Clear.IsZero() {
			return "; the line opens by and by after " + string(g.Block.Code) + " (group " + g.Key + "): " + g.Stands(s.engine.Now()), nil
		}
		return "; the line is closed since " + g.Opened.Local().Format(time.RFC3339) + ": " + string(g.Block.Code) + ", " + g.Block.Message +
			" (group " + g.Key + "); " + g.Stands(s.engine.Now()), nil
	}
	return "", nil
}

// inGroup says of a blocked job since when it is, with how many others, and what becomes of that.
func (s *Service) inGroup(ctx context.Context, v *View) error {
	if v.Group == "" {
		return nil
	}
	groups, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: v.Tenant, Key: v.Group})
	if err != nil || len(groups) == 0 {
		return err
	}
	g, stands := &groups[0], v.Job.Why(time.Now(), true)
	why := stands + ", since " + v.Since.Local().Format(time.RFC3339) + ", in group " + g.Key + " of " + many(g.Jobs, "job", "jobs") + "; " + g.Stands(s.engine.Now())
	switch {
	case v.Live:
		why += "; it has no deadline, for launch " + strconv.Itoa(v.Launch) + " of it may still run"
	case !g.Fails(v.Until).IsZero():
		why += "; it fails at " + v.Until.Local().Format(time.RFC3339) + " unless that clears"
	}
	v.Why = why + strings.TrimPrefix(v.Why, stands)
	return nil
}

// standing says where a job stands in a line: among the jobs of its owner, or in an order among all.
func standing(line string, behind int) string {
	first, one, more := "first of its owner's jobs", "of its owner's jobs", "of its owner's jobs"
	if job.Ordered(line) {
		first, one, more = "the next one", "job", "jobs"
	}
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

func (s *Service) view(j *job.Job, l look) View {
	v := View{Job: *j, Why: j.Why(time.Now(), l.served)}
	v.Work, v.Until = nil, j.Deadline()
	l.note(&v)
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
