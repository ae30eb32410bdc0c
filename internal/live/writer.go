package live

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/pawl-jobs/pawl/job"
)

// A Writer is one of the standard files of a command. To a file or a pipe it writes what it is
// given. On a terminal it shows what a terminal would obey, or what shows nothing: the byte 0x1b as
// \x1b, the character U+202E as \u202e. It remembers a write that has failed, for most commands do
// not look.
type Writer struct {
	Color bool // Pawl's own colours are wanted

	file   *os.File
	mu     sync.Mutex
	filter *filter // nil: no terminal
	failed error
	lost   []byte
}

// mostLost is how many bytes are kept of what could not be written.
const mostLost = 1 << 10

// NewWriter returns the writer of a standard file. NO_COLOR (no-color.org) takes the colours away.
func NewWriter(f *os.File) *Writer {
	w := &Writer{file: f}
	if term.IsTerminal(int(f.Fd())) {
		w.filter = &filter{}
		w.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return w
}

// Terminal reports whether it writes to a terminal.
func (w *Writer) Terminal() bool { return w.filter != nil }

// Colors lets colours pass, those of Pawl or of the programs whose logs are shown.
func (w *Writer) Colors() {
	if w.filter != nil {
		w.filter.colors = true
	}
}

// Log lets colours pass, and shows a line that a program writes again and again in its newest
// state.
func (w *Writer) Log() {
	if w.filter != nil {
		w.filter.colors, w.filter.rewrites = true, true
	}
}

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.filter == nil {
		n, err = w.file.Write(p)
	} else if _, err = w.file.Write(w.filter.append(nil, p)); err == nil {
		n = len(p)
	}
	if err != nil {
		w.failed = cmp.Or(w.failed, err)
		w.lost = append(w.lost, p[n:min(len(p), n+mostLost-len(w.lost))]...)
		return n, w.failed
	}
	return n, nil
}

// Failed returns the first error of a write, and the beginning of what was lost by it and by those
// after it.
func (w *Writer) Failed() (lost []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost, w.failed
}

// Close writes what is left and takes colours back that a program has left. The file stays open.
func (w *Writer) Close() error {
	if w.filter == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.file.Write(w.filter.end(nil))
	return err
}

// Width is how many cells a line may have: those of the terminal; of another file what COLUMNS
// says; 0: any number.
func (w *Writer) Width() int {
	if w.filter != nil {
		if width, _, err := term.GetSize(int(w.file.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	width := 0
	fmt.Sscan(os.Getenv("COLUMNS"), &width) //nolint:errcheck // then it is 0
	return max(0, width)
}

// Text returns s as a terminal may show it. Its lines and tabs stay.
func Text(s string) string {
	if plain(s) {
		return s
	}
	var f filter
	return string(f.end(f.append(nil, []byte(s))))
}

// A filter makes text of bytes that come in pieces.
type filter struct {
	colors   bool // sequences that colour text pass
	rewrites bool // a carriage return erases the line

	rest      []byte // the beginning of something that has no end yet
	colored   bool   // a colour has not been taken back
	pictorial bool   // the character before is a picture, to which another may be joined
}

// append adds what p shows to out.
func (f *filter) append(out, p []byte) []byte {
	if len(f.rest) > 0 {
		p = append(f.rest, p...)
		f.rest = nil
	}
	for len(p) > 0 {
		n := f.one(&out, p)
		if n == 0 {
			f.rest = append([]byte(nil), p...)
			break
		}
		p = p[n:]
	}
	return out
}

// one adds what the first character of p shows, or its first sequence, and returns how many bytes
// that is: 0 if more bytes decide it.
func (f *filter) one(out *[]byte, p []byte) int {
	pictorial := f.pictorial
	f.pictorial = false
	switch {
	case p[0] == '\n' || p[0] == '\t' || p[0] >= ' ' && p[0] < 0x7f:
		*out = append(*out, p[0])
		return 1
	case p[0] == '\r' && len(p) == 1:
		return 0
	case p[0] == '\r' && (p[1] == '\n' || p[1] == '\r'):
		return 1
	case p[0] == '\r' && f.rewrites:
		*out = append(*out, "\r\x1b[K"...)
		return 1
	case p[0] == '\r':
		*out = append(*out, `\r`...)
		return 1
	case p[0] == '\x1b' && f.colors:
		n, is := colorSequence(p)
		if is {
			f.colored = n > len("\x1b[0m") || p[2] != 'm' && p[2] != '0'
			*out = append(*out, p[:n]...)
		}
		if is || n == 0 {
			return n
		}
	}
	r, n := utf8.DecodeRune(p)
	switch {
	case r == utf8.RuneError && n == 1 && !utf8.FullRune(p):
		f.pictorial = pictorial
		return 0
	case r == utf8.RuneError && n == 1:
		*out = fmt.Appendf(*out, `\x%02x`, p[0])
	case r == joiner && pictorial, job.Visible(r):
		*out = append(*out, p[:n]...)
	default:
		*out = append(*out, escaped(r)...)
	}
	f.pictorial = pictured(r)
	return n
}

// end adds what is left.
func (f *filter) end(out []byte) []byte {
	rest, colors := f.rest, f.colors
	f.rest, f.colors = nil, false // what has no end colours nothing
	for len(rest) > 0 {
		n := f.one(&out, rest)
		if n == 0 {
			if n = 1; rest[0] != '\r' {
				out = fmt.Appendf(out, `\x%02x`, rest[0])
			}
		}
		rest = rest[n:]
	}
	if f.colors = colors; f.colored {
		out = append(out, "\x1b[0m"...)
		f.colored = false
	}
	return out
}

// mostColor is how many bytes a sequence that colours text has at most.
const mostColor = 64

// colorSequence reports whether p begins with a sequence that only colours text (SGR, of ECMA-48),
// and how long that is; 0 if more bytes decide it.
func colorSequence(p []byte) (n int, is bool) {
	for i, c := range p[:min(len(p), mostColor)] {
		switch {
		case i == 0 || i == 1 && c == '[' || i > 1 && (c >= '0' && c <= ';'):
		case i > 1 && c == 'm':
			return i + 1, true
		default:
			return 1, false
		}
	}
	if len(p) < mostColor {
		return 0, false
	}
	return 1, false
}

// escaped is a character that does not show itself, in words.
func escaped(r rune) string {
	switch {
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// joiner joins pictures to one. Behind anything else it shows nothing.
const joiner = '\u200d'

// pictured reports whether a joiner behind r joins pictures: behind a symbol, a colour of skin, or
// the mark of a picture.
func pictured(r rune) bool {
	return r > unicode.MaxLatin1 && (unicode.Is(unicode.So, r) || r == '\ufe0f' || r >= 0x1f3fb && r <= 0x1f3ff)
}

// Lines returns each line of s as [Clean] makes it.
func Lines(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\r\n"), "\n")
	for i, l := range lines {
		lines[i] = Clean(l)
	}
	return lines
}

var _ io.WriteCloser = (*Writer)(nil)
