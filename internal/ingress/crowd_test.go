package ingress_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/ingress"
)

// serveCrowd serves h to a crowd of most connections, and returns a dialer.
func serveCrowd(t *testing.T, most int, h http.HandlerFunc, wrap func(net.Listener) net.Listener) func() net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ingress.NewCrowd(most).Join(srv, wrap(l))) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
	})
	return func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func plainListener(l net.Listener) net.Listener { return l }

// asked sends a request and returns the status of the answer.
func asked(t *testing.T, c net.Conn) int {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return answer(t, c)
}

func answer(t *testing.T, c net.Conn) int {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func TestIdleConnectionsMakeRoom(t *testing.T) {
	dial := serveCrowd(t, 4, func(http.ResponseWriter, *http.Request) {}, plainListener)
	first := dial()
	for range 20 {
		dial()
	}
	if code := asked(t, dial()); code != http.StatusOK {
		t.Errorf("answered with %d", code)
	}
	if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection that was idle for longest is still open: %d, %v", n, err)
	}
}

func TestRequestsUnderWayAreLeftAlone(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	dial := serveCrowd(t, 2, func(http.ResponseWriter, *http.Request) { begun <- true; <-end }, plainListener)
	var busy []net.Conn
	for i := range 3 {
		c := dial()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if busy = append(busy, c); i < 2 { // the third one waits
			<-begun
		}
	}
	end <- true
	<-begun
	end <- true
	end <- true
	for _, c := range busy {
		if code := answer(t, c); code != http.StatusOK {
			t.Errorf("answered with %d", code)
		}
	}
}

// A poor listener accepts nothing a few times, for the machine has no more descriptors.
type poor struct {
	net.Listener
	left atomic.Int32
	errs []error
}

func (p *poor) Accept() (net.Conn, error) {
	if n := p.left.Add(-1); n >= 0 {
		return nil, &net.OpError{Op: "accept", Err: p.errs[int(n)%len(p.errs)]}
	}
	return p.Listener.Accept()
}

func TestAcceptOutlivesAShortage(t *testing.T) {
	dial := serveCrowd(t, 2, func(http.ResponseWriter, *http.Request) {}, func(l net.Listener) net.Listener {
		p := &poor{Listener: l, errs: []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EMFILE}}
		p.left.Store(3)
		return p
	})
	if code := asked(t, dial()); code != http.StatusOK {
		t.Errorf("answered with %d", code)
	}
}
