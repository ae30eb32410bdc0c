package term

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/phrase"
)

// How much of a document is shown on a terminal for reading.
const (
	mostRead     = 60  // lines
	mostReadLine = 400 // cells of a line
)

// PrintFields prints a JSON document for reading: a field in each line, texts with their lines,
// nothing in quotes. On a terminal a long one is cut, and all says which command prints all of it.
func PrintFields(out io.Writer, title string, doc json.RawMessage, all string) {
	if len(doc) == 0 {
		return
	}
	v, err := inOrder(doc)
	if err != nil {
		v = string(doc)
	}
	lines := readLines(title+":", v, "  ")
	if w, is := out.(*live.Writer); is && w.Width() > 0 {
		cut := len(lines) > mostRead
		left := max(0, len(lines)-mostRead)
		lines = lines[:len(lines)-left]
		for i, l := range lines {
			lines[i] = live.Cut(l, mostReadLine)
			cut = cut || lines[i] != l
		}
		if cut {
			lines = append(lines, fmt.Sprintf("  … cut here, %s left out: %s prints all of it",
				phrase.Plural(left, "line"), all))
		}
	}
	for _, l := range lines {
		fmt.Fprintln(out, strings.TrimRight(l, " "))
	}
}

// readLines writes v after head, and what does not fit there on lines below, after indent.
func readLines(head string, v any, indent string) []string {
	switch v := v.(type) {
	case fields:
		if len(v) == 0 {
			break
		}
		lines := []string{head}
		for _, f := range v {
			lines = append(lines, readLines(indent+live.Clean(f.key)+":", f.value, indent+"  ")...)
		}
		return lines
	case []any:
		if text := inOneLine(v); text != "" {
			return []string{head + " " + text}
		}
		lines := []string{head}
		for _, e := range v {
			below := readLines(indent+"-", e, indent+"  ")
			if m, is := e.(fields); is && len(m) > 0 { // its first field stands behind the dash
				below = below[1:]
				below[0] = indent + "- " + strings.TrimLeft(below[0], " ")
			}
			lines = append(lines, below...)
		}
		return lines
	case string:
		if !strings.Contains(strings.TrimRight(v, "\n"), "\n") {
			return []string{head + " " + live.Clean(v)}
		}
		lines := []string{head}
		for _, l := range live.Lines(v) {
			lines = append(lines, indent+l)
		}
		return lines
	}
	return []string{head + " " + yamlFlow(v)}
}

// inOneLine is a list of words in one line; empty where it is something else, or too long.
func inOneLine(list []any) string {
	const most = 60
	var parts []string
	for _, e := range list {
		switch e := e.(type) {
		case string:
			if strings.Contains(e, "\n") {
				return ""
			}
			parts = append(parts, live.Clean(e))
		case json.Number, bool:
			parts = append(parts, fmt.Sprint(e))
		default:
			return ""
		}
	}
	if text := "[" + strings.Join(parts, ", ") + "]"; len(text) <= most {
		return text
	}
	return ""
}
