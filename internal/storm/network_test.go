package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestNetworkThatHangs: a way is there again, and sound, when the process that hung is gone.
func TestNetworkThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds toxiproxy")
	}
	bin := filepath.Join(t.TempDir(), "toxiproxy")
	must(t, command(t.Context(), "", "go", "build", "-o", bin, proxySource))
	n, err := newNetwork(bin, t.Logf)
	must(t, err)
	defer n.close()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	w, err := n.open("way", server.Listener.Addr().String())
	must(t, err)
	addr := w.addr
	get := func() error {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
		r, err := c.Get("http://" + addr)
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	must(t, get())
	ctx, stop := context.WithCancel(t.Context())
	cut := make(chan error)
	go func() { cut <- w.cut(ctx) }()
	until(t, "the way is cut", func() bool { return get() != nil })
	must(t, n.process.Process.Signal(syscall.SIGSTOP))
	n.mu.Lock()
	n.hangs = 100 * time.Millisecond
	n.mu.Unlock()
	stop()
	must(t, <-cut)
	must(t, get())
}
