// Package target is where a command asks about jobs: a server (--server), a process that runs jobs
// in a data folder, or the folder itself (--dir). It also looks up the job that an argument names,
// and completes such arguments.
package target

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// MostListed is how many jobs are listed at most; see [store.Query].
const MostListed = 1000

// A Target is where a command asks about jobs: a server; or the process that runs jobs in a folder,
// or without one the folder itself. All answer alike.
type Target struct {
	*client.Client
	Server  *Server    // nil: it is a folder's
	Dir     string     // the folder
	process bool       // another process answers
	Node    *node.Node // this process, where it has taken the folder to write to it
	release func() error
}

// Close gives up the target.
func (at *Target) Close() error { return at.release() }

// Where names the place whose jobs are asked about.
func (at *Target) Where() string {
	if at.Server != nil {
		return "on " + at.Server.url
	}
	return "in folder " + at.Dir
}

// Who names what runs the jobs there.
func (at *Target) Who() string {
	if at.Server != nil {
		return "the server at " + at.Server.url
	}
	return "the process that runs jobs in folder " + at.Dir
}

// Served reports whether anything runs the jobs now.
func (at *Target) Served(ctx context.Context) bool {
	return at.Server != nil || at.Node == nil && node.Occupied(ctx, at.Dir)
}

// DataDir returns the folder of --dir, of PAWL_DIR, or the default one, as an absolute path.
func DataDir(cmd *cobra.Command) (string, error) {
	dir, err := cmd.Flags().GetString("dir")
	if err != nil {
		return "", err
	}
	if dir == "" {
		dir = os.Getenv("PAWL_DIR")
	}
	if dir == "" {
		return node.UsualDir()
	}
	return filepath.Abs(dir)
}

// Open opens the target of --server, or of the folder of --dir.
func Open(ctx context.Context, cmd *cobra.Command) (*Target, error) {
	at, err := OpenProcess(ctx, cmd)
	if at != nil || err != nil {
		return at, err
	}
	dir, err := DataDir(cmd)
	if err != nil {
		return nil, err
	}
	return OfReader(ctx, dir)
}

