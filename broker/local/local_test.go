package local_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/broker/brokertest"
	"github.com/pawl-jobs/pawl/broker/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBroker(t *testing.T) {
	brokertest.Run(t, func(*testing.T) (broker.Broker, broker.Broker) {
		b := &local.Broker{}
		return b, b
	})
}
