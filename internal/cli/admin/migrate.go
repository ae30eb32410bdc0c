package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// A migration is what the commands below act on.
type migration struct {
	db, schema string // a PostgreSQL database; empty: that of a folder
}

func migrateCommand() *cobra.Command {
	m := &migration{}
	status := false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database up to date",
		Long: `Migrate brings the database of a data folder, or the schema of a PostgreSQL database (--db, or
PAWL_DB), to what this Pawl works with. pawl serve does so too, unless it is told not to; this one
does nothing else.

In a folder, first stop the process that runs jobs there. In PostgreSQL, processes may go on; an
older Pawl works with the new schema if that allows it, and stops otherwise. If several migrate at
once, one does it and the others wait. The connection must lead to PostgreSQL itself, not through a
pooler in transaction mode. Its role must own the schema, or be allowed to make it (CREATE on the
database). The role of pawl serve needs less: see pawl migrate grants.

With --status it says what the schema is, and leaves the jobs' tables alone. Exit codes: 0 the
schema is up to date, 4 with --status: it is older.`,
		Example: `  pawl migrate --status
  pawl migrate`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if m.db != "" {
				return m.shared(cmd.Context(), cmd.OutOrStdout(), status)
			}
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			return m.folder(cmd.Context(), cmd.OutOrStdout(), dir, status)
		},
	}
	cmd.Flags().BoolVar(&status, "status", false, "only say what the schema is")
	cmd.PersistentFlags().StringVar(&m.db, "db", os.Getenv("PAWL_DB"),
		"PostgreSQL database, as postgres://user:password@host/database (default: $PAWL_DB)")
	cmd.PersistentFlags().Lookup("db").DefValue = "" // it may hold a password
	cmd.PersistentFlags().StringVar(&m.schema, "db-schema", cmp.Or(os.Getenv("PAWL_DB_SCHEMA"), "pawl"),
		"schema in it that holds the tables (default: $PAWL_DB_SCHEMA, or pawl)")
	cmd.PersistentFlags().Lookup("db-schema").DefValue = ""
	cmd.AddCommand(m.printCommand(), m.downCommand(), m.grantsCommand())
	return cmd
}

// folder migrates the database of a data folder.
func (m *migration) folder(ctx context.Context, out io.Writer, dir string, status bool) error {
	if folder.Shared(dir) {
		return job.Errorf(job.Invalid, "the jobs of folder %s are in a database that many processes share: name "+
			"it with --db or PAWL_DB", dir)
	}
	before, err := node.FolderSchema(ctx, dir)
	if err != nil {
		return err
	}
	if status {
		return tellSchema(out, before, "folder "+dir)
	}
	if err := node.MigrateFolder(ctx, dir); err != nil {
		return err
	}
	tellMigrated(out, before, "folder "+dir)
	return nil
}

// shared migrates a PostgreSQL database.
func (m *migration) shared(ctx context.Context, out io.Writer, status bool) (err error) {
	g, err := node.OpenMigrator(m.db, m.schema)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	before, err := g.Version(ctx)
	if err != nil {
		return err
	}
	if status {
		return tellSchema(out, before, "the database, in "+m.schema)
	}
	if err := g.Up(ctx); err != nil {
		return err
	}
	tellMigrated(out, before, "the database, in "+m.schema)
	return nil
}

func tellSchema(out io.Writer, v store.SchemaVersion, of string) error {
	fmt.Fprintf(out, "schema %d of %s; this Pawl knows %d\n", v.Version, of, v.Known)
	if v.Version < v.Known {
		return term.Exit(term.ExitLeft)
	}
	return nil
}

func tellMigrated(out io.Writer, before store.SchemaVersion, of string) {
	switch {
	case before.Version == before.Known:
		fmt.Fprintf(out, "schema %d of %s is up to date\n", before.Version, of)
	case before.Version > before.Known:
		fmt.Fprintf(out, "schema %d of %s is newer than this Pawl, which knows %d, and stays as it is\n",
			before.Version, of, before.Known)
	default:
		fmt.Fprintf(out, "schema of %s: %d before, %d now\n", of, before.Version, before.Known)
	}
}

func (m *migration) printCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL that pawl migrate runs on PostgreSQL",
		Long: `Print prints the SQL that brings a PostgreSQL schema to the version of this Pawl, for operators who run
SQL themselves. It connects to nothing. Run it with psql as the role that is to own the schema, and
let psql stop at the first error (ON_ERROR_STOP); the SQL records that it was done. If the schema
exists already, give its version with --from. The SQL is one transaction, except for indexes of a
schema that is in use: these are built concurrently.`,
		Example: "  pawl migrate print\n  pawl migrate print --db-schema jobs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return node.PrintMigrations(cmd.OutOrStdout(), m.schema, from)
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "version that the schema has; 0: there is none")
	return cmd
}

func (m *migration) grantsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "grants",
		Short: "Print the SQL of a role with the rights that pawl serve needs",
		Long: `Grants prints the SQL that makes the role pawl_service, if it is not there, and gives it what pawl
serve needs and no more. It connects to nothing. Run it after each migration, in that database, as a
superuser, or as the schema's owner where that one has CREATEROLE. pawl_service cannot log in: make
the roles that do members of it.

Row security then shows it the rows of a tenant only in transactions for that tenant: a second wall
beside Pawl's own. It does not bind the schema's owner, nor superusers.`,
		Example: "  pawl migrate grants\n  pawl migrate grants --db-schema jobs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), node.SchemaGrants(m.schema))
			return err
		},
	}
}

func (m *migration) downCommand() *cobra.Command {
	var to int64
	var sure bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take the schema of PostgreSQL back to an older version",
		Long: `Down takes a PostgreSQL schema (--db, or PAWL_DB) back to the version --to, for an older Pawl. What the
versions since then added is lost; back to version 0 all jobs are: nothing happens without --yes.
Stop every process of this version first.`,
		Example: "  pawl migrate down --to 0 --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			switch {
			case m.db == "":
				return term.Usage(errors.New("name the database with --db: only a schema of PostgreSQL is taken back"))
			case !cmd.Flags().Changed("to"):
				return term.Usage(errors.New(
					"give the version to go back to with --to; pawl migrate --status says which it is now"))
			case !sure:
				return term.Usage(errors.New("what later versions added is lost for good: say --yes if that is meant"))
			}
			g, err := node.OpenMigrator(m.db, m.schema)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, g.Close()) }()
			if err := g.Down(cmd.Context(), to); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "schema %s is at version %d\n", m.schema, to)
			return nil
		},
	}
	cmd.Flags().Int64Var(&to, "to", 0, "version to go back to")
	cmd.Flags().BoolVar(&sure, "yes", false, "what is lost is meant to be")
	return cmd
}
