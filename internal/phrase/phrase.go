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

// plainWord matches what a shell takes for one word as it stands.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_.:/-]*$`)

// Quoted writes a word as a shell takes it.
func Quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
