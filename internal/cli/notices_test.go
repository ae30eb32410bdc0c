package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// licenceFile is how modules name what has to go along with them.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// TestNotices holds notices.txt to the modules that are linked, at the versions of go.mod.
func TestNotices(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command to list the modules")
	}
	list := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "../../cmd/pawl")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Compact(slices.Sorted(slices.Values(strings.FieldsFunc(string(out),
		func(r rune) bool { return r == '\n' }))))
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, "The Go standard library\t"+strings.TrimSpace(string(root)))
	var b strings.Builder
	b.WriteString("Pawl is under the Apache License 2.0, in the file LICENSE. The modules below are linked into " +
		"it, under these licences.\n")
	for _, line := range lines {
		name, dir, _ := strings.Cut(line, "\t")
		fmt.Fprintf(&b, "\n%s\n%s\n\n", strings.Repeat("=", 80), name)
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			if f.IsDir() || !licenceFile.MatchString(f.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found = true
			b.Write(bytes.TrimRight(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), "\n"))
			b.WriteString("\n")
		}
		if !found {
			t.Errorf("module %s has no licence: find out under which it may be passed on", name)
		}
	}
	if *update {
		if err := os.WriteFile("notices.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if b.String() != notices {
		t.Error("notices.txt is not of the modules that are linked: run go test ./internal/cli -run TestNotices -update")
	}
}
