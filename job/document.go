package job

import "fmt"

// The kinds of document, beside [KindSchedule]. Stores call a document a resource.
const (
	KindQueue     = "queue"
	KindSystem    = "system"
	KindRetention = "retention"
	KindPolicy    = "policy"
	KindTask      = "kind" // of task
)

// A Queue is a name under which jobs wait for workers. The queue "default" is there without a
// document.
type Queue struct {
	// The name of the queue.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"night"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// It takes no new jobs. The jobs that it has go on.
	Disabled bool `json:"disabled,omitempty"`

	// How many jobs may wait in it. A submission beyond that is refused with status 429. By default
	// there is no bound.
	MaxWaiting int `json:"max_waiting,omitempty" minimum:"0" maximum:"10000000"`
}

// ParseQueue reads the document of a queue; see [ParseSpec] for its errors.
func ParseQueue(doc []byte) (Queue, error) {
	var q Queue
	if err := parseResource(doc, &q, KindQueue); err != nil {
		return q, err
	}
	var v validation
	v.resource(q.Name, q.Description)
	if q.MaxWaiting < 0 || q.MaxWaiting > 10_000_000 {
		v.add("max_waiting", fmt.Sprint(q.MaxWaiting), "is out of range", "give up to 10000000, or 0 for no bound")
	}
	return q, v.err()
}

func parseResource(doc []byte, into any, kind string) error {
	const limit = 64 << 10
	if len(doc) > limit {
		return problem("("+kind+")", fmt.Sprintf("%d bytes", len(doc)), "is too large",
			fmt.Sprintf("keep it to %d bytes", limit))
	}
	return Parse(doc, into, "a "+kind, "name: night")
}

func (v *validation) resource(name, description string) {
	if name == "" {
		v.add("name", "", "is missing", "give a name")
	}
	v.name("name", name, 64)
	if len(description) > 2048 {
		v.add("description", fmt.Sprintf("%d bytes", len(description)), "is too long", "keep it to 2048 bytes")
	}
}
