package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// Documents are printed one after the other, with --- between them, or as one list of JSON.
type Documents []any

// Document prints doc as JSON or YAML.
func (f Format) Document(out io.Writer, doc any) error {
	if all, many := doc.(Documents); many && f == AsYAML {
		for i, doc := range all {
			if i > 0 {
				fmt.Fprintln(out, "---")
			}
			if err := f.Document(out, doc); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	text := Shown(b.Bytes())
	if f == AsYAML {
		v, err := inOrder(b.Bytes())
		if err != nil {
			return err
		}
		text = yamlBlock(nil, v, "")
	}
	_, err := out.Write(text)
	return err
}

// Shown writes what does not show itself in the strings of a document as JSON escapes, so that it
// is the same document on a terminal.
func Shown(doc []byte) []byte {
	var out []byte
	done := 0
	for i, r := range string(doc) {
		if r < 0x7f || job.Visible(r) {
			continue
		}
		out = append(out, doc[done:i]...)
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
		done = i + utf8.RuneLen(r)
	}
	return append(out, doc[done:]...)
}

// fields are a map in the order in which it was written.
type fields []field

type field struct {
	key   string
	value any
}

// inOrder reads JSON as fields, lists, strings, and numbers as they are written. If a key is
// repeated, the last field counts.
func inOrder(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value func() (any, error)
	value = func() (any, error) {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		switch t {
		case json.Delim('{'):
			m, at := fields{}, map[string]int{}
			for dec.More() {
				k, err := dec.Token()
				if err != nil {
					return nil, err
				}
				v, err := value()
				if err != nil {
					return nil, err
				}
				key := k.(string)
				if i, twice := at[key]; twice {
					m[i].value = v
					continue
				}
				at[key] = len(m)
				m = append(m, field{key, v})
			}
			_, err = dec.Token()
			return m, err
		case json.Delim('['):
			list := []any{}
			for dec.More() {
				v, err := value()
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = dec.Token()
			return list, err
		}
		return t, nil
	}
	return value()
}

// yamlBlock adds v as YAML. The lines after the first begin with indent.
func yamlBlock(out []byte, v any, indent string) []byte {
	switch v := v.(type) {
	case fields:
		for i, f := range v {
			if i > 0 {
				out = append(out, indent...)
			}
			if len(f.key) > mostYAMLKey {
				out = fmt.Appendf(out, "? %s\n%s: %s\n", yamlQuoted(f.key), indent, yamlFlow(f.value))
				continue
			}
			out = append(append(out, yamlWord(f.key)...), ':')
			if nested(f.value) {
				out = append(append(append(out, '\n'), indent...), "  "...)
			} else {
				out = append(out, ' ')
			}
			out = yamlBlock(out, f.value, indent+"  ")
		}
		if len(v) > 0 {
			return out
		}
	case []any:
		for i, e := range v {
			if i > 0 {
				out = append(out, indent...)
			}
			out = yamlBlock(append(out, "- "...), e, indent+"  ")
		}
		if len(v) > 0 {
			return out
		}
	case string:
		if strings.Contains(v, "\n") && yamlLinesRE.MatchString(v) &&
			!strings.ContainsFunc(v, func(r rune) bool { return r != '\n' && r != '\t' && unshown(r) }) {
			text, whole := strings.CutSuffix(v, "\n")
			mark := "|-"
			if whole {
				mark = "|"
			}
			out = append(append(out, mark...), '\n')
			for line := range strings.SplitSeq(text, "\n") {
				if line != "" {
					out = append(append(out, indent...), line...)
				}
				out = append(out, '\n')
			}
			return out
		}
	}
	return append(append(out, yamlFlow(v)...), '\n')
}

// mostYAMLKey is how many bytes of a key are written before its value in one line: YAML allows 1024
// characters, with their escapes.
const mostYAMLKey = 100

// yamlLinesRE matches several lines that are written as they are: each of them begins and ends with
// something, or is empty.
var yamlLinesRE = regexp.MustCompile(`^\S([^\n]*\S)?(\n+[^\n]*\S)*\n?$`)

// nested reports whether a value begins below its key.
func nested(v any) bool {
	switch v := v.(type) {
	case fields:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

// yamlFlow is v as YAML in one line.
func yamlFlow(v any) string {
	var parts []string
	switch v := v.(type) {
	case fields:
		for _, f := range v {
			parts = append(parts, yamlQuoted(f.key)+": "+yamlIn(f.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, e := range v {
			parts = append(parts, yamlIn(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return yamlWord(v)
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// yamlIn is v within a list or a map in one line.
func yamlIn(v any) string {
	if s, is := v.(string); is {
		return yamlQuoted(s)
	}
	return yamlFlow(v)
}

// yamlWord is a string as it is, where every reader takes that for this string, or else in quotes.
func yamlWord(s string) string {
	if yamlWordRE.MatchString(s) && !yamlOtherRE.MatchString(s) && !strings.ContainsFunc(s, unshown) {
		return s
	}
	return yamlQuoted(s)
}

var (
	yamlWordRE = regexp.MustCompile(`^-?-?[\p{L}\p{N}_/.$(+]([^\s:#]|[:#][^\s:#]|[ ]+[^\s:#])*$`)
	// yamlOtherRE matches what some readers take for a number, a time, or a word of their own.
	yamlOtherRE = regexp.MustCompile(`^(?i:[-+]?(0[box][0-9a-f_]*|[0-9_.,:]+(e[-+]?[0-9]*)?|\.inf|\.nan)|` +
		`[0-9]{4}-[0-9]+-[0-9]+([t ].*)?|y|n|yes|no|on|off|true|false|null)$|^\.\.\.`)
)

// yamlQuoted is a string in quotes, with escapes for what does not show itself.
func yamlQuoted(s string) string {
	out := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		case r == '\n':
			out = append(out, `\n`...)
		case r == '\t':
			out = append(out, `\t`...)
		case !unshown(r):
			out = utf8.AppendRune(out, r)
		case r < 0x80:
			out = fmt.Appendf(out, `\x%02x`, r)
		case r <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = fmt.Appendf(out, `\U%08x`, r)
		}
	}
	return string(append(out, '"'))
}

// unshown reports whether a character does not show itself, or is none that YAML allows.
func unshown(r rune) bool { return !job.Visible(r) || !strconv.IsPrint(r) && !unicode.IsSpace(r) }
