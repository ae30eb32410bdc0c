// Package fake has a tester that misbehaves on command. In tests it stands for something that is
// not there, such as a host behind SSH, or a scheduler.
package fake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/recovery"
)

// A Tester implements [recovery.Tester]. The parameter "host" names what it tests. The zero value
// is ready to use, and every host is down.
type Tester struct {
	mu    sync.Mutex
	knobs map[string]Knobs // guarded by mu: by host
	calls []Call           // guarded by mu: the oldest first
	now   map[string]int   // guarded by mu: under way, by host
	most  map[string]int   // guarded by mu: that were under way at once
}

// Knobs say how a host behaves.
type Knobs struct {
	Up    bool
	May   int
	Says  string
	Err   error         // if set, the test fails with it
	Takes time.Duration // how long a test takes
	Hangs bool          // the test takes until its context ends
	// Deaf, if set, makes a test deaf to the end of its context: it waits for this channel first.
	Deaf  chan struct{}
	Panic bool
}

// A Call is a test that began.
type Call struct {
	recovery.Question
	At time.Time
}

// Set sets how a host behaves. A test that is under way answers by the knobs at its end.
func (t *Tester) Set(host string, k Knobs) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.knobs == nil {
		t.knobs = map[string]Knobs{}
	}
	t.knobs[host] = k
}

// Calls returns the tests of a host that have begun, the oldest first. If host is empty, it returns
// those of all hosts.
func (t *Tester) Calls(host string) (calls []Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if host == "" || c.Params["host"] == host {
			calls = append(calls, c)
		}
	}
	return calls
}

// Most returns how many tests of a host were under way at the same time, at most.
func (t *Tester) Most(host string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.most[host]
}

// Test implements [recovery.Tester].
func (t *Tester) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	host := q.Params["host"]
	k := t.enter(host, q)
	defer t.leave(host)
	if k.Deaf != nil {
		<-k.Deaf
	}
	if k.Hangs {
		<-ctx.Done()
	}
	select {
	case <-ctx.Done():
		return recovery.Answer{}, ctx.Err()
	case <-time.After(k.Takes):
	}
	t.mu.Lock()
	k = t.knobs[host]
	t.mu.Unlock()
	switch {
	case k.Panic:
		panic("as it was told to")
	case k.Err != nil:
		return recovery.Answer{}, k.Err
	case k.Says == "" && k.Up:
		k.Says = host + " is up"
	case k.Says == "":
		k.Says = fmt.Sprintf("%s is down", host)
	}
	return recovery.Answer{Clear: k.Up, May: k.May, Says: k.Says}, nil
}

func (t *Tester) enter(host string, q recovery.Question) Knobs {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now, t.most = map[string]int{}, map[string]int{}
	}
	t.calls = append(t.calls, Call{q, time.Now()})
	t.now[host]++
	t.most[host] = max(t.most[host], t.now[host])
	return t.knobs[host]
}

func (t *Tester) leave(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now[host]--
}
