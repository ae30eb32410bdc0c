package yamltree_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/yamltree"
)

func read(text string) error {
	tokens, err := yamltree.Tokens([]byte(text))
	if err != nil {
		return err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return err
	}
	if err := yamltree.Check(file); err != nil {
		return err
	}
	for _, d := range file.Docs {
		var v any
		if d.Body == nil {
			continue
		}
		if err := yaml.NodeToValue(d.Body, &v); err != nil {
			return err
		}
	}
	return nil
}

// bomb is a document of a few hundred bytes whose last alias stands for 10^levels texts.
func bomb(levels int, alias string) string {
	var b strings.Builder
	b.WriteString("a0: &a0 {k: lol}\n")
	for i := range levels {
		fmt.Fprintf(&b, "a%d: &a%d %s\n", i+1, i+1, strings.ReplaceAll(alias, "X", fmt.Sprintf("*a%d", i)))
	}
	return b.String()
}

func TestBounds(t *testing.T) {
	const list = "[X, X, X, X, X, X, X, X, X, X]"
	indented := func(depth int) string {
		var b strings.Builder
		for i := range depth {
			b.WriteString(strings.Repeat(" ", i) + "a:\n")
		}
		return b.String() + strings.Repeat(" ", depth) + "b: 1\n"
	}
	numbered := func(line string, n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(line, "N", fmt.Sprint(i)))
		}
		return b.String()
	}
	cases := map[string]struct{ text, says string }{
		"too many keys":        {"env:\n" + numbered("  kN: v\n", 20_001), "in braces"},
		"too many documents":   {numbered("---\nkN: v\n", 20_001), "in braces"},
		"nothing but comments": {strings.Repeat("#\n", 2_000_001), "lines"},
		"a very long list":     {"a: [" + strings.Repeat("1,", 2_000_001) + "1]", "commas"},
		"100 KB of [":          {strings.Repeat("[", 100_000), "deep in each other"},
		"deep lines":           {indented(1000), "deep in each other"},
		"deep in both":         {indented(60) + "c: " + strings.Repeat("[", 200), "deep in each other"},
		"an alias bomb":        {bomb(12, list), "fewer aliases"},
		"an alias of itself":   {"a: &a [*a]\n", "within what it stands for"},
	}
	if testenv.Every() {
		maps.Copy(cases, map[string]struct{ text, says string }{
			"keys with comments": {numbered("kN: v\n# x\n", 20_001), "in braces"},
			"keys in a list":     {"- a\n- b: 1\n" + numbered("  kN:\n  - c\n", 20_001), "in braces"},
			"keys by ?":          {numbered("? kN\n: v\n", 20_001), "in braces"},
			"100 KB of {":        {strings.Repeat("{a: ", 30_000), "deep in each other"},
			"100 KB of dashes":   {strings.Repeat("- ", 50_000) + "x", "deep in each other"},
			"100 KB of ?":        {strings.Repeat("? ", 50_000) + "x", "deep in each other"},
			"tens of millions":   {strings.Repeat("[", 2_000_000), "make several files"},
			"one of maps":        {bomb(12, "{a: X, b: X, c: X, d: X, e: X, f: X, g: X, h: X, i: X, j: X}"), "fewer aliases"},
			"a wide one": {
				"a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a, ", 10_000) + "]\n", "fewer aliases",
			},
			"anchors in each other": {strings.Repeat("&a [", 100_000), "deep in each other"},
		})
	}
	for name, c := range cases {
		if err := read(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	for name, text := range map[string]string{
		"some depth":     indented(50),
		"many in braces": "env: {" + numbered("kN: v, ", 21_000) + "}\n",
		"many in a list": "env:\n" + numbered("- kN\n", 21_000),
		"maps in a list": numbered("- a: 1\n  b: 2\n  c: 3\n", 7_000),
		"many comments":  "a:\n" + strings.Repeat("  # x\n", 21_000) + "  b: 1\n",
		"lists":          strings.Repeat("[", 60) + strings.Repeat("]", 60),
		"some aliases":   bomb(3, list),
		"a long text":    "script: |\n" + strings.Repeat("  [[[[[[ {{{{ - - -\n", 10_000),
		"long lines":     "a: \"" + strings.Repeat("[", 100_000) + "\"\n",
		"many":           strings.Repeat("- [a, b]\n", 10_000),
		"documents":      strings.Repeat("---\na:\n  - b: [c]\n", 1000),
		"merged":         "a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n",
		"nothing":        "",
		"only comments":  "# [[[[\n",
	} {
		if err := read(text); err != nil {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}
