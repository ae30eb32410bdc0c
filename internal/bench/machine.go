package bench

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/internal/node"
)

// A Machine is what a figure was taken on. What the system does not tell is "unknown".
type Machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MaxProcs   int     `json:"gomaxprocs"`
	Kernel     string  `json:"kernel"`
	FileSystem string  `json:"file_system"`     // of the folder
	Load       float64 `json:"load_average_1m"` // before the benchmark: what others did
	Go         string  `json:"go_version"`
	Pawl       string  `json:"pawl_version"`
}

func thisMachine(dir string) Machine {
	m := Machine{
		CPU: ProcField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0),
		Kernel: runtime.GOOS, FileSystem: fileSystem(dir), Go: runtime.Version(), Pawl: node.Version,
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel += " " + strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// Rows calls row for each line that people read of the machine.
func (m *Machine) Rows(row func(name, format string, args ...any)) {
	row("cpu", "%s, %d cores, GOMAXPROCS %d, load average before %.2f", m.CPU, m.Cores, m.MaxProcs, m.Load)
	row("system", "%s, %s, pawl %s", m.Kernel, m.Go, m.Pawl)
	row("file system", "%s", m.FileSystem)
}

// ResidentMB returns the memory that this process has in RAM (VmRSS), in units of 2^20 bytes; 0:
// unknown.
func ResidentMB() float64 {
	kb, _, _ := strings.Cut(ProcField("/proc/self/status", "VmRSS"), " ")
	n, err := strconv.ParseFloat(kb, 64)
	if err != nil {
		return 0
	}
	return Rounded(n/1024, 1)
}

// UsedCPU returns the CPU time that this process has used so far, of the program and of the system
// on its behalf.
func UsedCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ProcField returns the first value of a key in a file of lines "key: value".
func ProcField(file, key string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// fileSystem returns type and device of what is mounted where dir is, such as "ext4 on /dev/vda".
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "unknown"
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "unknown"
	}
	return mountOf(dir, string(mounts))
}

// mountOf finds in mounts, which is a mountinfo file (see proc_pid_mountinfo(5)), the mount that
// dir is in: the longest mount point, and of several on one point the last.
func mountOf(dir, mounts string) string {
	found, longest := "unknown", -1
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		at, what := strings.Fields(left), strings.Fields(right)
		if !ok || len(at) < 5 || len(what) < 2 {
			continue
		}
		point := mountEscapes.Replace(at[4])
		if rest, within := strings.CutPrefix(dir, strings.TrimSuffix(point, "/")); within &&
			(rest == "" || rest[0] == '/') && len(point) >= longest {
			found, longest = what[0]+" on "+what[1], len(point)
		}
	}
	return found
}

// mountEscapes undoes how the kernel writes mount points.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
