package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A block is a part of a document between two lines of three backquotes.
type block struct {
	line int    // of the document, where its text begins
	lang string // sh: it is run
	text string
	// output is what the block of sh before it prints. Three dots in it (…) stand for anything: in a
	// line of their own for any lines, else for a part of a line, or of a JSON document.
	output bool
}

// TestDocumentedCommands runs what the documents tell people to type: all blocks of sh of a
// document, in turn, in one shell and one folder, each of which must succeed and print what the
// document says. Servers listen on a free port.
func TestDocumentedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	names := []string{"README.md"}
	if testenv.Every() {
		names = append(names, "docs/examples.md", "docs/api.md", "docs/schedules.md", "docs/kinds.md", "docs/workers.md",
			"docs/operations.md")
		pages, err := filepath.Glob("../../docs/operations/*.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			names = append(names, "docs/operations/"+filepath.Base(page))
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../..", name))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("curl")) {
				testenv.Program(t, "curl")
			}
			runDocument(t, blocks(string(text)))
		})
	}
}

// blocks returns the blocks of a document.
func blocks(text string) (all []block) {
	var in *block
	n := 0
	for line := range strings.Lines(text) {
		n++
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && in == nil:
			lang, rest, _ := strings.Cut(info, " ")
			in = &block{line: n + 1, lang: lang, output: rest == "output"}
		case fence:
			all = append(all, *in)
			in = nil
		case in != nil:
			in.text += line
		}
	}
	return all
}

// prelude ends what is left running in the background when the script ends.
const prelude = `trap 'trap "" TERM; kill 0; wait' EXIT
`

// runDocument runs the blocks of sh among those of a document, and compares what they print.
func runDocument(t *testing.T, all []block) {
	home := t.TempDir()
	if err := os.Symlink(repository(t, "examples"), filepath.Join(home, "examples")); err != nil {
		t.Fatal(err)
	}
	printed := func(stream string, b block) string { return filepath.Join(home, fmt.Sprintf(".%s.%d", stream, b.line)) }
	// The program of this test is what the document builds, and make is for the whole repository.
	here := strings.NewReplacer("go run ./cmd/pawl", "pawl", "./pawl", "pawl")
	target := regexp.MustCompile(`(?m)^make [a-z]+( && |.*$)`)
	var script strings.Builder
	script.WriteString(prelude)
	for _, b := range all {
		if b.lang == "sh" {
			fmt.Fprintf(&script, "exec >%s 2>%s\n%s", printed("out", b), printed("err", b), target.ReplaceAllString(here.Replace(b.text), ""))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	file := filepath.Join(t.TempDir(), "document.sh")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(ctx, "sh", "-e", file)
	sh.Dir = home
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PAWL_") && !strings.HasPrefix(v, "XDG_") {
			sh.Env = append(sh.Env, v)
		}
	}
	sh.Env = append(sh.Env, "HOME="+home, "USER=ada", "PAWL_LISTEN=127.0.0.1:0", detector(t))
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	sh.Cancel = func() error { return syscall.Kill(-sh.Process.Pid, syscall.SIGTERM) }
	failed := sh.Run()

	var last block
	for i, b := range all {
		if b.lang != "sh" {
			continue
		}
		out, err := os.ReadFile(printed("out", b))
		if err != nil {
			break // it was not reached
		}
		last = b
		if i+1 < len(all) && all[i+1].output {
			compare(t, all[i+1], string(out), home)
		}
	}
	if failed != nil {
		out, _ := os.ReadFile(printed("out", last))
		text, _ := os.ReadFile(printed("err", last))
		t.Errorf("the block at line %d: %v\n%s\nprinted:\n%s%s", last.line, failed, last.text, out, text)
	}
}

func repository(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// varying are the parts of what is printed that are different each time, with a word for each.
var varying = []struct {
	re   *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(s|ms|µs)\b`), "SPAN"},
	{regexp.MustCompile(`"seconds":[0-9.e-]+`), `"seconds":SPAN`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "},
	{regexp.MustCompile(`\s+$`), ""},
}

// compare holds what was printed to what the document says.
func compare(t *testing.T, want block, got, home string) {
	t.Helper()
	got = strings.ReplaceAll(slow.ReplaceAllString(got, ""), home, "/home/you") // a machine under load may take its time
	says := want.text
	if want.lang == "json" {
		got, says = compact(got), compact(says)
	}
	for _, v := range varying {
		got, says = v.re.ReplaceAllString(got, v.word), v.re.ReplaceAllString(says, v.word)
	}
	pattern := regexp.QuoteMeta(says)
	switch {
	case want.lang == "json":
		pattern = strings.ReplaceAll(pattern, "…", ".*")
	default:
		pattern = regexp.MustCompile(`(?m)^…$`).ReplaceAllString(pattern, `.*(?:\n.*)*`)
		pattern = strings.ReplaceAll(pattern, "…", ".*")
	}
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(got) {
		t.Errorf("the output at line %d\nin the document:\n%s\nprinted:\n%s", want.line, says, got)
	}
}

// compact removes spaces and line breaks from JSON, outside its strings. What is left out of it is
// no JSON.
func compact(text string) string {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted && c == '\\':
			b.WriteByte(c)
			i++
			c = text[i]
		case c == '"':
			quoted = !quoted
		case !quoted && strings.ContainsRune(" \n\t", rune(c)):
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func TestBlocks(t *testing.T) {
	text := "# Title\n\n```sh\nls\n```\n\n```text output\na\nb\n```\n```\nx\n```\n"
	var got []string
	for _, b := range blocks(text) {
		got = append(got, strconv.Itoa(b.line)+b.lang+strconv.FormatBool(b.output)+b.text)
	}
	if want := "4shfalsels\n,8texttruea\nb\n,12falsex\n"; strings.Join(got, ",") != want {
		t.Errorf("%q, want %q", strings.Join(got, ","), want)
	}
}
