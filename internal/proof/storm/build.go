package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// The binaries are those that a storm's processes run.
type binaries struct {
	this  string
	next  string // the next version; empty: nobody is replaced by it
	proxy string // toxiproxy
}

// victim is the program whose processes are attacked: pawl, and the kind of the storm's tasks.
const victim = "internal/proof/victim"

// proxySource is what toxiproxy is built from.
const proxySource = "github.com/Shopify/toxiproxy/v2/cmd/server"

// build builds the binary of this version into a folder, and that of a next one if processes are to be replaced by it. In
// both [time.Now] is wrong by as many seconds as STORM_AWRY says and the file that STORM_CLOCK names, at any time: no part
// of the service can tell that from a clock that was set wrong.
func build(ctx context.Context, dir string, mutants, next bool) (*binaries, error) {
	replaced, overlay, err := awry(ctx, dir)
	if err != nil {
		return nil, err
	}
	tags := ""
	if mutants {
		tags = "mutants"
	}
	b := &binaries{this: filepath.Join(dir, "bin", "victim"), proxy: filepath.Join(dir, "bin", "toxiproxy")}
	if err := command(ctx, "", "go", "build", "-overlay", overlay, "-tags", tags, "-o", b.this, "github.com/pawl-jobs/pawl/"+victim); err != nil {
		return nil, err
	}
	if err := command(ctx, "", "go", "build", "-o", b.proxy, proxySource); err != nil || !next {
		return b, err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	b.next = filepath.Join(dir, "bin", "next")
	return b, testenv.BuildNext(ctx, strings.TrimSpace(string(root)), victim, b.next, replaced, "-tags", tags)
}

// awry writes into the folder what the go command is to take in place of the file in which Now stands, and an overlay that says so.
func awry(ctx context.Context, dir string) (replaced map[string]string, overlay string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, "", fmt.Errorf("go env GOROOT: %w", err)
	}
	name := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, "", err
	}
	const begins = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), begins) != 1 {
		return nil, "", fmt.Errorf("package time of %s is not the one that is known: its Now does not begin as expected", runtime.Version())
	}
	dir = filepath.Join(dir, "bin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	changed := filepath.Join(dir, "time.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), begins, begins+"\tsec += awry + *clock\n", 1)), 0o600); err != nil {
		return nil, "", err
	}
	added := filepath.Join(dir, "awry.go")
	if err := os.WriteFile(added, []byte(awrySource), 0o600); err != nil {
		return nil, "", err
	}
	replaced = map[string]string{name: changed, filepath.Join(filepath.Dir(name), "awry.go"): added}
	text, err = json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return nil, "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return replaced, overlay, os.WriteFile(overlay, text, 0o600)
}

const awrySource = `package time

import (
	"syscall"
	"unsafe"
)

var (
	awry  = awrySeconds()
	clock = shared()
)

func shared() *int64 {
	name, found := syscall.Getenv("STORM_CLOCK")
	if !found {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	m, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&m[0]))
}

func awrySeconds() (n int64) {
	text, _ := syscall.Getenv("STORM_AWRY")
	for i := 0; i < len(text); i++ {
		if text[i] != '-' {
			n = 10*n + int64(text[i]-'0')
		}
	}
	if text != "" && text[0] == '-' {
		n = -n
	}
	return n
}
`

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return nil
}
