// Package tail finds the last lines of a file.
package tail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Bounds of what is read.
const (
	perLine = 1 << 20  // bytes for each line
	inAll   = 64 << 20 // bytes in all
	block   = 64 << 10 // bytes at once
)

// Lines returns where the last lines of a file begin; for 0 lines, its beginning. It reads from the
// end. If the lines are longer than it reads, cut is a line that says so.
func Lines(r io.ReadSeeker, size int64, lines int) (start int64, cut string, err error) {
	if lines <= 0 {
		return 0, "", nil
	}
	least := max(0, size-min(int64(lines), inAll/perLine)*perLine)
	buf := make([]byte, block)
	for end := size; end > least; {
		part := buf[:min(end-least, block)]
		end -= int64(len(part))
		if _, err := r.Seek(end, io.SeekStart); err != nil {
			return 0, "", err
		}
		switch _, err := io.ReadFull(r, part); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return 0, "", nil // it was truncated meanwhile, by the next attempt
		case err != nil:
			return 0, "", err
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if end+int64(i) == size-1 {
				continue // the end of the last line
			}
			if lines--; lines == 0 {
				return end + int64(i) + 1, "", nil
			}
		}
	}
	if least > 0 {
		cut = fmt.Sprintf("… the lines are too long: what comes first is cut, %d bytes of the file are before this\n", least)
	}
	return least, cut, nil
}
