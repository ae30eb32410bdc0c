package pattern

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// TestPatternsHaveBounds gives an archive what would cost memory and time: it is refused before
// anything of it is spent.
func TestPatternsHaveBounds(t *testing.T) {
	big := "re:(?:(?:a{1000}){1000}){3}"
	for _, c := range []struct {
		name string
		a    job.Archive
		says string
	}{
		{"a repeated repetition", job.Archive{Include: []string{"re:(?:abcdefghijk){1000}"}}, "archive.include[0] (re:(?:abcdefghijk){1000}): repeats too much"},
		{"97 KB of them", job.Archive{Exclude: slices.Repeat([]string{"re:" + strings.Repeat("(a{0,1000}b)?", 70)}, 100)}, "are too many patterns"},
		{"each fits, together they do not", job.Archive{Required: slices.Repeat([]string{"re:(?:ab?){500}"}, 30)}, "archive: has patterns that are too much work for each file"},
		{"classes", job.Archive{Include: slices.Repeat([]string{`re:\pL{900}`}, 4)}, "too much"},
		{"too many to read", job.Archive{Include: slices.Repeat([]string{"a"}, 1001)}, "archive (1001 patterns of 1001 bytes): are too many patterns"},
		{"braces", job.Archive{Include: slices.Repeat([]string{"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"}, 5)}, "too much work"},
		{"more than regexp itself takes", job.Archive{Include: []string{big}}, "archive.include[0]"},
	} {
		err := Check(&c.a)
		if job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	right := job.Archive{Include: slices.Repeat([]string{"*.csv"}, 500), Exclude: slices.Repeat([]string{"a/plain/name.csv"}, 499), Required: []string{"re:(a|b){1,100}"}}
	if _, err := Of(&right); err != nil {
		t.Error(err)
	}
}

// TestPatternsRemember holds patterns that remember folders against those that do not, over paths
// in any order.
func TestPatternsRemember(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var paths []string
	for range 2000 {
		p := ""
		for range 1 + r.IntN(6) {
			p = path.Join(p, string(rune('a'+r.IntN(3))))
		}
		paths = append(paths, p)
	}
	for _, text := range []string{"a", "a/b", "re:a/b", "re:(a/)+b", "**/c/a", "re:.", "b*/?", "re:^a$", "re:a|a/b/c"} {
		plain, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Of(&job.Archive{Include: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range paths {
			around := false
			for at := name; at != "."; at = path.Dir(at) {
				around = around || plain.names(at)
			}
			if got := p.include[0].Match(name); got != around || plain.Match(name) != around {
				t.Fatalf("%s fits %s: %t, want %t", text, name, got, around)
			}
		}
	}
}

// TestDeepPathsCostNoMore matches the folders of a tree that is as deep as a path may be: each name
// is looked at once.
func TestDeepPathsCostNoMore(t *testing.T) {
	p, err := Of(&job.Archive{Include: []string{"re:(x/)+y"}})
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for range 2000 {
		name = path.Join(name, "x")
		if p.include[0].Match(name) {
			t.Fatal(fmt.Sprint(len(name)))
		}
	}
	if n := len(p.include[0].around.last); n != 1999 {
		t.Errorf("%d folders are remembered", n)
	}
}
