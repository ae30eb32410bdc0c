package printed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

// A log is an output, and what was read of it.
type log struct {
	text   []byte
	got    int
	told   []string // events, as KEY NAME MESSAGE
	refuse error
}

func (g *log) reader() *Reader {
	return NewReader(func(context.Context) (int64, error) { return int64(len(g.text)), nil }, g.open)
}

func (g *log) open(context.Context) (io.ReadSeekCloser, int64, error) {
	return file{bytes.NewReader(g.text), &g.got}, int64(len(g.text)), nil
}

func (g *log) add(format string, args ...any) { g.text = fmt.Appendf(g.text, format, args...) }

func (g *log) tell(_ context.Context, e job.CustomEvent) error {
	if g.refuse != nil {
		return g.refuse
	}
	g.told = append(g.told, strings.TrimSpace(e.Key+" "+e.Name+" "+e.Message))
	return nil
}

func (g *log) follow(t *testing.T, r *Reader) {
	t.Helper()
	if err := r.Follow(t.Context(), Launch{Launch: 2}, g.tell); err != nil {
		t.Error(err)
	}
}

func (g *log) finish(t *testing.T, r *Reader) string {
	t.Helper()
	point, err := r.Finish(t.Context(), Launch{Launch: 2}, g.open, g.tell)
	if err != nil {
		t.Error(err)
	}
	return point
}

func (g *log) has(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(g.told, want) {
		t.Errorf("told %q, want %q", g.told, want)
	}
	g.told = nil
}

func TestReader(t *testing.T) {
	g := &log{}
	r := g.reader()
	g.follow(t, r)
	g.add("begin\n::pawl event a one\n::pawl checkpoint 1\nx ::pawl event no\n::pawl eve")
	g.follow(t, r)
	g.has(t, "line-2-6 a one")
	g.follow(t, r)
	g.has(t)
	at := len(g.text) - len("::pawl eve")
	g.add("nt b two\n::pawl event RUNNING no\n")
	g.follow(t, r)
	g.has(t, fmt.Sprintf("line-2-%d b two", at))

	// A line that is too long says nothing, wherever its parts begin and end.
	for _, n := range []int{mostLine, 2 * mostLine, 64 << 10, 64<<10 + 1, mostPart - 1, mostPart, 2*mostPart + 5} {
		g.add("%s", strings.Repeat("x", n)+"::pawl event no\n")
	}
	for range 8 {
		g.follow(t, r)
	}
	g.has(t)
	at = len(g.text)
	g.add("::pawl event c\n::pawl checkpoint 2\n")
	g.follow(t, r)
	g.has(t, fmt.Sprintf("line-2-%d c", at))
	if g.got > len(g.text)+2*mostPart {
		t.Errorf("%d bytes were read of %d", g.got, len(g.text))
	}

	// The last line needs no end.
	g.add("::pawl checkpoint 3")
	if point := g.finish(t, r); point != "3" {
		t.Errorf("checkpoint %q", point)
	}

	// Another process finds the same from the beginning, with the same keys.
	g.text = g.text[:60]
	other := g.reader()
	if point := g.finish(t, other); point != "1" {
		t.Errorf("checkpoint %q", point)
	}
	g.has(t, "line-2-6 a one")
}

func TestRefusedEvents(t *testing.T) {
	g := &log{}
	r := g.reader()
	g.add("::pawl event a\n::pawl event b\n::pawl checkpoint 1\n")
	for _, kind := range []job.ErrorKind{job.Unavailable, job.Conflict} {
		g.refuse = job.Errorf(kind, "not now")
		if err := r.Follow(t.Context(), Launch{}, g.tell); !errors.Is(err, g.refuse) {
			t.Errorf("error %v", err)
		}
	}
	g.refuse = nil
	g.follow(t, r)
	g.has(t, "line-2-0 a", "line-2-15 b")

	// What is refused for good is left out in the end; what may be taken later is not.
	r = g.reader()
	g.refuse = job.Errorf(job.Unavailable, "not now")
	if _, err := r.Finish(t.Context(), Launch{}, g.open, g.tell); !errors.Is(err, g.refuse) {
		t.Errorf("error %v", err)
	}
	g.refuse = job.Errorf(job.Conflict, "it has 10000 events")
	if point := g.finish(t, r); point != "1" {
		t.Errorf("checkpoint %q", point)
	}
}

