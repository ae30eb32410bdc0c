package process

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// What does not run in the present boot is over, if the machine was started anew. A name may also
// lead to several machines with one home, as that of a login node does, and a data folder on a
// network file system to the next one: there it runs on. So the spool has a file for each boot,
// with what the machine calls itself.

// note writes down whose boot it is, before the first launch in it. Where there is no room for
// that, the next launch tries again.
func (r *Runner) note(ctx context.Context, boot string) error {
	if was := r.noted.Load(); was != nil && *was == boot {
		return nil
	}
	machine, err := r.Host.Machine(ctx)
	if err == nil && machine != "" {
		err = r.Write(ctx, r.machineOf(boot), machine)
	}
	switch {
	case spool.NoRoom(err):
		return nil
	case err != nil:
		return spool.NotArmed(err)
	}
	r.noted.Store(&boot)
	return nil
}

func (r *Runner) machineOf(boot string) string { return path.Join(r.Dir, ".machine."+boot) }

// errElsewhere is why nothing can be told, or done, of a launch on another machine.
var errElsewhere = errors.New("launched on another machine")

// here returns an error if a launch of a boot is on another machine than the one that is reached
// now. A file that is not there says that it is not.
func (r *Runner) here(ctx context.Context, boot string) error {
	now, err := r.Host.Boot(ctx)
	if err != nil || boot == "" || boot == now {
		return err
	}
	type pair struct{ was, is string }
	if _, known := r.past.Load(pair{boot, now}); known {
		return nil
	}
	was, err := r.Read(ctx, r.machineOf(boot))
	if err != nil || len(was) == 0 {
		return err
	}
	is, err := r.Host.Machine(ctx)
	if err != nil || is == "" {
		return err
	}
	if slices.Equal(was, strings.Fields(is)) {
		r.past.Store(pair{boot, now}, true)
		return nil
	}
	return job.Errorf(job.Unavailable, "%w: on %s, and this is %s. It goes on when that one is reached: have the address "+
		"name one machine. If it is gone for good, remove %s", errElsewhere, was[0], strings.Fields(is)[0], r.machineOf(boot))
}
