package job

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible reports whether a character shows itself and nothing else. Controls do not, nor do marks
// of writing direction, line separators, and characters without width. A name with one of these
// looks like another name, and a terminal may obey it. Visible says nothing about [utf8.RuneError],
// which stands for a byte that is not UTF-8.
func Visible(r rune) bool {
	if r < 0x7f {
		return r >= ' '
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, hidden)
}

// hidden are the letters and marks that show nothing. The marks that choose how an emoji looks are
// not among them.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1},
		{Lo: 0x115f, Hi: 0x1160, Stride: 1},
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
		{Lo: 0x2065, Hi: 0x2065, Stride: 1},
		{Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1},
		{Lo: 0xfff0, Hi: 0xfff8, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}},
}

// readable reports whether all of s is text that shows itself.
func readable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !Visible(r) })
}
