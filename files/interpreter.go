package files

import (
	"context"
	"io"
	"strings"
)

// Interpreter returns the interpreter in the first line of a script. Linux reads 256 bytes.
func Interpreter(ctx context.Context, fsys FS, name string) (string, bool) {
	f, err := fsys.Open(ctx, name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 256))
	line, _, _ := strings.Cut(string(head), "\n")
	line, script := strings.CutPrefix(line, "#!")
	if err != nil || !script {
		return "", false
	}
	line = strings.TrimLeft(line, " \t")
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		line = line[:i]
	}
	return line, true
}
