package service

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/schedule"
	"github.com/pawl-jobs/pawl/store"
)

var schedules = resourceKind[job.Schedule]{
	kind: job.KindSchedule, parse: schedule.Parse,
	name:    func(d *job.Schedule) string { return d.Name },
	disable: func(d *job.Schedule, v bool) { d.Disabled = v },
	check:   checkSchedule,
	plan:    schedule.Plan,
	next:    schedule.NextOf,
}

// Schedules returns the documents that submit jobs on a clock.
func (s *Service) Schedules() Resources[job.Schedule] { return Resources[job.Schedule]{s, &schedules} }

// checkSchedule checks the jobs of a schedule as a submission does. One that names no owner becomes
// that of its author.
func checkSchedule(ctx context.Context, s *Service, d *job.Schedule) error {
	if d.Owner == "" && s.cfg.Principal != s.principal {
		d.Owner = s.cfg.Principal
	}
	known, err := s.docs.known(ctx, s.cfg.Tenant)
	if err != nil {
		return err
	}
	return d.CheckJobs(func(spec *job.Spec) error {
		if err := s.Check(spec); err != nil {
			return err
		}
		return known.kinds[spec.Kind].Check(spec)
	})
}

// in returns a service that submits the jobs of a schedule of a tenant.
func (s *Service) in(tenant string, d *job.Schedule) *Service {
	of := s.As(cmp.Or(d.Owner, s.principal))
	of.cfg.Tenant = tenant
	return of
}

// clock is the duty that submits the jobs of schedules.
func (s *Service) clock() *schedule.Clock {
	return &schedule.Clock{
		Store: s.cfg.Store, Broker: s.cfg.Broker, Log: s.cfg.Log, Lease: s.Lease(),
		Now: func() time.Time { return s.engine.Now() },
		Submit: func(ctx context.Context, tenant string, due schedule.Due, to *store.Advance) error {
			_, err := s.in(tenant, due.Schedule).SubmitAll(ctx, Submission{List: true, advance: to, Jobs: dueJobs(&due)})
			return err
		},
	}
}

// dueJobs returns the requests of what is due. A job that must not overlap is not submitted while
// the one before it, at the same place in the schedule, has not ended.
func dueJobs(due *schedule.Due) []Request {
	reqs := make([]Request, len(due.Specs))
	for i, given := range due.Specs {
		reqs[i].Given = given
		if due.Schedule.Overlap != job.OverlapAllow {
			reqs[i].Unique = []store.Unique{{
				Mode: job.UntilDone, Key: "pawl/schedule/" + due.Schedule.Name + "/" + strconv.Itoa(i),
			}}
		}
	}
	return reqs
}

// RunSchedule submits the jobs of a schedule now, even if it is disabled. Its due times stay as
// they are. An answer that existed before is a job that has not ended, which the schedule does not
// overlap. Repeated with the same key within [store.KeepKey], it returns the same jobs.
func (s *Service) RunSchedule(ctx context.Context, key, name string) ([]store.Submitted, error) {
	r, err := s.Schedules().Resource(ctx, name)
	if err != nil {
		return nil, err
	}
	due := schedule.Due{Schedule: &r.Doc}
	if due.Specs, err = r.Doc.Due(time.Time{}); err != nil {
		return nil, err
	}
	if key != "" {
		key = "schedule/" + name + "/" + key
	}
	return s.in(s.cfg.Tenant, &r.Doc).SubmitAll(ctx, Submission{Key: key, List: true, Jobs: dueJobs(&due)})
}

// MostNext is how many due times [Service.NextDue] returns at most.
const MostNext = 100

// NextDue returns the next n due times of a schedule, also of one that is disabled.
func (s *Service) NextDue(ctx context.Context, name string, n int) ([]time.Time, error) {
	if n < 1 || n > MostNext {
		return nil, place("count", strconv.Itoa(n), "is out of range", "give 1 to "+strconv.Itoa(MostNext))
	}
	r, err := s.Schedules().Resource(ctx, name)
	if err != nil {
		return nil, err
	}
	return schedule.List(&r.Doc, r.Next, s.Now(), n)
}
