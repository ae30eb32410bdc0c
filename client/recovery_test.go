package client_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/pawl-jobs/pawl/api"
	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

func TestRecovery(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		svc := service.New(service.Config{Store: fake.New(nil), Broker: &local.Broker{}, Log: slog.New(slog.DiscardHandler), Principal: "ada"})
		service.Handle(svc, "mail", func(context.Context, *service.Task[struct{}]) (struct{}, error) {
			return struct{}{}, service.Block("the post is closed", "door", nil)
		})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- svc.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		c := client.New(client.Local(api.New(api.Config{Service: svc})))
		p, created, err := c.Policies().Apply(ctx, "TASK_BLOCKED", spec(`{"max_wait":"1h"}`), service.AnyVersion)
		if err != nil || !created || p.Doc.MaxWait.String() != "1h0m0s" {
			t.Errorf("%+v, %t, %v", p, created, err)
		}
		if _, err := c.Submit(ctx, "", spec(`{"kind":"mail"}`), spec(`{"kind":"mail"}`)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all, err := c.Blocked(ctx)
		if err != nil || len(all) != 1 || all[0].Jobs != 2 || all[0].Code != job.TaskBlocked || all[0].Tester != "door" {
			t.Fatalf("%+v, %v", all, err)
		}
		key := all[0].Key
		if g, err := c.BlockedBy(ctx, key); err != nil || g.Key != key || g.Since.IsZero() {
			t.Errorf("%+v, %v", g, err)
		}
		page, err := c.List(ctx, store.Query{Filter: job.WhereState(job.Blocked)})
		if err != nil || len(page.Jobs) != 2 || page.Jobs[0].Group != key || page.Jobs[0].Until.Sub(page.Jobs[0].Since).Hours() != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		if v, err := c.ActOnJob(ctx, groups.TryNow, page.Jobs[0].ID); err != nil || v.State != job.Blocked {
			t.Errorf("%s, %v", v.State, err)
		}
		if v, err := c.ActOnJob(ctx, groups.GiveUp, page.Jobs[0].ID); err != nil || v.Code != job.RecoveryGivenUp {
			t.Errorf("%s, %v", v.Code, err)
		}
		if _, err := c.ActOnJob(ctx, groups.Release, page.Jobs[0].ID); job.KindOf(err) != job.Conflict {
			t.Errorf("%v", err)
		}
		if g, err := c.ActOnGroup(ctx, groups.GiveUp, key); err != nil || g.Key != key {
			t.Errorf("%+v, %v", g, err)
		}
		synctest.Wait()
		if _, err := c.BlockedBy(ctx, key); job.KindOf(err) != job.NotFound {
			t.Errorf("%v", err)
		}
		n, err := c.Count(ctx, job.Where("code", job.Is, string(job.RecoveryGivenUp)))
		if err != nil || n.States[job.Failed] != 2 {
			t.Errorf("%+v, %v", n, err)
		}
	})
}
