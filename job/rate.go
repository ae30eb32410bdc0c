package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The first parts of keys whose limits are rates: at most so many within any time of a length.
// Whoever does what a key stands for asks for a moment first; moments are handed out evenly.
const (
	RateStarts   = "starts"   // jobs that begin on a system
	RateLaunches = "launches" // programs that are launched there
	RateDials    = "dials"    // connections to its host; nothing asks for these yet
	RateReleases = "releases" // jobs that go on when what blocked them is over
)

// Bounds of rates.
const (
	MinPer = time.Millisecond
	MaxPer = 24 * time.Hour
)

// Lateness is by how much a moment may be missed where nobody asks for more: moments are so far
// apart that no time of the length of Per holds more than Most of those that are used up to this
// late.
const Lateness = 100 * time.Millisecond

// Rated reports whether a limit of a key is a rate.
func Rated(key string) bool {
	first, _, _ := strings.Cut(key, "/")
	return slices.Contains([]string{RateStarts, RateLaunches, RateDials, RateReleases}, first)
}

// RateOf returns the key of the moments at which programs begin, or are launched, on a system.
func RateOf(what, system string) string { return what + "/" + limitSystem + "/" + system }

// Every returns how far moments under the rate l are apart, in whole microseconds.
func (l *Limit) Every() time.Duration {
	most := time.Duration(max(1, l.Most)) * time.Microsecond
	return (time.Duration(l.Per) + Lateness + most - 1) / most * time.Microsecond
}

// Terms says how many a rate lets go, for people.
func (l *Limit) Terms() string { return fmt.Sprintf("at most %d within %v", l.Most, l.Per) }

// Tapis returns the rates that Tapis Jobs has for a system: its starts, its launches, and the
// connections to its host.
func Tapis(system string) []Limit {
	return []Limit{
		{Key: RateOf(RateStarts, system), Most: 10, Per: Duration(2 * time.Second)},
		{Key: RateOf(RateLaunches, system), Most: 8, Per: Duration(2 * time.Second)},
		{Key: RateOf(RateDials, system), Most: 8, Per: Duration(4 * time.Second)},
	}
}

// rate checks what only rates have, and what they have not.
func (v *validation) rate(l *Limit, key string) {
	if !Rated(key) {
		if l.Per != 0 {
			v.add("per", l.Per.String(), "has no meaning here",
				"give it for keys that begin with starts, launches, dials or releases")
		}
		return
	}
	first, rest, _ := strings.Cut(key, "/")
	system, name, _ := strings.Cut(rest, "/")
	family := key != l.Key
	switch {
	case rest == "" && !(family && (first == RateDials || first == RateReleases)):
		v.add("key", l.Key, "does not say of what", "give one such as "+RateOf(first, SystemLocal))
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

// A Moment is one that a job was given and has not used: it waits for it in custody gate, and asks
// for it again when it is near.
type Moment struct {
	Key  string    `json:"key"`
	At   time.Time `json:"at"`   // on the database's clock
	Rate ID        `json:"rate"` // under which it was given: another one does not know it
	Of   int       `json:"of"`   // the number of the attempt that begins then, or of the launch
	// Late is how much later than [Lateness] it may be used, and Next with how much room to ask for
	// another one: who missed some needs it.
	Late Duration `json:"late,omitempty"`
	Next Duration `json:"next,omitempty"`
}

// waitsForMoment reports whether a job in state s may wait in custody gate for a moment, with what
// it has.
func waitsForMoment(s State) bool { return s == ProcessingInputs || s == SubmittingJob }

// Opened returns the state in which j goes on when its gate opens.
func (j *Job) Opened() State {
	if j.State == Waiting {
		return Pending
	}
	return j.State
}

// Moment returns the moment that j was given; zero: none.
func (j *Job) Moment() Moment {
	var w struct {
		Moment Moment `json:"moment"`
	}
	if json.Unmarshal(j.Work, &w) != nil {
		return Moment{}
	}
	return w.Moment
}

// Keeping returns the notes of j's kind with a moment among them.
func (j *Job) Keeping(m Moment) json.RawMessage {
	all := map[string]json.RawMessage{}
	if len(j.Work) > 0 && json.Unmarshal(j.Work, &all) != nil {
		return j.Work // notes of a form that has no place for it: it asks for another one
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
