package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestNetworkThatHangs: a way is there again, and sound, when the process that hung is gone.
func TestNetworkThatHangs(t *testing.T) {
	testenv.Aside(t)
	if testing.Short() {
		t.Skip("it builds toxiproxy")
	}
	bin := filepath.Join(t.TempDir(), "toxiproxy")
	must(t, buildProxy(t.Context(), bin))
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
	must(t, n.ask(func() error { return w.proxy.Disable() }))
	if get() == nil {
		t.Error("a way that was cut leads somewhere")
	}
	must(t, n.process.Process.Signal(syscall.SIGSTOP))
	until(t, "it stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.process.Process.Pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	n.hangs = 100 * time.Millisecond
	must(t, n.ask(func() error { return w.proxy.Enable() }))
	must(t, get())
}
