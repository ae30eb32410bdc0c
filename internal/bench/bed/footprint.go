package bed

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/pawl-jobs/pawl/internal/bench"
)

// A Footprint is what a process has.
type Footprint struct {
	RSS         float64 // MB
	Descriptors int
	Goroutines  int
}

// OwnFootprint is taken after what is garbage was given back, for it is nobody's.
func OwnFootprint() Footprint {
	debug.FreeOSMemory()
	f := Footprint{RSS: bench.ResidentMB(), Goroutines: runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.Descriptors = len(fds)
	}
	return f
}

// AnonymousMB returns the memory that this process has in RAM and that is no file (RssAnon).
func AnonymousMB() float64 { return megabytes("RssAnon") }

// PeakMB returns the most memory that this process had in RAM (VmHWM) since [ForgetPeak].
func PeakMB() float64 { return megabytes("VmHWM") }

// megabytes returns a value of /proc/self/status, in units of 2^20 bytes; 0: unknown.
func megabytes(key string) float64 {
	kb, _ := kilobytes("/proc/self/status", key)
	return bench.Rounded(kb/1024, 1)
}

// errNoPeak says that the kernel does not reset VmHWM.
var errNoPeak = errors.New("the most memory so far cannot be forgotten")

// ForgetPeak lets VmHWM begin anew; see proc_pid_clear_refs(5).
func ForgetPeak() error {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5\n"), 0); err != nil {
		return fmt.Errorf("%w: %w", errNoPeak, err)
	}
	return nil
}
