package live

import (
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain text", "plain text"},
		{"ends\r\n", "ends"},
		{"10%\r20%\r30%", "30%"},
		{"10%\r20%\r", "20%"},
		{"\x1b[31;1mred\x1b[0m", "red"},
		{"\x1b[2J\x1b[Hgone\x1b[?25l", "gone"},
		{"\x1b]0;a title\ashown", "shown"},
		{"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"\x1bP1$r0m\x1b\\x", "x"},
		{"\u009b31mred", "red"},
		{"\u009d0;title\u009cshown", "shown"},
		{"\x1b(Bx\x1b7\x1bcy", "xy"},
		{"\x1b]never ends", ""},
		{"\x1b[31", ""},
		{"x\x1b", `x\x1b`},
		{"zero\u200bwidth\u200d", `zero\u200bwidth\u200d`},
		{"\x9b31m", `\x9b31m`},
		{"\x1b\x1b[Ax", "x"},
		{"bell\a back\b null\x00 del\x7f", `bell\x07 back\x08 null\x00 del\x7f`},
		{"a\tb\t\tc", "a       b               c"},
		{"日本\tx", "日本    x"},
		{"two\nlines", "two lines"},
		{"evil\u202etxt.exe\u2066", `evil\u202etxt.exe\u2066`},
		{"bad\xffbyte", `bad\xffbyte`},
		{"\xc2", `\xc2`},
		{"first\r" + strings.Repeat("ä", mostText), strings.Repeat("ä", mostText/2) + "…"},
		{"日本語 é 👩‍🔬", "日本語 é 👩‍🔬"},
	} {
		if got := Clean(c.in); got != c.want {
			t.Errorf("%q is %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"\x1b[31mred", "a\rb", "\x1b]0;x\a", "\u009b1A", "\x1b\x1b", "\t\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q is %q", s, got)
		}
		for width := range 9 {
			if short := cut(got, width); cells.StringWidth(short) > width {
				t.Errorf("%q cut to %d cells is %q", got, width, short)
			}
		}
		for _, l := range fold(got, 7, 2) {
			if cells.StringWidth(l) > 7 {
				t.Errorf("%q folded to 7 cells has %q", got, l)
			}
		}
	})
}

func TestFold(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
	}{
		{"", ""},
		{"short", "short"},
		{"one two three", "one two|  three"},
		{"exactly 12ch", "exactly|  12ch"},
		{"/a/long/name/without/spaces", "/a/long/na|  me/witho|  ut/space|  s"},
		{"日本語日本語", "日本語日本|  語"},
	} {
		if got := strings.Join(fold(c.in, 10, 2), "|"); got != c.want {
			t.Errorf("%q is %q, want %q", c.in, got, c.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for _, c := range []struct {
		d           time.Duration
		spent, tick string
	}{
		{0, "0s", "0s"},
		{3456 * time.Microsecond, "3ms", "0s"},
		{1250 * time.Millisecond, "1.3s", "1s"},
		{90 * time.Second, "1m30s", "1m30s"},
		{10 * time.Minute, "10m", "10m"},
		{time.Hour, "1h", "1h"},
		{time.Hour + 5*time.Minute, "1h5m", "1h5m"},
		{20*time.Hour + 10*time.Second, "20h0m10s", "20h0m10s"},
		{-time.Second, "-1s", "0s"},
	} {
		if s, tick := Spent(c.d), ticking(c.d); c.d >= 0 && s != c.spent || tick != c.tick {
			t.Errorf("%d is %s and %s, want %s and %s", c.d, s, tick, c.spent, c.tick)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 512 << 20: "512 MiB", 3.2e12: "2.9 TiB", 1023 << 10: "1.0 MiB",
	} {
		if got := size(n); got != want {
			t.Errorf("%.0f is %s, want %s", n, got, want)
		}
	}
}
