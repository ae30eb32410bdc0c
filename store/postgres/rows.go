package postgres

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// The columns of a job, in the order in which row reads them: those of specs s, and those of jobs
// j.
const (
	ofSpec = `s.id, s.tenant, s.owner, s.kind, s.name, s.app, s.queue, s.machine, s.watch, s.priority, s.max_attempts,
		s.created, s.external_id,
		s.parent, s.trace, s.hidden, s.labels`
	ofJob = `j.state, j.custody, j.epoch, j.n, j.lane, j.session, j.claim, j.attempt, j.recoveries, j.suspect,
		j.launch, j.live, j.since,
		j.due, j.ended, j.needs, j.ties, j.limits, j.ordered, j.line, j.passed, j.grp, j.until, j.wish,
			j.wished_by, j.resume, j.code, j.message, j.work, j.result`
	columns = ofSpec + `, ` + ofJob
	// documents are those of specs that may be large.
	documents = `s.request, s.resolved, s.notes`
)

// The two tables of jobs with the columns that ofJob names; any is both. Columns are named, and
// never all that there are: a later version may have added some, with any name.
var (
	// livingRow is a row j of jobs.
	livingRow = `j.id, j.state, j.custody, j.epoch, j.n, j.ord, j.lane, j.session, j.claim, j.attempt,
		j.recoveries, j.suspect, j.launch, j.live,
		j.since, j.due, NULL::timestamptz AS ended, j.needs, j.ties, j.limits, j.ordered, j.line, j.passed,
			j.grp, j.until, j.told, j.wish, j.wished_by, j.resume, j.code, j.message, j.work, j.result`
	living = `SELECT ` + livingRow + ` FROM pawl.jobs j`
	over   = store.SQL(`SELECT id, state, {None}::text AS custody, epoch, n, ord, ''::text AS lane, NULL::uuid AS session,
		NULL::uuid AS claim, attempt,
		recoveries, suspect, launch, false AS live, since, NULL::timestamptz AS due, ended, needs, ties, limits,
			ordered, NULL::text AS line,
		0 AS passed, NULL::text AS grp, NULL::timestamptz AS until, told, ''::text AS wish, wished_by,
		''::text AS resume, code, message, work, result FROM pawl.ended`)
	anyJob = `(` + living + ` UNION ALL ` + over + `)`
	// itsJob and itsSpec join what belongs to a spec s or a job j. OFFSET keeps the planner from
	// turning the join around: a plan that was made while a table was nearly empty must be the
	// right one later.
	itsJob  = `CROSS JOIN LATERAL (SELECT * FROM ` + anyJob + ` a WHERE a.id = s.id OFFSET 0) j`
	itsSpec = `CROSS JOIN LATERAL (SELECT * FROM pawl.specs s WHERE s.id = j.id OFFSET 0) s`
)

// ord is where the events of a transaction stand, unless they follow one of their job that stands
// later.
const ord = `(SELECT e.base FROM pawl.era e) + pg_current_xact_id()::text::bigint`

// row reads the columns of a job.
func (r *reader) row() job.Job {
	var j job.Job
	j.ID, j.Tenant, j.Owner, j.Kind, j.Name, j.App = r.id(), r.text(), r.text(), r.text(), r.text(), r.text()
	j.Queue, j.Machine, j.Watch, j.Priority, j.MaxAttempts = r.text(), r.text(), r.text(), r.int(), r.int()
	j.Created, j.ExternalID, j.Parent, j.Trace, j.Hidden, j.Labels = r.time(), r.text(), r.id(), r.text(), r.bool(),
		r.labels()
	j.State, j.Custody, j.Epoch, j.N = job.State(r.text()), job.Custody(r.text()), r.int64(), r.int64()
	j.Lane, j.Session, j.Claim = job.Lane(r.text()), r.id(), r.id()
	j.Attempt, j.Recoveries, j.Suspect, j.Launch, j.Live = r.int(), r.int(), r.int(), r.int(), r.bool()
	j.Since, j.Due, j.Ended, j.Needs, j.Ties = r.time(), r.time(), r.time(), r.int(), job.Ties(r.int())
	j.Limits, j.Order, j.Line, j.Passed = r.texts(), r.text(), r.text(), r.int()
	j.Group, j.Until = r.text(), r.time()
	j.Wish, j.WishedBy, j.Resume = job.Wish(r.text()), r.text(), job.State(r.text())
	j.Code, j.Message, j.Work, j.Result = job.Code(r.text()), r.text(), r.json(), r.json()
	if j.Custody == job.None {
		j.Lane = job.LaneOf(j.State, j.Program(), j.Suspect)
	}
	return j
}

// whole reads the columns of a job and its documents.
func (r *reader) whole() job.Job {
	j := r.row()
	j.Request, j.Resolved, j.Notes = r.json(), r.json(), r.json()
	return j
}

// Values on their way into the database.

// column makes an array of what f takes from each of s; nil, which stands for as many NULLs, when f
// takes nothing from any.
func column[S, T any](s []S, f func(*S) *T) []*T {
	var list []*T
	for i := range s {
		if v := f(&s[i]); v != nil {
			if list == nil {
				list = make([]*T, len(s))
			}
			list[i] = v
		}
	}
	return list
}

// values makes an array of what f makes of each of s.
func values[S, T any](s []S, f func(*S) T) []T {
	list := make([]T, len(s))
	for i := range s {
		list[i] = f(&s[i])
	}
	return list
}

// anyOf is slices.ContainsFunc for elements that are large.
func anyOf[S any](s []S, f func(*S) bool) bool {
	for i := range s {
		if f(&s[i]) {
			return true
		}
	}
	return false
}

// nonzero returns nil for a value that says nothing.
func nonzero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func document(d json.RawMessage) *string {
	if d == nil {
		return nil
	}
	s := string(d)
	return &s
}

func labelsDocument(m map[string]string) *string {
	if len(m) == 0 {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil // not of a map of strings
	}
	return document(b)
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// arrayText writes a list as PostgreSQL writes an array; nil: there is none.
func arrayText(list []string) *string {
	if len(list) == 0 {
		return nil
	}
	text := strings.Builder{}
	for i, v := range list {
		text.WriteString([]string{"{", ","}[min(i, 1)])
		text.WriteString(`"` + escapes.Replace(v) + `"`)
	}
	text.WriteString("}")
	return nonzero(text.String())
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
