package sqlite

import (
	"context"
	"database/sql/driver"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Overdue implements [store.Reader]. It asks once for each tenant and state until there are enough.
func (s *Store) Overdue(ctx context.Context, q store.OverdueQuery) (o store.Overdue, err error) {
	limit := store.Clamp(q.Limit, 500, 1000)
	var from end
	if q.Cursor != "" {
		if from, err = readEnd(q.Cursor); err != nil {
			return o, err
		}
	}
	rules := slices.SortedFunc(slices.Values(q.Kept), store.Kept.Compare)
	now := s.now()
	for _, k := range rules {
		at := end{of: k}
		switch k.Compare(from.of) {
		case -1:
			continue // the cursor has passed it
		case 0:
			at = from
		}
		err := s.query(ctx, overdue, 5, func(v []driver.Value) {
			o.Jobs = append(o.Jobs, store.Ended{
				ID: id(v[2]), Tenant: k.Tenant, State: k.State, Kind: text(v[3]),
				Machine: text(v[4]),
			})
			at.ended, at.seq = v[0].(int64), v[1].(int64)
		}, k.Tenant, string(k.State), now.Add(-k.For).UnixMicro(), at.ended, at.seq, int64(limit-len(o.Jobs)))
		if err != nil {
			return store.Overdue{}, err
		}
		if len(o.Jobs) == limit {
			o.Next = at.String()
			break
		}
	}
	return o, nil
}

// overdue reads what ended in a state before a time (?1 to ?3) and stands behind a mark (?4, ?5),
// in the order of the ends, from one index for what is hidden and one for what is not.
const overdue = `SELECT ended, seq, id, kind, machine FROM (
		SELECT ended, seq, id, kind, machine FROM jobs INDEXED BY jobs_ended WHERE ended IS NOT NULL
			AND hidden = 0` + overdueOf + `
		UNION ALL
		SELECT ended, seq, id, kind, machine FROM jobs INDEXED BY jobs_hidden_ended WHERE hidden = 1` + overdueOf + `
	) ORDER BY ended, seq LIMIT ?6`

const overdueOf = ` AND tenant = ?1 AND state = ?2 AND ended < ?3 AND (ended, seq) > (?4, ?5)
			AND NOT EXISTS (SELECT 1 FROM followups f WHERE f.job = jobs.seq)`

// An end is where a job stands among those that have ended; its zero is before all of them. As text
// it is the cursor.
type end struct {
	of         store.Kept // its tenant and state
	ended, seq int64
}

func (e end) String() string {
	parts := []string{string(e.of.State), strconv.FormatInt(e.ended, 36), strconv.FormatInt(e.seq, 36), e.of.Tenant}
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
}

func readEnd(cursor string) (e end, err error) {
	wrong := job.Errorf(job.Invalid, "%.60q is not a cursor of jobs that are kept no longer: pass the one from "+
		"the answer before, or none", cursor)
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(b), "\n", 4)
	if err != nil || len(parts) != 4 {
		return e, wrong
	}
	ended, err := strconv.ParseInt(parts[1], 36, 64)
	if err != nil {
		return e, wrong
	}
	seq, err := strconv.ParseInt(parts[2], 36, 64)
	if err != nil {
		return e, wrong
	}
	return end{store.Kept{Tenant: parts[3], State: job.State(parts[0])}, ended, seq}, nil
}
