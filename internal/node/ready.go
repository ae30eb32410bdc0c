package node

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/internal/readiness"
	"github.com/pawl-jobs/pawl/job"
)

// ready returns what says of the service what of it works now. At an address everybody may ask:
// nobody reads there the name of anything that the service has or works for. With names it is for
// the owner of the folder.
func (s *serving) ready(names bool) func(context.Context) []api.Check {
	return func(ctx context.Context) []api.Check {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		checks := []api.Check{s.database(ctx, names), {Name: "session", Err: s.observe.Session()}}
		checks = append(append(checks, s.unattended(ctx, names)...), s.disk())
		if c := s.reconciled(names); c != nil {
			checks = append(checks, *c)
		}
		if c := stalled(s.node.App.Stalled(), names); c != nil {
			checks = append(checks, *c)
		}
		if s.pair != nil {
			c := api.Check{Name: "certificate", Degraded: true, Detail: "valid until " +
				s.pair.Expires().UTC().Format(time.RFC3339)}
			if s.pair.Check() != nil {
				c.Err = errors.New("the files have changed and cannot be used; the certificate before is in use, " +
					"and the log says what is wrong with the new one")
			}
			checks = append(checks, c)
		}
		return checks
	}
}

// database asks the database for its schema.
func (s *serving) database(ctx context.Context, names bool) api.Check {
	c := api.Check{Name: "database"}
	v, err := s.node.Store.Schema(ctx)
	if err != nil {
		c.Err = s.unanswered(ctx, err, names)
		return c
	}
	if !v.Fits {
		c.Err = job.Errorf(job.Newer, "its schema is version %d, and this Pawl knows version %d: another Pawl "+
			"has changed it; start this one anew", v.Version, v.Known)
	}
	c.Detail = fmt.Sprintf("schema version %d", v.Version)
	return c
}

// unanswered is the error of a check that the database did not answer. With names it may say where
// the database is, and how this process logs in there; without, only the log says that.
func (s *serving) unanswered(ctx context.Context, err error, names bool) error {
	if names {
		return err
	}
	s.log.WarnContext(ctx, "the database does not answer a check of readiness", "error", err)
	return job.Errorf(job.Unavailable, "the database has not answered: the log says why")
}

// unattended looks for jobs that wait for a process that is not there.
func (s *serving) unattended(ctx context.Context, names bool) []api.Check {
	all, err := s.node.Unattended(ctx)
	if err != nil {
		err = s.unanswered(ctx, err, names)
	}
	return readiness.Unattended(&all, err, names)
}

// reconciled tells of jobs that this machine knows and the database does not; nil: there are none
// that it has noticed.
func (s *serving) reconciled(names bool) *api.Check {
	behind, unknown := s.node.eyes.Differ()
	if behind+unknown == 0 {
		return nil
	}
	c := &api.Check{
		Name: "restored", Degraded: true,
		Err: errors.New("the machine knows of jobs that the database does not: pawl reconcile tells which"),
	}
	if names {
		c.Err = fmt.Errorf("the machine knows more than the rows of %s do, and %s that the database does not "+
			"know, as after a restore to an earlier point in time: "+
			"pawl reconcile tells which", phrase.Plural(behind, "job"), phrase.Plural(unknown, "job"))
	}
	return c
}

// stalled tells of steps that wait for file systems that do not answer; nil: there are none.
func stalled(all []app.StalledStep, names bool) *api.Check {
	if len(all) == 0 {
		return nil
	}
	left := 0
	for _, one := range all {
		if one.Left {
			left++
		}
	}
	c := &api.Check{Name: "steps", Degraded: left < app.MaxLeftBehind}
	said := "the log names them, and so does this path on the socket of the data folder"
	if names {
		said = readiness.Named(all, app.StalledStep.String)
	}
	c.Err = fmt.Errorf("file systems do not answer %s for minutes, and %d of them were left behind "+
		"(at most %d are): %s", phrase.Plural(len(all), "step"), left, app.MaxLeftBehind, said)
	return c
}

// disk looks at the free space of the data folder.
func (s *serving) disk() api.Check {
	cfg, c := s.config.Load(), api.Check{Name: "disk"}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &fs); err != nil {
		c.Err = fmt.Errorf("free space of the data folder: %w", err)
		return c
	}
	free := config.Size(fs.Bavail * uint64(fs.Bsize))
	c.Detail = fmt.Sprintf("%.1f GiB free", float64(free)/(1<<30))
	if free < cfg.Disk.Low {
		c.Err = job.Errorf(job.Exhausted,
			"the data folder has %s: make room; below %v the service is not ready (disk.least)", c.Detail,
			cfg.Disk.Least)
		c.Degraded = free >= cfg.Disk.Least
	}
	return c
}
