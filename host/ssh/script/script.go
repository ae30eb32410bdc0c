// Package script has the words of scripts for a shell far away, and reads what they print.
package script

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
)

// Quote makes a word of the shell of any text without a zero byte.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Exportable reports whether a shell can pass on a variable, given as NAME=value.
func Exportable(v string) bool {
	name, value, ok := strings.Cut(v, "=")
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return ok && name != "" && !strings.Contains(value, "\x00")
}

// Ran is a command that fails if the one before it was not run, or was killed: what that has not
// printed is unknown, and not gone. Tools such as head and xargs end with a code below 124 where a
// file could not be read, such as that of a process that has ended meanwhile.
const Ran = "[ $? -lt 124 ]"

// Export is a line of a shell that passes a variable on.
func Export(v string) string {
	name, value, _ := strings.Cut(v, "=")
	return "export " + name + "=" + Quote(value) + "\n"
}

// Skip reads until it has read mark. It takes one byte at a time, so it reads nothing behind it.
func Skip(r io.Reader, mark string) error {
	var last []byte
	for b := make([]byte, 1); !bytes.HasSuffix(last, []byte(mark)); {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		last = append(last[max(0, len(last)-len(mark)):], b...)
	}
	return nil
}

// packages are the tools that scripts use, with the package that has each.
var packages = map[string]string{
	"cat": "coreutils", "dd": "coreutils", "env": "coreutils", "head": "coreutils", "id": "coreutils",
	"ln": "coreutils", "sleep": "coreutils", "setsid": "util-linux", "xargs": "findutils",
}

// Tools are the tools that scripts use, sorted.
func Tools() []string { return slices.Sorted(maps.Keys(packages)) }

// Packages names tools, each with the package that has it.
func Packages(tools []string) string {
	var named []string
	for _, tool := range tools {
		named = append(named, tool+" ("+cmp.Or(packages[tool], "of Linux")+")")
	}
	return strings.Join(named, ", ")
}

// Heads parts what `head -v` has printed of files, by their names. A file that it could not open is
// left out. The names must differ, and be in the order in which head was given them: what a process
// has in its name or its environment can at most look like a file that is still to come.
func Heads(out []byte, names []string) map[string][]byte {
	order := make(map[string]int, len(names))
	for i, name := range names {
		order[name] = i
	}
	files := map[string][]byte{}
	name, from, last := "", 0, -1
	for at := 0; at < len(out); {
		i := bytes.Index(out[at:], []byte("==> "))
		if i < 0 {
			break
		}
		at += i
		title, _, ok := bytes.Cut(out[at+4:], []byte(" <==\n"))
		place, is := order[string(title)]
		if !ok || !is || place <= last || at > 0 && out[at-1] != '\n' {
			at += 4
			continue
		}
		if last >= 0 {
			files[name] = out[from : at-1]
		}
		name, last = string(title), place
		at += 4 + len(title) + 5
		from = at
	}
	if last >= 0 {
		files[name] = out[from:]
	}
	return files
}
