// Package broker is the contract for wake-ups: who has work, and what has happened. Everything it
// carries is a hint. A lost, doubled or late one costs a delay, never a job, because the rows of
// the store are the truth.
//
// All methods are safe for concurrent use. Package brokertest holds the suite that every broker
// passes.
package broker

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
)

// A Broker carries wake-ups between the processes of one service. What is told within a process
// arrives at once; other processes hear of it a little later. While they cannot be reached it
// waits, merged where that loses nothing.
//
// A broker that may have missed something, because it was cut off from the others, says so once it
// hears them again: every line that was ever waited for counts as announced, and every subscription
// has lost messages.
type Broker interface {
	// Announce says that lines hold ready jobs. It never blocks for long and may merge what it is
	// told. An error says that other processes may not hear of it.
	Announce(ctx context.Context, lines ...job.QueueKind) error

	// Wait returns once one of the lines was announced, by any process, since the last Wait of this
	// process for it returned, with those that were; or with ctx's error. Announcements are
	// remembered while nobody waits. One loop of a process waits for a line.
	Wait(ctx context.Context, lines []job.QueueKind) ([]job.QueueKind, error)

	// Publish sends a message to everyone, in every process, who is subscribed to topic at this
	// moment. Who subscribes while it is on its way may receive it, too. It never blocks for long;
	// an error says that others may not hear of it.
	//
	// An empty message says only that something has happened: several on one topic may be merged,
	// but one arrives after the last of them was published, and it may arrive after others that
	// were published later. Messages with content are not merged.
	Publish(ctx context.Context, topic string, message []byte) error

	// Subscribe starts to receive what is published on topic. The subscription ends with Close.
	Subscribe(ctx context.Context, topic string) (Subscription, error)
}

// A Subscription receives messages in the order in which one publisher sent them.
type Subscription interface {
	// Messages delivers until Close. A receiver that is too slow, or was cut off, loses messages;
	// Lost is signalled then, and it must look at the rows instead.
	Messages() <-chan []byte
	Lost() <-chan struct{}
	Close()
}
