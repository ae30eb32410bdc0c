// Package brokertest is the test suite that every [broker.Broker] passes.
//
// Each test runs twice: with one broker, as within a process, and with two brokers that stand for
// two processes of one service. What one of them is told, the other one hears. A broker may be
// slow, and may announce more than it was told. So the tests wait for wake-ups that must come, and
// send a marker after those that must not.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/broker"
	"github.com/pawl-jobs/pawl/job"
)

// timeout is how long a test waits for a wake-up. Only a broken broker takes so long.
const timeout = 30 * time.Second

var (
	red   = job.QueueKind{Queue: "red", Kind: "paint"}
	green = job.QueueKind{Queue: "green", Kind: "paint"}
	blue  = job.QueueKind{Queue: "red", Kind: "wash"} // differs from red in its kind only
)

// A pair is two ends of one service, or twice the same broker: one process.
type pair struct {
	tells, hears broker.Broker
}

// alone reports whether the ends are one process.
func (p pair) alone() bool { return p.tells == p.hears }

// Run tests a broker. For each test, open returns two brokers of a service that nobody else uses,
// and closes them with t.Cleanup. A broker that works within one process is returned twice.
func Run(t *testing.T, open func(t *testing.T) (broker.Broker, broker.Broker)) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, pair)
	}{
		{"an announcement wakes who waits", wakes},
		{"an announcement is remembered while nobody waits", remembered},
		{"an announcement is told once", once},
		{"announcements are merged", merged},
		{"only what is asked for is told", askedFor},
		{"a queue and a kind may have any name", anyNames},
		{"an announcement wakes every process", wakesAll},
		{"a wait ends with its context", waitEnds},
		{"a wait that was given up takes nothing with it", givenUp},
		{"announcing nothing is nothing", nothing},
		{"no announcement is lost to a busy waiter", busy},
		{"a message reaches everyone who is subscribed", published},
		{"a message reaches every process", publishedAll},
		{"a message comes as it was sent", intact},
		{"a topic may have any name", oddTopics},
		{"messages come in the order of their publisher", ordered},
		{"the news of empty messages is not lost", news},
		{"a message is the publisher's no more", owned},
		{"a message without subscribers goes nowhere", unheard},
		{"a slow subscriber is told that it lost messages", slow},
		{"a closed subscription holds up nobody", closed},
		{"everything at once", together},
		{"a closed broker tells who waits, and subscribes nobody", over},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			one, two := open(t)
			t.Run("in one process", func(t *testing.T) { test.run(t, pair{one, one}) })
			if one != two {
				one, two = open(t)
				t.Run("between two", func(t *testing.T) { test.run(t, pair{one, two}) })
			}
		})
	}
}

func wakes(t *testing.T, p pair) {
	told := make(chan []job.QueueKind, 1)
	go func() { told <- wait(t, p.hears, red, green) }()
	announce(t, p.tells, green)
	if got := <-told; !cmp.Equal(got, []job.QueueKind{green}) {
		t.Errorf("told %v, want %v", got, green)
	}
}

func remembered(t *testing.T, p pair) {
	announce(t, p.tells, red, blue)
	got := gather(t, p.hears, 2, red, green, blue)
	if !got[red] || !got[blue] {
		t.Errorf("told %v, want %v and %v", got, red, blue)
	}
}

func once(t *testing.T, p pair) {
	announce(t, p.tells, red)
	wait(t, p.hears, red, green)
	announce(t, p.tells, green)
	if got := wait(t, p.hears, red, green); !cmp.Equal(got, []job.QueueKind{green}) {
		t.Errorf("told %v, want only %v: the other was told before", got, green)
	}
}

func merged(t *testing.T, p pair) {
	for range 10_000 {
		announce(t, p.tells, red)
	}
	// A broker may merge less than all of them, and must not keep them one by one.
	n := 0
	for announce(t, p.tells, green); !gather(t, p.hears, 1, red, green)[green]; n++ {
	}
	if n > 1000 {
		t.Errorf("10,000 announcements were told in %d answers", n)
	}
}

