package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pawl-jobs/pawl/internal/testenv"
)

// The binaries are those that a storm's processes run.
type binaries struct {
	this   string
	proxy  string // toxiproxy
	before string // the version before; empty: nobody is replaced by it
	none   error  // why there is no version before, though one was asked for
}

// proxySource is what toxiproxy is built from.
const proxySource = "github.com/Shopify/toxiproxy/v2/cmd/server"

// build builds the binary of this version into a folder, and that of the one before if processes are to be replaced by it. In that of
// this version [time.Now] is wrong by as many seconds as STORM_AWRY says and the file that STORM_CLOCK names, at any time: no part
// of the service can tell that from a clock that was set wrong.
func build(ctx context.Context, dir string, mutants, before bool) (*binaries, error) {
	overlay, err := awry(ctx, dir)
	if err != nil {
		return nil, err
	}
	args := []string{"build", "-overlay", overlay, "-tags", "storm"}
	if mutants {
		args[len(args)-1] += ",mutants"
	}
	b := &binaries{this: filepath.Join(dir, "bin", "pawl"), proxy: filepath.Join(dir, "bin", "toxiproxy")}
	if err := command(ctx, "", "go", append(args, "-o", b.this, "github.com/pawl-jobs/pawl/cmd/pawl")...); err != nil {
		return nil, err
	}
	if err := command(ctx, "", "go", "build", "-o", b.proxy, proxySource); err != nil || !before {
		return b, err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	source := filepath.Join(dir, "before")
	if err := os.Mkdir(source, 0o700); err != nil {
		return nil, err
	}
	b.before, err = testenv.BuildBefore(ctx, strings.TrimSpace(string(root)), source)
	if errors.Is(err, testenv.ErrNoHistory) {
		b.none, err = err, nil
	}
	return b, err
}

// awry writes into the folder what the go command is to take in place of the file in which Now stands.
func awry(ctx context.Context, dir string) (overlay string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	name := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	const begins = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), begins) != 1 {
		return "", fmt.Errorf("package time of %s is not the one that is known: its Now does not begin as expected", runtime.Version())
	}
	dir = filepath.Join(dir, "bin")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	changed := filepath.Join(dir, "time.go")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), begins, begins+"\tsec += awry + *clock\n", 1)), 0o600); err != nil {
		return "", err
	}
	added := filepath.Join(dir, "awry.go")
	if err := os.WriteFile(added, []byte(awrySource), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {name: changed, filepath.Join(filepath.Dir(name), "awry.go"): added}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
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
