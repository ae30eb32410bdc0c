package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// block is the change by which b blocks j, which a session holds.
func block(j *job.Job, session job.ID, b *job.Block) job.Change {
	c := job.Change{
		Job: j.ID, From: j.Guard(job.Fence{Session: session}), To: job.Recovery,
		Path: []job.Entry{{State: job.Blocked, Code: b.Code, Message: b.Message}},
	}
	c.Set.Resume, c.Set.Block = job.Pending, b
	return c
}

// gone is a block that closes the line of a key.
func gone(line string) *job.Block {
	return &job.Block{
		Code: job.TaskBlocked, Message: "it is gone", Tester: "http", Params: map[string]string{"of": line}, Line: line,
		Policy: job.Policy{
			Stages:  []job.Stage{{Every: job.Duration(10 * time.Second)}},
			MaxWait: job.Duration(time.Minute),
		},
	}
}

// pay pays all that is owed.
func pay(t *testing.T, s store.Store) {
	t.Helper()
	for owed := true; owed; {
		_, eff, err := s.Pay(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		owed = eff.Owed
	}
}

// steer does with groups, and with jobs, what a person may want.
func (m *mixer) steer(ctx context.Context) error {
	wants := []groups.Action{groups.TryNow, groups.Release, groups.GiveUp}
	if _, _, err := m.s.Steer(ctx, store.Steer{
		Tenant: acme, By: "ann", Want: wants[m.r.IntN(3)],
		Jobs: m.some(20),
	}); err != nil {
		return err
	}
	_, _, err := m.s.Steer(ctx, store.Steer{
		Tenant: acme, By: "ann", Want: wants[m.r.IntN(3)],
		Group: gone(limited[m.r.IntN(len(limited))]).Group(acme),
	})
	return err
}

// test tells of tests of groups, for whoever has the duty.
func (m *mixer) test(ctx context.Context) error {
	f := job.Fence{Duty: groups.RecoveryDuty}
	if err := m.conn.QueryRow(ctx, "SELECT coalesce((SELECT term FROM pawl.duties WHERE name = $1), 0)",
		f.Duty).Scan(&f.Term); err != nil {
		return err
	}
	due, err := m.s.Tests(ctx, f.Duty, 10)
	if err != nil {
		return err
	}
	var found []groups.Test
	for _, i := range m.r.Perm(len(limited)) {
		found = append(found, groups.Test{
			Tenant: acme, Key: gone(limited[i]).Group(acme), Began: due.Now,
			Clear: m.r.IntN(2) == 0,
		})
	}
	_, err = m.s.Tested(ctx, f, found)
	return err
}

// blocked blocks jobs that wait in lines, and does all that there is to do with groups.
func blocked(t *testing.T, s *postgres.Store, now *clock) error {
	ctx, session := t.Context(), begin(t, s, hour)
	if _, err := store.SetLimit(ctx, s, acme, job.Limit{Key: "shut", Most: 20}); err != nil {
		return err
	}
	jobs := newTasks(20)
	for i := range jobs {
		jobs[i].Job.Limits = []string{"shut"}
	}
	ids := submit(t, s, jobs...)
	pay(t, s)
	c := asking(session, 20)
	c.Jobs = ids
	held, err := s.Claim(ctx, c)
	if err != nil {
		return err
	}
	for i := range held {
		b := gone("shut")
		if i%2 == 0 {
			b.Policy.MaxWait, b.Params = job.Duration(time.Second), map[string]string{"of": "short"}
		}
		if _, _, _, err := s.Apply(ctx, []job.Change{block(&held[i], session, b)}, nil); err != nil {
			return err
		}
	}
	pay(t, s)
	now.Advance(2 * time.Second)
	if n, _, err := s.Due(ctx, 5); n != 5 || err != nil {
		t.Errorf("%d jobs fail, want 5; %v", n, err)
	}
	a, err := s.Renew(ctx, store.Renew{Session: session, Lease: hour, Duties: []string{groups.RecoveryDuty}})
	if err != nil {
		return err
	}
	gs, err := s.Groups(ctx, store.GroupQuery{Tenant: acme})
	if err != nil {
		return err
	}
	for _, g := range gs {
		for _, want := range []groups.Action{groups.TryNow, groups.Release, groups.GiveUp} {
			if _, _, err := s.Steer(ctx, store.Steer{Tenant: acme, By: "ann", Want: want, Group: g.Key}); err != nil {
				return err
			}
		}
	}
	if _, _, err := s.Steer(ctx, store.Steer{Tenant: acme, By: "ann", Want: groups.TryNow, Jobs: ids}); err != nil {
		return err
	}
	tests, err := s.Tests(ctx, groups.RecoveryDuty, 10)
	if err != nil {
		return err
	}
	var found []groups.Test
	for _, g := range tests.Due {
		found = append(found, groups.Test{Tenant: g.Tenant, Key: g.Key, Began: tests.Now, Clear: true})
	}
	if _, err := s.Tested(ctx, job.Fence{Duty: groups.RecoveryDuty, Term: a.Duties[0].Term}, found); err != nil {
		return err
	}
	for range 3 {
		if _, _, err := s.Due(ctx, 100); err != nil {
			return err
		}
	}
	pay(t, s)
	if _, _, err := s.Steer(ctx, store.Steer{Tenant: acme, By: "ann", Want: groups.GiveUp, Jobs: ids}); err != nil {
		return err
	}
	now.Advance(2 * groups.Kept)
	_, eff, err := s.Recount(ctx, 100)
	if eff.Owed {
		pay(t, s)
	}
	return err
}
