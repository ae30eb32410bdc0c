package sshconfig

import (
	"errors"
	"strings"
)

// A line of a configuration is a keyword and its words. They are taken apart as OpenSSH does it
// (misc.c: argv_split, readconf.c: process_config_line), so that both read the same.

var errQuote = errors.New("a quote is not closed")

// words takes a line apart. A comment and an empty line have no keyword.
func words(line string) (keyword string, args []string, err error) {
	line = strings.TrimRight(line, " \t\r\n\f")
	line = strings.TrimLeft(line, " \t\r\n")
	if line == "" || line[0] == '#' {
		return "", nil, nil
	}
	rest := ""
	if inside, quoted := strings.CutPrefix(line, `"`); quoted {
		if keyword, rest, quoted = strings.Cut(inside, `"`); !quoted {
			return "", nil, errQuote
		}
	} else if i := strings.IndexAny(line, " \t\r\n="); i >= 0 {
		keyword, rest = line[:i], line[i:]
	} else {
		keyword = line
	}
	// One = may stand between the keyword and its words.
	rest = strings.TrimLeft(rest, " \t\r\n")
	if after, ok := strings.CutPrefix(rest, "="); ok {
		rest = strings.TrimLeft(after, " \t\r\n")
	}
	args, err = split(rest)
	return strings.ToLower(keyword), args, err
}

// split returns the words of a text. Quotes of both kinds hold blanks together. A backslash goes
// before a quote, a backslash or, outside of quotes, a blank. A # that begins a word begins a
// comment.
func split(text string) (args []string, err error) {
	for i := 0; i < len(text); i++ {
		if text[i] == ' ' || text[i] == '\t' {
			continue
		}
		if text[i] == '#' {
			break
		}
		var word strings.Builder
		quote := byte(0)
	word:
		for ; i < len(text); i++ {
			switch c := text[i]; {
			case c == '\\' && i+1 < len(text) && escapes(text[i+1], quote):
				i++
				word.WriteByte(text[i])
			case quote == 0 && (c == ' ' || c == '\t'):
				break word
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			default:
				word.WriteByte(c)
			}
		}
		if quote != 0 {
			return nil, errQuote
		}
		args = append(args, word.String())
	}
	return args, nil
}

// escapes says whether a backslash before c is an escape, within a quote if that is not 0.
func escapes(c, quote byte) bool {
	return c == '"' || c == '\'' || c == '\\' || c == ' ' && quote == 0
}

// matches says whether a name fits the patterns of a Host: one of them, and none that begins with
// !.
func matches(name string, patterns []string) bool {
	found := false
	for _, p := range patterns {
		p, not := strings.CutPrefix(p, "!")
		if fits(name, p) {
			if not {
				return false
			}
			found = true
		}
	}
	return found
}

// fits says whether a name fits a pattern. * stands for any text, ? for one character.
func fits(name, pattern string) bool {
	star, mark, n, p := -1, 0, 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
