package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/app"
	hostlocal "github.com/pawl-jobs/pawl/host/local"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// catchUp is how long pawl reconcile waits for rows to catch up: longer than the leases of processes that died with the
// database that was replaced.
const catchUp = time.Minute

// A reconciliation is one call of pawl reconcile.
type reconciliation struct {
	dir        string
	db         nodeOptions
	dryRun     bool
	endUnknown bool

	out, log io.Writer
	format   format
}

func reconcileCommand() *cobra.Command {
	r := &reconciliation{}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the jobs of the database with what this machine knows of them",
		Long: `Reconcile is for a database that was restored to an earlier point in time. It lists what this machine knows of jobs, by their
folders, marks and messages, compares that with the database, and tells what differs:

  - jobs that the machine knows more of than their rows do. They are brought up to date: what runs is watched again, what has
    ended is taken in, and what cannot be known ends with the code RAN_BEFORE. Without this command that happens when a process
    comes to them; nothing is launched before.
  - what the database does not know: jobs that were submitted after the backup, and programs of jobs that have ended in it. It is
    left alone. With --end-unknown programs are ended (SIGTERM, then SIGKILL), and folders of jobs that are not there removed;
    results in an archive stay.

Run it in the data folder of each machine, after the restore and before processes start. It can be repeated. On PostgreSQL it
works beside processes; in a folder with a database of its own it only tells what differs while one runs.

What cannot be looked at is named, and the others are compared all the same.

Exit codes: 0 nothing is left that differs, 4 something is, or could not be looked at. With --end-unknown results in an
archive count for nothing.`,
		Example: `  pawl reconcile
  pawl reconcile --dry-run -o json
  pawl reconcile --end-unknown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.dir, err = dataDir(cmd); err != nil {
				return err
			}
			cfg, err := loadConfig(cmd, r.dir, nil)
			if err != nil {
				return err
			}
			r.db = nodeOptions{db: string(cfg.DB), schema: cfg.DBSchema, listen: string(cfg.DBListen), pooled: cfg.DBPooled, memory: cfg.Remember, lease: cfg.Lease}
			if r.db.db == "" && folder.Shared(r.dir) {
				return job.Errorf(job.Invalid, "the jobs of folder %s are in a database that many processes share: name it with --db or PAWL_DB", r.dir)
			}
			if own := filepath.Join(r.dir, "pawl.db"); r.db.db != "" && r.endUnknown {
				if _, err := os.Stat(own); err == nil {
					return &usageError{fmt.Errorf("the folder had a database of its own, whose jobs would count as unknown, and their files be removed: move %s away if they are not wanted any more", own)}
				}
			}
			r.out, r.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "only tell what differs")
	cmd.Flags().BoolVar(&r.endUnknown, "end-unknown", false, "end programs that belong to no job, and remove their folders")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "end-unknown")
	formatFlag(cmd, &r.format, asTable, asJSON, asYAML)
	configFlags(cmd, func(s *config.Setting) bool { return strings.HasPrefix(s.Key, "db") && s.Key != "db_migrate" })
	return cmd
}

func (r *reconciliation) run(ctx context.Context) error {
	rep, alone, err := r.compare(ctx)
	if err != nil {
		return err
	}
	if len(rep.Behind) > 0 && !r.dryRun && alone {
		if err := r.bringUp(ctx, rep.Behind); err != nil {
			return err
		}
	}
	if err := r.print(&rep); err != nil {
		return err
	}
	if !alone && r.left(&rep) {
		fmt.Fprintln(r.log, "a process runs jobs in the folder, and brings rows up to date as it comes to them")
	}
	if r.left(&rep) {
		return exit(exitLeft)
	}
	return nil
}

// compare asks the machine, and ends what is unknown. alone reports whether rows can be brought up to date from here.
func (r *reconciliation) compare(ctx context.Context) (rep app.Report, alone bool, err error) {
	o := r.db
	o.log = r.log
	n, err := openNode(ctx, r.dir, o)
	alone = job.KindOf(err) != job.Locked
	if !alone {
		n, err = openAsking(ctx, r.dir)
	}
	if err != nil {
		return rep, alone, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if rep, err = n.app.Compare(ctx, n.store, 0); err != nil || !r.endUnknown {
		return rep, alone, err
	}
	for i := range rep.Unknown {
		if err := n.app.EndUnknown(ctx, &rep.Unknown[i]); err != nil {
			if ctx.Err() != nil {
				return rep, alone, err
			}
			rep.Unread = append(rep.Unread, fmt.Sprintf("job %s was not ended whole: %v", rep.Unknown[i].Job, err))
		}
	}
	return rep, alone, nil
}

// openAsking opens a folder in which another process runs jobs, to ask its machine.
func openAsking(ctx context.Context, dir string) (*node, error) {
	n, err := openReader(ctx, dir)
	if err != nil {
		return nil, err
	}
	machine, err := folder.Machine(dir)
	if err == nil {
		n.host, err = hostlocal.Open(hostlocal.Config{ID: machine})
	}
	var c app.Config
	if err == nil {
		c, err = programs(ctx, dir, n.host)
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.app = app.New(c)
	return n, nil
}

// bringUp runs the jobs that are behind, and no others, until their rows have caught up.
func (r *reconciliation) bringUp(ctx context.Context, behind []app.Found) (err error) {
	o := r.db
	o.log, o.roles = r.log, []store.Role{store.RoleWorker, store.RoleWatcher}
	for _, f := range behind {
		o.only = append(o.only, f.Job)
	}
	n, err := openNode(ctx, r.dir, o)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- n.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ran, n.close())
	}()
	waiting, enough := context.WithTimeout(ctx, catchUp)
	defer enough()
	for i := range behind {
		if err := n.catchUp(waiting, &behind[i]); err != nil && waiting.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// catchUp waits until a row has caught up. One that nobody can take in hand now, such as a paused one, is not waited for: its
// machine is asked when it goes on.
func (n *node) catchUp(ctx context.Context, f *app.Found) error {
	if !f.CanMove() {
		return nil
	}
	for _, err := range n.Events(ctx, f.Job, "") {
		if err != nil {
			return err
		}
		j, err := n.Job(ctx, f.Job)
		if err != nil {
			return err
		}
		if f.UpToDate(&j) {
			f.Became = j.State
			return nil
		}
	}
	return nil
}

// left reports whether something differs still, or could not be looked at. Results that belong to no job are all that
// --end-unknown leaves.
func (r *reconciliation) left(rep *app.Report) bool {
	return len(rep.Unread) > 0 || slices.ContainsFunc(rep.Behind, func(f app.Found) bool { return f.Became == "" }) ||
		slices.ContainsFunc(rep.Unknown, func(f app.Found) bool { return !f.Removed && !(r.endUnknown && f.Program == app.Cleaned) })
}

func (r *reconciliation) print(rep *app.Report) error {
	if r.format != asTable {
		return r.format.document(r.out, rep)
	}
	fmt.Fprintf(r.out, "machine %s agrees with the database on %s\n", rep.Machine, plural(rep.Agree, "job"))
	behind := newTable(r.out, false, column{title: "ID"}, column{title: "NAME", least: 12}, column{title: "PROGRAM"},
		column{title: "SINCE", spare: 1}, column{title: "WAS"}, column{title: "IS"})
	for i := range rep.Behind {
		f := &rep.Behind[i]
		behind.row(f.Job, f.Name, trail(f), since(f), f.State, cmp.Or(f.Became, "still so"))
	}
	unknown := newTable(r.out, false, column{title: "ID"}, column{title: "NAME", least: 12}, column{title: "PROGRAM"},
		column{title: "SINCE", spare: 1}, column{title: "WHERE", least: 16}, column{title: "IS"})
	for i := range rep.Unknown {
		f := &rep.Unknown[i]
		is := "left alone"
		switch {
		case f.Removed:
			is = "ended"
		case f.Program == app.Cleaned:
			is = "over"
		}
		unknown.row(f.Job, orDash(f.Name), trail(f), since(f), orDash(cmp.Or(f.Folder, f.Results)), is)
	}
	for _, part := range []struct {
		head string
		jobs int
		t    *table
	}{
		{"the machine knows more than the database of ", len(rep.Behind), behind},
		{"the database does not know ", len(rep.Unknown), unknown},
	} {
		if part.jobs == 0 {
			continue
		}
		fmt.Fprintf(r.out, "\n%s%s:\n", part.head, plural(part.jobs, "job"))
		if err := part.t.flush(); err != nil {
			return err
		}
	}
	if len(rep.Unread) > 0 {
		fmt.Fprintln(r.out, "\nnot compared, for it could not be looked at:")
		for _, line := range rep.Unread {
			fmt.Fprintln(r.out, "  "+live.Clean(line))
		}
	}
	if !r.endUnknown && slices.ContainsFunc(rep.Unknown, func(f app.Found) bool { return f.Program != app.Cleaned }) {
		fmt.Fprintln(r.out, "\npawl reconcile --end-unknown ends what runs of them, and removes their folders")
	}
	return nil
}

// trail says what became of a program.
func trail(f *app.Found) string {
	if f.ExitCode != nil {
		return fmt.Sprintf("%s, exit code %d", f.Program, *f.ExitCode)
	}
	return string(f.Program)
}

func since(f *app.Found) string {
	if f.Since.IsZero() {
		return "-"
	}
	return f.Since.Local().Format(time.DateTime)
}
