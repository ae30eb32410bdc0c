// Package pattern chooses files of a folder by globs and regular expressions, as users write them,
// at a cost that has bounds.
package pattern

import (
	"errors"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/pawl-jobs/pawl/job"
)

// A Pattern chooses files of a folder, as users write it. The zero Pattern matches nothing. A
// Pattern of [Parse] is safe for concurrent use.
type Pattern struct {
	text     string
	glob     string
	anchored bool           // glob counts from the top folder; otherwise it is matched against the last name
	expr     *regexp.Regexp // instead of glob
	work     int            // a bound of the steps for each byte of a path
	around   *folders       // nil: it remembers nothing
}

// Patterns come from users, so the work of a match is bounded: alternatives in braces multiply, and
// so do repetitions of a regular expression.
const (
	maxPattern      = 1000   // bytes
	maxAlternatives = 256    // globs without braces that a glob stands for
	maxWork         = 10_000 // of one pattern, see [Pattern]
)

// Parse reads a pattern: a glob, or a regular expression with re: before it.
//
// In a glob, * and ? match anything but a slash, ** matches any number of folders, [a-z] and [!a-z]
// match one character, and {a,b} matches one of the alternatives. A backslash takes the meaning
// from the next character. A glob without a slash matches a name in any folder. A glob with a slash
// counts from the top folder: /logs and ./logs are the logs there. A slash at the end means
// nothing.
//
// A regular expression has Go's syntax and must match the whole path, with its slashes.
//
// The error is of kind [job.Invalid] and says what to change.
func Parse(text string) (Pattern, error) {
	p, err := check(text)
	if err != nil {
		return Pattern{}, err
	}
	return p, p.compile()
}

// compile prepares a checked pattern for matches.
func (p *Pattern) compile() error {
	expr, ok := strings.CutPrefix(p.text, "re:")
	if !ok {
		return nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return err
	}
	// The longest match is the whole path if any match is. Anchors around the text could be undone
	// by the text.
	re.Longest()
	p.expr = re
	return nil
}

// check is Parse without its costs: it does not compile a regular expression.
func check(text string) (Pattern, error) {
	invalid := func(what string) (Pattern, error) {
		return Pattern{}, job.Errorf(job.Invalid, "pattern %q %s", text, what)
	}
	if len(text) > maxPattern {
		return Pattern{}, job.Errorf(job.Invalid, "a pattern of %d bytes is too long: write several of at most %d",
			len(text), maxPattern)
	}
	if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
		return invalid("holds a NUL or bytes that are not UTF-8: write ? or * in their place")
	}
	if expr, ok := strings.CutPrefix(text, "re:"); ok {
		if expr == "" {
			return invalid("is an empty regular expression: write re:.* for everything")
		}
		re, err := syntax.Parse(expr, syntax.Perl)
		if wrong := (*syntax.Error)(nil); errors.As(err, &wrong) {
			return invalid("is no regular expression, " + wrong.Error() +
				": correct it, or leave out re: if you mean a glob")
		} else if err != nil {
			return invalid(err.Error())
		}
		work := workOf(re)
		if work > maxWork {
			return invalid("repeats too much, as a regular expression: write smaller numbers in {}, or * and +")
		}
		return Pattern{text: text, work: work}, nil
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
	work := 1
	if strings.ContainsAny(glob, `*?[{\`) {
		work = len(glob) * alternatives(glob)
	}
	return Pattern{text: text, glob: glob, anchored: anchored, work: work}, nil
}

// workOf returns about how many instructions a regular expression has. The answer is exact enough
// up to maxWork.
func workOf(re *syntax.Regexp) int {
	work := 2 + len(re.Rune)/32 // a class has many ranges
	if re.Op == syntax.OpLiteral {
		work = 1 + len(re.Rune)
	}
	for _, sub := range re.Sub {
		if work += workOf(sub); work > maxWork {
			return work
		}
	}
	if re.Op == syntax.OpRepeat {
		work *= max(re.Min+1, re.Max)
	}
	return work
}

// alternatives returns how many globs without braces a valid glob stands for, or more.
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

// Match reports whether p matches a path or one of the folders that it is in. name is relative to
// the top folder, and clean.
func (p Pattern) Match(name string) bool {
	if p.names(name) {
		return true
	}
	around := p.around
	if around == nil {
		around = &folders{}
	}
	return name != "" && around.match(&p, path.Dir(name))
}

// names reports whether p matches the path itself, not one of its folders.
func (p *Pattern) names(name string) bool {
	switch {
	case name == "":
		return false
	case p.expr != nil:
		at := p.expr.FindStringIndex(name)
		return at != nil && at[0] == 0 && at[1] == len(name)
	case p.anchored:
		return doublestar.MatchUnvalidated(p.glob, name)
	}
	return p.glob != "" && doublestar.MatchUnvalidated(p.glob, name[strings.LastIndexByte(name, '/')+1:])
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }
