package job

// A Scope says where a filter looks for jobs.
type Scope struct {
	Places  []Place // where jobs may stand that match
	Visible bool    // jobs that are not hidden may match,
	Hidden  bool    // and jobs that are hidden
}

// Scope returns where f looks for jobs: what its terms for state, custody, group and hidden say
// together. Its other terms may leave out any of these jobs.
func (f Filter) Scope() (s Scope) {
	var places, hidden Filter
	for _, t := range f {
		switch t.Field {
		case "state", "custody":
			places = append(places, t)
		case "group":
			if t.Op == Is {
				places = append(places, Where("custody", Is, string(Recovery))...)
			}
		case "hidden":
			hidden = append(hidden, t)
		}
	}
	for _, state := range States {
		for _, custody := range Places(state) {
			if p := (Place{State: state, Custody: custody}); places.Match(&Job{Place: p}) {
				s.Places = append(s.Places, p)
			}
		}
	}
	s.Visible, s.Hidden = hidden.Match(&Job{}), hidden.Match(&Job{Hidden: true})
	return s
}
