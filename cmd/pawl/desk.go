package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
)

// A desk is where a command asks about jobs: a server; or the process that runs jobs in a folder, or without one the
// folder itself. All answer alike.
type desk struct {
	*client.Client
	server  *server // nil: it is a folder's
	dir     string  // the folder
	process bool    // another process answers
	node    *node   // this process, where it has taken the folder to write to it
	release func() error
}

func (d *desk) close() error { return d.release() }

// where names the place whose jobs are asked about.
func (d *desk) where() string {
	if d.server != nil {
		return "on " + d.server.url
	}
	return "in folder " + d.dir
}

// who names what runs the jobs there.
func (d *desk) who() string {
	if d.server != nil {
		return "the server at " + d.server.url
	}
	return "the process that runs jobs in folder " + d.dir
}

// served reports whether anything runs the jobs now.
func (d *desk) served(ctx context.Context) bool {
	return d.server != nil || d.node == nil && occupied(ctx, d.dir)
}

// openDesk opens the desk of --server, or of the folder of --dir.
func openDesk(ctx context.Context, cmd *cobra.Command) (*desk, error) {
	d, err := openProcess(ctx, cmd)
	if d != nil || err != nil {
		return d, err
	}
	dir, err := dataDir(cmd)
	if err != nil {
		return nil, err
	}
	n, err := openReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	return n.desk(), nil
}

// openProcess opens the desk of a server, or of a process that has the folder; nil: there is none.
func openProcess(ctx context.Context, cmd *cobra.Command) (*desk, error) {
	s, err := serverOf(cmd)
	if err != nil {
		return nil, err
	}
	if s != nil {
		return serverDesk(s)
	}
	dir, err := dataDir(cmd)
	if err != nil {
		return nil, err
	}
	process, err := reach(ctx, dir)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // nobody listens there
	}
	r := &folderTransport{process: process, dir: dir}
	return &desk{Client: client.New(r), dir: dir, process: true, release: r.close}, nil
}

// openWriting opens the desk for a command that makes something that was not there, the folder too where it is missing.
func openWriting(ctx context.Context, cmd *cobra.Command) (*desk, error) {
	d, err := openProcess(ctx, cmd)
	if d != nil || err != nil {
		return d, err
	}
	dir, err := dataDir(cmd)
	if err != nil {
		return nil, err
	}
	d = &desk{dir: dir, release: func() error { return nil }}
	return d, d.write(ctx, nodeOptions{})
}

// serverDesk is the desk of a server.
func serverDesk(s *server) (*desk, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	return &desk{Client: c, server: s, process: true, release: func() error { c.Close(); return nil }}, nil
}

// processDesk is the desk of the process that runs jobs in a folder.
func processDesk(ctx context.Context, dir string) (*desk, error) {
	process, err := reach(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := client.New(process)
	return &desk{Client: c, dir: dir, process: true, release: func() error { c.Close(); return nil }}, nil
}

// desk asks n itself. To close it closes n.
func (n *node) desk() *desk { return &desk{Client: n.client(), dir: n.dir, release: n.close} }

// write makes of d a desk that can write. Where no process has the folder, this one takes it; it runs nothing.
func (d *desk) write(ctx context.Context, o nodeOptions) error {
	if d.process || d.node != nil {
		return nil
	}
	var other *desk
	n, err := openNode(ctx, d.dir, o)
	switch {
	case err == nil:
		other = n.desk()
		other.node = n
	case job.KindOf(err) == job.Locked:
		var noAnswer error
		if other, noAnswer = processDesk(ctx, d.dir); noAnswer != nil { // else it has just begun
			return job.Errorf(job.Locked, "%w, which cannot be asked (%w): stop it and try again", err, noAnswer)
		}
	default:
		return err
	}
	if err := d.close(); err != nil {
		return err
	}
	*d = *other
	return nil
}

// patient makes calls of d go on for longer than a server needs to start again.
func (d *desk) patient() {
	if d.server != nil {
		d.Client = d.Trying(patientTries)
	}
}

// patientTries take about half a minute; see [client.Client.Trying].
const patientTries = 12

// withDesk opens the desk for a command and adds to its errors what to check.
func withDesk(open func(context.Context, *cobra.Command) (*desk, error), f func(context.Context, *cobra.Command, *desk) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		d, err := open(ctx, cmd)
		if err != nil {
			return err
		}
		defer d.close()
		return d.advised(f(ctx, cmd, d))
	}
}

// advised adds to an error what to check where the server could not be asked.
func (d *desk) advised(err error) error {
	if err == nil || d.server == nil {
		return err
	}
	if advice := d.server.advice(err); advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// withJob opens the desk and looks up the job that the first argument names.
func withJob(f func(context.Context, *cobra.Command, *desk, *pawl.View) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return withDesk(openDesk, func(ctx context.Context, cmd *cobra.Command, d *desk) error {
			v, err := d.lookup(ctx, args[0])
			if err != nil {
				return err
			}
			return f(ctx, cmd, d, &v)
		})(cmd, args)
	}
}

// occupied reports whether a process runs jobs in the folder. pawl listens on the socket there; a program with
// handlers of its own has only the lock.
func occupied(ctx context.Context, dir string) bool {
	if c, err := dial(ctx, dir); err == nil {
		c.Close()
		return true
	}
	// The kernel's list shows the lock without trying it: one who tries it may turn away another who wants it.
	info, err := os.Stat(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	return ok && err == nil && strings.Contains(string(locks), fmt.Sprintf(":%d 0 EOF\n", stat.Ino))
}
