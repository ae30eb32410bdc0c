// Package readiness says what a check of readiness has found. With names it names what the service
// has and works for; without, it only counts, for a reader who has shown no token.
package readiness

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/store"
)

// mostToldOf is how many lines are named that nobody serves, and machines where nobody watches.
const mostToldOf = 10

// Unattended tells of work that waits for others. err is why that is not known.
func Unattended(all *store.Unattended, err error, names bool) []api.Check {
	checks := []api.Check{unserved(all.Unserved, err, names), unwatched(all.Unwatched, err, names)}
	if len(all.Open) > 0 {
		checks = append(checks, open(all.Open, names))
	}
	return checks
}

// open tells of transactions for whose end others wait.
func open(all []store.OpenTransaction, names bool) api.Check {
	which := "this path on the socket of the data folder names them"
	if names {
		which = Named(all, transaction) + "; SELECT pg_terminate_backend(PID) ends one"
	}
	return api.Check{Name: "transactions", Degraded: true, Err: fmt.Errorf("equal jobs and readers of events wait for "+
		"%s with jobs in the database, open for more than %v: commit or roll back: %s",
		phrase.Plural(len(all), "transaction"), store.LongOpen, which)}
}

// transaction names a transaction.
func transaction(o store.OpenTransaction) string {
	name := fmt.Sprintf("pid %d", o.PID)
	if o.Application != "" {
		name += fmt.Sprintf(" of %q", o.Application)
	}
	return name + ", since " + o.Since.UTC().Format(time.RFC3339)
}

// unserved tells of jobs that are ready where nobody claims them.
func unserved(lines []store.Unserved, err error, names bool) api.Check {
	c := api.Check{Name: "workers", Degraded: true}
	switch {
	case err != nil:
		c.Err = err
	case len(lines) == 0:
		c.Degraded = false
	case names:
		c.Err = fmt.Errorf("no live process claims the jobs of: %s", Named(lines, line))
	default:
		c.Err = fmt.Errorf("no live process claims the jobs of %s: /metrics names them to a caller with a token "+
			"(pawl_jobs_unserved), "+
			"and so does this path on the socket of the data folder", phrase.Plural(len(lines), "line"))
	}
	return c
}

// line names a line that nobody serves.
func line(u store.Unserved) string {
	name := fmt.Sprintf("queue %s, kind %s", u.QueueKind.Queue, u.QueueKind.Kind)
	if u.Machine != "" {
		name += ", machine " + u.Machine
	}
	count := fmt.Sprint(u.Jobs)
	if u.Jobs == store.MostUnserved {
		count += " or more"
	}
	return fmt.Sprintf("%s (%s ready, since %s)", name, count, u.Since.Format(time.RFC3339))
}

// Named names the first of a list, and says how many more there are.
func Named[T any](list []T, name func(T) string) string {
	var all []string
	for _, v := range list[:min(len(list), mostToldOf)] {
		all = append(all, name(v))
	}
	if more := len(list) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// unwatched tells of programs that nobody looks after.
func unwatched(watches []store.Unwatched, err error, names bool) api.Check {
	c := api.Check{Name: "watches", Degraded: true}
	switch {
	case err != nil:
		c.Err = err
	case len(watches) == 0:
		c.Degraded = false
	case names:
		c.Err = fmt.Errorf("no live process watches the programs of %s",
			Named(watches, func(u store.Unwatched) string {
				return fmt.Sprintf("%s (%s)", u.Watch, phrase.Plural(u.Jobs, "job"))
			}))
	default:
		c.Err = fmt.Errorf("no live process watches the programs of %s: /metrics names them to a caller with a "+
			"token (pawl_jobs_unwatched), "+
			"and so does this path on the socket of the data folder", phrase.Plural(len(watches), "place"))
	}
	return c
}
