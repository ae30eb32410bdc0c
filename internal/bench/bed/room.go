package bed

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// What a sleeping program takes: its wrapper and itself, and their memory, measured as what
// MemAvailable lost for each of 10,000, with half as much again; the files of its folder, on a file
// system with blocks of 4 KiB.
const (
	sleeperProcesses = 2
	sleeperMemory    = 600 << 10
	sleeperFiles     = 16
	sleeperDisk      = 80 << 10
)

// spare is what is to be left of each limit for everything else on the machine.
const (
	spareProcesses   = 300
	spareMemory      = 512 << 20
	spareDescriptors = 256
	spareFiles       = 10_000
	spareDisk        = 512 << 20
)

// A bound is how much more of something the system lets this process have.
type bound struct {
	name string  // of the limit
	room float64 // what is left of it; +Inf: there is no limit
	set  float64 // to what it is set
	// raise says how to set it to a value.
	raise func(to float64) string
	each  float64 // what a sleeping program takes of it
	spare float64 // what is to be left besides
	bytes bool    // values are bytes
}

// Bounds are all that limit how many programs may sleep at once. What the system does not tell is
// left out.
type Bounds []bound

// Refuse returns an error that names each limit that n sleeping programs would break, and what to
// do about it. flag is the one that says how many they are.
func (list Bounds) Refuse(n int, flag string) error {
	var short []string
	most := math.Inf(1)
	for _, b := range list {
		need := b.each*float64(n) + b.spare
		if need <= b.room {
			continue
		}
		if b.each > 0 {
			most = min(most, (b.room-b.spare)/b.each)
		} else {
			most = 0
		}
		short = append(short, fmt.Sprintf("  %s leaves room for %s and %s are needed: %s", b.name, b.shown(b.room),
			b.shown(need), b.raise(b.set+need-b.room)))
	}
	if short == nil {
		return nil
	}
	hint := ""
	if most >= 1 {
		hint = fmt.Sprintf("\nor give --%s %d", flag, int(most))
	}
	return term.Usagef("%d programs cannot sleep here at once; nothing was started\n%s%s", n,
		strings.Join(short, "\n"), hint)
}

func (b *bound) shown(v float64) string {
	v = max(0, v)
	if b.bytes {
		return fmt.Sprintf("%.0f MB", v/(1<<20))
	}
	return fmt.Sprintf("%.0f", v)
}

// RoomFor asks the system for its limits. dir is where the programs will have their folders.
func RoomFor(dir string) Bounds {
	var list Bounds
	processes := func(name string, limit, used float64, raise func(to float64) string) {
		list = append(list, bound{
			name: name, set: limit, room: limit - used, raise: raise, each: sleeperProcesses,
			spare: spareProcesses,
		})
	}
	memory := func(name string, limit, used float64, raise func(to float64) string) {
		list = append(list, bound{
			name: name, set: limit, room: limit - used, raise: raise, each: sleeperMemory,
			spare: spareMemory, bytes: true,
		})
	}
	sysctl := func(name string) func(float64) string {
		return func(to float64) string { return fmt.Sprintf("sysctl -w %s=%.0f", name, math.Ceil(to)) }
	}
	if tasks, ok := allTasks(); ok {
		for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
			if limit, ok := number("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); ok {
				processes(name, limit, tasks, sysctl(name))
			}
		}
	}
	// Linux does not hold root to the number of processes.
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &r); err == nil && os.Geteuid() != 0 && r.Cur != unix.RLIM_INFINITY {
		processes("RLIMIT_NPROC (ulimit -u)", float64(r.Cur), ownTasks(),
			func(to float64) string { return fmt.Sprintf("ulimit -u %.0f", math.Ceil(to)) })
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil {
		list = append(list, bound{
			name: "RLIMIT_NOFILE (ulimit -n)", set: float64(r.Cur), room: float64(r.Cur), spare: spareDescriptors,
			raise: func(to float64) string { return fmt.Sprintf("ulimit -n %.0f", math.Ceil(to)) },
		})
	}
	if kb, ok := kilobytes("/proc/meminfo", "MemAvailable"); ok {
		memory("memory (MemAvailable)", kb*1024, 0, func(to float64) string {
			return fmt.Sprintf("free memory or add some, until MemAvailable is %.0f MB", math.Ceil(to/(1<<20)))
		})
	}
	write := func(file string) func(float64) string {
		return func(to float64) string { return fmt.Sprintf("echo %.0f >%s", math.Ceil(to), file) }
	}
	for _, folder := range groups("pids") {
		limit, ok := number(folder + "/pids.max")
		used, ok2 := number(folder + "/pids.current")
		if ok && ok2 {
			processes(folder+"/pids.max", limit, used, write(folder+"/pids.max"))
		}
	}
	for _, folder := range groups("memory") {
		for _, f := range [][2]string{
			{"memory.max", "memory.current"},
			{"memory.limit_in_bytes", "memory.usage_in_bytes"},
		} {
			limit, ok := number(path.Join(folder, f[0]))
			used, ok2 := number(path.Join(folder, f[1]))
			if ok && ok2 {
				memory(path.Join(folder, f[0]), limit, used, write(path.Join(folder, f[0])))
			}
		}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err == nil {
		elsewhere := func(float64) string { return "name a folder on another disk with --dir" }
		free := float64(disk.Bavail) * float64(disk.Bsize)
		list = append(list, bound{
			name: "the disk of " + dir, room: free, raise: elsewhere, each: sleeperDisk,
			spare: spareDisk, bytes: true,
		})
		if disk.Files > 0 { // some file systems do not count them
			list = append(list, bound{
				name: "the inodes of the disk of " + dir, room: float64(disk.Ffree),
				raise: elsewhere, each: sleeperFiles, spare: spareFiles,
			})
		}
	}
	return list
}

// number reads a file that holds one number; "max" is +Inf.
func number(file string) (float64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return math.Inf(1), true
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// kilobytes reads a value in kB from a file of lines "key: value".
func kilobytes(file, key string) (float64, bool) {
	text, _, _ := strings.Cut(bench.ProcField(file, key), " ")
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// allTasks returns how many tasks there are on the machine, each of which has a pid.
func allTasks() (float64, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b))
	if len(f) < 4 {
		return 0, false
	}
	_, all, _ := strings.Cut(f[3], "/")
	v, err := strconv.ParseFloat(all, 64)
	return v, err == nil
}

// ownTasks returns how many tasks the own account has.
func ownTasks() (n float64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
			continue
		}
		if threads, err := strconv.ParseFloat(bench.ProcField(path.Join("/proc", e.Name(), "status"), "Threads"),
			64); err == nil {
			n += threads
		}
	}
	return n
}

// groups returns the folders of the control groups of this process that limit what controller
// names, up to the root.
func groups(controller string) (folders []string) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		switch {
		case f[1] == "": // version 2
		case strings.Contains(","+f[1]+",", ","+controller+","):
			root += "/" + controller
		default:
			continue
		}
		for at := path.Clean(f[2]); ; at = path.Dir(at) {
			if info, err := os.Stat(root + at); err == nil && info.IsDir() {
				folders = append(folders, path.Clean(root+at))
			}
			if at == "/" || at == "." {
				break
			}
		}
	}
	return folders
}
