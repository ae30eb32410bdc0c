package pawl_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/pawltest"
	"github.com/pawl-jobs/pawl/service"
)

func TestWrongIntervals(t *testing.T) {
	svc := pawltest.Open(t)
	for d, want := range map[time.Duration]string{
		0:                       "every (0s): is out of range: give whole seconds from 1s to 8760h",
		-time.Minute:            "every (-1m0s): is out of range: give whole seconds from 1s to 8760h",
		time.Millisecond:        "every (1ms): is out of range: give whole seconds from 1s to 8760h",
		1500 * time.Millisecond: "every (1.5s): is out of range: give whole seconds from 1s to 8760h",
		8761 * time.Hour:        "every (8761h0m0s): is out of range: give whole seconds from 1s to 8760h",
	} {
		err := Report.Schedule(t.Context(), svc, "daily", pawl.Every(d), Week{"red"})
		if job.KindOf(err) != job.Invalid || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, c := range []pawl.Clock{{}, pawl.Cron("")} {
		err := Report.Schedule(t.Context(), svc, "daily", c, Week{"red"})
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "or every: 90s, from 1s to 8760h") {
			t.Errorf("%v", err)
		}
	}
}

// Every process says the same when it starts: a schedule stays as it is, and paused if it was. A
// process that says something else changes it.
func TestScheduleIsKept(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		schedule := func(c pawl.Clock, options ...pawl.EnqueueOption) service.Resource[job.Schedule] {
			t.Helper()
			options = append(options, pawl.WithLabel("b", "1"), pawl.WithLabel("a", "2"))
			if err := Report.Schedule(t.Context(), svc, "weekly", c, Week{"red"}, options...); err != nil {
				t.Fatal(err)
			}
			r, err := svc.Jobs().Schedules().Resource(t.Context(), "weekly")
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first := schedule(pawl.Every(time.Hour))
		if again := schedule(pawl.Every(time.Hour)); again.Version != first.Version {
			t.Errorf("the same once more made version %d of %d", again.Version, first.Version)
		}
		if _, err := svc.Jobs().Schedules().Disable(t.Context(), "weekly", true, service.AnyVersion); err != nil {
			t.Fatal(err)
		}
		doc := schedule(pawl.Cron("0 9 * * MON").In("Asia/Tokyo").CatchUpAll(), pawl.WithPriority(2)).Doc
		if !doc.Disabled || doc.Cron != "0 9 * * MON" || doc.Every != 0 || doc.TimeZone != "Asia/Tokyo" ||
			doc.CatchUp != job.CatchUpAll || doc.Overlap != job.OverlapAllow ||
			!strings.Contains(string(doc.Jobs[0]), `"priority":2`) {
			t.Errorf("the schedule is %+v, its job %s", doc, doc.Jobs[0])
		}
		newer, older := Report, Report
		newer.Revision = 1
		for _, task := range []pawl.Task[Week, string]{newer, older} {
			c := pawl.Every(time.Duration(1+task.Revision) * time.Minute)
			if err := task.Schedule(t.Context(), svc, "weekly", c, Week{"red"}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := svc.Jobs().Schedules().Resource(t.Context(), "weekly")
		if err != nil || time.Duration(r.Doc.Every) != 2*time.Minute {
			t.Errorf("%+v, %v: an older build took it back", r.Doc, err)
		}
	})
}

// What does not fit a schedule is refused, and says why.
func TestScheduleRefuses(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		svc := opened(t, at)
		for _, c := range []struct {
			want    string
			clock   pawl.Clock
			options []pawl.EnqueueOption
		}{
			{"WithKey", pawl.Every(time.Hour), []pawl.EnqueueOption{pawl.WithKey("once")}},
			{"external_id", pawl.Every(time.Hour), []pawl.EnqueueOption{pawl.WithID("one")}},
			{"not_before", pawl.Every(time.Hour), []pawl.EnqueueOption{pawl.At(time.Now().Add(time.Hour))}},
			{"whole seconds", pawl.Every(time.Millisecond), nil},
			{"cron", pawl.Cron("9 o'clock"), nil},
			{"time_zone", pawl.Cron("0 9 * * *").In("Berlin"), nil},
		} {
			err := Report.Schedule(t.Context(), svc, "a", c.clock, Week{}, c.options...)
			if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("asked for %s, the answer is %v", c.want, err)
			}
		}
		if all, err := svc.Jobs().Schedules().List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("there are %v: %v", all, err)
		}
	})
}