func askedFor(t *testing.T, p pair) {
	announce(t, p.tells, red, blue)
	announce(t, p.tells, green)
	if got := wait(t, p.hears, green); !cmp.Equal(got, []job.QueueKind{green}) {
		t.Errorf("told %v, want %v", got, green)
	}
	if got := wait(t, p.hears, blue); !cmp.Equal(got, []job.QueueKind{blue}) {
		t.Errorf("told %v, want %v", got, blue)
	}
	if got := wait(t, p.hears, red); !cmp.Equal(got, []job.QueueKind{red}) {
		t.Errorf("told %v, want %v: it was announced while others were asked for", got, red)
	}
}

// oddNames are what no encoding on the way may hurt.
var oddNames = []string{
	"", " ", "two words", "a\tb\nc\r", `\'"`, "''; DROP TABLE jobs; --", "$1 %s %41 +", "a=b&c;d", "{}",
	"\u00fc\u00df \u65e5\u672c \U0001f43e",
	"\xff\xfe", "\u2028", strings.Repeat("q", 255), strings.Repeat("\u65e5", 255),
}

func anyNames(t *testing.T, p pair) {
	var where []job.QueueKind
	for _, q := range oddNames {
		where = append(where, job.QueueKind{Queue: q, Kind: "paint"}, job.QueueKind{Queue: "red", Kind: q})
	}
	where = append(where, job.QueueKind{Queue: "a b", Kind: "c"}, job.QueueKind{Queue: "a", Kind: "b c"})
	for n, l := range where {
		announce(t, p.tells, l)
		if got := wait(t, p.hears, where...); !cmp.Equal(got, []job.QueueKind{l}) {
			t.Fatalf("%d: told %q, want %q", n, got, l)
		}
	}
}

// wakesAll: each process has a memory of its own, so that what one was told the others are told,
// too.
func wakesAll(t *testing.T, p pair) {
	for range 10 {
		announce(t, p.tells, red)
		wait(t, p.hears, red)
		if !p.alone() {
			wait(t, p.tells, red)
		}
		announce(t, p.hears, red)
		wait(t, p.tells, red)
		if !p.alone() {
			wait(t, p.hears, red)
		}
	}
	announce(t, p.tells, green) // behind an echo, if there were one
	announce(t, p.hears, blue)
	for _, b := range []broker.Broker{p.tells, p.hears} {
		if got := gather(t, b, 2, red, green, blue); got[red] {
			t.Errorf("told %v, want only %v and %v: the other was told before", got, green, blue)
		}
		if p.alone() {
			break
		}
	}
}

func waitEnds(t *testing.T, p pair) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.hears.Wait(ctx, []job.QueueKind{red})
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := p.hears.Wait(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for nothing: error %v, want that of the context", err)
	}
}

func givenUp(t *testing.T, p pair) {
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan []job.QueueKind)
		go func() {
			got, _ := p.hears.Wait(ctx, []job.QueueKind{red})
			ended <- got
		}()
		go cancel()
		announce(t, p.tells, red)
		if got := <-ended; got == nil { // it was given up, so that the announcement is for the next one
			wait(t, p.hears, red)
		}
	}
}

func nothing(t *testing.T, p pair) {
	announce(t, p.tells)
	announce(t, p.tells, red)
	if got := wait(t, p.hears, red); !cmp.Equal(got, []job.QueueKind{red}) {
		t.Errorf("told %v, want %v", got, red)
	}
}

// busy: what is announced after Wait returned is told by the next one, however they meet.
func busy(t *testing.T, p pair) {
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
				if err := p.tells.Announce(t.Context(), red); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for taken := 0; taken < announcers*each; {
		wait(t, p.hears, red)
		mu.Lock()
		taken += len(store)
		store = nil
		mu.Unlock()
	}
	group.Wait()
}

func published(t *testing.T, p pair) {
	first, second, other := subscribe(t, p.hears, "news"), subscribe(t, p.hears, "news"),
		subscribe(t, p.hears, "weather")
	publish(t, p.tells, "news", "one")
	publish(t, p.tells, "weather", "rain")
	for _, s := range []broker.Subscription{first, second} {
		if got := receive(t, s); got != "one" {
			t.Errorf("received %q, want one", got)
		}
	}
	if got := receive(t, other); got != "rain" {
		t.Errorf("received %q, want rain: the other message had another topic", got)
	}
}

