// Package testenv starts private, real servers for tests.
//
// A server belongs to one test process: it is started when a test first asks for it, is shared by
// that process's tests, listens on the loopback interface only, keeps its data in a folder of its
// own, and is gone when the process is gone, however that ends. A package whose tests use a server
// hands its TestMain to [Main], which stops the servers in order; without that they are killed with
// the process, and the next run removes what they left on disk.
//
// A test that needs a component which this machine does not have is skipped with a reason. With
// PAWL_TEST_REQUIRE set in the environment, as `make test` does, it fails instead. A component that
// is there and does not work is always a failure.
//
// Only tests and the test programs beside this package import it.
package testenv

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
)

// Main runs the tests of m, stops every server that they started, and exits. It is the body of a
// TestMain.
func Main(m *testing.M) { os.Exit(Stopping(m).Run()) }

// Stopping returns m with a Run that stops every started server after the tests. It is for a
// TestMain that has more to do than [Main], such as goleak.VerifyTestMain(testenv.Stopping(m)).
func Stopping(m interface{ Run() int }) interface{ Run() int } { return stopping{m} }

type stopping struct{ m interface{ Run() int } }

func (s stopping) Run() int {
	defer servers.stop()
	defer stopSlurm()
	defer removeFiles() //nolint:errcheck // what remains is removed by a later run
	return s.m.Run()
}

// servers holds what this process has started and must stop. It is global because what it stands
// for is: the children of this process.
var servers shared

type shared struct {
	mu       sync.Mutex // guards what follows, and is held while a server starts
	postgres *Server
	err      error // why postgres could not be started; it is not tried again
}

func (s *shared) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.postgres != nil {
		s.postgres.Stop()
		s.postgres = nil
	}
}

// Long reports whether tests take all the time that their subject does, as those of `make
// test-long` do: PAWL_TEST_LONG is set in the environment. Otherwise they show the same with less.
func Long() bool { return os.Getenv("PAWL_TEST_LONG") != "" }

// Every reports whether tests run that `make test` leaves out, as in `make test-all`:
// PAWL_TEST_EVERY or PAWL_TEST_LONG is set in the environment.
func Every() bool { return Long() || os.Getenv("PAWL_TEST_EVERY") != "" }

// Aside skips a test that `make test` leaves out, see [Every]. Such a test takes long. Another test
// shows the main case, and this one adds a case to it, or shows the whole.
func Aside(t testing.TB) {
	t.Helper()
	if !Every() {
		t.Skip("make test-all runs it: PAWL_TEST_EVERY is not set")
	}
}

// Times is how often a test repeats what it does: few times in make test, and otherwise as often as
// it can tell more.
func Times(few, all int) int {
	if Every() {
		return all
	}
	return few
}

// Draws says how often package rapid draws what is drawn at random: in make test, in make test-all
// and in long tests. -rapid.checks says another number. It is called by TestMain.
func Draws(few, every, long int) {
	switch {
	case Long():
		few = long
	case Every():
		few = every
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(few)); err != nil {
		panic(err) // the tests do not use rapid
	}
}

// Need skips a test whose program is not in PATH, or fails it: see the package comment. The Debian
// package pkg has the program.
func Need(tb testing.TB, program, pkg string) {
	tb.Helper()
	if _, err := exec.LookPath(program); err != nil {
		missing(tb, fmt.Errorf("%s is %w: install it (Debian: %s)", program, ErrMissing, pkg))
	}
}

// missing ends the test because this machine lacks a component: see the package comment.
func missing(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("PAWL_TEST_REQUIRE") != "" {
		tb.Fatalf("%v (and PAWL_TEST_REQUIRE is set)", err)
		return
	}
	tb.Skipf("%v", err)
}
