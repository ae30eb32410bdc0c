package remote

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/internal/bench"
)

// calibration is for how long it is counted what the machine starts by itself.
const calibration = time.Second

// forked returns how many processes and threads the machine has started since its boot.
func forked() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "processes "); ok {
			return strconv.ParseFloat(strings.TrimSpace(n), 64)
		}
	}
	return 0, errors.New("/proc/stat does not tell how many processes were started")
}

// quietForks returns how many processes and threads the machine starts per second while this one
// does nothing.
func quietForks(ctx context.Context, d time.Duration) (float64, error) {
	before, err := forked()
	if err != nil {
		return 0, err
	}
	if err := bench.Wait(ctx, d); err != nil {
		return 0, err
	}
	after, err := forked()
	return (after - before) / d.Seconds(), err
}
