package schedule

import (
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Plan says what becomes of the due times of a schedule when now takes the place of before; nil:
// there was none. What was due of other times, or while the schedule was disabled, is not caught
// up.
func Plan(before, now *job.Schedule) store.Plan {
	switch {
	case now.Disabled:
		return store.PlanNone
	case before == nil, before.Disabled, before.Cron != now.Cron, before.Every != now.Every,
		before.TimeZone != now.TimeZone:
		return store.PlanAnew
	}
	return store.PlanKept
}

// NextOf returns the first due time of a schedule that is not dealt with; zero: there is none.
func NextOf(d *job.Schedule, row *store.Resource) time.Time {
	times, err := TimesOf(d)
	if err != nil || row.Next.IsZero() {
		return time.Time{}
	}
	return times.After(row.Through)
}

// List returns n due times of a schedule from next on, or else after now. next is zero for one that
// is disabled.
func List(d *job.Schedule, next, now time.Time, n int) ([]time.Time, error) {
	times, err := TimesOf(d)
	if err != nil {
		return nil, err
	}
	if !next.IsZero() { // an interval is counted from the time before
		now = next.Add(-max(time.Nanosecond, time.Duration(d.Every)))
	}
	return times.Next(now, n), nil
}
