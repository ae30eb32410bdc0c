package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// submit submits the jobs of the file, or finds those that there are.
func (r *run) submit(ctx context.Context, s *attachment) (err error) {
	if r.cursor, err = s.Cursor(ctx); err != nil {
		return err
	}
	existed := true
	if r.file == nil {
		r.order, err = s.unfinished(ctx)
		if err == nil && len(r.order) == 0 {
			fmt.Fprintf(r.view, "no unfinished program %s\n", s.Where())
		}
	} else {
		existed, err = r.submitFile(ctx, s)
	}
	if err != nil {
		return err
	}
	r.view.Together(func() {
		views := make([]service.View, len(r.order))
		for i, id := range r.order { // each line names its job where there are several
			if views[i], err = s.Job(ctx, id); err != nil {
				return
			}
			r.add(ctx, s, &views[i])
		}
		for i := range views {
			if err = r.greet(ctx, s, &views[i], existed); err != nil {
				return
			}
		}
	})
	return err
}

// submitFile submits the jobs of the file, or finds them, and says so.
func (r *run) submitFile(ctx context.Context, s *attachment) (existed bool, err error) {
	specs := make([]json.RawMessage, len(r.file.Jobs))
	for i, e := range r.file.Jobs {
		specs[i] = e.Given
	}
	path, err := r.filePath()
	if err != nil {
		return false, err
	}
	file := service.FileRun{Path: path, Sum: r.file.Sum, New: r.anew, Call: r.call, Find: s.Server == nil}
	a, err := s.RunFile(ctx, file, specs...)
	if err == nil && file.Find && len(a.Jobs) == 0 { // the jobs will be new
		if err := r.absent(ctx, s.node != nil); err != nil {
			return false, err
		}
		file.Find = false
		a, err = s.RunFile(ctx, file, specs...)
	}
	if err != nil {
		return false, err
	}
	for _, o := range a.Older {
		if r.file.Path == jobfile.CommandFile {
			break // they are others
		}
		what := "an earlier version of this file"
		if o.Sum == r.file.Sum {
			what = "this file"
		}
		fmt.Fprintf(r.view, "an older run of %s is unfinished: %s; see pawl list, and pawl cancel\n", what,
			r.names(ctx, s, o.Jobs))
	}
	r.order = a.Jobs
	switch {
	case len(a.Jobs) == 1:
		return a.Existed, nil // it is said with its name
	case a.Existed:
		fmt.Fprintf(r.view, "%s of %s go on\n", phrase.Plural(len(a.Jobs), "job"), r.file.Path)
	case !r.view.Terminal(): // there the board says it
		fmt.Fprintf(r.view, "%s of %s submitted\n", phrase.Plural(len(a.Jobs), "job"), r.file.Path)
	}
	return a.Existed, nil
}

// lookWait is how long a look at what the jobs need may take. A file system that hangs holds up its
// job, but not the others.
const lookWait = 3 * time.Second

// absent returns an error that names what the jobs need and this machine does not have. They may
// run in another process of it, with another PATH.
func (r *run) absent(ctx context.Context, here bool) error {
	ctx, stop := context.WithTimeout(ctx, lookWait)
	defer stop()
	found := make(chan error, 1)
	go func() { found <- r.file.Absent(ctx, here) }()
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
		return nil // the jobs will tell
	}
}

// filePath is the name under which the runs of the file are remembered. For other machines it says
// on which one it is.
func (r *run) filePath() (string, error) {
	if !r.away() || r.file.Path == jobfile.CommandFile {
		return r.file.Path, nil
	}
	host, err := os.Hostname()
	return host + ":" + r.file.Path, err
}

// others says how many unfinished programs besides its own this process runs.
func (r *run) others(ctx context.Context, s *attachment) error {
	ids, err := r.strangers(ctx, s)
	if err == nil && len(ids) > 0 {
		r.view.Note(fmt.Sprintf("this process also runs %s of folder %s while it lasts; see pawl list",
			phrase.Plural(len(ids), "other unfinished job"), r.dir))
	}
	return err
}

// strangers returns the unfinished programs of the folder that are not this run's.
func (r *run) strangers(ctx context.Context, s *attachment) ([]job.ID, error) {
	ids, err := s.unfinished(ctx)
	return slices.DeleteFunc(ids, func(id job.ID) bool { return r.jobs[id] != nil }), err
}

// names names some jobs.
func (r *run) names(ctx context.Context, s *attachment, ids []job.ID) string {
	const most = 5
	var names []string
	for _, id := range ids[:min(len(ids), most)] {
		if v, err := s.Job(ctx, id); err == nil {
			names = append(names, s.Ref(ctx, &v.Job))
		}
	}
	if n := len(ids) - most; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}