func publishedAll(t *testing.T, p pair) {
	here, there := subscribe(t, p.tells, "news"), subscribe(t, p.hears, "news")
	for n := range 10 {
		for _, b := range []broker.Broker{p.tells, p.hears} {
			publish(t, b, "news", fmt.Sprint(n))
			for _, s := range []broker.Subscription{here, there} {
				if got := receive(t, s); got != fmt.Sprint(n) {
					t.Fatalf("received %q, want %d, once", got, n)
				}
			}
		}
	}
}

func intact(t *testing.T, p pair) {
	s := subscribe(t, p.hears, "news")
	for _, size := range []int{0, 1, 2, 3, 1000, 1024, 1025, 6000, 10_000, 1_000_000} {
		message := make([]byte, size)
		for i := range message {
			message[i] = byte(i * 7)
		}
		publish(t, p.tells, "news", string(message))
		if got := receive(t, s); got != string(message) {
			t.Errorf("of %d bytes %d arrived, or others", size, len(got))
		}
	}
	const equal = 20
	for range equal {
		publish(t, p.tells, "news", "again")
	}
	for range equal {
		if got := receive(t, s); got != "again" {
			t.Errorf("received %q, want each of the equal messages", got)
		}
	}
}

func oddTopics(t *testing.T, p pair) {
	var all []broker.Subscription
	for _, topic := range oddNames {
		all = append(all, subscribe(t, p.hears, topic))
	}
	for n, topic := range oddNames {
		publish(t, p.tells, topic, fmt.Sprint(n))
	}
	for n, s := range all {
		if got := receive(t, s); got != fmt.Sprint(n) {
			t.Errorf("topic %q: received %q, want %d", oddNames[n], got, n)
		}
	}
}

