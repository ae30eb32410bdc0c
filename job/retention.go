package job

import (
	"fmt"
	"slices"
	"time"
)

// A Retention says how long the jobs of a tenant are kept after their end. A tenant has one.
// Without a document all jobs are kept.
type Retention struct {
	// The name: default. A tenant has one retention.
	Name string `json:"name" enum:"default" example:"default"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// No job is removed.
	Disabled bool `json:"disabled,omitempty"`

	// How long jobs are kept after their end, from 1h to 87600h (ten years). The keys are the
	// states in which jobs end: FINISHED, FAILED and CANCELED. Jobs of a state that is left out are
	// kept for ever. A kind of task may have times of its own: see its document.
	Keep map[State]Duration `json:"keep,omitempty"`
}

// DefaultRetention is the name of the retention that a tenant has.
const DefaultRetention = "default"

// The bounds of a [Retention]. Within an hour of the end of a job everybody has heard of it: the
// caller that waits for its result, the jobs behind it, and the watcher that tidies up. More than
// ten years is likely to be a slip.
const (
	leastKept = time.Hour
	mostKept  = 10 * 365 * 24 * time.Hour
)

// ParseRetention reads the document of a retention; see [ParseSpec] for its errors.
func ParseRetention(doc []byte) (Retention, error) {
	var r Retention
	if err := parseResource(doc, &r, KindRetention); err != nil {
		return r, err
	}
	var v validation
	v.resource(r.Name, r.Description)
	if r.Name != "" && r.Name != DefaultRetention {
		v.add("name", r.Name, "is unknown, for there is only one retention", "give "+DefaultRetention)
	}
	v.keep(r.Keep)
	return r, v.err()
}

// CheckKeep reports what is wrong with the field keep of a document.
func CheckKeep(keep map[State]Duration) error {
	var v validation
	v.keep(keep)
	return v.err()
}

func (v *validation) keep(keep map[State]Duration) {
	for _, s := range sortedKeys(keep) {
		at := member("keep", string(s))
		switch d := time.Duration(keep[s]); {
		case !slices.Contains(Ends, s):
			v.add(at, "", "is not a state in which jobs end", "give one of "+join(Ends))
		case d < leastKept || d > mostKept:
			v.add(at, keep[s].String(), "is out of range",
				fmt.Sprintf("give from %gh to %gh, or leave it out to keep them for ever", leastKept.Hours(),
					mostKept.Hours()))
		}
	}
}
