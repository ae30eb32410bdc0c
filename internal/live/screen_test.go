package live

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hinshun/vt10x"
)

// text of a terminal: its lines without the blanks at their ends, and those below the last one left
// out.
func contents(vt vt10x.Terminal) string {
	var lines []string
	for l := range strings.Lines(vt.String()) {
		lines = append(lines, strings.TrimRight(l, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func TestScreen(t *testing.T) {
	const width, height = 40, 12
	open := func() (vt10x.Terminal, *screen) {
		vt := vt10x.New(vt10x.WithSize(width, height))
		return vt, &screen{out: vt}
	}
	expect := func(t *testing.T, vt vt10x.Terminal, want string) {
		t.Helper()
		if got := contents(vt); got != want {
			t.Errorf("the terminal shows\n%s\nwant\n%s", got, want)
		}
	}

	t.Run("only the last frame is left, whatever the frames before were", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			vt, s := open()
			fmt.Fprint(vt, "$ pawl run\r\n")
			var frame []string
			for range 20 {
				frame = nil
				for range random.IntN(height - 2) {
					frame = append(frame, strings.Repeat("x", 1+random.IntN(width-1)))
				}
				s.draw(frame, nil, width, false)
			}
			want := strings.Join(append([]string{"$ pawl run"}, frame...), "\n")
			if got := contents(vt); got != want && got != strings.TrimPrefix(want, "$ pawl run\n") {
				t.Fatalf("the terminal shows\n%s\nwant\n%s", got, want)
			}
			if c := vt.Cursor(); c.X != 0 {
				t.Fatalf("the cursor is in column %d", c.X)
			}
		}
	})
	t.Run("frames at the end of the terminal scroll it", func(t *testing.T) {
		vt, s := open()
		for i := range height + 5 {
			fmt.Fprintf(vt, "line %d\r\n", i)
		}
		s.draw([]string{"one"}, nil, width, false)
		s.draw([]string{"one", "two", "three"}, nil, width, false)
		s.draw([]string{"four", "five"}, nil, width, false)
		if got := contents(vt); !strings.HasSuffix(got, "line 15\nline 16\nfour\nfive") {
			t.Errorf("the terminal shows\n%s", got)
		}
	})
	t.Run("what is printed stands above the frame", func(t *testing.T) {
		vt, s := open()
		s.draw([]string{"frame one", "its second line"}, nil, width, false)
		s.draw([]string{"frame two"}, []byte("a warning\nand another\n"), width, false)
		s.draw([]string{"frame three"}, nil, width, false)
		expect(t, vt, "a warning\nand another\nframe three")
	})
	t.Run("a frame that has not changed is not written", func(t *testing.T) {
		var out bytes.Buffer
		s := &screen{out: &out}
		s.draw([]string{"x"}, nil, width, false)
		out.Reset()
		s.draw([]string{"x"}, nil, width, false)
		if out.Len() > 0 {
			t.Errorf("%q", out.String())
		}
	})
	t.Run("each frame is one write", func(t *testing.T) {
		var w counter
		s := &screen{out: &w}
		s.draw([]string{"one", "two"}, []byte("above\n"), width, false)
		if w != 1 {
			t.Errorf("%d writes", w)
		}
	})
	t.Run("a line that is wider than we think does not break the frame", func(t *testing.T) {
		vt, s := open()
		fmt.Fprint(vt, "before\r\n")
		// Accents take no cell of their own, and the emulator gives them one.
		s.draw([]string{"x" + strings.Repeat("\u0301", width+10), "two"}, nil, width, false)
		s.draw([]string{"three", "four"}, nil, width, false)
		expect(t, vt, "before\nthree\nfour")
	})
	t.Run("a question is a part of the frame", func(t *testing.T) {
		vt, s := open()
		s.draw([]string{"frame"}, nil, width, false)
		s.add([]string{"what now?", "  c  cancel"}, prompt)
		expect(t, vt, "frame\nwhat now?\n  c  cancel\nc, l or g:")
		fmt.Fprint(vt, "what\r\n")
		s.below(len(prompt + "what"))
		s.add(nil, prompt)
		fmt.Fprint(vt, "c\r\n")
		s.below(len(prompt + "c"))
		s.draw([]string{"the next frame"}, nil, width, false)
		expect(t, vt, "the next frame")
	})
	t.Run("lines that a narrower terminal broke are replaced, too", func(t *testing.T) {
		vt, s := open()
		fmt.Fprint(vt, "before\r\n")
		s.draw([]string{strings.Repeat("a", 30), strings.Repeat("b", 12)}, nil, width, false)
		// The emulator does not break lines when it is resized, as others do: so they are written as
		// those leave them.
		vt.Write([]byte("\r\x1b[2A\x1b[J" + strings.Repeat("a", 15) + "\r\n" + strings.Repeat("a", 15) + "\r\n" + strings.Repeat("b", 12) + "\r\n"))
		s.draw([]string{"new"}, nil, 15, false)
		expect(t, vt, "before\nnew")
	})
	t.Run("the last frame may have lines that break", func(t *testing.T) {
		vt, s := open()
		s.draw([]string{"x", "y", "z"}, nil, width, false)
		s.draw([]string{"output: " + strings.Repeat("p", width)}, nil, width, true)
		fmt.Fprint(vt, "$ ")
		expect(t, vt, "output: "+strings.Repeat("p", width-8)+"\n"+strings.Repeat("p", 8)+"\n$")
	})
	t.Run("colours do not count", func(t *testing.T) {
		vt, s := open()
		s.draw([]string{"\x1b[31mred\x1b[0m and " + strings.Repeat("x", 20)}, nil, width, false)
		s.draw([]string{"new"}, nil, width, false)
		expect(t, vt, "new")
	})
}

// A counter counts writes.
type counter int

func (c *counter) Write(p []byte) (int, error) { *c++; return len(p), nil }
