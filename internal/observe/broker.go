package observe

import (
	"context"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// Broker returns b, whose lost wake-ups are counted.
func (o *Observer) Broker(b broker.Broker) broker.Broker { return counted{b, o} }

type counted struct {
	broker.Broker
	o *Observer
}

func (c counted) Announce(ctx context.Context, lines ...job.QueueKind) error {
	return c.count(c.Broker.Announce(ctx, lines...))
}

func (c counted) Publish(ctx context.Context, topic string, message []byte) error {
	return c.count(c.Broker.Publish(ctx, topic, message))
}

func (c counted) count(err error) error {
	if err != nil {
		c.o.metrics.lost.Inc()
	}
	return err
}
