// Package storetest is the test suite that every [store.Store] passes.
//
// The tests know the contract and package job, and nothing of a database: they read rows through
// the store. [Check] stands alone, for other tests that must know whether the jobs of a store are
// sound.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/store"
)

// A Clock is the clock of a store's database. It is safe for concurrent use, and may also run by
// itself.
type Clock interface {
	// Advance moves the clock forward.
	Advance(time.Duration)
}

// An Opener is a clock whose store can be opened again, as by a process that restarts.
type Opener interface {
	Clock
	// Open opens the store again. It is closed with t.Cleanup.
	Open(t *testing.T) store.Store
}

// A test is one sentence about stores. Each gets a store of its own.
type test struct {
	name string
	run  func(*world)
}

// A noun is what tests are about.
type noun struct {
	name  string
	tests []test
	long  []test // they do the same very often, until calls meet or shares show
}

// calls are the nouns whose tests make each call, and rules are those of what follows from them.
var (
	calls = []noun{
		{"Submit", submitTests, nil},
		{"Claim", claimTests, claimLong},
		{"Apply", applyTests, applyLong},
		{"Lease", leaseTests, nil},
		{"Wish", wishTests, wishLong},
		{"FollowUp", followUpTests, followUpLong},
		{"Limit", limitTests, limitLong},
		{"Moment", momentTests, nil},
		{"Group", groupTests, groupLong},
		{"Read", readTests, readLong},
		{"List", listTests, nil},
		{"Annotate", annotateTests, nil},
		{"Note", noteTests, nil},
		{"Remove", removeTests, nil},
		{"Resource", resourceTests, nil},
		{"Advance", advanceTests, nil},
	}
	rules = []noun{
		{"Admit", admitTests, nil},
		{"Alike", alikeTests, nil},
		{"Session", sessionTests, nil},
		{"Unserved", unservedTests, nil},
		{"Unwatched", unwatchedTests, nil},
		{"Demand", demandTests, nil},
		{"Suspect", suspectTests, nil},
		{"Force", forceTests, nil},
		{"Gate", gateTests, nil},
		{"Order", orderTests, nil},
		{"Walk", walkTests, nil},
		{"Overdue", overdueTests, nil},
		{"Random", nil, randomTests},
		{"Big", nil, bigTests},
	}
)

// Run runs the suite; with -short it leaves out its long tests. For each test, open returns an
// empty store and the clock of its database, and closes the store with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	for _, noun := range slices.Concat(calls, rules) {
		if testing.Short() {
			noun.long = nil
		}
		run(t, open, noun.name, slices.Concat(noun.tests, noun.long))
	}
}

// Calls runs the part of the suite that makes each call, without its long tests. It is for a second
// way to a database that passes the whole suite by the first way.
func Calls(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	for _, noun := range calls {
		run(t, open, noun.name, noun.tests)
	}
}

func run(t *testing.T, open func(t *testing.T) (store.Store, Clock), noun string, tests []test) {
	t.Run(noun, func(t *testing.T) {
		t.Parallel()
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(newWorld(t, open))
			})
		}
	})
}

// Tenants runs only the tests of the wall between tenants. It is for a store that has two such
// walls and runs here without one of them.
func Tenants(t *testing.T, open func(t *testing.T) (store.Store, Clock)) {
	readTenants(newWorld(t, open))
}
