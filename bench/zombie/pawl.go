package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/broker/pgnotify"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/postgres"
)

// pawlLease is how long a process lives on without being heard of; 15 s by default.
const pawlLease = 2 * time.Second

type pawlSystem struct{}

func (pawlSystem) prepare(ctx context.Context, dsn string) error {
	m, err := postgres.NewMigrator(dsn, "")
	if err != nil {
		return err
	}
	return errors.Join(m.Up(ctx), m.Close())
}

func (pawlSystem) submit(ctx context.Context, dsn string) error {
	return withDesk(ctx, dsn, func(svc *service.Service) error {
		_, err := svc.Submit(ctx, service.Request{Spec: service.NewTask(freezing{}.Kind(), freezing{})})
		return err
	})
}

func (pawlSystem) look(ctx context.Context, dsn string) (r Row, err error) {
	err = withDesk(ctx, dsn, func(svc *service.Service) error {
		page, err := svc.List(ctx, store.Query{})
		if err != nil {
			return err
		}
		if len(page.Jobs) != 1 {
			return fmt.Errorf("%d jobs, want 1", len(page.Jobs))
		}
		j, err := svc.Job(ctx, page.Jobs[0].ID)
		if err != nil {
			return err
		}
		events, err := svc.History(ctx, j.ID)
		if err != nil {
			return err
		}
		r = Row{
			State: string(j.State), Attempt: j.Attempt, Epoch: j.Epoch, Output: j.Result, Rescues: j.Recoveries,
			Suspect: j.Suspect,
			Waits:   j.Custody == job.Ready, Final: j.State.Terminal(),
		}
		if !j.Ended.IsZero() {
			r.Ended = &j.Ended
		}
		for _, e := range events {
			if what := strings.TrimSpace(e.Name + " " + e.Message); what != "" {
				r.Errors = append(r.Errors, fmt.Sprintf("epoch %d: %s", e.Epoch, what))
			}
		}
		return nil
	})
	return r, err
}

// withDesk runs f with a service that runs no jobs.
func withDesk(ctx context.Context, dsn string, f func(*service.Service) error) error {
	st, err := postgres.Open(ctx, dsn, postgres.Options{Conns: 1, Readers: 1})
	if err != nil {
		return err
	}
	defer st.Close()
	return f(service.New(service.Config{Store: st, Broker: &local.Broker{}}))
}

func (pawlSystem) work(ctx context.Context, dsn string, s *seat) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	bus, err := pgnotify.Open(ctx, pgnotify.Config{DSN: dsn, Log: log})
	if err != nil {
		return err
	}
	defer bus.Close()
	st, err := postgres.Open(ctx, dsn, postgres.Options{Conns: 3, Readers: 1, Renewals: bus.Do, Log: log})
	if err != nil {
		return err
	}
	defer st.Close()
	svc := service.New(service.Config{Store: heard{st, s}, Broker: bus, Options: engine.Options{Lease: pawlLease}, Log: log})
	service.Handle(svc, freezing{}.Kind(), func(ctx context.Context, t *service.Task[freezing]) (string, error) {
		return s.handle(ctx, try{
			attempt: t.Job.Attempt, epoch: t.Job.Epoch,
			note: func(text string) error {
				return t.AddEvent(context.WithoutCancel(ctx), job.Note{Name: "note", Message: text})
			},
		})
	})
	return svc.Run(ctx)
}

// heard writes into the ledger what the store answers to the ends of jobs that a process reports.
type heard struct {
	store.Store
	seat *seat
}

func (h heard) Apply(ctx context.Context, changes []job.Change, along *store.Claim) ([]store.Applied, []job.Job,
	store.Effects, error,
) {
	answers, jobs, eff, err := h.Store.Apply(ctx, changes, along)
	if err == nil || ctx.Err() == nil {
		h.tell(toldStep, changes, answers, err)
		return answers, jobs, eff, err
	}
	// The process itself has given the call up. What if it had been on its way to the database
	// already?
	h.tell(toldStep, nil, nil, fmt.Errorf("given up: %s", state(ctx)))
	late, _, _, lateErr := h.Store.Apply(context.WithoutCancel(ctx), changes, along)
	h.tell(lateStep, changes, late, lateErr)
	return answers, jobs, eff, err
}

func (h heard) tell(step string, changes []job.Change, answers []store.Applied, err error) {
	if err != nil {
		h.seat.write(line{Step: step, Answer: err.Error()})
		return
	}
	for i, a := range answers {
		h.seat.write(line{Step: step, Answer: fmt.Sprintf("%s: %s", changes[i].Last().State, a.Outcome)})
	}
}
