package fake

import (
	"context"
	"maps"
	"slices"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Begin implements [store.Leases].
func (s *Store) Begin(ctx context.Context, n store.Session) error {
	_, err := s.do(ctx, func(t *tx) error {
		if _, there := t.sessions[n.ID]; !there {
			set(t, t.sessions, n.ID, session{
				ID: n.ID, Process: processOf(n.Process), Mode: n.Mode, Started: t.now, Renewed: t.now,
				Until: micros(t.now.Add(max(n.Lease, store.MinLease))),
			})
		}
		if !t.alive(n.ID) {
			return store.NoSession(n.ID)
		}
		return nil
	})
	return err
}

// processOf returns a deep copy of a process.
func processOf(p store.Process) store.Process {
	p.Roles, p.Queues, p.Kinds, p.Tenants = slices.Clone(p.Roles), slices.Clone(p.Queues), slices.Clone(p.Kinds),
		slices.Clone(p.Tenants)
	p.Slots, p.Silent, p.Reads = maps.Clone(p.Slots), maps.Clone(p.Silent), maps.Clone(p.Reads)
	return p
}

// Renew implements [store.Leases].
func (s *Store) Renew(ctx context.Context, r store.Renew) (store.Renewal, error) {
	return ask(ctx, s, func(t *tx) (a store.Renewal, err error) {
		if !t.alive(r.Session) {
			return a, store.NoSession(r.Session)
		}
		i, lease := t.sessions[r.Session], max(r.Lease, store.MinLease)
		a = store.Renewal{Now: t.now, HeldBefore: i.Renewed, Mode: i.Mode, Due: t.firstDue()}
		i.Renewed, i.Until = t.now, micros(t.now.Add(lease))
		if r.Process != nil {
			i.Process = processOf(*r.Process)
		}
		if r.Used != nil {
			i.Used = maps.Clone(r.Used)
		}
		set(t, t.sessions, i.ID, i)
		for _, h := range t.held(i.ID) {
			if h.Since.Before(a.HeldBefore) {
				a.Held++
			}
			if h.Wish != "" {
				a.Wishes = append(a.Wishes, store.StandingWish{Job: h.ID, Epoch: h.Epoch, Wish: h.Wish})
			}
		}
		for _, o := range t.sessions {
			if o.Ended.IsZero() && o.ID != i.ID && (a.NextExpiry.IsZero() || o.Until.Before(a.NextExpiry)) {
				a.NextExpiry = o.Until
			}
		}
		a.Ready = t.readyAt(&r)
		a.Unpaid = len(t.owed) > 0 && t.owed[0].at.Before(t.now.Add(-lease/3))
		for _, w := range t.walks {
			a.Unpaid = a.Unpaid || w.at.Before(t.now.Add(-lease/3))
		}
		for _, at := range t.shutting {
			a.Unpaid = a.Unpaid || at.Before(t.now.Add(-lease/3))
		}
		a.Duties = t.takeDuties(i, r.Duties)
		return a, nil
	})
}

// readyAt returns the queues and kinds that a process serves which hold ready jobs for it.
func (t *tx) readyAt(r *store.Renew) (ready []job.QueueKind) {
	c := store.Claim{Queues: r.Queues, Kinds: r.Kinds, Machine: r.Machine}
	found := map[job.QueueKind]bool{}
	for _, lane := range job.Lanes {
		for _, at := range spotsOf(&c, lane) {
			where := job.QueueKind{Queue: at.queue, Kind: at.kind}
			if !found[where] && slices.ContainsFunc(t.at[at], func(j *row) bool { return ofTenant(r.Tenants, j) }) {
				found[where] = true
				ready = append(ready, where)
			}
		}
	}
	return ready
}

// takeDuties keeps the wanted duties of a session, gives up its others, and takes free ones. A duty
// is free if no live session holds it, or if its holder drains or stops and this session does not.
func (t *tx) takeDuties(i session, wanted []string) (duties []store.Duty) {
	for name, d := range t.duties {
		if d.holder == i.ID && !slices.Contains(wanted, name) {
			set(t, t.duties, name, duty{term: d.term})
		}
	}
	for k, name := range wanted {
		if name == "" || slices.Contains(wanted[:k], name) {
			continue
		}
		d := t.duties[name]
		if d.holder != i.ID {
			if t.alive(d.holder) && (t.sessions[d.holder].Mode == store.Work || i.Mode != store.Work) {
				continue
			}
			d = duty{d.term + 1, i.ID}
			set(t, t.duties, name, d)
		}
		duties = append(duties, store.Duty{Name: name, Term: d.term})
	}
	return duties
}

// SetMode implements [store.Leases].
func (s *Store) SetMode(ctx context.Context, id job.ID, c store.Mode) (store.Effects, error) {
	if !slices.Contains(store.Modes, c) {
		return store.Effects{}, job.Errorf(job.Invalid, "%q is no mode of a session", c)
	}
	return s.do(ctx, func(t *tx) error {
		i, known := t.sessions[id]
		switch {
		case !known:
			return job.Errorf(job.NotFound, "there is no session %s", id)
		case !t.alive(id):
			return job.Errorf(job.Conflict, "session %s has ended", id)
		case i.Mode == store.Stop && c != store.Stop:
			return job.Errorf(job.Conflict, "session %s was told to stop, which is not taken back", id)
		}
		i.Mode = c
		set(t, t.sessions, id, i)
		t.eff.Held = []job.ID{id}
		return nil
	})
}

// End implements [store.Leases].
func (s *Store) End(ctx context.Context, id job.ID) (store.Effects, error) {
	return s.do(ctx, func(t *tx) error {
		if i, known := t.sessions[id]; known && i.Ended.IsZero() {
			i.Ended = t.now
			set(t, t.sessions, id, i)
		}
		return t.take(t.held(id), false)
	})
}

// take takes jobs from a session that has ended.
func (t *tx) take(held []*row, crashed bool) error {
	for _, r := range slices.Clone(held) {
		expired := job.Expired(&r.Job, crashed)
		c, _ := job.Divert(&r.Job, expired)
		if _, err := t.write(r, c, job.CauseExpired, ""); err != nil {
			return err
		}
	}
	return nil
}

// Expire implements [store.Jobs].
func (s *Store) Expire(ctx context.Context, limit int) (int, store.Effects, error) {
	return call(ctx, s, func(t *tx) (n int, err error) {
		died := false
		for id, i := range t.sessions {
			if i.Ended.IsZero() && !t.alive(id) {
				i.Ended, i.Crashed, died = t.now, true, true
				set(t, t.sessions, id, i)
			}
		}
		for _, at := range t.spots(job.Worker) {
			i, known := t.sessions[at.session]
			if known && i.Ended.IsZero() {
				continue
			}
			held := t.held(at.session)
			held = held[:max(0, min(limit-n, len(held)))]
			n += len(held)
			if err := t.take(held, !known || i.Crashed); err != nil {
				return 0, err
			}
		}
		if died {
			t.left()
		}
		if n == limit {
			return n, nil
		}
		for id, i := range t.sessions {
			if !t.kept(i) {
				drop(t, t.sessions, id)
			}
		}
		return n, nil
	})
}

// left adds to the effects what a session may have died before announcing.
func (t *tx) left() {
	for _, at := range t.spots(job.Ready) {
		if len(t.eff.Ready) < store.MostUnserved {
			t.eff.Announce(job.QueueKind{Queue: at.queue, Kind: at.kind})
		}
	}
	t.eff.Owed, t.eff.Due, t.eff.Tests = t.unpaid(), t.firstDue(), len(t.groups) > 0
}

// Clear implements [store.Leases].
func (s *Store) Clear(ctx context.Context, lost []store.Lost) (store.Effects, error) {
	return s.do(ctx, func(t *tx) error {
		for _, l := range lost {
			r := t.jobs[l.Job]
			if r == nil {
				continue
			}
			next := *r
			var cleared bool
			if next.Job, cleared = r.Cleared(l.Epoch); !cleared {
				continue
			}
			t.swap(r, &next)
			if r.Custody == job.Ready && next.Lane != r.Lane {
				t.eff.Announce(job.QueueKind{Queue: r.Queue, Kind: r.Kind})
			}
		}
		return nil
	})
}
