package term

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/pawl-jobs/pawl/job"
)

// awkward are texts that a document must hold as they are.
var awkward = []string{
	strings.Repeat("long ", 300), "", " ", "plain", "two words", "true", "null", "~", "1.10", "1e3", "0x1f", "0o7", "- a", "a: b", "a #b", "#b", "'", `"`, `\`, "{", "[x]", "*a", "&a", "!x", "%x", "@x", "`x",
	"|", ">", "?", "? a", ":", "a:", "---", "...", "--- a", "2001-01-01", "1:20", "=", "<<", "yes", "No", ".inf", ".nan", "-", "--", "+1", "1_000", ",", "a,b",
	"line\nline", "line\n", "\nline", "line\n\n", " lead\nline", "line \nline", "a\n  b\n c", "\n", "\n\n", "a\n---\nb", "tab\tin", "\ttab", "a\n\tb", "a\r\nb", "a\r", "a\nb\r",
	"\x1b[31mred\x1b[0m", "a\nb\x1b[2J\nc", "\x00", "\x7f", "\u0085", "\u009b31m", "\u202egpj.exe", "\u2066", "\u200b", "a\u200db", "\ufeff", "\u2028", "\u2029", "\U000e0041",
	"日本語", "é", "👩\u200d🔬", "\ufffd", "\ufffe", "\uffff", " trail ", "a\n ", "a\n\n b\n", "# a\nb", "- a\n- b", "x: |\n  y", "  \n  a", "a: b\nc: d\n", "'a'\nb", "\"a\nb",
}

// checkDocument writes a document with the text as a value and as a key, and reads it again.
func checkDocument(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		return
	}
	doc := map[string]any{"value": text, "list": []any{text, []any{text}}, "map": map[string]any{text: map[string]any{"x": text}}}
	for _, f := range []Format{AsJSON, AsYAML} {
		var b bytes.Buffer
		if err := f.Document(&b, doc); err != nil {
			t.Errorf("%q as %s: %v", text, f, err)
			continue
		}
		for _, r := range b.String() {
			if r != '\n' && r != '\t' && !job.Visible(r) {
				t.Errorf("%q as %s has %q:\n%q", text, f, r, b.String())
			}
		}
		var got any
		if f == AsJSON {
			if err := json.Unmarshal(b.Bytes(), &got); err != nil {
				t.Errorf("%q as JSON: %v: %s", text, err, &b)
			}
		} else if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
			t.Errorf("%q as YAML: %v: %s", text, err, &b)
		}
		if !reflect.DeepEqual(got, any(doc)) {
			t.Errorf("%q as %s is read back as %q:\n%s", text, f, got, &b)
		}
	}
}

func TestDocument(t *testing.T) {
	for _, text := range awkward {
		checkDocument(t, text)
	}
}

func FuzzDocument(f *testing.F) {
	for _, text := range awkward {
		f.Add(text)
	}
	f.Fuzz(checkDocument)
}

// TestDocumentElsewhere has another program read what is written.
func TestDocumentElsewhere(t *testing.T) {
	const read = "import sys, json, yaml; print(json.dumps(yaml.load(sys.stdin.buffer, Loader=yaml.BaseLoader)))"
	if err := exec.Command("python3", "-c", "import yaml").Run(); err != nil {
		t.Skip("no python3 with yaml")
	}
	doc := map[string]any{}
	list := []any{}
	for _, text := range awkward {
		if text != "<<" {
			doc["k"+text] = text
		}
		list = append(list, text)
	}
	doc["list"] = list
	var b bytes.Buffer
	if err := AsYAML.Document(&b, doc); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", read)
	cmd.Stdin, cmd.Stderr = strings.NewReader(b.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v:\n%s", err, &b)
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for k, want := range doc {
		if k != "list" && got[k] != want {
			t.Errorf("%q: %q, want %q", k, got[k], want)
		}
	}
	if !reflect.DeepEqual(got["list"], doc["list"]) {
		t.Errorf("list: %q, want %q", got["list"], doc["list"])
	}
}
