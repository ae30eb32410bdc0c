package sqlite

import (
	"database/sql/driver"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// oweLine owes a look at what groups leave a line.
func (t *tx) oweLine(at spot, eff *store.Effects) error {
	eff.Owed = true
	delete(t.w.limits, at.tenant)
	_, err := t.run(`INSERT INTO lines (tenant, key, owed) VALUES (?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE
		SET owed = coalesce(owed, excluded.owed)`,
		at.tenant, at.key, micros(t.now))
	return err
}

// payLines gives up to limit lines the places that groups leave them, and returns how many: see
// [groups.Group].
func (t *tx) payLines(limit int, eff *store.Effects) (int, error) {
	var owed []spot
	err := t.query(`SELECT tenant, key FROM lines WHERE owed IS NOT NULL ORDER BY owed, tenant, key LIMIT ? + 0`,
		func(v []driver.Value) error {
			owed = append(owed, spot{text(v[0]), text(v[1])})
			return nil
		}, int64(max(0, limit)))
	for _, at := range owed {
		if err == nil {
			err = t.payLine(at, eff)
		}
	}
	return len(owed), err
}

func (t *tx) payLine(at spot, eff *store.Effects) error {
	all, err := t.limitsOf(at.tenant)
	if err != nil {
		return err
	}
	places, err := t.placesOf(at)
	if err != nil {
		return err
	}
	if places > 0 {
		enough, err := t.openLine(at, places, all)
		if err != nil {
			return err
		}
		if enough {
			places = -1
		}
	}
	_, shut := all.shut[at.key]
	switch {
	case places >= 0:
		if all.deciding(at.key) == nil {
			err = t.oweWalk(at.tenant, at.key, eff)
		}
		if err == nil {
			_, err = t.exec(`UPDATE lines SET places = ?, owed = NULL WHERE tenant = ? AND key = ?`, int64(places),
				at.tenant, at.key)
		}
	case shut && all.set[at.key] == nil:
		_, err = t.exec(`DELETE FROM walks WHERE tenant = ? AND key = ?`, at.tenant, at.key)
		fallthrough
	default:
		if err == nil {
			_, err = t.exec(`DELETE FROM lines WHERE tenant = ? AND key = ?`, at.tenant, at.key)
		}
	}
	if err != nil {
		return err
	}
	delete(t.w.limits, at.tenant)
	return t.changed(at.tenant, at.key, eff)
}

// placesOf returns how many places groups leave a line; negative: none closes it.
func (t *tx) placesOf(at spot) (places int, err error) {
	places = -1
	err = t.query(`SELECT places FROM groups INDEXED BY groups_line WHERE places >= 0 AND tenant = ?
		AND line = ? ORDER BY places LIMIT 1`, func(v []driver.Value) error {
		places = integer(v[0])
		return nil
	}, at.tenant, at.key)
	return places, err
}

// openLine opens a line wholly to which groups leave some places, where the limit has no more, or
// nobody waits for one.
func (t *tx) openLine(at spot, places int, all limits) (bool, error) {
	set := deciding(all.set, at.key)
	if set == nil || set.Most > places {
		if _, walks := all.walks[at.key]; walks {
			return false, nil
		}
		if waited, err := t.waited(at.tenant, []string{at.key, job.AheadOf(at.key)}); len(waited) > 0 || err != nil {
			return false, err
		}
	}
	groups, err := t.groups(`SELECT tenant, key, doc FROM groups INDEXED BY groups_line WHERE places >= 0
		AND tenant = ? AND line = ?`, at.tenant, at.key)
	for i := range groups {
		if groups[i].Places = -1; err == nil {
			err = t.writeGroup(&groups[i])
		}
	}
	return true, err
}
