package app

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/pawl-jobs/pawl/job"
)

// A Pattern is what users write to choose among the files of a folder. The zero Pattern matches nothing.
type Pattern struct {
	text     string
	glob     string
	anchored bool           // glob is matched from the folder on, not against each element
	expr     *regexp.Regexp // instead of glob
}

// Patterns come from users, and the work of a match has to have a bound: alternatives in braces multiply.
const (
	maxPattern      = 1000 // bytes
	maxAlternatives = 256  // globs without braces that a glob stands for
)

// ParsePattern reads a pattern, which is a glob or, with re: before it, a regular expression.
//
// In a glob, * and ? match anything but a slash, ** any number of folders, [a-z] and [!a-z] one character, {a,b} one
// of the alternatives; a backslash takes the meaning from the next character. A glob without a slash matches a name
// in any folder. One with a slash counts from the folder at the top: /logs and ./logs are the logs there. A slash at
// the end says nothing.
//
// A regular expression (Go's syntax) has to match the whole path, slashes included.
//
// A pattern that is not right is of kind [job.Invalid], and the message says what to change.
func ParsePattern(text string) (Pattern, error) {
	invalid := func(what string) (Pattern, error) {
		return Pattern{}, job.Errorf(job.Invalid, "pattern %q %s", text, what)
	}
	if len(text) > maxPattern {
		return Pattern{}, job.Errorf(job.Invalid, "a pattern of %d bytes is too long: write several of at most %d", len(text), maxPattern)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return invalid("holds a NUL or bytes that are not UTF-8: write ? or * in their place")
	}
	if expr, ok := strings.CutPrefix(text, "re:"); ok {
		if expr == "" {
			return invalid("is an empty regular expression: write re:.* for everything")
		}
		re, err := regexp.Compile(expr)
		if wrong := (*syntax.Error)(nil); errors.As(err, &wrong) {
			return invalid("is no regular expression, " + wrong.Error() + ": correct it, or leave out re: if you mean a glob")
		} else if err != nil {
			return invalid(err.Error())
		}
		// The longest match is the whole path if any match is. Anchors around the text could be undone by the text.
		re.Longest()
		return Pattern{text: text, expr: re}, nil
	}

	glob := strings.TrimRight(text, "/")
	anchored := strings.Contains(glob, "/")
	for was := ""; was != glob; {
		was = glob
		glob = strings.TrimLeft(strings.TrimPrefix(glob, "./"), "/")
	}
	elements := strings.FieldsFunc(glob, func(r rune) bool { return strings.ContainsRune("/{,}", r) })
	switch {
	case glob == "" || glob == ".":
		return invalid("names no file: write ** for everything")
	case slices.Contains(elements, ".."):
		return invalid("leaves the folder by ..: write the path as seen from the folder")
	case slices.Contains(strings.Split(glob, "/"), ".") || strings.Contains(glob, "//"):
		return invalid("has an element that is empty or a dot, which no path has: leave it out")
	case !doublestar.ValidatePattern(glob):
		return invalid(`is no glob: close each [ and {, and write a backslash before a [, {, * or ? that is part of a name`)
	case alternatives(glob) > maxAlternatives:
		return invalid("stands for too many alternatives: write several patterns with fewer braces")
	}
	return Pattern{text: text, glob: glob, anchored: anchored}, nil
}

// alternatives is how many globs without braces a valid glob stands for, or more.
func alternatives(glob string) int {
	all, open := 1, []int(nil) // open counts, for each brace that is not closed yet
	for i := 0; i < len(glob) && all <= maxAlternatives; i++ {
		switch top := len(open) - 1; {
		case glob[i] == '\\':
			i++
		case glob[i] == '{':
			open = append(open, 1)
		case glob[i] == ',' && top >= 0:
			open[top]++
		case glob[i] == '}' && top >= 0:
			all *= open[top]
			open = open[:top]
		}
	}
	return all
}

// Match reports whether a path, relative to the folder and clean, is meant. A pattern that matches a folder means all
// that is below it, too.
func (p Pattern) Match(name string) bool {
	if name == "" {
		return false
	}
	for start, i := 0, 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		switch {
		case p.expr != nil:
			if at := p.expr.FindStringIndex(name[:i]); at != nil && at[0] == 0 && at[1] == i {
				return true
			}
		case p.anchored:
			if doublestar.MatchUnvalidated(p.glob, name[:i]) {
				return true
			}
		case p.glob != "":
			if doublestar.MatchUnvalidated(p.glob, name[start:i]) {
				return true
			}
		}
		start = i + 1
	}
	return false
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }
