package live

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

func TestFilter(t *testing.T) {
	for _, c := range []struct{ in, text, log string }{
		{"plain\ttext\n", "plain\ttext\n", "plain\ttext\n"},
		{"日本語 é 👩\u200d🔬 ❤\ufe0f\u200d🔥", "日本語 é 👩\u200d🔬 ❤\ufe0f\u200d🔥", "日本語 é 👩\u200d🔬 ❤\ufe0f\u200d🔥"},
		{"\x1b]0;title\ax", `\x1b]0;title\x07x`, `\x1b]0;title\x07x`},
		{"\x1b[2J\x1b[H", `\x1b[2J\x1b[H`, `\x1b[2J\x1b[H`},
		{"\x1b[31;1mred\x1b[0m", `\x1b[31;1mred\x1b[0m`, "\x1b[31;1mred\x1b[0m"},
		{"\x1b[38:5:9mred\x1b[m.", `\x1b[38:5:9mred\x1b[m.`, "\x1b[38:5:9mred\x1b[m."},
		{"\x1b[31mred", `\x1b[31mred`, "\x1b[31mred\x1b[0m"},
		{"\x1b[?25l\x1b[>4;2m\x1b[ m", `\x1b[?25l\x1b[>4;2m\x1b[ m`, `\x1b[?25l\x1b[>4;2m\x1b[ m`},
		{"\x1b[" + strings.Repeat("1;", 40) + "m", `\x1b[` + strings.Repeat("1;", 40) + "m", `\x1b[` + strings.Repeat("1;", 40) + "m"},
		{"x\x1b", `x\x1b`, `x\x1b`},
		{"x\x1b[31", `x\x1b[31`, `x\x1b[31`},
		{"\x1b\x1b[31m", `\x1b\x1b[31m`, "\\x1b\x1b[31m\x1b[0m"},
		{"\u009b31m\x9b31m\x90q", `\u009b31m\x9b31m\x90q`, `\u009b31m\x9b31m\x90q`},
		{"a\u202eb\u2066c\u200e\u061c", `a\u202eb\u2066c\u200e\u061c`, `a\u202eb\u2066c\u200e\u061c`},
		{"a\u200bb\u200c\u200d\u2060\ufeff", `a\u200bb\u200c\u200d\u2060\ufeff`, `a\u200bb\u200c\u200d\u2060\ufeff`},
		{"\u2028\U000e0041\x7f\x00\b\v\f", `\u2028\U000e0041\x7f\x00\x08\x0b\x0c`, `\u2028\U000e0041\x7f\x00\x08\x0b\x0c`},
		{"bad\xff\xc3", `bad\xff\xc3`, `bad\xff\xc3`},
		{"dos\r\nlines\r\r\n", "dos\nlines\n", "dos\nlines\n"},
		{"1 %\r2 %\r", `1 %\r2 %`, "1 %\r\x1b[K2 %"},
		{"\r1 %\r2 %\n", `\r1 %\r2 %` + "\n", "\r\x1b[K1 %\r\x1b[K2 %\n"},
	} {
		for _, f := range []struct {
			filter
			want string
		}{{filter{}, c.text}, {filter{colors: true, rewrites: true}, c.log}} {
			whole := f.filter
			if got := string(whole.end(whole.append(nil, []byte(c.in)))); got != f.want {
				t.Errorf("%q is %q, want %q", c.in, got, f.want)
			}
			pieces, got := f.filter, []byte(nil)
			for i := range len(c.in) {
				got = pieces.append(got, []byte{c.in[i]})
			}
			if got = pieces.end(got); string(got) != f.want {
				t.Errorf("%q in pieces is %q, want %q", c.in, got, f.want)
			}
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"\x1b[31mred", "a\rb\r\n", "\x1b]0;x\a", "\u009b1A", "\t\xff", "👩\u200d🔬"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		var whole, pieces filter
		want := whole.end(whole.append(nil, b))
		at = max(0, min(at, len(b)))
		got := pieces.end(pieces.append(pieces.append(nil, b[:at]), b[at:]))
		if !bytes.Equal(got, want) {
			t.Errorf("%q at %d is %q, want %q", b, at, got, want)
		}
		if !utf8.Valid(got) {
			t.Errorf("%q is %q", b, got)
		}
		for _, r := range string(got) {
			if r != '\n' && r != '\t' && r != joiner && !job.Visible(r) {
				t.Errorf("%q is %q", b, got)
			}
		}
	})
}
