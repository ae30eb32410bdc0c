// Package brokertest is the suite that every [broker.Broker] passes.
//
// A broker may be slow, and may tell of more than was announced, but what the contract promises it keeps; so the tests
// wait for what must come, and send a marker behind what must not.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// patience is how long a test waits for what must come. No test takes so long unless the broker is broken.
const patience = 30 * time.Second

var (
	red   = job.Line{Queue: "red", Kind: "paint"}
	green = job.Line{Queue: "green", Kind: "paint"}
	blue  = job.Line{Queue: "red", Kind: "wash"} // differs from red in its kind only
)

// Run runs the suite. open returns a broker on which nobody else is; it closes it by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) broker.Broker) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, broker.Broker)
	}{
		{"an announcement wakes who waits", wakes},
		{"an announcement is remembered while nobody waits", remembered},
		{"an announcement is told once", once},
		{"announcements are merged", merged},
		{"only lines asked for are told", askedFor},
		{"a wait ends with its context", waitEnds},
		{"a wait that was given up takes nothing with it", givenUp},
		{"announcing nothing is nothing", nothing},
		{"no announcement is lost to a busy waiter", busy},
		{"a message reaches everyone who is subscribed", published},
		{"messages come in the order of their publisher", ordered},
		{"a message is the publisher's no more", owned},
		{"a message without subscribers goes nowhere", unheard},
		{"a slow subscriber is told that it lost messages", slow},
		{"a closed subscription holds up nobody", closed},
		{"everything at once", together},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}

func wakes(t *testing.T, b broker.Broker) {
	told := make(chan []job.Line, 1)
	go func() { told <- wait(t, b, red, green) }()
	announce(t, b, green)
	if got := <-told; !cmp.Equal(got, []job.Line{green}) {
		t.Errorf("told %v, want %v", got, green)
	}
}

func remembered(t *testing.T, b broker.Broker) {
	announce(t, b, red, blue)
	got := gather(t, b, 2, red, green, blue)
	if !got[red] || !got[blue] {
		t.Errorf("told %v, want %v and %v", got, red, blue)
	}
}

func once(t *testing.T, b broker.Broker) {
	announce(t, b, red)
	wait(t, b, red, green)
	announce(t, b, green)
	if got := wait(t, b, red, green); !cmp.Equal(got, []job.Line{green}) {
		t.Errorf("told %v, want only %v: the other was told before", got, green)
	}
}

func merged(t *testing.T, b broker.Broker) {
	for range 10_000 {
		announce(t, b, red)
	}
	// A broker may merge less than all of them, and must not keep them one by one.
	n := 0
	for announce(t, b, green); !gather(t, b, 1, red, green)[green]; n++ {
	}
	if n > 1000 {
		t.Errorf("10,000 announcements were told in %d answers", n)
	}
}

func askedFor(t *testing.T, b broker.Broker) {
	announce(t, b, red, blue)
	announce(t, b, green)
	if got := wait(t, b, green); !cmp.Equal(got, []job.Line{green}) {
		t.Errorf("told %v, want %v", got, green)
	}
	if got := wait(t, b, blue); !cmp.Equal(got, []job.Line{blue}) {
		t.Errorf("told %v, want %v", got, blue)
	}
	if got := wait(t, b, red); !cmp.Equal(got, []job.Line{red}) {
		t.Errorf("told %v, want %v: it was announced while others were asked for", got, red)
	}
}

func waitEnds(t *testing.T, b broker.Broker) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := b.Wait(ctx, []job.Line{red})
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := b.Wait(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for no line: error %v, want that of the context", err)
	}
}

func givenUp(t *testing.T, b broker.Broker) {
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan []job.Line)
		go func() {
			got, _ := b.Wait(ctx, []job.Line{red})
			ended <- got
		}()
		go cancel()
		announce(t, b, red)
		if got := <-ended; got == nil { // it was given up, so that the announcement is for the next one
			wait(t, b, red)
		}
	}
}

func nothing(t *testing.T, b broker.Broker) {
	announce(t, b)
	announce(t, b, red)
	if got := wait(t, b, red); !cmp.Equal(got, []job.Line{red}) {
		t.Errorf("told %v, want %v", got, red)
	}
}

