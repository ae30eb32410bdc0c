package live

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/pawl-jobs/pawl/job"
)

// cells measures text. Letters of ambiguous width take one cell, whatever the locale says: the
// frames of this package are made of some.
var cells = &runewidth.Condition{StrictEmojiNeutral: true}

// Clean returns s as it can be shown on a terminal, in one line: what stands after the last
// carriage return, without escape sequences, tabs as spaces, and what else does not show itself as
// a [Writer] shows it.
func Clean(s string) string {
	s = strings.TrimRight(s, "\r\n")
	s = clip(s[strings.LastIndexByte(s, '\r')+1:])
	if plain(s) {
		return s
	}
	var b strings.Builder
	column, pictorial := 0, false
	for len(s) > 0 {
		if n := sequence(s); n > 0 {
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		c := s[0]
		s = s[n:]
		switch {
		case r == '\t':
			n := 8 - column%8
			b.WriteString("        "[:n])
			column += n
		case r == '\n':
			b.WriteByte(' ')
			column++
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, c)
			column += len(`\x00`)
		case r == joiner && pictorial:
			b.WriteRune(r)
		case !job.Visible(r):
			text := escaped(r)
			b.WriteString(text)
			column += len(text)
		default:
			b.WriteRune(r)
			column += cells.RuneWidth(r)
		}
		pictorial = pictured(r)
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// sequence returns how long the escape sequence is that s begins with, 0 if it begins with none
// (ECMA-48, section 5). One that has no end takes all of s.
func sequence(s string) int {
	var kind byte
	at := 2
	switch {
	case strings.HasPrefix(s, "\x1b") && len(s) > 1:
		kind = s[1]
	case strings.HasPrefix(s, "\u009b"): // the same in one character
		kind = '['
	case strings.HasPrefix(s, "\u0090"), strings.HasPrefix(s, "\u0098"), strings.HasPrefix(s, "\u009d"),
		strings.HasPrefix(s, "\u009e"), strings.HasPrefix(s, "\u009f"):
		kind = ']'
	default:
		return 0
	}
	switch {
	case kind == '[':
		for at < len(s) && s[at] >= 0x20 && s[at] <= 0x3f {
			at++
		}
	case strings.IndexByte("]PX^_", kind) >= 0:
		for ; at < len(s); at++ {
			switch {
			case s[at] == '\a':
				return at + 1
			case strings.HasPrefix(s[at:], "\x1b\\"), strings.HasPrefix(s[at:], "\u009c"):
				return at + 2
			}
		}
		return len(s)
	case kind >= 0x20 && kind <= 0x2f:
		for at < len(s) && s[at] >= 0x20 && s[at] <= 0x2f {
			at++
		}
	default:
		at = 1 // the letter after the escape is a part of it, unless it is something else
		if kind >= 0x30 && kind <= 0x7e {
			at = 2
		}
		return at
	}
	if at < len(s) && s[at] >= 0x30 && s[at] <= 0x7e {
		at++
	}
	return at
}

// mostText is how many bytes of one text are looked at: no terminal shows more of a line, and
// measuring costs time.
const mostText = 4 << 10

// clip shortens s to mostText bytes.
func clip(s string) string {
	if len(s) <= mostText {
		return s
	}
	end := mostText
	for end > mostText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// Width is how many cells s takes on a terminal, without its colours.
func Width(s string) int { return cells.StringWidth(strip(s)) }

// Cut shortens s to width cells.
func Cut(s string, width int) string { return cut(s, width) }

// cut shortens s to width cells.
func cut(s string, width int) string {
	if cells.StringWidth(s) <= width {
		return s
	}
	if width <= 0 {
		return ""
	}
	return cells.Truncate(s, width, "…")
}

// pad fills s up to width cells.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-cells.StringWidth(s)))
}

// Fold breaks s into lines of at most width cells, between words where it can. Lines after the
// first are indented. 0: any width.
func Fold(s string, width, indent int) []string {
	if width == 0 {
		return []string{s}
	}
	return fold(s, width, indent)
}

// fold breaks s into lines of at most width cells, between words where it can. Lines after the
// first are indented.
func fold(s string, width, indent int) []string {
	if width <= indent {
		return []string{cut(s, width)}
	}
	var lines []string
	prefix := ""
	for cells.StringWidth(prefix+s) > width {
		part := cells.Truncate(s, width-len(prefix), "")
		if part == "" {
			break
		}
		if space := strings.LastIndexByte(part+s[len(part):][:1], ' '); space > 0 &&
			strings.TrimSpace(part[:space]) != "" {
			part = part[:space]
		}
		lines = append(lines, prefix+strings.TrimRight(part, " "))
		s = strings.TrimLeft(s[len(part):], " ")
		prefix = strings.Repeat(" ", indent)
	}
	return append(lines, prefix+s)
}

// Spent is a duration as a person wants to read it.
func Spent(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return short(d.Round(time.Second))
}

// ticking is a duration that still grows.
func ticking(d time.Duration) string { return short(max(0, d).Truncate(time.Second)) }

// short leaves out the zeros at the end: 10m, not 10m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size is a number of bytes with three digits or so.
func size(n float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		switch {
		case unit == "B" && n < 1024, n < 1000 && n >= 99.95:
			return fmt.Sprintf("%.0f %s", n, unit)
		case n < 99.95:
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.1f TiB", n)
}

// plural counts things whose name takes an s.
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// FirstLine is the first line of s as it can be shown on a terminal, with a sign if there are more.
func FirstLine(s string) string {
	line, _, more := strings.Cut(s, "\n")
	if line = Clean(line); more {
		line += " …"
	}
	return line
}
