package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// KindSchedule is the kind of document that submits jobs on a clock.
const KindSchedule = "schedule"

// A Schedule submits jobs again and again: at the times of a cron expression, or at an interval.
type Schedule struct {
	// The name of the schedule. A job without a name is called so.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"weekly"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// In whose name its jobs are submitted; the user who applies it by default. Another user only by
	// the user of the service.
	Owner string `json:"owner,omitempty" maxLength:"128"`

	// It submits nothing. What was due meanwhile is not caught up.
	Disabled bool `json:"disabled,omitempty"`

	// When jobs are due, as in crontab: minute, hour, day of the month, month and day of the week; six
	// fields begin with the second. There are names such as MON and JAN, @hourly, @daily, @weekly,
	// @monthly and @yearly, L for the last day of a month, and MON#1 for its first Monday.
	Cron string `json:"cron,omitempty" maxLength:"256" example:"0 9 * * MON"`

	// In place of cron: the time from one due time to the next, from 1s to 8760h. The first one is
	// that long after the schedule was made.
	Every Duration `json:"every,omitempty" example:"90s"`

	// The time zone of cron, by its IANA name; UTC by default. A time that a clock change skips is due
	// when the clock has changed, and one that comes twice is due the first time. What is due in every
	// hour is due as often as there are hours.
	TimeZone string `json:"time_zone,omitempty" maxLength:"64" example:"Europe/Berlin"`

	// What becomes of due times that were missed, because no process ran. none: they are dropped. one:
	// jobs are submitted once for all of them. all: they are submitted for each one, the last 100 at
	// most. A due time is missed after a minute.
	CatchUp string `json:"catch_up,omitempty" enum:"none,one,all" default:"one"`

	// What happens if a job is due and the one before has not ended. skip: it is not submitted. allow:
	// it is. catch_up all needs allow.
	Overlap string `json:"overlap,omitempty" enum:"skip,allow" default:"skip"`

	// The revision of what declares it, for programs: one with a lower revision does not replace it.
	Revision int `json:"revision,omitempty" minimum:"0" maximum:"1000000000"`

	// The jobs that each due time submits, all or none: specs as in a job file.
	Jobs []Given `json:"jobs" minItems:"1" maxItems:"100"`
}

// Given is a spec as its author wrote it, as JSON.
type Given json.RawMessage

// MarshalJSON implements [json.Marshaler].
func (g Given) MarshalJSON() ([]byte, error) { return json.RawMessage(g).MarshalJSON() }

// UnmarshalJSON implements [json.Unmarshaler].
func (g *Given) UnmarshalJSON(text []byte) error { return (*json.RawMessage)(g).UnmarshalJSON(text) }

// The values of [Schedule.CatchUp] and [Schedule.Overlap].
const (
	CatchUpNone  = "none"
	CatchUpOne   = "one"
	CatchUpAll   = "all"
	OverlapSkip  = "skip"
	OverlapAllow = "allow"
)

// MostCaughtUp is how many missed due times [CatchUpAll] submits at most.
const MostCaughtUp = 100

// The labels of jobs that a schedule submitted: its name, and when they were due, in RFC 3339.
const (
	LabelSchedule = "pawl/schedule"
	LabelDue      = "pawl/due"
)

// The bounds of a [Schedule].
const (
	maxSchedule = 1 << 20 // bytes of its document
	maxDueJobs  = 100
	leastEvery  = time.Second
	mostEvery   = 8760 * time.Hour
)

