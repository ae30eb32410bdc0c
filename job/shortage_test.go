package job_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestShortage(t *testing.T) {
	at := func(op string, err error) error { return &fs.PathError{Op: op, Path: "/x", Err: err} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{at("open", syscall.EMFILE), true},
		{at("open", syscall.ENFILE), true},
		{at("write", syscall.ENOMEM), true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, true},
		{&net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.ENOBUFS)}, true},
		{fmt.Errorf("start: %w", at("fork/exec", syscall.EAGAIN)), true},
		{os.NewSyscallError("fork/exec", syscall.EAGAIN), true},
		{at("read", syscall.EAGAIN), false}, // a read that would wait
		{syscall.EAGAIN, false},
		{at("write", syscall.ENOSPC), false},
		{at("write", syscall.EDQUOT), false},
		{at("fork/exec", syscall.ENOENT), false},
		{errors.New("too many open files"), false},
	} {
		if got := job.Shortage(c.err); got != c.want {
			t.Errorf("%v: a shortage: %v, not %v", c.err, got, c.want)
		}
		kind := job.Internal
		if c.want {
			kind = job.Unavailable
		}
		if got := job.KindOf(c.err); got != kind {
			t.Errorf("%v: its kind is %s, not %s", c.err, got, kind)
		}
	}
	if kind := job.KindOf(job.Errorf(job.Invalid, "no: %w", syscall.EMFILE)); kind != job.Invalid {
		t.Errorf("a kind that is given is %s", kind)
	}
}
