package pawl

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Clock says when a task is due, again and again: [Cron], [Every].
type Clock struct {
	s     job.Schedule
	never bool // it is of Every(0), which no document can tell from a cron that is missing
}

// Cron is due at the times of a cron expression: minute, hour, day, month and day of the week, such
// as "0 9 * * MON" for Mondays at nine, in UTC or [Clock.In] a time zone. A sixth field in front is
// seconds. Clock changes neither double nor lose what is due once a day.
func Cron(expression string) Clock { return Clock{s: job.Schedule{Cron: expression}} }

// Every is due at an interval of whole seconds, from 1 s to a year. The first time is that long
// after the schedule was made.
func Every(d time.Duration) Clock { return Clock{job.Schedule{Every: job.Duration(d)}, d == 0} }

// In returns c in a time zone, by its IANA name, such as Europe/Berlin.
func (c Clock) In(zone string) Clock {
	c.s.TimeZone = zone
	return c
}

// Overlapping returns c that enqueues a job even if the one before has not ended. By default it
// does not.
func (c Clock) Overlapping() Clock {
	c.s.Overlap = job.OverlapAllow
	return c
}

// CatchUpAll returns c that, when no process ran, makes up for each due time that was missed, the
// newest 100 at most. By default it makes up for the newest one. Its jobs may overlap.
func (c Clock) CatchUpAll() Clock {
	c.s.CatchUp = job.CatchUpAll
	return c.Overlapping()
}

// CatchUpNone returns c that drops due times that were missed.
func (c Clock) CatchUpNone() Clock {
	c.s.CatchUp = job.CatchUpNone
	return c
}

// Schedule enqueues a job of the task whenever c is due, once, whatever number of processes there
// is. The schedule is kept in the database under its name. So every process may call this when it
// starts: what is there already stays, and goes on counting, unless the call says something else.
// Then it is replaced, but for one of a task with a higher Revision: raise that with the schedule.
// A schedule that somebody paused stays paused. Some process must run ([Service.Run]) for jobs to
// come; it need not be one that handles them.
//
//	monday := pawl.Cron("0 9 * * MON").In("Europe/Berlin")
//	err := Report.Schedule(ctx, svc, "weekly", monday, Week{Team: "red"})
//	times, err := svc.Jobs().NextDue(ctx, "weekly", 3)
//	err = svc.Jobs().Schedules().Delete(ctx, "weekly", service.AnyVersion)
//
// The options are those of each job, but for [WithKey], [WithID] and transactions, which are of one
// call. [Job.Due] tells a job when it was due. The error is of kind [job.Invalid] if the clock or
// the zone is not one.
func (t Task[A, R]) Schedule(ctx context.Context, s *Service, name string, c Clock, args A,
	options ...EnqueueOption,
) error {
	if err := t.check(); err != nil {
		return err
	}
	if c.never {
		return job.Errorf(job.Invalid, "every (0s): is out of range: give whole seconds from 1s to 8760h")
	}
	spec, err := t.spec(args)
	if err != nil {
		return err
	}
	e := Enqueueing{Spec: &spec}
	if err := cmp.Or(apply("Schedule of task "+t.Kind, &e, options), e.wrong); err != nil {
		return err
	}
	if e.Key != "" || e.Tx != nil {
		return job.Errorf(job.Invalid, "schedule %s: WithKey and In are of one call of Enqueue; remove them", name)
	}
	given, err := job.Encode(spec)
	if err != nil {
		return err
	}
	doc := c.s
	doc.Name, doc.Jobs, doc.Revision = name, []job.Given{job.Given(given)}, t.Revision
	all := s.jobs.Schedules()
	for {
		old, err := all.Resource(ctx, name)
		if err != nil && job.KindOf(err) != job.NotFound {
			return err
		}
		if old.Doc.Revision > t.Revision {
			return nil // of a newer build
		}
		doc.Disabled, doc.Owner, doc.Description = old.Doc.Disabled, old.Doc.Owner, old.Doc.Description
		text, err := job.Encode(doc)
		if err != nil {
			return err
		}
		if before, err := job.Encode(old.Doc); err == nil && bytes.Equal(before, text) {
			return nil
		}
		if _, _, err = all.Apply(ctx, text, old.Version); job.KindOf(err) != job.Conflict {
			return err
		}
	}
}

// Due returns when a job of a schedule was due, and zero for another one.
func (j *Job[A]) Due() time.Time {
	due, _ := time.Parse(time.RFC3339, j.TaskRun.Job.Labels[job.LabelDue])
	return due
}
