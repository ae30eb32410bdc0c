// Package storetest is the suite that every [store.Store] passes.
//
// The tests know the contract and package job, and nothing of a database: what they say of a row they read through
// the store. [Check] stands alone, for other tests that want to know whether a store's jobs are sound.
package storetest

import (
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// A Clock is the clock of one store's database. It is safe for concurrent use. It may run on by itself.
type Clock interface {
	// Advance moves the clock forward.
	Advance(time.Duration)
}

// A test is one sentence about stores. Each gets a store of its own.
type test struct {
	name string
	run  func(*world)
}

// Run runs the suite. open returns an empty store and the clock of its database; it closes the store by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	Plain(t, open)
	run(t, open, []noun{{"Random", randomTests}, {"Big", bigTests}})
}

// Plain runs the suite without what is drawn at random and without large numbers: for a second way to the same database.
func Plain(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	run(t, open, []noun{
		{"Submit", submitTests},
		{"Admit", admitTests},
		{"Claim", claimTests},
		{"Apply", applyTests},
		{"Alike", alikeTests},
		{"Lease", leaseTests},
		{"Session", sessionTests},
		{"Unserved", unservedTests},
		{"Unwatched", unwatchedTests},
		{"Demand", demandTests},
		{"Suspect", suspectTests},
		{"Wish", wishTests},
		{"Force", forceTests},
		{"Gate", gateTests},
		{"FollowUp", followUpTests},
		{"Limit", limitTests},
		{"Order", orderTests},
		{"Adopt", adoptTests},
		{"Moment", momentTests},
		{"Group", groupTests},
		{"Read", readTests},
		{"List", listTests},
		{"Annotate", annotateTests},
		{"Note", noteTests},
		{"Remove", removeTests},
		{"Overdue", overdueTests},
		{"Resource", resourceTests},
	})
}

// A noun is what tests are about.
type noun struct {
	name  string
	tests []test
}

func run(t *testing.T, open func(t *testing.T) (store.Store, Clock), nouns []noun) {
	for _, noun := range nouns {
		t.Run(noun.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range noun.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(newWorld(t, open))
				})
			}
		})
	}
}

// Tenants runs the tests of the wall between tenants alone: for a store that has two such walls, without one of them.
func Tenants(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	readTenants(newWorld(t, open))
}
