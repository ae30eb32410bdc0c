package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// An ErrorKind says what a caller can do about an error. The API maps it to an HTTP status, the
// command line to an exit code.
type ErrorKind string

// The kinds of error.
const (
	Internal  ErrorKind = "internal"  // a defect in Pawl, or an error that nobody has given a kind
	Invalid   ErrorKind = "invalid"   // the request is wrong: change it
	NotFound  ErrorKind = "not_found" // no such thing for this tenant
	Conflict  ErrorKind = "conflict"  // it contradicts what is there already
	Exhausted ErrorKind = "exhausted" // a bound is reached: the same call may succeed later
	Denied    ErrorKind = "denied"    // the caller has not proved who it is, or may not do this
	// the caller's session, duty or epoch is not the newest: stop, and write nothing more
	Fenced      ErrorKind = "fenced"
	Unavailable ErrorKind = "unavailable" // a component cannot be reached now: the same call may succeed later
	Locked      ErrorKind = "locked"      // another process holds it
	Corrupt     ErrorKind = "corrupt"     // stored data is damaged
	Newer       ErrorKind = "newer"       // stored data was written by a newer version of Pawl
	Closed      ErrorKind = "closed"      // it has been closed
)

// Error is an error with a kind.
type Error struct {
	Kind ErrorKind
	Err  error
}

// Errorf makes an [Error]. A %w operand is wrapped.
func Errorf(kind ErrorKind, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost [Error] or [SpecError] in err's chain. Without one it is
// Unavailable for a [Shortage] of the machine, and Internal for anything else.
func KindOf(err error) ErrorKind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	var s *SpecError
	if errors.As(err, &s) {
		return Invalid
	}
	if Shortage(err) {
		return Unavailable
	}
	return Internal
}

// forking is the operation that package os names where a process cannot be started.
const forking = "fork/exec"

// Shortage reports whether err says that the machine has no further descriptor, process, memory or
// buffer for this process. The job that met it is not at fault, and the shortage passes. EAGAIN
// counts only where a process was to be started: elsewhere it says that a read or a lock would have
// to wait.
func Shortage(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	if !errors.Is(err, syscall.EAGAIN) {
		return false
	}
	var at *fs.PathError
	var call *os.SyscallError
	return errors.As(err, &at) && at.Op == forking || errors.As(err, &call) && call.Syscall == forking
}

// A Problem is one fault of a spec: where it is, what stands there, and what to do about it.
type Problem struct {
	Path   string `json:"path"`            // such as "inputs[2].from"
	Value  string `json:"value,omitempty"` // what was given, shortened
	What   string `json:"what"`            // what is wrong, without a final stop
	Remedy string `json:"remedy"`          // what to change, without a final stop
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Path)
	if p.Value != "" {
		fmt.Fprintf(&b, " (%s)", p.Value)
	}
	fmt.Fprintf(&b, ": %s: %s", p.What, p.Remedy)
	return b.String()
}

// SpecError lists everything that is wrong with one spec, up to [MaxProblems]. Its kind is
// [Invalid].
type SpecError struct {
	Problems []Problem
}

// MaxProblems is how many problems are listed, of one document or of all jobs of one submission.
const MaxProblems = 1000

// Add adds problems, up to [MaxProblems]. If some are left out, the last problem says so. Add
// reports whether there is room for more.
func (e *SpecError) Add(problems ...Problem) bool {
	room := MaxProblems - 1 - len(e.Problems)
	switch {
	case room < 0:
	case len(problems) <= room:
		e.Problems = append(e.Problems, problems...)
	default:
		e.Problems = append(e.Problems, problems[:room]...)
		e.Problems = append(e.Problems, Problem{
			Path: "(more)", What: "there are more problems than these",
			Remedy: "correct these first",
		})
	}
	return len(e.Problems) < MaxProblems
}

func (e *SpecError) Error() string {
	s := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		s[i] = p.String()
	}
	return strings.Join(s, "\n")
}
