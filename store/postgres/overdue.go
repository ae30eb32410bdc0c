package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Overdue implements [store.Reader].
func (s *Store) Overdue(ctx context.Context, q store.OverdueQuery) (o store.Overdue, err error) {
	limit := store.Clamp(q.Limit, 500, 1000)
	from, err := store.ReadEndMark(q.Cursor, false)
	if err != nil {
		return o, err
	}
	rules := slices.SortedFunc(slices.Values(q.Kept), store.Kept.Compare)
	rules = slices.DeleteFunc(rules, func(k store.Kept) bool { return k.Compare(from.Of) < 0 })
	if len(rules) == 0 {
		return o, nil
	}
	froms := make([]store.EndMark, len(rules))
	for i, k := range rules {
		if froms[i].Ended = k.Since; k.Compare(from.Of) == 0 {
			froms[i] = from
		}
	}
	var last store.EndMark
	err = s.call(ctx, everyone, func(t *tx) error {
		o, last = store.Overdue{}, store.EndMark{}
		return t.commit(read(overdue, func(r *reader) error {
			j := store.Ended{Tenant: r.text(), State: job.State(r.text()), Kind: r.text(), Machine: r.text()}
			last = store.EndMark{Of: store.Kept{Tenant: j.Tenant, State: j.State, Kind: r.text()}, Ended: r.time()}
			last.Position = store.PositionOf(r.time(), r.id())
			j.ID = last.Job
			o.Jobs = append(o.Jobs, j)
			return nil
		},
			values(rules, func(k *store.Kept) string { return k.Tenant }), values(rules,
				func(k *store.Kept) string { return string(k.State) }),
			values(rules, func(k *store.Kept) time.Duration { return k.For }), values(froms,
				func(m *store.EndMark) time.Time { return m.Ended }),
			values(froms, func(m *store.EndMark) time.Time { return m.Created() }), values(froms,
				func(m *store.EndMark) [16]byte { return m.Job }), limit,
			values(rules, func(k *store.Kept) string { return k.Kind }),
			values(rules, func(k *store.Kept) string { return strings.Join(q.Own(*k), " ") })))
	})
	if err != nil {
		return store.Overdue{}, err
	}
	if len(o.Jobs) == limit {
		o.Next = last.String()
	}
	return o, nil
}

// overdue goes from rule to rule ($1 to $3, in their order) and reads what ended before the time
// that each says, stands behind its mark ($4 to $6), and is of its kind ($8) or, where that is
// empty, of none of some others ($9), in the order of the ends, from one index for what is hidden
// and one for what is not, until there are enough ($7). OFFSET keeps the planner from turning joins
// around, and from reading all follow-ups.
const overdue = `
SELECT r.tenant, r.state, e.kind, e.machine, r.kind, e.ended, e.created, e.id
FROM (
	SELECT u.*, (SELECT pawl.clock()) - u.keep AS before
	FROM unnest($1::text[], $2::text[], $3::interval[], $4::timestamptz[], $5::timestamptz[],
		$6::uuid[], $8::text[], $9::text[]) WITH ORDINALITY u (tenant, state, keep, ended, created, id, kind, own, nr)
	ORDER BY u.nr OFFSET 0
) r CROSS JOIN LATERAL (
	SELECT x.* FROM (
		(` + overdueOf + ` AND NOT e.hidden ORDER BY e.ended, e.created, e.id LIMIT $7)
		UNION ALL
		(` + overdueOf + ` AND e.hidden ORDER BY e.ended, e.created, e.id LIMIT $7)
	) x ORDER BY x.ended, x.created, x.id LIMIT $7
) e
ORDER BY r.nr, e.ended, e.created, e.id LIMIT $7`

const overdueOf = `SELECT e.ended, e.created, e.id, s.kind, s.machine FROM pawl.ended e
	CROSS JOIN LATERAL (SELECT s.kind, s.machine FROM pawl.specs s WHERE s.id = e.id OFFSET 0) s
	WHERE e.tenant = r.tenant AND e.state = r.state AND e.ended < r.before
		AND (e.ended, e.created, e.id) > (r.ended, r.created, r.id)
		AND CASE WHEN r.kind = '' THEN s.kind <> ALL (string_to_array(r.own, ' ')) ELSE s.kind = r.kind END
	AND NOT EXISTS (SELECT FROM pawl.followups f WHERE f.job = e.id OFFSET 0)`
