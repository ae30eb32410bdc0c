// Package phrase writes small things as people and shells read them.
package phrase

import (
	"fmt"
	"regexp"
	"strings"
)

// Plural counts things whose name takes an s.
func Plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Count returns a number with the word that fits it.
func Count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Behind says how many others something stands behind, or that it is the first. Most and more are
// not told apart.
func Behind(n, most int, first, one, more string) string {
	switch n {
	case 0:
		return ", " + first
	case most:
		return ", behind " + Count(n, one, more) + " or more"
	}
	return ", behind " + Count(n, one, more)
}

// plainWord matches what a shell takes for one word as it stands.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_.:/-]*$`)

// Quoted writes a word as a shell takes it.
func Quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
