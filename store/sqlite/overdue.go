package sqlite

import (
	"context"
	"database/sql/driver"
	"slices"

	"github.com/pawl-jobs/pawl/store"
)

// Overdue implements [store.Reader]. It asks once for each tenant and state until there are enough.
func (s *Store) Overdue(ctx context.Context, q store.OverdueQuery) (o store.Overdue, err error) {
	limit := store.Clamp(q.Limit, 500, 1000)
	from, err := store.ReadEndMark(q.Cursor, true)
	if err != nil {
		return o, err
	}
	rules := slices.SortedFunc(slices.Values(q.Kept), store.Kept.Compare)
	now := s.now()
	for _, k := range rules {
		at := store.EndMark{Of: k.Of(), Ended: k.Since}
		switch k.Compare(from.Of) {
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
			at.Ended, at.Ord = instant(v[0]), v[1].(int64)
		}, k.Tenant, string(k.State), now.Add(-k.For).UnixMicro(), at.Ended.UnixMicro(), at.Ord, int64(limit-len(o.Jobs)),
			k.Kind, keysDocument(q.Own(k)))
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

// overdue reads what ended in a state before a time (?1 to ?3), stands behind a mark (?4, ?5), and
// is of a kind (?7) or, where that is empty, of none of some (?8), in the order of the ends, from
// one index for what is hidden and one for what is not.
const overdue = `SELECT ended, seq, id, kind, machine FROM (
		SELECT ended, seq, id, kind, machine FROM jobs INDEXED BY jobs_ended
			WHERE ended IS NOT NULL AND hidden = 0` + overdueOf + `
		UNION ALL
		SELECT ended, seq, id, kind, machine FROM jobs INDEXED BY jobs_hidden_ended
			WHERE hidden = 1` + overdueOf + `
	) ORDER BY ended, seq LIMIT ?6 + 0`

const overdueOf = ` AND tenant = ?1 AND state = ?2 AND ended < ?3 AND (ended, seq) > (?4, ?5)
			AND iif(?7 = '', kind NOT IN (SELECT value FROM json_each(coalesce(?8, '[]'))), kind = ?7)
			AND NOT EXISTS (SELECT 1 FROM followups f WHERE f.job = jobs.seq)`
