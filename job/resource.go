package job

import "fmt"

// The kinds of resource.
const (
	KindQueue     = "queue"
	KindSystem    = "system"
	KindRetention = "retention"
	KindPolicy    = "policy"
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

// A System is a place where programs run. The system "local" is the machine on which the service
// runs. It is there without a document.
type System struct {
	// The name of the system.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"lab"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// Nothing is launched on it: its jobs wait until it is enabled. Programs that run go on.
	Disabled bool `json:"disabled,omitempty"`

	// The machine on which its programs run.
	Host Host `json:"host,omitzero"`

	// The most that one job may ask for. A job that asks for more is refused. A field that is left
	// out has no bound.
	Most *Resources `json:"most,omitempty"`
}

// A Host says how the machine of a [System] is reached.
type Host struct {
	// How it is reached. local is the machine on which the service runs.
	Kind string `json:"kind,omitempty" enum:"local" default:"local"`
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

// ParseSystem reads the document of a system; see [ParseSpec] for its errors.
func ParseSystem(doc []byte) (System, error) {
	var s System
	if err := parseResource(doc, &s, KindSystem); err != nil {
		return s, err
	}
	var v validation
	v.resource(s.Name, s.Description)
	if s.Host.Kind == "" {
		s.Host.Kind = SystemLocal
	}
	if s.Host.Kind != SystemLocal {
		v.add("host.kind", s.Host.Kind, "is unknown", "give "+SystemLocal)
	}
	if s.Most != nil {
		v.within("most.", s.Most)
	}
	return s, v.err()
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

// Refuse returns a problem for each field in which r asks for more than s gives to one job.
func (s *System) Refuse(r *Resources) []Problem {
	if s.Most == nil || r == nil {
		return nil
	}
	var problems []Problem
	over := func(field string, asked, most float64, text string) {
		if most > 0 && asked > most {
			problems = append(problems, Problem{"resources." + field, "", "is more than system " + s.Name +
				" gives to one job", "give up to " + text})
		}
	}
	m := s.Most
	over("nodes", float64(r.Nodes), float64(m.Nodes), fmt.Sprint(m.Nodes))
	over("tasks", float64(r.Tasks), float64(m.Tasks), fmt.Sprint(m.Tasks))
	over("cores", float64(r.Cores), float64(m.Cores), fmt.Sprint(m.Cores))
	over("gpus", float64(r.GPUs), float64(m.GPUs), fmt.Sprint(m.GPUs))
	over("memory", float64(r.Memory), float64(m.Memory), m.Memory.String())
	over("minutes", r.Minutes, m.Minutes, fmt.Sprint(m.Minutes))
	return problems
}
