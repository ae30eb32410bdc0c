package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/pawl-jobs/pawl/job"
)

// A cond is a condition in SQL with its arguments.
type cond struct {
	sql  string
	args []any
}

func (c *cond) and(sql string, args ...any) {
	if c.sql != "" {
		c.sql += " AND "
	}
	c.sql += sql
	c.args = append(c.args, args...)
}

// words are the fields of filters that are text, as SQL has them. NULL must not come of any.
var words = map[string]string{
	"state": "j.state", "custody": "j.custody", "kind": "j.kind", "app": "j.app", "owner": "j.owner",
	"queue": "j.queue",
	"name":  "j.name", "external_id": "coalesce(j.external_id, '')", "code": "j.code", "group": "j.grp",
	"message": "j.message",
	"machine": "j.machine", "wish": "j.wish",
	"id": "lower(substr(hex(j.id), 1, 8) || '-' || substr(hex(j.id), 9, 4) || '-' || substr(hex(j.id), 13, 4) || " +
		"'-' || substr(hex(j.id), 17, 4) || '-' || substr(hex(j.id), 21))",
}

// where adds to c that a term holds for the job j with the spec s, just as [job.Filter.Match]
// decides it. It reports whether the spec is looked at.
func (c *cond) where(t *job.Term) (spec bool) {
	if field, ok := t.Arg(); ok {
		list, args := texts(t.ArgsKeys())
		c.and("j.kind <> '"+job.KindApp+"' AND arg_key(s.request, ?) "+in(t.Op)+list, append([]any{field}, args...)...)
		return true
	}
	if key, ok := t.Label(); ok {
		label := `json_extract(s.labels, '$."` + key + `"')` // of a key's characters none means anything there
		switch list, args := texts(t.Values); t.Op {
		case job.Is:
			c.and(label+" IN "+list, args...)
		case job.IsNot:
			c.and("("+label+" IS NULL OR "+label+" NOT IN "+list+")", args...)
		default:
			c.like(label, t.Values)
		}
		return true
	}
	switch t.Field {
	case "created", "ended", "since":
		c.and("j."+t.Field+" "+string(t.Op)+" ?", instantOf(t))
	case "priority", "attempt":
		if t.Op == job.Is || t.Op == job.IsNot {
			list, args := texts(t.Values)
			c.and("CAST(j."+t.Field+" AS TEXT) "+in(t.Op)+list, args...)
		} else {
			c.and("j."+t.Field+" "+string(t.Op)+" CAST(? AS INTEGER)", t.Values[0])
		}
	case "hidden": // says in which indexes to look
	default:
		list, args := texts(t.Values)
		if t.Op == job.Like {
			c.like(words[t.Field], t.Values)
		} else {
			c.and(words[t.Field]+" "+in(t.Op)+list, args...)
		}
	}
	return false
}

// withFunctions gives the databases of this process the function arg_key(request, field), which is
// [job.Spec.ArgsKey] of a field of a request's arguments.
var withFunctions = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction("arg_key", 2,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			var s job.Spec
			if json.Unmarshal([]byte(text(args[0])), &s) != nil {
				return "", nil // what is no spec has no argument
			}
			return s.ArgsKey(text(args[1]))
		})
})

func in(op job.Op) string {
	if op == job.IsNot {
		return "NOT IN "
	}
	return "IN "
}

// like adds that a text fits one of some patterns. In GLOB * and ? mean what they mean in a filter,
// and [ stands for itself in brackets only.
func (c *cond) like(text string, patterns []string) {
	fits := make([]string, len(patterns))
	args := make([]any, len(patterns))
	for i, p := range patterns {
		fits[i], args[i] = text+" GLOB ?", strings.ReplaceAll(p, "[", "[[]")
	}
	c.and("("+strings.Join(fits, " OR ")+")", args...)
}

// texts returns a list of placeholders and its arguments.
func texts(values []string) (list string, args []any) {
	args = make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return marks(len(values)), args
}

func marks(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// instantOf returns the time of a term in microseconds, rounded so that the comparison with whole
// ones comes out right.
func instantOf(t *job.Term) int64 {
	at := t.Time()
	us := at.UnixMicro()
	if (t.Op == job.Less || t.Op == job.AtLeast) && !at.Equal(time.UnixMicro(us)) {
		us++
	}
	return us
}
