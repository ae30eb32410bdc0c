package phrase

import "testing"

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 jobs", 1: "1 job", 2: "2 jobs"} {
		if got := Plural(n, "job"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"a/b.yaml": "a/b.yaml", "http://lab:7295": "http://lab:7295",
		"": "''", "-x": "'-x'", "two words": "'two words'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a\nb": "'a\nb'",
	} {
		if got := Quoted(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}
