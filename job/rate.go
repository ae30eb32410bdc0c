package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The first parts of the keys whose limits are rates: at most so many within any time of a length.
// The code that does what a key stands for asks for a moment first. Moments are handed out evenly.
const (
	RateStarts   = "starts"   // jobs that begin on a system
	RateLaunches = "launches" // programs that are launched there
	RateDials    = "dials"    // connections to its host
	RateReleases = "releases" // jobs that go on when what blocked them is over
)

// Bounds of rates.
const (
	MinPer = time.Millisecond
	MaxPer = 24 * time.Hour
)

// Lateness is how late a moment may be used, unless the job asked for more. Moments lie so far
// apart that no time of the length of Per holds more than Most of them, even if some are used that
// late.
const Lateness = 100 * time.Millisecond

// Rated reports whether the limits of key are rates.
func Rated(key string) bool {
	first, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{RateStarts, RateLaunches, RateDials, RateReleases}, first)
}

// RateOf returns the key of a rate of a system, such as "launches/system/local". what is
// [RateStarts], [RateLaunches] or [RateDials].
func RateOf(what, system string) string { return what + "/" + limitSystem + "/" + system }

// Every returns the time between two moments of the rate l, in whole microseconds.
func (l *Limit) Every() time.Duration {
	most := time.Duration(max(1, l.Most)) * time.Microsecond
	return (time.Duration(l.Per) + Lateness + most - 1) / most * time.Microsecond
}

// Terms says for people how much the rate l lets go: "at most 8 within 2s".
func (l *Limit) Terms() string { return fmt.Sprintf("at most %d within %v", l.Most, l.Per) }

// Tapis returns the rates that Tapis Jobs has for a system: those of its starts, of its launches
// and of the connections to its host.
func Tapis(system string) []Limit {
	return []Limit{
		{Key: RateOf(RateStarts, system), Most: 10, Per: Duration(2 * time.Second)},
		{Key: RateOf(RateLaunches, system), Most: 8, Per: Duration(2 * time.Second)},
		{Key: RateOf(RateDials, system), Most: 8, Per: Duration(4 * time.Second)},
	}
}

// rate checks the fields that only rates have, and those that rates do not have.
func (v *validation) rate(l *Limit, key string) {
	if !Rated(key) {
		if l.Per != 0 {
			v.add("per", l.Per.String(), "has no meaning here",
				"leave it out: only what systems do for programs, and what goes on after a block, has a rate, "+
					"with keys that begin with starts, launches, dials or releases")
		}
		return
	}
	first, rest, _ := strings.Cut(key, "/")
	system, name, _ := strings.Cut(rest, "/")
	family := key != l.Key
	switch {
	case rest == "" && !(family && (first == RateDials || first == RateReleases)):
		v.add("key", l.Key, "names no system", "give one such as "+RateOf(first, SystemLocal))
	case first != RateStarts && first != RateLaunches:
	case system != limitSystem || strings.Contains(name, "/") || (name == "") != family:
		v.add("key", l.Key, "is not the rate of a system", "give "+RateOf(first, SystemLocal)+", or "+
			RateOf(first, "*")+" for each system that has none of its own")
	}
	switch per := time.Duration(l.Per); {
	case per == 0:
		v.add("per", "", "is missing", "say within which time, such as 2s")
	case per < MinPer || per > MaxPer || per%time.Microsecond != 0:
		v.add("per", l.Per.String(), "is out of range",
			fmt.Sprintf("give %v to %v, in whole microseconds", MinPer, MaxPer))
	}
	if l.Most < 1 {
		v.add("most", fmt.Sprint(l.Most), "is too few", "give 1 or more; a limit of 0 for "+limitSystem+
			"/NAME lets no program go")
	}
	if l.Ahead != 0 {
		v.add("ahead", fmt.Sprint(l.Ahead), "has no meaning here", "leave it out")
	}
	if len(l.Weights) > 0 {
		v.add("weights", fmt.Sprintf("%d weights", len(l.Weights)), "have no meaning here", "leave them out")
	}
}

// A Moment is a time that a rate gave to a job and that the job has not used yet. The job waits for
// it in custody gate, and asks for it again shortly before it comes.
type Moment struct {
	Key  string    `json:"key"`
	At   time.Time `json:"at"`   // on the database's clock
	Rate ID        `json:"rate"` // the rate that gave it; another rate does not know it
	Of   int       `json:"of"`   // the number of the attempt or the launch that it is for
	// Late is how much later than usual it may be used.
	Late Duration `json:"late,omitempty"`
	// Next is how late the next moment may be used, if this one is missed. A job that misses
	// moments asks for more room.
	Next Duration `json:"next,omitempty"`
}

// waitsForMoment reports whether a job in state s may wait for a moment in custody gate and keep
// what it has.
func waitsForMoment(s State) bool { return s == ProcessingInputs || s == SubmittingJob }

// Opened returns the state in which j goes on when its gate opens.
func (j *Job) Opened() State {
	if j.State == Waiting {
		return Pending
	}
	return j.State
}

// Moment returns the moment that j was given and has not used. The zero Moment stands for none.
func (j *Job) Moment() Moment {
	var w struct {
		Moment Moment `json:"moment"`
	}
	if json.Unmarshal(j.Work, &w) != nil {
		return Moment{}
	}
	return w.Moment
}

// Keeping returns j.Work with m in it. Work that has no place for it comes
// back unchanged: then the job asks for another moment.
func (j *Job) Keeping(m Moment) json.RawMessage {
	all := map[string]json.RawMessage{}
	if len(j.Work) > 0 && json.Unmarshal(j.Work, &all) != nil {
		return j.Work
	}
	var err error
	if all["moment"], err = json.Marshal(m); err != nil {
		panic(err) // plain data
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // as it was read
	}
	return b
}
