package connection

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
)

// A slow connection takes one write at a time, each when it is let.
type slow struct {
	net.Conn
	begun chan int // tells how many bytes a write has
	let   chan error
	got   bytes.Buffer
}

func (s *slow) Write(p []byte) (int, error) {
	s.begun <- len(p)
	if err := <-s.let; err != nil {
		return 0, err
	}
	return s.got.Write(p)
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// What is written while a write is under way goes with the next one, up to a bound. It arrives in
// its order, and small packets are no exception.
func TestWideGathers(t *testing.T) {
	t.Parallel()
	s := &slow{begun: make(chan int), let: make(chan error)}
	w := widen(s)
	const large, small, rest = 40 << 10, 100, writeSize - 100
	all := noise(large + small + rest + 1)
	write := func(n int) {
		t.Helper()
		if got, err := w.Write(all[:n]); got != n || err != nil {
			t.Fatalf("write: %d, %v", got, err)
		}
		all = all[n:]
	}
	whole := bytes.Clone(all)
	write(large)
	if n := <-s.begun; n != large {
		t.Fatalf("the first write has %d bytes", n)
	}
	write(small)
	write(rest)
	full := make(chan struct{})
	go func() {
		defer close(full)
		_, _ = w.Write(all) // waits: there is no room for it
	}()
	for range 100 {
		runtime.Gosched() // it is as far as it comes
	}
	s.let <- nil
	second := <-s.begun
	s.let <- nil
	if second != writeSize {
		t.Errorf("the second write has %d bytes, want all that was gathered, %d", second, writeSize)
	}
	for got := large + second; got < len(whole); {
		got += <-s.begun
		s.let <- nil
	}
	<-full
	w.mu.Lock()
	for w.writing {
		w.changed.Wait()
	}
	w.mu.Unlock()
	if !bytes.Equal(s.got.Bytes(), whole) {
		t.Errorf("%d bytes arrived, not the %d that were written", s.got.Len(), len(whole))
	}
}

// A write that fails ends those that wait, and all later ones.
func TestWideFails(t *testing.T) {
	t.Parallel()
	s := &slow{begun: make(chan int), let: make(chan error)}
	w := widen(s)
	packet := noise(writeSize)
	for range 2 { // the first is under way, and the second fills the buffer
		if _, err := w.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	<-s.begun
	third := make(chan error)
	go func() {
		_, err := w.Write(packet)
		third <- err
	}()
	cut := errors.New("cut")
	s.let <- cut
	if err := <-third; !errors.Is(err, cut) {
		t.Errorf("one that waited: %v", err)
	}
	if _, err := w.Write(packet[:10]); !errors.Is(err, cut) {
		t.Errorf("one after it: %v", err)
	}
}

// A read takes what has come, and waits for no more.
func TestWideReads(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go far.Write([]byte("12345"))
	w := widen(near)
	b := make([]byte, 2)
	for _, want := range []string{"12", "34", "5"} {
		n, err := io.ReadAtLeast(w, b, len(want))
		if string(b[:n]) != want || err != nil {
			t.Errorf("%q, %v; want %q", b[:n], err, want)
		}
	}
}
