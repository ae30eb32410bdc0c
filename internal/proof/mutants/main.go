// Command mutants shows that each guard is missed when it is gone.
//
// It builds the tests that should notice with the edits of package guards, and runs them: once with
// all guards, where they must pass, and then without one guard after the other, where they must
// fail. A guard that nobody misses is a hole in the tests. The table tells what noticed, and after
// how long; the exit code is 1 if there is a hole. Tests that break down while none of them fails
// have noticed nothing: the exit code is 2, and what they said is shown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/guards"
)

const (
	// limit is how long the tests of a package may take to notice; what hangs for longer has
	// noticed, too.
	limit = time.Minute
	// tries is how often they are run until they notice: a process that was frozen races with its
	// own end, and may lose.
	tries = 3
)

func main() {
	only := flag.String("only", "", "the guards to go without, separated by commas; all by default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	holes, err := run(ctx, os.Stdout, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }))
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if holes > 0 {
		os.Exit(1)
	}
}

// run tries the mutants that are named, or all, and returns how many nobody noticed.
func run(ctx context.Context, out io.Writer, only []string) (holes int, err error) {
	set, err := guards.Read(".")
	if err != nil {
		return 0, err
	}
	chosen := set.Guards
	if len(only) > 0 {
		chosen = slices.DeleteFunc(slices.Clone(chosen),
			func(g guards.Guard) bool { return !slices.Contains(only, g.Name) })
		if len(chosen) != len(only) {
			return 0, fmt.Errorf("there are not %d guards with the names %s", len(only), strings.Join(only, ", "))
		}
	}
	dir, err := os.MkdirTemp("", "pawl-mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	files, err := set.Overlay(dir)
	if err != nil {
		return 0, err
	}
	b := &bench{dir: dir, overlay: filepath.Join(dir, "overlay.json"), built: map[string]string{}}
	if err := files.Write(b.overlay); err != nil {
		return 0, err
	}
	if err := b.sound(ctx, chosen); err != nil {
		return 0, err
	}
	fmt.Fprintln(out, "| without | so this does not hold | noticed by | after |")
	fmt.Fprintln(out, "|---|---|---|---|")
	var broken []error
	for _, g := range chosen {
		for _, t := range g.NoticedBy {
			began := time.Now()
			failed, err := b.notices(ctx, t, g.Name)
			who := "`" + failed + "` of " + path.Clean(t.Package)
			switch {
			case errors.Is(err, errBroken):
				broken = append(broken, fmt.Errorf("without %s: %w", g.Name, err))
				who = "**broken**: " + path.Clean(t.Package)
			case err != nil:
				return holes, err
			case failed == "":
				holes++
				who = "**nobody** of " + path.Clean(t.Package)
			}
			fmt.Fprintf(out, "| %s | %s | %s | %.1f s |\n", g.Name, g.Holds, who, time.Since(began).Seconds())
		}
	}
	fmt.Fprintf(out, "%d guards, %d missed by nobody\n", len(chosen), holes)
	return holes, errors.Join(broken...)
}

// A bench has the test binaries.
type bench struct {
	dir     string
	overlay string            // has the edits
	built   map[string]string // by package
}

// sound runs all tests that are to notice with all guards.
func (b *bench) sound(ctx context.Context, chosen []guards.Guard) error {
	ran := map[guards.Tests]bool{}
	for _, g := range chosen {
		for _, t := range g.NoticedBy {
			if ran[t] {
				continue
			}
			ran[t] = true
			failed, output, err := b.test(ctx, t, "")
			if err != nil {
				return err
			}
			if failed != "" {
				return fmt.Errorf("with all guards %s fails in %s:\n%s", failed, t.Package, output)
			}
		}
	}
	return nil
}

// errBroken says that tests ended badly, and that none of them failed: a panic beside them, a leak,
// a signal. That may have any reason, so nobody has noticed anything.
var errBroken = errors.New("the tests broke down, and none of them failed")

// test runs tests of a package, and returns the first that failed.
func (b *bench) test(ctx context.Context, t guards.Tests, without string) (failed string, output []byte, err error) {
	bin, err := b.build(ctx, t.Package)
	if err != nil {
		return "", nil, err
	}
	ctx, stop := context.WithTimeout(ctx, limit+10*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, bin, "-test.run", t.Run, "-test.failfast", "-test.timeout", limit.String())
	cmd.Dir = filepath.FromSlash(t.Package)
	cmd.Env = append(os.Environ(), "PAWL_WITHOUT="+without, "PAWL_TEST_REQUIRE=1", "PAWL_TEST_EVERY=1")
	output, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", output, nil
	case ctx.Err() != nil || !errors.As(err, &exit):
		return "", output, errors.Join(err, ctx.Err())
	}
	if failed = blamed(output); failed == "" {
		err = fmt.Errorf("%s of %s: %w: %w\n%s", t.Run, t.Package, errBroken, exit, output)
		return "", output, err
	}
	return failed, output, nil
}

// notices returns the name of the test that fails without a guard, of those that are run until one
// does.
func (b *bench) notices(ctx context.Context, t guards.Tests, without string) (failed string, err error) {
	for range tries {
		if failed, _, err = b.test(ctx, t, without); failed != "" || err != nil {
			break
		}
	}
	return failed, err
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running = regexp.MustCompile(`(?m)^panic: test timed out[^\n]*\n\s*running tests:\n\s*(\S+)`)
)

// blamed returns the name of the test that failed: of those that are nested the innermost. It is
// empty where none did.
func blamed(output []byte) string {
	if m := running.FindSubmatch(output); m != nil {
		return string(m[1]) + " (hangs)"
	}
	name := ""
	for _, m := range failure.FindAllSubmatch(output, -1) {
		if next := string(m[1]); strings.HasPrefix(next, name) {
			name = next
		}
	}
	return name
}

// build builds the tests of a package, once.
func (b *bench) build(ctx context.Context, pkg string) (string, error) {
	if bin, done := b.built[pkg]; done {
		return bin, nil
	}
	bin := filepath.Join(b.dir, strings.ReplaceAll(path.Join("pawl", pkg), "/", "_")+".test")
	text, err := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", b.overlay, "-o", bin, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, text)
	}
	b.built[pkg] = bin
	return bin, nil
}