func TestManyEvents(t *testing.T) {
	g := &log{text: bytes.Repeat([]byte("::pawl event x\n"), 1e6)}
	r := g.reader()
	g.add("::pawl checkpoint 1\n")
	if point := g.finish(t, r); point != "1" {
		t.Errorf("checkpoint %q", point)
	}
	if n := len(g.told); n != mostEvents+1 || !strings.HasPrefix(g.told[n-1], "line-2-many lines-skipped") {
		t.Errorf("%d events, the last %q", n, g.told[n-1])
	}
}

// Of a very large output that nobody followed the end is read.
func TestLargeOutput(t *testing.T) {
	g := &log{}
	g.add("::pawl event a\n::pawl checkpoint 1\n")
	g.text = append(g.text, bytes.Repeat([]byte("::pawl event b \n"), 1)...)
	g.text = append(g.text, bytes.Repeat([]byte("xxxxxxxxxxxxxxx\n"), mostRest/16)...)
	at := len(g.text)
	g.add("::pawl event c\n::pawl checkpoint 2\n")
	if point := g.finish(t, g.reader()); point != "2" {
		t.Errorf("checkpoint %q", point)
	}
	if n := len(g.text) - mostRest; len(g.told) == 2 {
		g.has(t, fmt.Sprintf("line-2-far lines-skipped %d bytes of the output were not looked through for events: "+
			"it grew too fast", n), fmt.Sprintf("line-2-%d c", at))
	} else {
		t.Errorf("told %q", g.told)
	}
	if g.got > mostRest+64<<10 {
		t.Errorf("%d bytes were read", g.got)
	}

	// Who follows it misses nothing.
	r := g.reader()
	for range len(g.text)/mostPart + 1 {
		g.follow(t, r)
	}
	g.finish(t, r)
	if len(g.told) != 3 {
		t.Errorf("told %q", g.told)
	}
}

// A file system that hangs while a program runs holds up nobody at its end.
func TestFinishBesideAReaderThatHangs(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		hangs, on := make(chan struct{}), make(chan struct{})
		r := NewReader(
			func(context.Context) (int64, error) { return 10, nil },
			func(context.Context) (io.ReadSeekCloser, int64, error) {
				close(hangs)
				<-on
				return nil, 0, errors.New("gone")
			})
		var over sync.WaitGroup
		over.Go(func() { r.Follow(t.Context(), Launch{}, nil) })
		<-hangs
		var g log
		g.add("::pawl event a b\n::pawl checkpoint 7\n")
		point, err := r.Finish(t.Context(), Launch{}, g.open, g.tell)
		if err != nil || point != "7" || len(g.told) != 1 {
			t.Errorf("%q, %v, %v", g.told, point, err)
		}
		close(on)
		over.Wait()
	})
}

// At the end a call that is under way is waited for, and nothing is left out.
func TestFinishBesideAnotherCall(t *testing.T) {
	var g log
	g.add("::pawl event a b\n")
	begun, on := make(chan struct{}), make(chan struct{})
	r := g.reader()
	var over sync.WaitGroup
	over.Go(func() {
		r.Follow(t.Context(), Launch{}, func(ctx context.Context, e job.CustomEvent) error {
			close(begun)
			<-on
			return g.tell(ctx, e)
		})
	})
	<-begun
	g.add("::pawl event c d\n")
	over.Go(func() {
		if _, err := r.Finish(t.Context(), Launch{}, nil, g.tell); err != nil {
			t.Error(err)
		}
	})
	close(on)
	over.Wait()
	g.has(t, "line-0-0 a b", "line-0-17 c d")
}
