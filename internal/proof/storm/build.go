package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/guards"
	"github.com/pawl-jobs/pawl/internal/proof/overlay"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/internal/proof/victims"
)

// The binaries are those that a storm's processes run.
type binaries struct {
	this  string
	next  string // the next version; empty: nobody is replaced by it
	proxy string // toxiproxy
}

// proxySource is what toxiproxy is built from.
const proxySource = "github.com/Shopify/toxiproxy/v2/cmd/server"

// build builds the binary of this version into a folder, and that of a next one if processes are to
// be replaced by it. In both [time.Now] is wrong by as many seconds as STORM_AWRY says and the file
// that STORM_CLOCK names, at any time: no part of the service can tell that from a clock that was
// set wrong. If without names a guard, both can go without it.
func build(ctx context.Context, dir, without string, next bool) (*binaries, error) {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	files := overlay.Files{}
	if without != "" {
		if files, err = guards.Without(root, without, dir); err != nil {
			return nil, err
		}
	}
	if err := awry(ctx, files, dir); err != nil {
		return nil, err
	}
	changed := filepath.Join(dir, "overlay.json")
	if err := files.Write(changed); err != nil {
		return nil, err
	}
	b := &binaries{this: filepath.Join(dir, "bin", "victim"), proxy: filepath.Join(dir, "bin", "toxiproxy")}
	if err := victims.Build(ctx, b.this, "-overlay", changed); err != nil {
		return nil, err
	}
	if err := buildProxy(ctx, b.proxy); err != nil || !next {
		return b, err
	}
	b.next = filepath.Join(dir, "bin", "next")
	return b, testenv.BuildNext(ctx, root, victims.Program, b.next, files)
}

// buildProxy builds toxiproxy.
func buildProxy(ctx context.Context, binary string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, proxySource)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as most builds are: most of it is compiled then
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build toxiproxy: %w\n%s", err, text)
	}
	return nil
}

// awry has the go command take another file in place of that in which Now stands.
func awry(ctx context.Context, files overlay.Files, dir string) error {
	root, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	name := filepath.Join(root, "src", "time", "time.go")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	const begins = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), begins) != 1 {
		return fmt.Errorf("package time of %s is not the one that is known: its Now does not begin as expected",
			runtime.Version())
	}
	changed := strings.Replace(string(text), begins, begins+"\tsec += awry + *clock\n", 1)
	if err := files.Add(dir, name, changed); err != nil {
		return err
	}
	return files.Add(dir, filepath.Join(filepath.Dir(name), "awry.go"), awrySource)
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

// output returns what a command prints, without the end of the line.
func output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return nil
}
