package remote

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A machine on which no program runs is left alone: nobody watches there, so that the connection
// can be closed. The watch is back with the next program.
func TestRest(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t, func(o *node.Options) { o.Look = 100 * time.Millisecond })
	w.system("lab", s, s.Port)
	work := w.work("lab", s)
	watched := func() bool { // what watches has the bell of its folder open
		fds, _ := filepath.Glob("/proc/[0-9]*/fd/7")
		for _, fd := range fds {
			name, err := os.Readlink(fd)
			if err == nil && strings.HasPrefix(name, work+"/") && filepath.Base(name) == ".bell" {
				return true
			}
		}
		return false
	}
	rests := func() bool { return !watched() }
	for _, name := range []string{"one", "two"} {
		w.eventually("nobody watches", rests)
		goOn := filepath.Join(w.dir, name)
		id := w.submit(w.program("lab", goOn))[0]
		w.runs(id)
		w.eventually("somebody watches", watched)
		w.write(goOn, "")
		w.finished(id)
	}
	w.eventually("nobody watches", rests)
}
