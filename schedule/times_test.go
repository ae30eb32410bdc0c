package schedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

func timesOf(t *testing.T, s job.Schedule) Times {
	t.Helper()
	ts, err := TimesOf(&s)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		about, cron, zone, from string
		want                    []string
	}{
		{
			"a time that is skipped is due when the clock has changed", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		{
			"several that are skipped are due once", "15,45 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:15:00+02:00", "2026-03-30T02:45:00+02:00"},
		},
		{
			"one that is skipped and the one that follows are one", "0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		{
			"a time that comes twice is due the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		{
			"every quarter of a few hours", "*/30 1-3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{
				"2026-10-25T01:00:00+02:00", "2026-10-25T01:30:00+02:00", "2026-10-25T02:00:00+02:00",
				"2026-10-25T02:30:00+02:00", "2026-10-25T03:00:00+01:00", "2026-10-25T03:30:00+01:00",
			},
		},
		{
			"what is due in every hour follows the hours", "30 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z",
			[]string{
				"2026-10-25T01:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00",
				"2026-10-25T03:30:00+01:00",
			},
		},
		{
			"also where one is missing", "*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"},
		},
		{
			"a midnight that is skipped", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		{
			"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		{
			"half an hour comes twice", "45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		},
		{
			"a whole day is skipped", "0 9 * * *", "Pacific/Apia", "2011-12-29T12:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"},
		},
		{
			"after the repeated hour has begun", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z",
			[]string{"2026-10-26T02:30:00+01:00"},
		},
		{
			"Mondays at nine", "0 9 * * MON", "America/New_York", "2026-03-01T12:00:00Z",
			[]string{"2026-03-02T09:00:00-05:00", "2026-03-09T09:00:00-04:00"},
		},
		{
			"as crontab has it: the 13th and each Friday", "0 0 13 * FRI", "", "2026-04-09T12:00:00Z",
			[]string{"2026-04-10T00:00:00Z", "2026-04-13T00:00:00Z", "2026-04-17T00:00:00Z"},
		},
		{"the last day", "0 0 L * *", "", "2028-02-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"}},
		{"the first Monday", "0 9 * * MON#1", "", "2026-11-28T00:00:00Z", []string{"2026-12-07T09:00:00Z"}},
		{"leap days", "0 0 29 2 *", "", "2026-11-28T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{"with seconds", "*/2 * * * * *", "", "2026-11-28T00:00:00.5Z", []string{"2026-11-28T00:00:02Z", "2026-11-28T00:00:04Z"}},
	} {
		t.Run(c.about, func(t *testing.T) {
			ts := timesOf(t, job.Schedule{Cron: c.cron, TimeZone: c.zone})
			from, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, at := range ts.Next(from, len(c.want)) {
				got = append(got, at.In(ts.zone).Format(time.RFC3339))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("due\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// TestYear holds the times of a year in each zone to the wall: each time that an expression names
// is there once, on each day.
func TestYear(t *testing.T) {
	for _, zone := range []string{
		"Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu",
		"Africa/Casablanca", "Asia/Gaza", "Pacific/Chatham", "America/Santiago", "UTC",
	} {
		daily := timesOf(t, job.Schedule{Cron: "30 2 * * *", TimeZone: zone})
		hourly := timesOf(t, job.Schedule{Cron: "0 * * * *", TimeZone: zone})
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, daily.zone)
		days, last := 0, ""
		for at := daily.After(from); at.Year() < 2027; at = daily.After(at) {
			days++
			day := at.In(daily.zone).Format(time.DateOnly)
			if day == last {
				t.Errorf("%s: twice on %s", zone, day)
			}
			last = day
		}
		if days < 365 || days > 366 {
			t.Errorf("%s: %d times in a year", zone, days)
		}
		hours := len(hourly.Next(from, 8000))
		if hours != 8000 {
			t.Errorf("%s: %d hours", zone, hours)
		}
		if spent := hourly.Next(from, 8000)[7999].Sub(from); spent < 7998*time.Hour || spent > 8002*time.Hour {
			t.Errorf("%s: 8000 hours take %v", zone, spent)
		}
	}
}

func TestNewest(t *testing.T) {
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	minutely := timesOf(t, job.Schedule{Cron: "* * * * *"})
	yearly := timesOf(t, job.Schedule{Cron: "@yearly"})
	every := timesOf(t, job.Schedule{Every: job.Duration(90 * time.Second)})
	for _, c := range []struct {
		about       string
		ts          Times
		from        time.Time
		n           int
		first, last time.Time
		count       int
		more        bool
	}{
		{"all of a few", minutely, now.Add(-3 * time.Minute), 5, now.Add(-2 * time.Minute), now, 3, false},
		{"the last of very many", minutely, now.AddDate(-20, 0, 0), 5, now.Add(-4 * time.Minute), now, 5, true},
		{
			"few in a long time", yearly, now.AddDate(-3, 0, 0), 5, time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 3, false,
		},
		{"an interval", every, now.Add(-200 * time.Second), 5, now.Add(-110 * time.Second), now.Add(-20 * time.Second), 2, false},
		{"the last of an interval", every, now.AddDate(-20, 0, 0), 3, now.Add(-180 * time.Second), now, 3, true},
		{"nothing yet", every, now.Add(-89 * time.Second), 3, time.Time{}, time.Time{}, 0, false},
	} {
		t.Run(c.about, func(t *testing.T) {
			due, more := c.ts.Newest(c.from, now, c.n)
			if len(due) != c.count || more != c.more {
				t.Fatalf("%d due times, more %v", len(due), more)
			}
			if c.count > 0 && c.ts.every == 0 && (!due[0].Equal(c.first) || !due[len(due)-1].Equal(c.last)) {
				t.Errorf("from %v to %v", due[0], due[len(due)-1])
			}
		})
	}
}

func TestParse(t *testing.T) {
	const jobs = `, "jobs": [{"command": ["true"]}]`
	for _, c := range []struct{ doc, want string }{
		{`{"name": "a", "cron": "0 9 * * MON", "time_zone": "Europe/Berlin"` + jobs + `}`, ""},
		{`{"name": "a", "cron": "@daily"` + jobs + `}`, ""},
		{`{"name": "a", "every": "90s"` + jobs + `}`, ""},
		{
			`{"name": "a"` + jobs + `}`,
			`cron: is missing: say when jobs are due: cron: "0 9 * * MON", or every: 90s, from 1s to 8760h`,
		},
		{`{"name": "a", "cron": "61 * * * *"` + jobs + `}`, `cron (61 * * * *): is no cron expression`},
		{`{"name": "a", "cron": "FOO * * * *"` + jobs + `}`, `is no cron expression: "FOO" is no number, and no name of a day or a month`},
		{`{"name": "a", "cron": "0 0 30 2 *"` + jobs + `}`, `never comes: give a day that there is`},
		{`{"name": "a", "cron": "TZ=UTC 0 0 * * *"` + jobs + `}`, `has a time zone: give it in time_zone`},
		{`{"name": "a", "cron": "@every 5s"` + jobs + `}`, `is an interval: write every: 5s`},
		{`{"name": "a", "cron": "@reboot"` + jobs + `}`, `is no cron expression`},
		{`{"name": "a", "cron": "* * * *"` + jobs + `}`, `write minute, hour, day, month and day of the week`},
		{`{"name": "a", "cron": "@daily", "time_zone": "Berlin"` + jobs + `}`, `time_zone (Berlin): is unknown: give an IANA name`},
		{`{"name": "a", "cron": "@daily", "time_zone": "Local"` + jobs + `}`, `time_zone (Local): is unknown`},
		{`{"name": "a", "every": "90s", "time_zone": "UTC"` + jobs + `}`, `time_zone (UTC): is for cron`},
		{`{"name": "a", "every": "90s", "cron": "@daily"` + jobs + `}`, `every (1m30s): cannot be given together with cron`},
		{`{"name": "a", "every": "10ms"` + jobs + `}`, `every (10ms): is out of range: give whole seconds from 1s to 8760h`},
		{`{"name": "a", "every": "1s", "catch_up": "al"` + jobs + `}`, `catch_up (al): is unknown: give none or one or all`},
		{`{"name": "a", "every": "1s", "catch_up": "all"` + jobs + `}`, `give overlap: allow too, or catch_up: one`},
		{`{"name": "a", "every": "1s"}`, `jobs: is missing`},
		{`{"name": "a b", "every": "1s"` + jobs + `}`, `name (a b): is not a name`},
		{`{"name": "a", "every": "1s", "jobs": [{"command": ["true"], "prioty": 3}]}`, `jobs[0].prioty: is not a field of a spec: did you mean priority?`},
		{`{"name": "a", "every": "1s", "jobs": [{"command": ["true"], "external_id": "x"}]}`, `jobs[0].external_id (x): is the name of one job`},
		{`{"name": "a", "every": "1s", "jobs": [{}]}`, `jobs[0].kind: is missing`},
		{`{"name": "a", "cronn": "@daily"` + jobs + `}`, `cronn: is not a field of a schedule: did you mean cron?`},
	} {
		_, err := Parse([]byte(c.doc))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.doc, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v\nwant %s", c.doc, err, c.want)
		case c.want != "" && job.KindOf(err) != job.Invalid:
			t.Errorf("%s: kind %s", c.doc, job.KindOf(err))
		}
	}
}

func FuzzCron(f *testing.F) {
	for _, text := range []string{"0 9 * * MON", "*/5 1-3 L * *", "0 0 0 1 JAN FRI#L", "@daily", "15W * * * *", "0-59/0 * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ts, err := TimesOf(&job.Schedule{Cron: text, TimeZone: "Europe/Berlin"})
		if err != nil {
			return
		}
		at := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
		for _, due := range ts.Next(at, 5) {
			if !due.After(at) {
				t.Fatalf("%q: %v is not after %v", text, due, at)
			}
			at = due
		}
	})
}
