package live

import (
	"bytes"
	"fmt"
	"io"
)

// A screen draws frames in place: each one over the one before, in one write, and with nothing of
// the terminal below but the cursor. It uses no alternate screen, so the last frame stays where it
// is.
type screen struct {
	out   io.Writer
	above []int  // widths of the lines from the top of the frame to the cursor
	shown string // the frame as it stands, to draw nothing twice
	wide  int    // the width of the terminal then
}

// draw replaces the frame by lines. print is what comes to stand above it, as whole lines. loose
// lets lines break at the edge of the terminal: only the last frame may do that.
func (s *screen) draw(lines []string, print []byte, width int, loose bool) error {
	var frame bytes.Buffer
	widths := make([]int, 0, len(lines))
	for _, l := range lines {
		frame.WriteString(l)
		frame.WriteString("\x1b[K\r\n") // what the line before has more than this one
		widths = append(widths, cells.StringWidth(strip(l)))
	}
	if len(print) == 0 && frame.String() == s.shown && width == s.wide {
		return nil
	}
	var b bytes.Buffer
	b.WriteByte('\r')
	if up := s.rows(width); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	if len(print) > 0 {
		b.WriteString("\x1b[J")
		b.Write(bytes.ReplaceAll(print, []byte("\n"), []byte("\r\n")))
	}
	if !loose {
		b.WriteString("\x1b[?7l") // a character that is wider than we think does not break the line
	}
	b.Write(frame.Bytes())
	b.WriteString("\x1b[J")
	if !loose {
		b.WriteString("\x1b[?7h")
	}
	s.above, s.shown, s.wide = widths, frame.String(), width
	_, err := s.out.Write(b.Bytes())
	return err
}

// add writes lines below the frame, and then prompt. Until the next frame the cursor stands behind
// it.
func (s *screen) add(lines []string, prompt string) error {
	var b bytes.Buffer
	b.WriteString("\r\x1b[K") // the terminal may have shown what was typed
	for _, l := range lines {
		b.WriteString(l + "\r\n")
		s.below(cells.StringWidth(l))
	}
	b.WriteString(prompt)
	_, err := s.out.Write(b.Bytes())
	return err
}

// below counts a line of so many cells as a part of the frame.
func (s *screen) below(width int) {
	s.above = append(s.above, width)
	s.shown = ""
}

// rows is how far above the cursor the frame begins. Where the terminal has become narrower, its
// lines have been broken.
func (s *screen) rows(width int) int {
	n := 0
	for _, w := range s.above {
		n += max(1, (w+width-1)/width)
	}
	return n
}

// strip takes the colours out of a line that this package has drawn.
func strip(l string) string {
	var b []byte
	for len(l) > 0 {
		if n := sequence(l); n > 0 {
			l = l[n:]
			continue
		}
		b = append(b, l[0])
		l = l[1:]
	}
	return string(b)
}
