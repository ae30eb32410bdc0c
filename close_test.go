package pawl_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/sqlite"
)

// TestCloseEndsRun closes a service while a handler runs: that is told, its job goes back to its
// queue, Run returns nil, and the next service of the folder finishes the job.
func TestCloseEndsRun(t *testing.T) {
	dir := t.TempDir()
	interrupted := pawl.Task[int, int]{Kind: "interrupted"}
	open := func() *pawl.Service {
		grace := pawl.Configure(func(c *service.Config) { c.Grace = time.Second })
		svc, err := pawl.Open(t.Context(), sqlite.At(dir), grace)
		if err != nil {
			t.Fatal(err)
		}
		return svc
	}

	svc := open()
	began := make(chan struct{})
	interrupted.Handle(svc, func(ctx context.Context, _ *pawl.Job[int]) (int, error) {
		close(began)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(t.Context()) }()
	h, err := interrupted.Enqueue(t.Context(), svc, 7)
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if err := errors.Join(svc.Close(), <-ended); err != nil {
		t.Fatal(err)
	}
	if err := svc.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	const closed = "the service was closed: open another one with pawl.Open"
	if err := svc.Run(t.Context()); job.KindOf(err) != job.Closed || err.Error() != closed {
		t.Errorf("Run after Close: %v", err)
	}
	_, enqueue := interrupted.Enqueue(t.Context(), svc, 7)
	schedule := interrupted.Schedule(t.Context(), svc, "daily", pawl.Every(time.Hour), 7)
	tx := sqlite.WithTx(t.Context(), svc, func(context.Context, *sqlite.Tx) error { return nil })
	_, count := svc.Jobs().Count(t.Context(), nil)
	_, wait := h.Wait(t.Context())
	for what, err := range map[string]error{
		"Enqueue": enqueue, "Schedule": schedule, "WithTx": tx, "Count": count, "Wait": wait,
		"Declare": interrupted.Declare(t.Context(), svc),
	} {
		if job.KindOf(err) != job.Closed || !strings.Contains(err.Error(), "the service was closed") {
			t.Errorf("%s after Close: %v", what, err)
		}
	}

	svc = open()
	defer svc.Close()
	interrupted.Handle(svc, func(_ context.Context, j *pawl.Job[int]) (int, error) { return j.Args, nil })
	go svc.Run(t.Context())
	if got, err := interrupted.Find(svc, h.ID).Wait(t.Context()); got != 7 || err != nil {
		t.Errorf("the job that went back: %d, %v", got, err)
	}
}

// Who waits for a job or follows events while the service is closed gets an error of kind Closed.
func TestCloseEndsWaits(t *testing.T) {
	everywhere(t, func(t *testing.T, at pawl.Source) {
		bus := &heard{listening: make(chan struct{})}
		svc := opened(t, func(ctx context.Context, log *slog.Logger) (*pawl.Database, error) {
			db, err := at(ctx, log)
			if err != nil {
				return nil, err
			}
			bus.Broker, db.Broker = db.Broker, bus
			return db, nil
		})
		h := enqueue(t, pawl.Task[int, int]{Kind: "never"}, svc, 1)
		ended := make(chan error, 2)
		go func() {
			_, err := h.Wait(t.Context())
			ended <- err
		}()
		go func() {
			var last error
			for _, err := range svc.Jobs().Events(t.Context(), job.ID{}, "") {
				last = err
			}
			ended <- last
		}()
		<-bus.listening
		if err := svc.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; job.KindOf(err) != job.Closed || !strings.Contains(err.Error(), "the service was closed") {
				t.Errorf("%v", err)
			}
		}
	})
}

// heard is a broker that tells when a subscriber waits for messages.
type heard struct {
	broker.Broker
	once      sync.Once
	listening chan struct{}
}

func (b *heard) Subscribe(ctx context.Context, topic string) (broker.Subscription, error) {
	s, err := b.Broker.Subscribe(ctx, topic)
	return heardSubscription{s, b}, err
}

type heardSubscription struct {
	broker.Subscription
	bus *heard
}

func (s heardSubscription) Lost() <-chan struct{} {
	s.bus.once.Do(func() { close(s.bus.listening) })
	return s.Subscription.Lost()
}