// busy: what is announced after Wait returned is told by the next one, however they meet.
func busy(t *testing.T, b broker.Broker) {
	const announcers, each = 4, 200
	type item struct{ from, n int }
	var mu sync.Mutex
	var store []item
	var group sync.WaitGroup
	for from := range announcers {
		group.Go(func() {
			for n := range each {
				mu.Lock()
				store = append(store, item{from, n})
				mu.Unlock()
				if err := b.Announce(t.Context(), red); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for taken := 0; taken < announcers*each; {
		wait(t, b, red)
		mu.Lock()
		taken += len(store)
		store = nil
		mu.Unlock()
	}
	group.Wait()
}

func published(t *testing.T, b broker.Broker) {
	first, second, other := subscribe(t, b, "news"), subscribe(t, b, "news"), subscribe(t, b, "weather")
	publish(t, b, "news", "one")
	publish(t, b, "weather", "rain")
	for _, s := range []broker.Subscription{first, second} {
		if got := receive(t, s); got != "one" {
			t.Errorf("received %q, want one", got)
		}
	}
	if got := receive(t, other); got != "rain" {
		t.Errorf("received %q, want rain: the other message had another topic", got)
	}
}

func ordered(t *testing.T, b broker.Broker) {
	s := subscribe(t, b, "news")
	for n := range 1000 {
		publish(t, b, "news", fmt.Sprint(n))
		if n%100 != 99 {
			continue
		}
		for k := n - 99; k <= n; k++ {
			if got := receive(t, s); got != fmt.Sprint(k) {
				t.Fatalf("received %q, want %d", got, k)
			}
		}
	}
}

func owned(t *testing.T, b broker.Broker) {
	first, second := subscribe(t, b, "news"), subscribe(t, b, "news")
	message := []byte("before")
	if err := b.Publish(t.Context(), "news", message); err != nil {
		t.Fatal(err)
	}
	copy(message, "after.")
	select {
	case got := <-first.Messages():
		if string(got) != "before" {
			t.Errorf("received %q, want what was published", got)
		}
		copy(got, "mine..")
	case <-time.After(patience):
		t.Fatal("no message")
	}
	if got := receive(t, second); got != "before" {
		t.Errorf("received %q, want what was published and not what another receiver made of it", got)
	}
	if err := b.Publish(t.Context(), "news", nil); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, first); got != "" {
		t.Errorf("received %q, want an empty message", got)
	}
}

func unheard(t *testing.T, b broker.Broker) {
	publish(t, b, "news", "early")
	s := subscribe(t, b, "news")
	publish(t, b, "news", "late")
	if got := receive(t, s); got != "late" {
		t.Errorf("received %q, want late: nobody was subscribed to what came before", got)
	}
}

func slow(t *testing.T, b broker.Broker) {
	s, quick := subscribe(t, b, "news"), subscribe(t, b, "news")
	const burst = 10_000
	lost := false
	for n := 0; !lost; n++ {
		if n == 100*burst {
			t.Fatalf("%d messages were neither received nor lost", n)
		}
		publish(t, b, "news", fmt.Sprint(n))
		if got := receive(t, quick); got != fmt.Sprint(n) {
			t.Fatalf("the quick subscriber received %q, want %d", got, n)
		}
		select {
		case <-s.Lost():
			lost = true
		default:
		}
	}
	// What it did receive is in order, and it goes on receiving.
	for last, got := -1, ""; ; {
		select {
		case m := <-s.Messages():
			got = string(m)
		default:
			publish(t, b, "news", "mark")
			got = receive(t, s)
		}
		if got == "mark" {
			return
		}
		var n int
		if _, err := fmt.Sscan(got, &n); err != nil || n <= last {
			t.Fatalf("received %q after %d", got, last)
		}
		last = n
	}
}

func closed(t *testing.T, b broker.Broker) {
	s, open := subscribe(t, b, "news"), subscribe(t, b, "news")
	s.Close()
	s.Close()
	for n := range 2000 { // more than any buffer that s may have
		publish(t, b, "news", fmt.Sprint(n))
		if got := receive(t, open); got != fmt.Sprint(n) {
			t.Fatalf("received %q, want %d", got, n)
		}
	}
	open.Close()
	publish(t, b, "news", "for nobody")
}

func together(t *testing.T, b broker.Broker) {
	var group sync.WaitGroup
	lines := []job.Line{red, green, blue}
	for n := range 8 {
		topic := fmt.Sprint("topic/", n%2)
		group.Go(func() {
			for k := range 100 {
				announceTo(t, b, lines[k%3])
				if err := b.Publish(t.Context(), topic, []byte("m")); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range 20 {
				s, err := b.Subscribe(t.Context(), topic)
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-s.Messages():
				case <-s.Lost():
				default:
				}
				s.Close()
			}
		})
	}
	// Each line has one waiter.
	for _, l := range lines {
		group.Go(func() { wait(t, b, l) })
	}
	group.Wait()
}

func announce(t *testing.T, b broker.Broker, lines ...job.Line) {
	t.Helper()
	if err := b.Announce(t.Context(), lines...); err != nil {
		t.Fatal(err)
	}
}

func announceTo(t *testing.T, b broker.Broker, lines ...job.Line) {
	t.Helper()
	if err := b.Announce(t.Context(), lines...); err != nil {
		t.Error(err)
	}
}

// wait waits for one of the lines. It may be called from any goroutine.
func wait(t *testing.T, b broker.Broker, lines ...job.Line) []job.Line {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := b.Wait(ctx, lines)
	if err != nil {
		t.Errorf("wait for %v: %v", lines, err)
	}
	if err == nil && len(got) == 0 {
		t.Error("a wait returned without a line and without an error")
	}
	for _, l := range got {
		if !slices.Contains(lines, l) {
			t.Errorf("told of %v, which was not asked for", l)
		}
	}
	return got
}

// gather waits until it was told of at least n lines.
func gather(t *testing.T, b broker.Broker, n int, lines ...job.Line) map[job.Line]bool {
	t.Helper()
	got := map[job.Line]bool{}
	for len(got) < n && !t.Failed() {
		for _, l := range wait(t, b, lines...) {
			got[l] = true
		}
	}
	return got
}

func publish(t *testing.T, b broker.Broker, topic, message string) {
	t.Helper()
	if err := b.Publish(t.Context(), topic, []byte(message)); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, b broker.Broker, topic string) broker.Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func receive(t *testing.T, s broker.Subscription) string {
	t.Helper()
	select {
	case m := <-s.Messages():
		return string(m)
	case <-time.After(patience):
		t.Fatal("no message came")
		return ""
	}
}
