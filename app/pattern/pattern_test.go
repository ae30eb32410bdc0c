package pattern_test

import (
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/app/pattern"
	"github.com/pawl-jobs/pawl/job"
)

// Each row is a pattern, the paths that it matches, and paths that it does not match.
func TestPatternMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern  string
		yes, not []string
	}{
		{"f", []string{"f", "a/f", "a/b/f", "f/a"}, []string{"ff", "F", "a/ff", "a.f"}},
		{"*.csv", []string{"a.csv", "d/a.csv", ".csv", "d.csv/x"}, []string{"a.csv.gz", "csv"}},
		{"logs", []string{"logs", "logs/a", "logs/a/b", "x/logs/a"}, []string{"log", "logs2", "xlogs/a"}},
		{"logs/", []string{"logs", "logs/a/b", "x/logs/a"}, []string{"log"}},
		{"/logs", []string{"logs", "logs/a/b"}, []string{"x/logs"}},
		{"./logs//", []string{"logs", "logs/a/b"}, []string{"x/logs"}},
		{".//./f", []string{"f"}, []string{"x/f"}},
		{"a/b", []string{"a/b", "a/b/c"}, []string{"a", "b", "x/a/b", "a/bc"}},
		{"a/*", []string{"a/b", "a/b/c"}, []string{"a", "x/a/b"}},
		{"a/*.x", []string{"a/b.x"}, []string{"a/b/c.x", "b.x"}},
		{"a/**/*.x", []string{"a/b.x", "a/b/c/d.x"}, []string{"b.x", "a/b.y"}},
		{"**/b", []string{"b", "a/b", "a/a/b/c"}, []string{"a/bb"}},
		{"a/**", []string{"a", "a/b", "a/b/c"}, []string{"b/a", "aa"}},
		{"**", []string{"a", "a/b"}, []string{""}},
		{"*", []string{"a", "a/b", ".hidden", "new\nline"}, []string{""}},
		{"run-?.{out,err}", []string{"run-1.out", "d/run-x.err"}, []string{"run-12.out", "run-1.log"}},
		{"{a/x,b}/*.c", []string{"a/x/1.c", "b/1.c"}, []string{"a/1.c", "z/b/1.c"}},
		{"[a-c]?[!0-9]", []string{"axy", "c0z"}, []string{"dxy", "ax1"}},
		{`\*.c`, []string{"*.c"}, []string{"a.c"}},
		{`\{a,b\}`, []string{"{a,b}"}, []string{"a"}},
		{"a..b", []string{"a..b"}, nil},
		{"...", []string{"..."}, nil},
		{".x/.y", []string{".x/.y"}, nil},
		{"with space", []string{"with space"}, []string{"with", "space"}},
		{"ü*", []string{"über", "d/ü"}, []string{"uber"}},
		{"f?", []string{"f\xff", "f\n"}, []string{"f", "f\xff\xfe"}},
		{"RE:x", []string{"RE:x"}, []string{"x"}},

		{`re:.*\.csv`, []string{"a.csv", "d/a.csv", "d.csv/x"}, []string{"a.csv.gz", "acsv"}},
		{"re:a|ab|abc", []string{"a", "ab", "abc", "abc/d"}, []string{"abcd", "xa", "b"}},
		{"re:b", []string{"b", "b/x"}, []string{"ab", "bc", "a/b"}},
		{"re:(?i)LOGS/.+", []string{"logs/a", "Logs/a/b"}, []string{"logs", "x/logs/a"}},
		{`re:\Qa+b`, []string{"a+b"}, []string{"aab"}},
		{"re:(?m)^a$", []string{"a"}, []string{"a\nb", "b\na"}},
		{"re: x ", []string{" x "}, []string{"x"}},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			p, err := pattern.Parse(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range tt.yes {
				if !p.Match(name) {
					t.Errorf("does not match %q", name)
				}
			}
			for _, name := range tt.not {
				if p.Match(name) {
					t.Errorf("matches %q", name)
				}
			}
			if p.String() != tt.pattern {
				t.Errorf("String() = %q", p)
			}
		})
	}
	if (pattern.Pattern{}).Match("a") {
		t.Error("the zero Pattern matches")
	}
}

// Each row is a pattern and a piece of the message.
func TestPatternRefused(t *testing.T) {
	for _, tt := range []struct{ pattern, want string }{
		{"", "names no file: write ** for everything"},
		{"/", "names no file"},
		{".", "names no file"},
		{"./", "names no file"},
		{"..", "leaves the folder"},
		{"../a", "leaves the folder"},
		{"/../a", "leaves the folder"},
		{"a/../b", "write the path as seen from the folder"},
		{"a/..", "leaves the folder"},
		{"{a,../b}", "leaves the folder"},
		{"a//b", "an element that is empty"},
		{"a/./b", "an element that is empty or a dot"},
		{"a/.", "an element that is empty or a dot"},
		{"a\x00b", "NUL"},
		{"re:a\x00", "NUL"},
		{"a\xff", "UTF-8"},
		{"[a", "close each ["},
		{"[]", "is no glob"},
		{"{a,b", "close each [ and {"},
		{"a}", "is no glob"},
		{`a\`, "is no glob"},
		{strings.Repeat("{a,b}", 20), "too many alternatives"},
		{strings.Repeat("{,", 20) + "x" + strings.Repeat("}", 20), "too many alternatives"},
		{strings.Repeat("a", 1001), "a pattern of 1001 bytes is too long"},
		{"re:", "re:.* for everything"},
		{"re:a(", "missing closing ): `a(`: correct it, or leave out re:"},
		{"re:*.csv", "missing argument to repetition operator"},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			_, err := pattern.Parse(tt.pattern)
			if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want kind invalid and %q", err, tt.want)
			}
		})
	}
}

func FuzzPattern(f *testing.F) {
	for _, text := range []string{"*.csv", "logs/", "/a/**/b", "{a,b{c,d}}/[!x-z]?", `\*`, "re:(a|b)*", "re:(?s).*", "**{,/}*", "[^]]"} {
		f.Add(text, "a/b.csv")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := pattern.Parse(text)
		if err != nil {
			if job.KindOf(err) != job.Invalid {
				t.Errorf("kind of %v", err)
			}
			if p.Match(name) {
				t.Error("a pattern that was refused matches")
			}
			return
		}
		if p.Match(name) && !p.Match(name+"/below") {
			t.Errorf("%q matches %q and not what is below", text, name)
		}
	})
}
