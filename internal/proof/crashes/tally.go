package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
)

// A tally counts the jobs that have begun, as the ledger grows.
type tally struct {
	name   string
	offset int64
	rest   []byte
	begun  map[string]bool
}

func (t *tally) count() int {
	f, err := os.Open(t.name)
	if err != nil {
		return 0
	}
	defer f.Close()
	if t.begun == nil {
		t.begun = map[string]bool{}
	}
	b, err := io.ReadAll(io.NewSectionReader(f, t.offset, 1<<30))
	if err != nil && !errors.Is(err, io.EOF) {
		return len(t.begun)
	}
	t.offset += int64(len(b))
	b = append(t.rest, b...)
	end := bytes.LastIndexByte(b, '\n') + 1
	for line := range bytes.Lines(b[:end]) {
		if w := strings.Fields(string(line)); len(w) > 1 && (w[0] == "launch" || w[0] == "task") {
			t.begun[w[1]] = true
		}
	}
	t.rest = bytes.Clone(b[end:])
	return len(t.begun)
}
