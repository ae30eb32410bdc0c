package ssh_test

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// TestRequests: what a machine is asked is counted, whichever way.
func TestRequests(t *testing.T) {
	s := testenv.SSHD(t, testenv.SSHOptions{})
	h := open(t, config(s))
	if n := h.Requests(); n != 0 {
		t.Errorf("%d requests before the first", n)
	}
	stat := func() {
		if _, err := h.Files().Stat(t.Context(), s.Work); err != nil {
			t.Fatal(err)
		}
	}
	boot := func() {
		if _, err := h.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	echo(t, h, "warm")
	stat()
	for _, call := range []struct {
		what string
		want int64
		call func()
	}{
		{"a script", 1, func() { echo(t, h, "one") }},
		{"stat", 1, stat},
		{"what is known", 0, boot},
	} {
		before := h.Requests()
		call.call()
		if n := h.Requests() - before; n != call.want {
			t.Errorf("%s: %d requests, want %d", call.what, n, call.want)
		}
	}
}
