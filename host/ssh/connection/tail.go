package connection

import (
	"bytes"
	"strings"
	"sync"
)

// maxTail is how much is kept of what a program writes to its standard error.
const maxTail = 300

// A tail keeps the end of what is written to it. Its methods are safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements [io.Writer]. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if more := len(t.text) - maxTail; more > 0 {
		t.text = bytes.Clone(t.text[more:])
	}
	return len(p), nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.text)), "?")
}
