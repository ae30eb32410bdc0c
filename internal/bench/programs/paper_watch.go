package programs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
)

// newSleeper makes a program in dir that sleeps for as many seconds as its argument says: that of
// the system under a name of its own, so that its processes can be told from all others.
func newSleeper(dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(dir) // as the system names it
	if err != nil {
		return "", err
	}
	from, err := exec.LookPath("sleep")
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "sleep") // busybox does what its name says
	return name, os.WriteFile(name, b, 0o755)
}

// A sample is how many programs ran at one moment, in time since the benchmark began.
type sample struct {
	at      time.Duration
	running int
}

type samples []sample

// A lookout counts the processes of a program. It asks the system, and knows nothing of Pawl.
type lookout struct {
	program string
	known   map[string]bool // processes of the program that were there at the last look, by their number
	others  map[string]int  // processes that were something else, and how often they were looked at
	cancel  context.CancelFunc
	done    chan struct{}
	seen    samples
}

const (
	// lookEvery is how often processes are counted.
	lookEvery = 50 * time.Millisecond
	// oftenEnough is how often a process is looked at that is something else: one that was just
	// started may become the program.
	oftenEnough = 20
)

// watchPrograms counts the processes of program until ctx ends, or the lookout's own end.
func watchPrograms(ctx context.Context, program string, begin time.Time) *lookout {
	ctx, cancel := context.WithCancel(ctx)
	l := &lookout{program: program, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			n := l.count()
			l.seen = append(l.seen, sample{time.Since(begin), n})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return l
}

// end returns what was seen.
func (l *lookout) end() samples {
	l.cancel()
	<-l.done
	return l.seen
}

// count counts the processes of the program that are there at one moment: to look at all takes a
// while, in which one may end and the next begin, and those that are still there afterwards were
// there together.
func (l *lookout) count() int {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return 0
	}
	var found []string
	known, others := make(map[string]bool, len(l.known)), make(map[string]int, len(names))
	for _, name := range names {
		looked := l.others[name]
		switch {
		case name[0] < '0' || name[0] > '9':
		case looked == oftenEnough:
			others[name] = looked
		case l.known[name] || l.runs(name):
			found = append(found, name)
		default:
			others[name] = looked + 1
		}
	}
	for _, name := range found {
		if l.runs(name) {
			known[name] = true
		}
	}
	l.known, l.others = known, others
	return len(known)
}

// runs reports whether a process is one of the program.
func (l *lookout) runs(name string) bool {
	exe, err := os.Readlink("/proc/" + name + "/exe")
	return err == nil && exe == l.program
}

// most returns the highest number.
func (s samples) most() (n int) {
	for _, one := range s {
		n = max(n, one.running)
	}
	return n
}

// reached returns when there were n for the first time; 0: never.
func (s samples) reached(n int) time.Duration {
	for _, one := range s {
		if one.running >= n {
			return one.at
		}
	}
	return 0
}

// curve returns the mean number in each part of the time until end, and how long a part is, in
// seconds. A part in which nobody looked is as the one before.
func (s samples) curve(end time.Duration) (running []float64, every float64) {
	const parts = 240
	width := end / min(parts, max(1, end/(2*lookEvery)))
	running = make([]float64, 0, parts)
	for from := time.Duration(0); from+width <= end; from += width {
		sum, n := 0, 0
		for ; len(s) > 0 && s[0].at < from+width; s = s[1:] {
			sum, n = sum+s[0].running, n+1
		}
		mean := 0.0
		switch {
		case n > 0:
			mean = bench.Rounded(float64(sum)/float64(n), 1)
		case len(running) > 0:
			mean = running[len(running)-1]
		}
		running = append(running, mean)
	}
	return running, bench.Rounded(width.Seconds(), 3)
}
