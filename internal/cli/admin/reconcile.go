package admin

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
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// catchUp is how long pawl reconcile waits for rows to catch up: longer than the leases of
// processes that died with the database that was replaced.
const catchUp = time.Minute

// A reconciliation is one call of pawl reconcile.
type reconciliation struct {
	dir        string
	db         node.Options
	dryRun     bool
	endUnknown bool

	out, log io.Writer
	format   term.Format
}

func reconcileCommand() *cobra.Command {
	r := &reconciliation{}
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare the database with what this machine knows of jobs",
		Long: `Reconcile is for a database that was restored to an earlier point in time. It lists what this
machine knows of jobs, by their folders, marks and messages, compares that with the database, and
tells what differs:

  - jobs of which the database has an older state than the machine. They are brought up to date:
    programs that run are watched again, ends are recorded, and a job whose end cannot be known
    ends with the code RAN_BEFORE. Without this command that happens when a process reaches the
    job; until then the job is not launched.
  - jobs and programs that the database does not have: jobs that were submitted after the backup,
    and programs that run although their jobs have ended in it. These are left alone. With
    --end-unknown the programs are ended (SIGTERM, then SIGKILL), and the folders of unknown jobs
    are removed; results in an archive stay.

Run it in the data folder of each machine, after the restore and before processes start. It can be
repeated. On PostgreSQL it also works while processes run; in a folder with its own database it then
only prints the differences.

What cannot be read is named, and the rest is compared all the same.

Exit codes: 0 nothing differs any more, 4 something differs or could not be read. With --end-unknown
results in an archive are not counted.`,
		Example: `  pawl reconcile
  pawl reconcile --dry-run -o json
  pawl reconcile --end-unknown`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.dir, err = target.DataDir(cmd); err != nil {
				return err
			}
			cfg, err := loadConfig(cmd, r.dir, nil)
			if err != nil {
				return err
			}
			r.db = node.Options{
				DB: node.SharedDatabase(&cfg.Config), Memory: cfg.Remember, Options: engine.Options{Lease: cfg.Lease},
			}
			if r.db.DB.DSN == "" && folder.Shared(r.dir) {
				return job.Errorf(job.Invalid,
					"the jobs of folder %s are in a database that many processes share: name it with --db or PAWL_DB", r.dir)
			}
			if own := filepath.Join(r.dir, "pawl.db"); r.db.DB.DSN != "" && r.endUnknown {
				if _, err := os.Stat(own); err == nil {
					return term.Usagef("the folder also has a database of its own: --end-unknown would remove the "+
						"files of its jobs; if you do not need them any more, move %s away first", own)
				}
			}
			r.out, r.log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "only tell what differs")
	cmd.Flags().BoolVar(&r.endUnknown, "end-unknown", false,
		"end programs that belong to no job, and remove their folders")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "end-unknown")
	term.FormatFlag(cmd, &r.format, term.AsTable, term.AsJSON, term.AsYAML)
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
		return term.Exit(term.ExitLeft)
	}
	return nil
}

// compare asks the machine, and ends what is unknown. alone reports whether rows can be brought up
// to date from here.
func (r *reconciliation) compare(ctx context.Context) (rep app.Comparison, alone bool, err error) {
	o := r.db
	o.Log = r.log
	n, err := node.Open(ctx, r.dir, o)
	alone = job.KindOf(err) != job.Locked
	if !alone {
		n, err = node.OpenAsking(ctx, r.dir)
	}
	if err != nil {
		return rep, alone, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if rep, err = n.App.Compare(ctx, n.App.Local(), n.Store, 0); err != nil || !r.endUnknown {
		return rep, alone, err
	}
	for i := range rep.Unknown {
		if err := n.App.EndUnknown(ctx, n.App.Local(), &rep.Unknown[i]); err != nil {
			if ctx.Err() != nil {
				return rep, alone, err
			}
			rep.Unread = append(rep.Unread, fmt.Sprintf("job %s was not ended whole: %v", rep.Unknown[i].Job, err))
		}
	}
	return rep, alone, nil
}

// bringUp runs the jobs that are behind, and no others, until their rows have caught up.
func (r *reconciliation) bringUp(ctx context.Context, behind []app.Found) (err error) {
	o := r.db
	o.Log, o.Roles = r.log, []store.Role{store.RoleWorker, store.RoleWatcher}
	for _, f := range behind {
		o.Only = append(o.Only, f.Job)
	}
	n, err := node.Open(ctx, r.dir, o)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- n.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ran, n.Close())
	}()
	waiting, enough := context.WithTimeout(ctx, catchUp)
	defer enough()
	for i := range behind {
		if err := catchUpWith(waiting, n, &behind[i]); err != nil && waiting.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// catchUpWith waits until a row has caught up. One that nobody can take in hand now, such as a
// paused one, is not waited for: its machine is asked when it goes on.
func catchUpWith(ctx context.Context, n *node.Node, f *app.Found) error {
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

// left reports whether something differs still, or could not be looked at. Results that belong to
// no job are all that --end-unknown leaves.
func (r *reconciliation) left(rep *app.Comparison) bool {
	return len(rep.Unread) > 0 || slices.ContainsFunc(rep.Behind, func(f app.Found) bool { return f.Became == "" }) ||
		slices.ContainsFunc(rep.Unknown,
			func(f app.Found) bool { return !f.Removed && !(r.endUnknown && f.Program == app.Cleaned) })
}

func (r *reconciliation) print(rep *app.Comparison) error {
	if r.format != term.AsTable {
		return r.format.Document(r.out, rep)
	}
	fmt.Fprintf(r.out, "machine %s agrees with the database on %s\n", rep.Machine, phrase.Plural(rep.Agree, "job"))
	behind := term.NewTable(r.out, false, term.Column{Title: "ID"}, term.Column{Title: "NAME", Least: 12},
		term.Column{Title: "PROGRAM"},
		term.Column{Title: "SINCE", Spare: 1}, term.Column{Title: "WAS"}, term.Column{Title: "IS"})
	for i := range rep.Behind {
		f := &rep.Behind[i]
		behind.Row(f.Job, f.Name, trail(f), since(f), f.State, cmp.Or(f.Became, "still so"))
	}
	unknown := term.NewTable(r.out, false, term.Column{Title: "ID"}, term.Column{Title: "NAME", Least: 12},
		term.Column{Title: "PROGRAM"},
		term.Column{Title: "SINCE", Spare: 1}, term.Column{Title: "WHERE", Least: 16}, term.Column{Title: "IS"})
	for i := range rep.Unknown {
		f := &rep.Unknown[i]
		is := "left alone"
		switch {
		case f.Removed:
			is = "ended"
		case f.Program == app.Cleaned:
			is = "over"
		}
		unknown.Row(f.Job, term.OrDash(f.Name), trail(f), since(f), term.OrDash(cmp.Or(f.Folder, f.Results)), is)
	}
	for _, part := range []struct {
		head string
		jobs int
		t    *term.Table
	}{
		{"the machine knows more than the database of ", len(rep.Behind), behind},
		{"the database does not know ", len(rep.Unknown), unknown},
	} {
		if part.jobs == 0 {
			continue
		}
		fmt.Fprintf(r.out, "\n%s%s:\n", part.head, phrase.Plural(part.jobs, "job"))
		if err := part.t.Flush(); err != nil {
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