// OfReader is the target of a folder that is only read: its database, beside a process that may run
// jobs there. Where machines share its file system that process is asked, if there is one.
func OfReader(ctx context.Context, dir string) (*Target, error) {
	if !folder.Network(dir) {
		n, err := node.OpenReader(ctx, dir)
		if err != nil {
			return nil, err
		}
		return OfNode(n), nil
	}
	for until := time.Now().Add(readerPatience); ; {
		if at := ofFolder(ctx, dir); at != nil {
			return at, nil
		}
		n, err := node.OpenReader(ctx, dir)
		switch {
		case err == nil:
			return OfNode(n), nil
		case job.KindOf(err) != job.Locked, folder.Away(err) != nil, time.Now().After(until):
			return nil, err
		}
		select {
		case <-time.After(readerRetry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A process that begins or ends has its folder for a moment without listening.
const (
	readerPatience = 10 * time.Second
	readerRetry    = 20 * time.Millisecond
)

// OpenProcess opens the target of a server, or of a process that has the folder; nil: there is
// none.
func OpenProcess(ctx context.Context, cmd *cobra.Command) (*Target, error) {
	s, err := ServerOf(cmd)
	if err != nil {
		return nil, err
	}
	if s != nil {
		return OfServer(s)
	}
	dir, err := DataDir(cmd)
	if err != nil {
		return nil, err
	}
	return ofFolder(ctx, dir), nil
}

// ofFolder is the target of the process that has a folder; nil: nobody listens there.
func ofFolder(ctx context.Context, dir string) *Target {
	process, err := node.Reach(ctx, dir)
	if err != nil {
		return nil
	}
	r := &folderTransport{process: process, dir: dir}
	return &Target{Client: client.New(r), Dir: dir, process: true, release: r.close}
}

// OpenWriting opens the target of a command that makes something that was not there, the folder too
// where it is missing.
func OpenWriting(ctx context.Context, cmd *cobra.Command) (*Target, error) {
	at, err := OpenProcess(ctx, cmd)
	if at != nil || err != nil {
		return at, err
	}
	dir, err := DataDir(cmd)
	if err != nil {
		return nil, err
	}
	at = &Target{Dir: dir, release: func() error { return nil }}
	return at, at.MakeWritable(ctx, node.Options{})
}

// OfServer is the target of a server.
func OfServer(s *Server) (*Target, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	return &Target{Client: c, Server: s, process: true, release: func() error { c.Close(); return nil }}, nil
}

// OfProcess is the target of the process that runs jobs in a folder.
func OfProcess(ctx context.Context, dir string) (*Target, error) {
	process, err := node.Reach(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := client.New(process)
	return &Target{Client: c, Dir: dir, process: true, release: func() error { c.Close(); return nil }}, nil
}

// OfNode asks n itself. To close it closes n.
func OfNode(n *node.Node) *Target { return &Target{Client: n.Client(), Dir: n.Dir, release: n.Close} }

// MakeWritable makes of it a target that can write. Where no process has the folder, this one takes
// it; it runs nothing.
func (at *Target) MakeWritable(ctx context.Context, o node.Options) error {
	if at.process || at.Node != nil {
		return nil
	}
	other, err := takeOrReach(ctx, at.Dir, o)
	if err != nil {
		return err
	}
	if err := at.Close(); err != nil {
		return err
	}
	*at = *other
	return nil
}

// takeOrReach takes a folder, or reaches the process that has it.
func takeOrReach(ctx context.Context, dir string, o node.Options) (*Target, error) {
	var other *Target
	var noAnswer error
	n, err := node.OpenSoon(ctx, dir, o, func() error {
		other, noAnswer = OfProcess(ctx, dir)
		return noAnswer
	})
	switch {
	case err == nil:
		at := OfNode(n)
		at.Node = n
		return at, nil
	case other != nil:
		return other, nil
	case noAnswer != nil:
		err = job.Errorf(job.Locked, "%w, which cannot be asked (%w): stop it and try again", err, noAnswer)
	}
	return nil, err
}

// processTries take about a second; see [client.Client.Trying].
const processTries = 4

// Submit submits specs under an idempotency key; see [client.Client.Submit]. The process that was
// asked may stop meanwhile: then another process of the folder gets them, or else this one takes
// the folder.
func (at *Target) Submit(ctx context.Context, key string, specs ...json.RawMessage) ([]store.Submitted, error) {
	if at.Server != nil || at.Node != nil {
		return at.Client.Submit(ctx, key, specs...)
	}
	answers, err := at.Trying(processTries).Submit(ctx, key, specs...)
	if job.KindOf(err) != job.Unavailable || node.Occupied(ctx, at.Dir) {
		return answers, err
	}
	at.process = false
	if at.MakeWritable(ctx, node.Options{}) != nil {
		return nil, err
	}
	return at.Client.Submit(ctx, key, specs...)
}

// Patient makes calls go on for longer than a server needs to start again.
func (at *Target) Patient() {
	if at.Server != nil {
		at.Client = at.Trying(patientTries)
	}
}

// patientTries take about half a minute; see [client.Client.Trying].
const patientTries = 12

// With opens the target of a command and adds to its errors what to check.
func With(open func(context.Context, *cobra.Command) (*Target, error),
	f func(context.Context, *cobra.Command, *Target) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		at, err := open(ctx, cmd)
		if err != nil {
			return err
		}
		defer at.Close()
		return at.Advised(f(ctx, cmd, at))
	}
}

// Advised adds to an error what to check where the server could not be asked.
func (at *Target) Advised(err error) error {
	if err == nil || at.Server == nil {
		return err
	}
	if advice := at.Server.advice(err); advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// WithJob opens the target and looks up the job that the first argument names.
func WithJob(f func(context.Context, *cobra.Command, *Target, *service.View) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return With(Open, func(ctx context.Context, cmd *cobra.Command, at *Target) error {
			v, err := at.Lookup(ctx, args[0])
			if err != nil {
				return err
			}
			return f(ctx, cmd, at, &v)
		})(cmd, args)
	}
}
