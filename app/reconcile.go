package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/store"
)

// A Comparison is of what a host knows of jobs with the rows of the database. They differ after the
// database was restored to an earlier point in time.
type Comparison struct {
	Machine string  `json:"machine"`
	Agree   int     `json:"agree"`  // jobs whose rows know all that the host knows
	Behind  []Found `json:"behind"` // jobs whose rows know less than the host
	// Unknown is what belongs to no job of the database, and what runs for a job that has ended
	// there.
	Unknown []Found  `json:"unknown"`
	Unread  []string `json:"unread,omitempty"` // what could not be looked at and compared, and why
}

// unread notes what could not be looked at, if the rest can be. Otherwise it returns err.
func (r *Comparison) unread(ctx context.Context, what string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if ctx.Err() != nil || !files.Alone(err) {
		return err
	}
	r.Unread = append(r.Unread, what+": "+files.Reason(err))
	return nil
}

// A Found is something that a host knows and the database does not.
type Found struct {
	Job      job.ID    `json:"job"`
	Name     string    `json:"name,omitempty"`  // of the row; empty: there is no row
	State    job.State `json:"state,omitempty"` // of the row; empty: there is no row
	Program  Trail     `json:"program"`
	Attempt  int       `json:"attempt,omitempty"` // of the newest launch, if the folder is there
	Launch   int       `json:"launch,omitempty"`
	ExitCode *int      `json:"exit_code,omitempty"`
	Since    time.Time `json:"since,omitzero"`    // when it ended, or when it began if it runs
	Folder   string    `json:"folder,omitempty"`  // if it is there
	Results  string    `json:"results,omitempty"` // in the service's own archive, if they are there
	Became   job.State `json:"became,omitempty"`  // the state of the row after it was brought up to date
	Removed  bool      `json:"removed,omitempty"` // it was unknown: it was ended, and its folder removed

	row    *job.Job
	handle *runner.Handle
	open   []runner.Key
	told   []string // names of its ends that nobody has taken in
}

// A Trail is what a host knows of a program.
type Trail string

// The trails.
const (
	Runs        Trail = "runs"
	Over        Trail = "ended"        // it ended, and its folder is there
	Cleaned     Trail = "cleaned"      // it ended, and its folder was removed
	NotLaunched Trail = "not launched" // there is only a folder of the job
)

// compareAtOnce is how many rows are looked up at once.
const compareAtOnce = 500

// Compare asks the host what it knows of jobs, and compares that with the rows. newest is about how
// many jobs it compares, the newest ones; 0: all. It changes nothing. A job that moves meanwhile
// counts as agreed, because the process that has it asks the host itself.
func (k *Kind) Compare(ctx context.Context, y *System, rows store.Reader, newest int) (Comparison, error) {
	rep := Comparison{Machine: y.Watch, Behind: []Found{}, Unknown: []Found{}}
	known, err := k.known(ctx, y, newest, &rep)
	if err != nil {
		return rep, fmt.Errorf("ask the host: %w", err)
	}
	for part := range slices.Chunk(known, compareAtOnce) {
		if err := k.compare(ctx, y, rows, part, &rep); err != nil {
			return rep, fmt.Errorf("compare with the host: %w", err)
		}
	}
	for _, list := range [][]Found{rep.Behind, rep.Unknown} {
		if err := y.probe(ctx, list); err != nil {
			return rep, fmt.Errorf("look at programs: %w", err)
		}
	}
	rep.Unknown = slices.DeleteFunc(rep.Unknown, func(f Found) bool {
		agrees := f.row != nil && f.Program != Runs
		if agrees {
			rep.Agree++
		}
		return agrees
	})
	return rep, nil
}

