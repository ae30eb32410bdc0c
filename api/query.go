package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// readHeaders are the headers whose text goes on into the service.
var readHeaders = []string{
	"Authorization", "Pawl-Worker", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-Id",
	"X-Request-Id",
}

// checkText refuses a request whose path, query or headers no database takes: they are not UTF-8,
// or have a NUL.
func checkText(r *http.Request) error {
	bad := func(where string) error {
		return withStatus(http.StatusBadRequest,
			invalid(where, "", "is not text: it has a NUL, or is not UTF-8", "send text in UTF-8"))
	}
	if !isText(r.URL.Path) {
		return bad("(path)")
	}
	query, _ := url.ParseQuery(r.URL.RawQuery) // what cannot be parsed is refused where it is used
	for name, values := range query {
		if !isText(name) || slices.ContainsFunc(values, notText) {
			return bad("(query)")
		}
	}
	for _, name := range readHeaders {
		if slices.ContainsFunc(r.Header.Values(name), notText) {
			return bad(name)
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func notText(s string) bool { return !isText(s) }

// checkQuery refuses a query if the service would ignore a part of it: it cannot be read, or a
// parameter is unknown or there twice.
func (h *handler) checkQuery(_ http.ResponseWriter, r *http.Request) error {
	op := callOf(r.Context()).op
	if op.public || r.URL.RawQuery == "" { // who watches over the service may ask as it likes
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("(query)", "", "cannot be read: "+err.Error(),
			"write name=value with & between them, and other signs with % and two hex digits")
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