// ordered: messages of all sizes come in their order, also while another publisher sends.
func ordered(t *testing.T, p pair) {
	s := subscribe(t, p.hears, "news")
	const publishers, each, burst = 2, 500, 50
	proceed := make(chan struct{}, publishers)
	for from := range publishers {
		go func() {
			for n := range each {
				if n%burst == 0 {
					<-proceed
				}
				message := fmt.Sprintf("%d %d %s", from, n, strings.Repeat(".", n%5*500))
				if err := p.tells.Publish(t.Context(), "news", []byte(message)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	next := make([]int, publishers)
	for n := range publishers * each {
		if n%(publishers*burst) == 0 {
			for range publishers {
				proceed <- struct{}{}
			}
		}
		var from, got int
		if _, err := fmt.Sscan(receive(t, s), &from, &got); err != nil {
			t.Fatal(err)
		}
		if got != next[from] {
			t.Fatalf("received message %d of publisher %d, want %d", got, from, next[from])
		}
		next[from]++
	}
}

// news: an empty message says that something has happened. Several may be merged, but who looks
// after each that comes sees all that has happened in the end.
func news(t *testing.T, p pair) {
	s := subscribe(t, p.hears, "news")
	const publishers, each = 4, 200
	var happened atomic.Int64
	var group sync.WaitGroup
	for range publishers {
		group.Go(func() {
			for range each {
				happened.Add(1)
				if err := p.tells.Publish(t.Context(), "news", nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for happened.Load() < publishers*each {
		select {
		case <-s.Messages():
		case <-s.Lost():
		case <-time.After(timeout):
			t.Fatal("no message came")
		}
	}
	group.Wait()
}

func owned(t *testing.T, p pair) {
	first, second := subscribe(t, p.hears, "news"), subscribe(t, p.hears, "news")
	message := []byte("before")
	if err := p.tells.Publish(t.Context(), "news", message); err != nil {
		t.Fatal(err)
	}
	copy(message, "after.")
	select {
	case got := <-first.Messages():
		if string(got) != "before" {
			t.Errorf("received %q, want what was published", got)
		}
		copy(got, "mine..")
	case <-time.After(timeout):
		t.Fatal("no message")
	}
	if got := receive(t, second); got != "before" {
		t.Errorf("received %q, want what was published and not what another receiver made of it", got)
	}
	if err := p.tells.Publish(t.Context(), "news", nil); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, first); got != "" {
		t.Errorf("received %q, want an empty message", got)
	}
}

func unheard(t *testing.T, p pair) {
	early := subscribe(t, p.hears, "news")
	publish(t, p.tells, "news", "early")
	receive(t, early) // so that it is not on its way any more
	early.Close()
	s := subscribe(t, p.hears, "news")
	publish(t, p.tells, "news", "late")
	if got := receive(t, s); got != "late" {
		t.Errorf("received %q, want late: nobody was subscribed to what came before", got)
	}
}

func slow(t *testing.T, p pair) {
	s, quick := subscribe(t, p.hears, "news"), subscribe(t, p.hears, "news")
	lost := false
	for n := 0; !lost; n++ {
		if n == 1_000_000 {
			t.Fatalf("%d messages were neither received nor lost", n)
		}
		publish(t, p.tells, "news", fmt.Sprint(n))
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
			publish(t, p.tells, "news", "mark")
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

func closed(t *testing.T, p pair) {
	s, open := subscribe(t, p.hears, "news"), subscribe(t, p.hears, "news")
	s.Close()
	s.Close()
	for n := range 500 { // more than any buffer that s may have
		publish(t, p.tells, "news", fmt.Sprint(n))
		if got := receive(t, open); got != fmt.Sprint(n) {
			t.Fatalf("received %q, want %d", got, n)
		}
	}
	open.Close()
	publish(t, p.tells, "news", "for nobody")
}

func over(t *testing.T, p pair) {
	b, can := p.hears.(interface{ Close() })
	if !can {
		t.Skip("it is never closed")
	}
	s := subscribe(t, p.hears, "news")
	go b.Close()
	_, waited := p.hears.Wait(t.Context(), []job.QueueKind{red})
	<-s.Lost()
	_, subscribed := p.hears.Subscribe(t.Context(), "news")
	if job.KindOf(waited) != job.Closed || job.KindOf(subscribed) != job.Closed {
		t.Errorf("Wait returned %v, and Subscribe %v", waited, subscribed)
	}
}

func together(t *testing.T, p pair) {
	var group sync.WaitGroup
	where := []job.QueueKind{red, green, blue}
	for n := range 8 {
		topic := fmt.Sprint("topic/", n%2)
		group.Go(func() {
			for k := range 100 {
				announceTo(t, p.tells, where[k%3])
				if err := p.tells.Publish(t.Context(), topic, []byte("m")); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for range 20 {
				s, err := p.hears.Subscribe(t.Context(), topic)
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
	// Each queue and kind has one waiter.
	for _, l := range where {
		group.Go(func() { wait(t, p.hears, l) })
	}
	group.Wait()
}

func announce(t *testing.T, b broker.Broker, where ...job.QueueKind) {
	t.Helper()
	if err := b.Announce(t.Context(), where...); err != nil {
		t.Fatal(err)
	}
}

func announceTo(t *testing.T, b broker.Broker, where ...job.QueueKind) {
	t.Helper()
	if err := b.Announce(t.Context(), where...); err != nil {
		t.Error(err)
	}
}

// wait waits for one of the queues and kinds. It may be called from any goroutine.
func wait(t *testing.T, b broker.Broker, where ...job.QueueKind) []job.QueueKind {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	got, err := b.Wait(ctx, where)
	if err != nil {
		t.Errorf("wait for %v: %v", where, err)
	}
	if err == nil && len(got) == 0 {
		t.Error("a wait returned without a queue and kind and without an error")
	}
	for _, l := range got {
		if !slices.Contains(where, l) {
			t.Errorf("told of %v, which was not asked for", l)
		}
	}
	return got
}

// gather waits until it was told of at least n queues and kinds.
func gather(t *testing.T, b broker.Broker, n int, where ...job.QueueKind) map[job.QueueKind]bool {
	t.Helper()
	got := map[job.QueueKind]bool{}
	for len(got) < n && !t.Failed() {
		for _, l := range wait(t, b, where...) {
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
	case <-time.After(timeout):
		t.Fatal("no message came")
		return ""
	}
}
