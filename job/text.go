package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of what a change says. A longer message is cut, larger evidence is left out.
const (
	MaxMessage  = 4 << 10  // bytes of a message
	MaxEvidence = 64 << 10 // bytes of evidence as JSON
)

// Plain returns path with messages and evidence that every database takes. What a program or a
// handler says may be any bytes, and too many of them.
func Plain(path []Entry) []Entry {
	if !slices.ContainsFunc(path, func(e Entry) bool { return !plainMessage(e.Message) || !plainJSON(e.Data) }) {
		return path
	}
	path = slices.Clone(path)
	for i := range path {
		path[i].Message, path[i].Data = Text(path[i].Message), evidence(path[i].Data)
	}
	return path
}

// Text returns s as a message: valid UTF-8 without NUL, at most [MaxMessage] bytes. A message that
// is cut says how long it was.
func Text(s string) string {
	if plainMessage(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(Shorten(s, MaxMessage), "?"), "\x00", "?")
}

// Shorten returns s if it has at most limit bytes. Otherwise it returns the beginning of s and how
// long s is, limit bytes together.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	rest := fmt.Sprintf("… (%d bytes in all)", len(s))
	end := max(0, limit-len(rest))
	for end > 0 && end > limit-len(rest)-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + rest
}

// evidence returns data, or JSON that says why data is not kept.
func evidence(data json.RawMessage) json.RawMessage {
	switch {
	case len(data) > MaxEvidence:
		return fmt.Appendf(nil, `{"left_out":"%d bytes: evidence has %d at most"}`, len(data), MaxEvidence)
	case !plainJSON(data):
		return json.RawMessage(`{"left_out":"it is no JSON in UTF-8"}`)
	}
	return data
}

func plainMessage(s string) bool { return len(s) <= MaxMessage && plain(s) }

func plainJSON(data json.RawMessage) bool {
	return data == nil || len(data) <= MaxEvidence && utf8.Valid(data) && json.Valid(data)
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