// known lists the jobs that the host knows by their folders, results, messages and marks, oldest
// first. Jobs that are only archived count when all are asked for.
func (k *Kind) known(ctx context.Context, y *System, newest int, rep *Comparison) ([]*Found, error) {
	all := map[job.ID]*Found{}
	of := func(id job.ID) *Found {
		if all[id] == nil {
			all[id] = &Found{Job: id}
		}
		return all[id]
	}
	fsys := y.Host.Files()
	if err := rep.tenants(ctx, fsys.List, y.Work, func(id job.ID, at string) { of(id).Folder = at }); err != nil {
		return nil, err
	}
	if newest == 0 {
		if err := rep.tenants(ctx, k.cfg.Files.List, k.cfg.Archive,
			func(id job.ID, at string) { of(id).Results = at }); err != nil {
			return nil, err
		}
	}
	told, err := y.Runner.Told(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range told {
		of(n.Key.Job).told = append(of(n.Key.Job).told, n.Name)
	}
	marked, err := y.Runner.Marked(ctx, newest)
	if err != nil {
		return nil, err
	}
	for _, id := range marked {
		of(id).Program = Cleaned
	}
	list := slices.SortedFunc(maps.Values(all), func(a, b *Found) int { return a.Job.Compare(b.Job) })
	if newest > 0 && len(list) > newest {
		list = list[len(list)-newest:]
	}
	return list, nil
}

// tenants calls each for the folders <root>/<tenant>/<job>.
func (r *Comparison) tenants(ctx context.Context, list func(context.Context, string) ([]fs.FileInfo, error),
	root string, each func(job.ID, string),
) error {
	all, err := list(ctx, root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, tenant := range all {
		if !tenant.IsDir() || strings.HasPrefix(tenant.Name(), ".") {
			continue
		}
		jobs, err := list(ctx, path.Join(root, tenant.Name()))
		if err := r.unread(ctx, "the folder of tenant "+tenant.Name(), err); err != nil {
			return err
		}
		for _, j := range jobs {
			if id, err := job.ParseID(j.Name()); err == nil {
				each(id, path.Join(root, tenant.Name(), j.Name()))
			}
		}
	}
	return nil
}

// compare sorts jobs that the host knows by what their rows know.
func (k *Kind) compare(ctx context.Context, y *System, rows store.Reader, known []*Found, rep *Comparison) error {
	find := func(known []*Found) (map[job.ID]*job.Job, error) {
		ids := make([]job.ID, len(known))
		for i, f := range known {
			ids[i] = f.Job
		}
		found, err := rows.Find(ctx, store.FindQuery{IDs: ids})
		byID := map[job.ID]*job.Job{}
		for i := range found {
			byID[found[i].ID] = &found[i]
		}
		return byID, err
	}
	before, err := find(known)
	if err != nil {
		return err
	}
	var differ []*Found
	for _, f := range known {
		f.row = before[f.Job]
		differs, err := y.differs(ctx, f)
		if err := rep.unread(ctx, "job "+f.Job.String(), err); err != nil {
			return err
		}
		switch {
		case err != nil: // it is noted
		case differs:
			differ = append(differ, f)
		case f.row != nil:
			rep.Agree++
		}
	}
	if len(differ) == 0 {
		return nil
	}
	after, err := find(differ)
	if err != nil {
		return err
	}
	for _, f := range differ {
		switch now := after[f.Job]; {
		case f.row == nil && now == nil || f.row != nil && f.row.State.Terminal():
			rep.Unknown = append(rep.Unknown, *f)
		case f.row != nil && now != nil && now.Epoch == f.row.Epoch && now.N == f.row.N:
			rep.Behind = append(rep.Behind, *f)
		case now != nil:
			rep.Agree++
		}
	}
	return nil
}

// differs asks the host what it knows of a job beyond its row, and reports whether there is
// anything.
func (y *System) differs(ctx context.Context, f *Found) (bool, error) {
	row, marked := f.row, f.Program == Cleaned
	key := runner.Key{Job: f.Job}
	if row != nil {
		if row.Watch != y.Watch || row.Custody == job.Worker {
			return false, nil
		}
		f.Name, f.State = row.Name, row.State
		key.Launch = row.Launch
	}
	if row == nil && f.Folder == "" && f.Results == "" && f.told == nil || row != nil && row.State.Terminal() &&
		f.Folder == "" {
		return false, nil // its mark alone: it was deleted, or all is well
	}
	// without a folder only the mark is asked for
	past, err := y.Runner.Past(ctx, key, cmp.Or(f.Folder, path.Join(y.Work, f.Job.String())))
	if err != nil {
		return false, err
	}
	if m := past.Mark; m != nil {
		f.Since = m.At
		if m.End != nil {
			f.Since, f.ExitCode = m.End.Ended, &m.End.Code
		}
	}
	f.open, f.Program = past.Open, NotLaunched
	if marked && past.Mark != nil || f.Folder == "" && row == nil {
		f.Program = Cleaned
	}
	if n := len(past.Started); n > 0 {
		f.handle = &past.Started[n-1]
		f.Attempt, f.Launch = f.handle.Key.Attempt, f.handle.Key.Launch
		f.Program = Over
	}
	switch {
	case row == nil:
		return true, nil
	case row.State.Terminal():
		return f.handle != nil, nil // probe tells whether it is alive
	case past.Mark != nil:
		return !proves(row), nil
	}
	return f.handle != nil, nil
}

// proves reports whether a row has the manifest of its results.
func proves(j *job.Job) bool {
	var n progress
	return json.Unmarshal(j.Work, &n) == nil && n.Manifest != nil
}

// probe finds out which programs run.
func (y *System) probe(ctx context.Context, list []Found) error {
	var at []*Found
	var handles []runner.Handle
	for i := range list {
		if f := &list[i]; f.handle != nil {
			at, handles = append(at, f), append(handles, *f.handle)
		}
	}
	if len(handles) == 0 {
		return nil
	}
	states, err := y.Runner.Probe(ctx, handles)
	if err != nil {
		return err
	}
	for i, s := range states {
		f := at[i]
		switch {
		case s.State == runner.Active || s.State == runner.Orphaned || len(s.Left) > 0:
			f.Program = Runs
			f.Since = s.Started.UTC().Truncate(time.Second)
		case s.End != nil:
			f.Since, f.ExitCode = s.End.Ended, &s.End.Code
		}
	}
	return nil
}

// EndUnknown ends what is left of a program that has no job in the database. It removes its folder,
// its messages, and copies that were not published. If the job has ended in the database, it ends
// the program and removes nothing. Results in an archive stay. It may be called again after an
// error.
func (k *Kind) EndUnknown(ctx context.Context, y *System, f *Found) error {
	for _, open := range f.open {
		fate, err := y.Runner.Settle(ctx, open, f.Folder)
		if err != nil {
			return err
		}
		if fate.Started {
			f.handle = &fate.Handle
		}
	}
	if f.handle != nil {
		if err := y.Runner.Kill(ctx, *f.handle, k.cfg.Grace); err != nil {
			return err
		}
	}
	if f.row != nil {
		f.Removed = true
		return nil
	}
	if f.Folder != "" {
		key := runner.Key{Job: f.Job, Attempt: max(1, f.Attempt), Launch: max(1, f.Launch)}
		if err := y.Runner.Clean(ctx, key, f.Folder); err != nil {
			return err
		}
		if err := y.Host.Files().Remove(ctx, f.Folder); err != nil {
			return err
		}
	}
	if err := y.Runner.Acknowledge(ctx, f.told); err != nil {
		return err
	}
	if err := k.tidy(ctx, y, f.Job, nil); err != nil {
		return err
	}
	f.Removed = f.Folder != "" || f.told != nil
	return nil
}

// UpToDate reports whether a row has caught up with f: the watcher has a program that runs, and a
// program that was over has been taken in.
func (f *Found) UpToDate(j *job.Job) bool {
	switch {
	case j.State.Terminal() || f.Program != Cleaned && j.Attempt > f.Attempt:
		return true
	case f.Program == Runs:
		return j.Launch >= f.Launch && j.Custody == job.Monitor
	case f.Program == Over:
		return j.Launch >= f.Launch && !j.Live
	}
	return false
}

// CanMove reports whether a worker can take the job now, or a watcher has it. Only jobs of
// [Comparison.Behind] can be asked.
func (f *Found) CanMove() bool {
	return f.row.Custody == job.Ready || f.row.Custody == job.Monitor
}
