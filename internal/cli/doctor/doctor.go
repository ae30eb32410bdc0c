// Package doctor has the command that says how things stand on this machine.
package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/systems"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// A report is what was found.
type report struct {
	Folder     string   `json:"folder"`
	Machine    string   `json:"machine,omitempty"`
	FileSystem string   `json:"file_system,omitempty"` // as mount(8) names it
	Network    bool     `json:"network"`               // machines share that file system
	Database   string   `json:"database"`
	Holder     string   `json:"holder,omitempty"` // who has the folder now
	Slurm      []string `json:"slurm"`
	Advice     []string `json:"advice,omitempty"`
}

// Command is pawl doctor.
func Command() *cobra.Command {
	var f term.Format
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say how things stand on this machine",
		Long: `Doctor looks at the data folder of this machine: on which file system it is, how the database is kept
there, and who has it. It asks Slurm what there is, if its commands are here. It changes nothing.

pawl systems check NAME tries a system.`,
		Example: `  pawl doctor
  pawl doctor -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			r, err := look(cmd.Context(), dir)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			return f.Print(out, r, nil, func() error { return r.print(cmd, out) })
		},
	}
	term.FormatFlag(cmd, &f, term.AsTable, term.AsJSON, term.AsYAML)
	return cmd
}

// look looks at a data folder, and asks the Slurm of this machine.
func look(ctx context.Context, dir string) (*report, error) {
	r := &report{Folder: dir}
	if folder.Known(dir) {
		id, err := folder.Machine(dir)
		if err != nil {
			return nil, err
		}
		r.Machine = id
	}
	at, err := folder.On(dir)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "the file system of %s: %w", dir, err)
	}
	r.FileSystem, r.Network = at.Kind, at.Network
	one := r.Network && !folder.Shared(dir)
	if one {
		o, err := folder.OwnerOf(dir)
		if err != nil && folder.Away(err) == nil {
			return nil, err
		}
		if o != nil {
			r.Holder = o.String()
		}
		if err != nil {
			r.Advice = append(r.Advice, err.Error())
		} else {
			r.Advice = append(r.Advice, "machines share this file system: run Pawl on one of them at a time, or keep the "+
				"data folder on a disk of this machine, with --dir")
		}
	} else if node.Occupied(ctx, dir) {
		holder, _ := folder.Read(filepath.Join(dir, "lock"))
		if r.Holder = strings.TrimSpace(string(holder)); r.Holder == "" {
			r.Holder = "another process"
		}
	}
	if r.Database, err = database(ctx, dir, one); err != nil {
		return nil, err
	}
	doc := &job.System{Name: "slurm", Runner: job.RunnerSlurm, Env: systems.SlurmEnv()}
	found, err := node.Survey(ctx, doc, dir, "")
	switch {
	case job.KindOf(err) == job.NotFound:
		r.Slurm = []string{"its commands are not on this machine"}
	case err != nil:
		r.Slurm = []string{err.Error()}
	default:
		r.Slurm = found.Lines()
		r.Advice = append(r.Advice, "pawl systems add NAME --slurm makes a system of this Slurm")
	}
	return r, ctx.Err()
}

// database says how the database of a folder is kept. Where machines share the file system one
// process has it, and it cannot be read beside that.
func database(ctx context.Context, dir string, one bool) (string, error) {
	if folder.Shared(dir) {
		return "PostgreSQL, which many processes share", nil
	}
	journal := "a write-ahead log; one process writes it at a time"
	if one {
		journal = "a rollback journal, as machines share its file system; one process has it, which others ask"
	}
	name := filepath.Join(dir, node.FolderDatabase)
	info, err := os.Stat(name)
	if os.IsNotExist(err) {
		return "none yet: SQLite, in one file with " + journal, nil
	}
	if err != nil {
		return "", job.Errorf(job.Unavailable, "look at the database: %w", err)
	}
	schema := ""
	switch s, err := node.FolderSchema(ctx, dir); {
	case err == nil:
		schema = fmt.Sprintf(", schema %d", s.Version)
	case !one || job.KindOf(err) != job.Locked:
		return "", err
	}
	return fmt.Sprintf("SQLite, %s, %d bytes%s, with %s", name, info.Size(), schema, journal), nil
}

func (r *report) print(cmd *cobra.Command, out io.Writer) error {
	t := term.NewTable(out, false, term.Column{Title: "WHAT"}, term.Column{Title: "FOUND", Least: 20})
	t.Row("data folder", r.Folder)
	t.Row("machine", term.OrDash(r.Machine))
	kind := term.OrDash(r.FileSystem)
	if r.Network {
		kind += ", which machines share"
	}
	t.Row("file system", kind)
	t.Row("database", r.Database)
	t.Row("held by", term.OrDash(r.Holder))
	for i, line := range r.Slurm {
		name := ""
		if i == 0 {
			name = "Slurm"
		}
		t.Row(name, line)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range r.Advice {
		fmt.Fprintln(out, "\n"+term.Typed(cmd, a))
	}
	return nil
}
