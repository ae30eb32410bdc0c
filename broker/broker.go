// Package broker is the contract for wake-ups: it tells processes that a queue and kind has ready
// jobs, or that something has happened. Everything it carries is a hint. The rows of the store are
// the truth, so a hint that is lost, doubled or late costs a delay, and never a job.
//
// All methods are safe for concurrent use. Package brokertest is the test suite that every broker
// passes.
package broker

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
)

// A Broker carries wake-ups between the processes of one service. They arrive at once within the
// process, and a little later in others. While the others cannot be reached, wake-ups wait, and are
// merged if nothing is lost by that.
//
// If a broker was cut off from the others, it may have missed something. It says so as soon as it
// hears them again: every queue and kind that was ever waited for counts as announced, and every
// subscription signals Lost.
type Broker interface {
	// Announce says where there are ready jobs. It never blocks for long, and may merge
	// announcements. An error says that other processes may not hear of it.
	Announce(ctx context.Context, where ...job.QueueKind) error

	// Wait returns when ready jobs were announced at some of the queues and kinds in where, by any
	// process, and returns these. It counts all announcements since the last Wait of this process
	// that returned the same queue and kind, so none is missed while nobody waits. When ctx ends,
	// it returns ctx's error. Only one loop of a process waits for a queue and kind.
	Wait(ctx context.Context, where []job.QueueKind) ([]job.QueueKind, error)

	// Publish sends a message to all subscribers of topic in all processes. A subscriber that comes
	// while the message is on its way may receive it too. Publish never blocks for long. An error
	// says that other processes may not hear of it.
	//
	// An empty message says only that something has happened. Several of them on one topic may be
	// merged, but one arrives after the last of them was published. It may arrive after messages
	// that were published later. Messages with content are not merged.
	Publish(ctx context.Context, topic string, message []byte) error

	// Subscribe starts to receive the messages of topic. The subscription ends with Close.
	Subscribe(ctx context.Context, topic string) (Subscription, error)
}

// A Subscription receives messages. Those of one publisher come in the order in which it sent them.
type Subscription interface {
	// Messages delivers until Close. If the receiver is too slow or was cut off, messages are lost.
	Messages() <-chan []byte
	// Lost delivers a value after messages were lost. Then the receiver must read the rows instead.
	// It also does when the broker is closed: then another Subscribe is an error of kind
	// [job.Closed].
	Lost() <-chan struct{}
	// Close ends the subscription, and leaves the channels open. It can be called again.
	Close()
}
