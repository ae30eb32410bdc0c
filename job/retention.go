package job

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Retention says for how long the jobs of a tenant are kept when they have ended. A tenant has
// one; without a document all jobs are kept.
type Retention struct {
	// Its name, which is default: there is one.
	Name string `json:"name" enum:"default" example:"default"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// Nothing is removed.
	Disabled bool `json:"disabled,omitempty"`

	// For how long jobs are kept after their end, from 1h to 87600h (ten years), by the state in
	// which they ended: FINISHED, FAILED or CANCELED. Those of a state that is left out are kept
	// for ever.
	Keep map[State]Duration `json:"keep,omitempty"`
}

// DefaultRetention is the name of the retention of a tenant.
const DefaultRetention = "default"

// The bounds of what a [Retention] says. Within an hour of a job's end all have heard of it: who
// waits for it and reads its result, the jobs behind it, and the watcher, which tidies up behind
// it. Above ten years it is rather a slip.
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
		v.add("name", r.Name, "is not the name of the retention, of which there is one", "give "+DefaultRetention)
	}
	for _, s := range sortedKeys(r.Keep) {
		at := member("keep", string(s))
		switch d := time.Duration(r.Keep[s]); {
		case !slices.Contains(Ends, s):
			v.add(at, "", "is not a state in which jobs end", "give "+endings())
		case d < leastKept || d > mostKept:
			v.add(at, r.Keep[s].String(), "is out of range",
				fmt.Sprintf("give from %gh to %gh, or leave it out to keep them for ever", leastKept.Hours(),
					mostKept.Hours()))
		}
	}
	return r, v.err()
}

// endings names the states in which jobs end.
func endings() string {
	words := make([]string, len(Ends))
	for i, s := range Ends {
		words[i] = string(s)
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
