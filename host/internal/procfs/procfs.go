// Package procfs understands what Linux shows of processes in /proc, whoever has read it.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/pawl-jobs/pawl/host"
)

// Stat is what is used of /proc/PID/stat.
type Stat struct {
	Name                 string // of the program, or of a thread; cut to 15 bytes
	PID, Parent, Session int
	State                byte
	Threads              int
	Start                uint64 // clock ticks since boot
	// Image tells one program that the process becomes from the next; 0: it is becoming one, or may
	// not be asked.
	Image uint64
}

// Alive reports whether the process still runs. Zombies (Z) and the dead (X) do not, except that
// the first thread of a process may be a zombie while others run.
func (s Stat) Alive() bool {
	return s.State != 'Z' && s.State != 'X' && s.State != 'x' || s.Threads > 1
}

// ParseStat reads proc_pid_stat(5). The second field is the name of the program in parentheses and
// may hold anything, so the others are counted from the last closing one.
func ParseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("stat of a process: no name in %q", b[:min(len(b), 200)])
	}
	f := bytes.Fields(b[end+1:]) // f[i] is field i+3
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("stat of a process: too few fields in %q", b[:min(len(b), 200)])
	}
	var errs [6]error
	number := func(i int, text []byte) int {
		n, err := strconv.Atoi(string(text))
		errs[i] = err
		return n
	}
	s := Stat{State: f[0][0], Name: string(b[open+1 : end])}
	s.PID = number(0, bytes.TrimSpace(b[:open]))
	s.Parent = number(1, f[1])
	s.Session = number(2, f[3])
	s.Threads = number(3, f[17])
	s.Start, errs[4] = strconv.ParseUint(string(f[19]), 10, 64)
	// Of what belongs to a program the kernel lays down first where the stack begins (startstack),
	// at another place for each, then the environment, and then where the code ends (endcode).
	if len(f) > 25 && string(f[24]) != "0" {
		s.Image, errs[5] = strconv.ParseUint(string(f[25]), 10, 64)
	}
	return s, errors.Join(errs[:]...)
}

// LockLimit reads the hard limit of file locks out of /proc/PID/limits; 0: there is none.
func LockLimit(limits []byte) uint64 {
	_, rest, _ := bytes.Cut(limits, []byte("Max file locks"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil { // "unlimited"
		return 0
	}
	return n
}

// Marks reads [host.LaunchVariable] and [host.KeepVariable] out of /proc/PID/environ.
func Marks(environ []byte) (launch string, keep bool) {
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		switch name, value, _ := bytes.Cut(v, []byte("=")); string(name) {
		case host.LaunchVariable:
			launch = string(value)
		case host.KeepVariable:
			keep = string(value) == "1"
		}
	}
	return launch, keep
}