// ParseSchedule reads the document of a schedule; see [ParseSpec] for its errors. It leaves the
// cron expression and the time zone to package schedule.
func ParseSchedule(doc []byte) (Schedule, error) {
	var s Schedule
	if len(doc) > maxSchedule {
		return s, problem("(schedule)", fmt.Sprintf("%d bytes", len(doc)), "is too large",
			fmt.Sprintf("keep it to %d bytes", maxSchedule))
	}
	if err := Parse(doc, &s, "a schedule", `cron: "0 9 * * MON"`); err != nil {
		return s, err
	}
	var v validation
	v.resource(s.Name, s.Description)
	v.text("owner", s.Owner, 128)
	every := time.Duration(s.Every)
	switch {
	case s.Cron != "" && every != 0:
		v.add("every", s.Every.String(), "cannot be given together with cron", "give one of them")
	case s.Cron == "" && every == 0:
		v.add("cron", "", "is missing", `say when jobs are due: cron: "0 9 * * MON", or every: 90s, from 1s to 8760h`)
	case every != 0 && (every < leastEvery || every > mostEvery || every%time.Second != 0):
		v.add("every", s.Every.String(), "is out of range", "give whole seconds from 1s to 8760h")
	}
	if s.TimeZone != "" && s.Cron == "" {
		v.add("time_zone", s.TimeZone, "is for cron", "remove it: an interval is the same in every zone")
	}
	if s.Revision < 0 || s.Revision > 1e9 {
		v.add("revision", strconv.Itoa(s.Revision), "is out of range", "give 0 to 1000000000")
	}
	v.oneOf("catch_up", s.CatchUp, CatchUpNone, CatchUpOne, CatchUpAll)
	v.oneOf("overlap", s.Overlap, OverlapSkip, OverlapAllow)
	if s.CatchUp == CatchUpAll && s.Overlap != OverlapAllow {
		v.add("catch_up", s.CatchUp, "submits several jobs at once, which overlap",
			"give overlap: allow too, or catch_up: one")
	}
	if n := len(s.Jobs); n == 0 {
		v.add("jobs", "", "is missing", "give the jobs to submit, such as jobs: [{command: [date]}]")
	} else if n > maxDueJobs {
		v.add("jobs", fmt.Sprint(n), "are too many", fmt.Sprintf("give up to %d", maxDueJobs))
	}
	v.dueJobs(&s, (*Spec).Validate)
	return s, v.err()
}

// CheckJobs checks the specs of a schedule with check, as [ReadSpec] does.
func (s *Schedule) CheckJobs(check func(*Spec) error) error {
	var v validation
	v.dueJobs(s, check)
	return v.err()
}

func (v *validation) dueJobs(s *Schedule, check func(*Spec) error) {
	for i, given := range s.Jobs {
		at := "jobs[" + strconv.Itoa(i) + "]"
		spec, err := ReadSpec(given, check)
		var wrong *SpecError
		switch {
		case errors.As(err, &wrong):
			for _, p := range wrong.Problems {
				p.Path = at + "." + p.Path
				v.found.Add(p)
			}
		case err != nil:
			v.add(at, "", err.Error(), "correct it")
		case spec.Owner != "":
			v.add(at+".owner", spec.Owner, "is not of one job alone", "give owner beside jobs, for all of them")
		case spec.ExternalID != "":
			v.add(at+".external_id", spec.ExternalID, "is the name of one job", "remove it: each due time makes another one")
		case !spec.NotBefore.IsZero():
			v.add(at+".not_before", spec.NotBefore.Format(time.RFC3339), "is a time of its own", "remove it, or give delay")
		case len(spec.Labels) > MaxLabels-2:
			v.add(at+".labels", fmt.Sprint(len(spec.Labels)), "are too many beside those of the schedule",
				fmt.Sprintf("give up to %d", MaxLabels-2))
		}
	}
}

// oneOf reports a word that is none of those that are known; the empty one is the default.
func (v *validation) oneOf(path, word string, known ...string) {
	for _, k := range known {
		if word == k {
			return
		}
	}
	if word != "" {
		remedy := "give " + known[0]
		for _, k := range known[1:] {
			remedy += " or " + k
		}
		v.add(path, word, "is unknown", remedy)
	}
}

// Due returns the specs that the schedule submits for a due time, as they are given in its document
// and with the labels that tell of it. The zero time stands for a submission in between.
func (s *Schedule) Due(at time.Time) ([]json.RawMessage, error) {
	specs := make([]json.RawMessage, len(s.Jobs))
	for i, given := range s.Jobs {
		fields, err := ParseObject(given)
		if err != nil {
			return nil, err
		}
		if fields["name"] == nil {
			name := s.Name
			if len(s.Jobs) > 1 {
				name += "-" + strconv.Itoa(i+1)
			}
			fields["name"] = name
		}
		labels, _ := fields["labels"].(map[string]any)
		own := map[string]any{LabelSchedule: s.Name}
		if !at.IsZero() {
			own[LabelDue] = at.UTC().Format(time.RFC3339)
		}
		fields["labels"] = Merge(labels, own)
		if specs[i], err = Encode(fields); err != nil {
			return nil, err
		}
	}
	return specs, nil
}
