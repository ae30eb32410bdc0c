package files

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/job"
)

// Names of files may be any bytes, and JSON, URLs and databases hold text. So names are written
// with \xNN for each byte that is no UTF-8. A backslash of the name that would be read so is itself
// written as \x5c.

var escaped = regexp.MustCompile(`\\x[0-9a-f]{2}`)

// Text writes a file name as UTF-8. Most names stay as they are. Each byte that is not UTF-8 is
// written as \xNN. If a name itself has such a text, its backslash is written in this way too.
func Text(name string) string {
	if utf8.ValidString(name) && !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		at := escaped.FindStringIndex(name[i:])
		switch {
		case r == utf8.RuneError && size == 1, at != nil && at[0] == 0:
			fmt.Fprintf(&b, `\x%02x`, name[i])
			size = 1
		default:
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	return b.String()
}

// Name returns the file name that a text stands for: Name(Text(name)) is name.
func Name(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(e string) string {
		n, err := strconv.ParseUint(e[2:], 16, 8)
		if err != nil {
			panic(err) // two hexadecimal digits
		}
		return string([]byte{byte(n)})
	})
}

// Path returns the absolute path that a file URL or path names on this machine. Errors are of kind
// [job.Invalid].
func Path(from string) (string, error) {
	if u, err := url.Parse(from); err == nil && u.Scheme != "" && !strings.HasPrefix(from, "/") {
		if u.Scheme != "file" || u.Host != "" {
			return "", job.Errorf(job.Invalid, "%s: only paths and file:///… are known", from)
		}
		from = u.Path
	}
	if !path.IsAbs(from) {
		return "", job.Errorf(job.Invalid, "%s: is not absolute; give a path that begins with /", from)
	}
	return path.Clean(from), nil
}
