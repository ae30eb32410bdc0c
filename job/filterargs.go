package job

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Arg returns the argument that t is about. ok is false if t is about another field.
func (t *Term) Arg() (field string, ok bool) { return strings.CutPrefix(t.Field, ArgsField) }

// argRE matches the names of arguments that filters can hold, of maxArg bytes at most.
var argRE = regexp.MustCompile(`^[^\x00-\x20=!~<>,"\x7f]+$`)

const maxArg = 255

// CheckArg reports what is wrong with the name of an argument for filters, at a path of a document.
func CheckArg(path, field string) error {
	if len(field) > maxArg || !argRE.MatchString(field) || !utf8.ValidString(field) {
		return problem(path, short(field), "is no name of an argument for filters",
			`give up to 255 bytes without spaces, commas, quotes and = ! ~ < >, such as image or user.id`)
	}
	return nil
}

// ArgsKeys returns what an argument that fits t has as its [Spec.ArgsKey], one or two for each
// value: a value that is JSON stands for itself and for the text that it is. So args.n=1 finds 1
// and "1".
func (t *Term) ArgsKeys() (keys []string) {
	field, _ := t.Arg()
	for _, v := range t.Values {
		values := []any{v}
		if of, err := decode([]byte(v)); err == nil {
			values = append(values, of)
		}
		for _, of := range values {
			if key, err := digestOf(map[string]any{field: plainNumbers(of)}); err == nil {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ArgsKey returns a digest of an argument, which is the same for equal JSON values. A missing
// argument is like null.
func (s *Spec) ArgsKey(field string) (string, error) { return s.chosen([]string{field}) }

// args reports whether a job fulfils a term about an argument.
func (t *Term) args(j *Job) bool {
	field, ok := t.Arg()
	if !ok || j.Program() {
		return false
	}
	var s Spec
	if json.Unmarshal(j.Request, &s) != nil {
		return false
	}
	key, err := s.ArgsKey(field)
	return err == nil && slices.Contains(t.ArgsKeys(), key) == (t.Op == Is)
}

// Kind returns the kind of all jobs that f chooses; empty: they may have several.
func (f Filter) Kind() string {
	for _, t := range f {
		if t.Field == "kind" && t.Op == Is && len(t.Values) == 1 {
			return t.Values[0]
		}
	}
	return ""
}
