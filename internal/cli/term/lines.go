package term

import (
	"bytes"
	"errors"
	"io"
)

// mostLine is how many bytes of a line are shown as one.
const mostLine = 64 << 10

// EachLine reads lines as they come. A longer one than mostLine comes in parts. part takes the
// beginning of a line whose end has not come yet.
func EachLine(r io.Reader, line, part func(string)) error {
	buf := make([]byte, 0, mostLine)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		rest := buf[:len(buf)+n]
		for {
			text, after, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				break
			}
			line(string(text))
			rest = after
		}
		if len(rest) == cap(buf) || err != nil && len(rest) > 0 {
			line(string(rest))
			rest = nil
		}
		buf = buf[:copy(buf[:cap(buf)], rest)]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(buf) > 0:
			part(string(buf))
		}
	}
}
