package tail_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/tail"
)

// TestLinesHaveABound reads the end of logs with lines as long as programs like.
func TestLinesHaveABound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 1 << 36
	if err := f.Truncate(size); err != nil { // 64 GiB without a newline
		t.Fatal(err)
	}
	for _, lines := range []int{1, 2, 1000, 1 << 40} {
		start, cut, err := tail.Lines(f, size, lines)
		if want := int64(size - min(lines, 64)<<20); start != want || err != nil ||
			!strings.HasSuffix(cut, " bytes of the file are before this\n") {
			t.Errorf("%d lines: from %d, want %d; %q, %v", lines, start, want, cut, err)
		}
	}
	text := []byte(strings.Repeat("line\n", 300_000))
	for lines, want := range map[int]int{
		1: len(text) - 5, 3: len(text) - 15, 299_999: 5, 300_000: 0, 300_001: 0,
		0: 0,
	} {
		if start, cut, err := tail.Lines(bytes.NewReader(text), int64(len(text)), lines); start != int64(want) ||
			cut != "" || err != nil {
			t.Errorf("%d lines: from %d, want %d; %q, %v", lines, start, want, cut, err)
		}
	}
}
