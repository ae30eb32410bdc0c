package node

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/recovery"
)

// space tests file systems: those of other machines there, and those of this machine by Tester.
type space struct {
	recovery.Tester
	far *systems
}

// Private implements [recovery.Private]: each tenant has systems of its own.
func (space) Private() {}

// Test implements [recovery.Tester].
func (s space) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	watch, at := q.Params[app.ParamWatch], q.Params["path"]
	if watch == "" {
		return s.Tester.Test(ctx, q)
	}
	least, err := strconv.ParseInt(cmp.Or(q.Params["bytes"], "1"), 10, 64)
	if err != nil {
		return recovery.Answer{}, fmt.Errorf("bytes is %q: give a number of bytes", q.Params["bytes"])
	}
	y, err := s.far.System(ctx, q.Tenant, watch)
	if err != nil {
		return recovery.Answer{}, err
	}
	can, ok := y.Host.Files().(files.Sizer)
	if !ok {
		return recovery.Answer{}, job.Errorf(job.Unavailable, "%s does not say what is free", watch)
	}
	free, err := can.Space(ctx, at)
	if err != nil {
		return recovery.Answer{}, err
	}
	says := fmt.Sprintf("%d bytes are free on the file system of %s of %s", free.Free, at, watch)
	switch {
	case free.ReadOnly:
		says = "the file system of " + at + " of " + watch + " is read-only"
	case free.NoFile:
		says = "the file system of " + at + " of " + watch + " takes no more files"
	case free.Free < least:
		says += fmt.Sprintf(", and %d are needed", least)
	}
	return recovery.Answer{Clear: !free.ReadOnly && !free.NoFile && free.Free >= least, Says: says}, nil
}
