// Package schedule knows when the jobs of schedules are due, and submits them: [Parse] reads a
// document, [Times] are its due times, and [Clock] is the duty of the one process that submits for
// all. It may import job, store, broker and engine.
package schedule

import (
	"errors"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a machine need not have the zones

	"github.com/netresearch/go-cron"

	"github.com/pawl-jobs/pawl/job"
)

// Parse reads the document of a schedule and checks it, its expression and its time zone too. See
// [job.ParseSpec] for its errors.
func Parse(doc []byte) (job.Schedule, error) {
	s, err := job.ParseSchedule(doc)
	if err == nil {
		_, err = TimesOf(&s)
	}
	return s, err
}

// Times are the due times of a schedule.
type Times struct {
	every time.Duration // zero: by cron

	// The expression is asked in UTC for the times that clocks on a wall show: its own way through
	// clock changes leaves some due times out, and doubles others.
	cron   cron.Schedule
	zone   *time.Location
	hourly bool // it is due in every hour, so it follows the hours and not the wall
}

// parser reads five fields as crontab does, or six that begin with the second.
var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.DowOrDom | cron.Descriptor | cron.DowNth | cron.DowLast | cron.DomL | cron.DomW)

// allHours are the bits of an expression that is due in every hour.
const allHours = 1<<24 - 1

// TimesOf returns the due times of a schedule. The error, a [job.SpecError], says what is wrong
// with its expression or its time zone.
func TimesOf(s *job.Schedule) (Times, error) {
	if s.Every != 0 {
		return Times{every: time.Duration(s.Every)}, nil
	}
	var wrong job.SpecError
	add := func(path, value, what, remedy string) {
		wrong.Add(job.Problem{Path: path, Value: value, What: what, Remedy: remedy})
	}
	t := Times{zone: time.UTC}
	if s.TimeZone != "" {
		zone, err := time.LoadLocation(s.TimeZone)
		if err != nil || s.TimeZone == "Local" {
			add("time_zone", s.TimeZone, "is unknown", "give an IANA name such as Europe/Berlin or UTC")
		} else {
			t.zone = zone
		}
	}
	const such = `write minute, hour, day, month and day of the week, such as "0 9 * * MON" for Mondays at nine`
	expression, err := parse(s.Cron)
	switch {
	case strings.Contains(s.Cron, "TZ="):
		add("cron", s.Cron, "has a time zone", "give it in time_zone")
	case strings.HasPrefix(s.Cron, "@every"):
		add("cron", s.Cron, "is an interval", "write every: "+strings.TrimSpace(strings.TrimPrefix(s.Cron, "@every")))
	case err != nil:
		add("cron", s.Cron, "is no cron expression: "+err.Error(), such)
	case expression.Next(time.Now().UTC()).IsZero():
		add("cron", s.Cron, "never comes", "give a day that there is")
	default:
		t.cron = expression
		if spec, ok := expression.(*cron.SpecSchedule); ok {
			t.hourly = spec.Hour&allHours == allHours
		}
	}
	if wrong.Problems != nil {
		return t, &wrong
	}
	return t, nil
}

// parse reads an expression. What the parser does not survive is wrong too.
func parse(text string) (s cron.Schedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = job.Errorf(job.Invalid, "%v", p)
		}
	}()
	s, err = parser.Parse(text)
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		err = job.Errorf(job.Invalid, "%q is no number, and no name of a day or a month", number.Num)
	}
	return s, err
}

// After returns the first due time after t; zero: there is none. Those of an interval are counted
// from t, to the second.
func (ts Times) After(t time.Time) time.Time {
	if ts.every != 0 {
		return t.Truncate(time.Second).Add(ts.every).UTC()
	}
	at := t.In(ts.zone)
	begin, end := at.ZoneBounds() // of the time in which the offset is the same
	offset := offsetOf(at)
	for wall := t.UTC().Add(offset); ; {
		if !ts.hourly && !begin.IsZero() {
			// What the wall shows again since the clock was put back was due the first time.
			repeated := offsetOf(begin.Add(-1).In(ts.zone)) - offset
			if last := begin.UTC().Add(offset + repeated - 1); repeated > 0 && wall.Before(last) {
				wall = last
			}
		}
		next := ts.cron.Next(wall)
		if next.IsZero() {
			return next
		}
		due := next.Add(-offset)
		if end.IsZero() || due.Before(end) {
			return due
		}
		before := offset
		at, begin = end.In(ts.zone), end
		_, end = at.ZoneBounds()
		offset = offsetOf(at)
		if !ts.hourly && due.Before(begin.Add(offset-before)) {
			return begin.UTC() // the change skips it
		}
		wall = begin.UTC().Add(offset - 1)
	}
}

// Newest returns the last n due times after from and up to now, oldest first. more says that there
// are others before them.
func (ts Times) Newest(from, now time.Time, n int) (due []time.Time, more bool) {
	if ts.every != 0 {
		base := from.Truncate(time.Second).UTC()
		last := int64(now.Sub(base) / ts.every)
		first := max(1, last-int64(n)+1)
		for i := first; i <= last; i++ {
			due = append(due, base.Add(time.Duration(i)*ts.every))
		}
		return due, first > 1
	}
	// There may be very many, so it looks back further and further.
	for back := time.Hour; ; back *= 8 {
		start := now.Add(-back)
		if start.Before(from) {
			start = from
		}
		due = due[:0]
		for at := ts.After(start); !at.IsZero() && !at.After(now); at = ts.After(at) {
			due = append(due, at)
		}
		switch {
		case len(due) > n:
			return due[len(due)-n:], true
		case start.Equal(from):
			return due, false
		}
	}
}

// Next returns the next n due times after t.
func (ts Times) Next(t time.Time, n int) []time.Time {
	list := []time.Time{}
	for at := ts.After(t); len(list) < n && !at.IsZero(); at = ts.After(at) {
		list = append(list, at)
	}
	return list
}

// offsetOf returns how far the clocks of a zone are ahead of UTC.
func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}
