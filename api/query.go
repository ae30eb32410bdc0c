package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/pawl-jobs/pawl/job"
)

// checkQuery refuses a query of which a part would be passed over: one that cannot be read, or has a parameter that is
// unknown, or stands there twice.
func (h *handler) checkQuery(_ http.ResponseWriter, r *http.Request) error {
	op := callOf(r.Context()).op
	if op.public || r.URL.RawQuery == "" { // who watches over the service may ask as it likes
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("(query)", "", "cannot be read: "+err.Error(), "write name=value with & between them, and other signs with % and two hex digits")
	}
	var wrong job.SpecError
	for _, name := range slices.Sorted(maps.Keys(query)) {
		p := job.Problem{Path: name, What: "is not a parameter of " + op.method + " " + op.path, Remedy: "remove it"}
		switch {
		case slices.Contains(op.queries, name) && len(query[name]) == 1:
			continue
		case slices.Contains(op.queries, name):
			p.What, p.Remedy = "stands there twice", "give it once"
		default:
			if n := job.Nearest(name, op.queries...); n != "" {
				p.Remedy = "did you mean " + n + "?"
			}
		}
		wrong.Problems = append(wrong.Problems, p)
	}
	if wrong.Problems != nil {
		return &wrong
	}
	return nil
}
