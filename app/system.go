package app

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/app/share"
	"github.com/pawl-jobs/pawl/app/shell"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// A System is an account on a machine on which programs run, with the folders that Pawl has there.
// All folders are absolute on that machine.
type System struct {
	// Watch names the watch over its programs. Jobs keep it in [job.Job.Watch]. It is SYSTEM/USER,
	// or by default the id of Host.
	Watch string
	// Host is the machine.
	Host host.Host
	// Runner launches programs there and ends them.
	Runner runner.Runner
	// Work holds the folders of jobs, as <work>/<tenant>/<job id>.
	Work string
	// Shell is the shell that reads Profile and then becomes each program, such as [bash, -l]. Nil:
	// programs are started without one, unless there is a Profile.
	Shell []string
	// Profile holds lines of that shell that come before each program.
	Profile string
	// Complete fills in what a job leaves to the scheduler. Nil: there is none.
	Complete func(*job.Resources)
}

// shared returns where copies of inputs are that several jobs share, beside the folders of tenants.
func (y *System) shared() share.Place {
	return share.Place{System: y.Watch, FS: y.Host.Files(), Folder: path.Join(y.Work, ".shared")}
}

// Argv returns how a program is started on the system: see [shell.Argv].
func (y *System) Argv(argv []string, unread string) []string {
	return shell.Argv(y.Shell, y.Profile, argv, unread)
}

// shelled reports whether programs are started by a shell.
func (y *System) shelled() bool { return y.Shell != nil || y.Profile != "" }

// TesterConnection is the name of the tester that asks the machine of a system, and ParamWatch that
// of its parameter: the watch of the system.
const (
	TesterConnection = "connection"
	ParamWatch       = "watch"
)

// elsewhere reports whether the program of a job runs on another machine than the service.
func elsewhere(j *job.Job) bool { return strings.Contains(j.Watch, "/") }

// silent returns the block of a job whose machine cannot be reached, or that of an input or of its
// archive; nil: err is no such trouble. All troubles of reaching one account are one group. Files
// of another machine that are not there for now were cut off with it.
func silent(j *job.Job, err error) *job.Block {
	code, watch := job.ConnectionLost, j.Watch
	of, other := errors.AsType[*sourceError](err)
	if other {
		watch = of.watch
	}
	t, ok := errors.AsType[*host.Trouble](err)
	switch {
	case ok:
		code = t.Code
	case !other && !elsewhere(j), job.KindOf(err) != job.Unavailable, job.Blocking(err) != nil:
		return nil //nolint:nilerr // it is other trouble, of which the caller tells
	}
	system, _, _ := strings.Cut(watch, "/")
	b := &job.Block{
		Code: code, AnyCode: true, Tester: TesterConnection, Params: map[string]string{ParamWatch: watch},
		Machine: j.Machine, Line: job.SystemKey(system),
	}
	if ok && t.Ask != nil { // a scheduler answers, and may take other jobs
		b.AnyCode = false
		for name, value := range t.Ask {
			b.Params[name] = value
		}
		if p := t.Ask["partition"]; p != "" {
			b.Line = job.PartitionKey(system, p)
		}
	}
	return b
}

// Remote finds the systems on other machines. Its methods are safe for concurrent use.
type Remote interface {
	// Document returns the document of a system by its name. If there is none, the error is of kind
	// [job.NotFound].
	Document(ctx context.Context, tenant, name string) (job.System, error)
	// System returns the system of a watch. It may ask the machine where the folders are. If the
	// machine cannot be reached, the error is of kind [job.Unavailable]. If there is no such
	// system, it is of kind [job.NotFound].
	System(ctx context.Context, tenant, watch string) (*System, error)
}

// Local returns the system on this machine.
func (k *Kind) Local() *System { return &k.cfg.Local }

// system returns the system on which the program of a job runs.
func (k *Kind) system(ctx context.Context, j *job.Job) (*System, error) {
	switch {
	case j.Watch == k.cfg.Local.Watch || !elsewhere(j):
		return &k.cfg.Local, nil
	case k.cfg.Remote == nil: // this process reaches no other machine
		return &System{Watch: j.Watch}, nil
	}
	y, err := k.cfg.Remote.System(ctx, j.Tenant, j.Watch)
	if job.KindOf(err) == job.NotFound { // somebody may make it again
		err = &host.Trouble{Code: job.SystemDisabled, Err: err}
	}
	return y, err
}

// folder returns the folder of a job.
func (y *System) folder(j *job.Job) string { return path.Join(y.Work, j.Tenant, j.ID.String()) }
