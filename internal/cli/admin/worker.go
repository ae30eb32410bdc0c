package admin

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/store"
)

// workerSettings are the settings of a process that only works: single ones, and sections.
var workerSettings = []string{
	"db", "db_schema", "db_listen", "db_pooled", "db_migrate", "queues", "kinds",
	"tenants", "slots.", "lease", "grace", "remember", "disk.", "log.", "trace.", "peer.", "tls.",
}

// workerRoles are its roles. Nobody else can watch what it launches.
var workerRoles = []store.Role{store.RoleWorker, store.RoleWatcher}

func workerCommand(more node.More) *cobra.Command {
	var slots int
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run jobs of a database that many processes share",
		Long: `Worker runs jobs until it is stopped by SIGINT or SIGTERM, or by pawl workers stop, and watches the
programs of its machine. It opens no address, unless --peer-listen names one, where processes of
other machines fetch the files of its jobs. Any number of them, on any number of machines, join the
processes of a PostgreSQL database (--db, or PAWL_DB).

The data folder (--dir) is the machine. A worker runs the programs of jobs that a process of the
same folder accepted, at the address of a pawl serve there or by a command on the folder. A folder
with a database of its own serves one process, which is pawl serve.

It is pawl serve with the roles worker and watcher: its settings can also stand in the environment
and in the configuration file. --queue, --kind and --tenant are --queues, --kinds and --tenants.
Other processes must play api and recovery.`,
		Example: `  pawl worker --db postgres://pawl@db.example.org/pawl
  pawl worker --db postgres://pawl@db.example.org/pawl --slots 8 --queue night`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			fixed, err := workerFlags(cmd, slots)
			if err != nil {
				return err
			}
			read := func() (*config.Loaded, error) { return loadConfig(cmd, dir, fixed) }
			var cfg *config.Loaded
			err = node.Begin(cmd.Context(), func() (err error) { cfg, err = read(); return err })
			if err != nil {
				return err
			}
			if cfg.DB == "" {
				return term.Usagef("the database in a data folder serves one process: name one that serves many " +
					"with --db (or PAWL_DB), " +
					"such as postgres://pawl@db.example.org/pawl; or run the jobs of the folder with pawl serve")
			}
			return node.Serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), dir, cfg, read, more)
		},
	}
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "queue", "kind", "tenant":
			name += "s"
		}
		return pflag.NormalizedName(name)
	})
	cmd.Flags().IntVar(&slots, "slots", 0, "how many jobs of each lane it runs at once, 1 to 10000; for one lane "+
		"--slots-launch and its like count before it")
	configFlags(cmd, func(s *config.Setting) bool {
		return slices.ContainsFunc(workerSettings, func(name string) bool {
			return s.Key == name || strings.HasSuffix(name, ".") && strings.HasPrefix(s.Key, name)
		})
	})
	return cmd
}

// workerFlags are the flags that the command gives itself.
func workerFlags(cmd *cobra.Command, slots int) (map[string]string, error) {
	roles := make([]string, len(workerRoles))
	for i, r := range workerRoles {
		roles[i] = string(r)
	}
	fixed := map[string]string{"roles": strings.Join(roles, ",")}
	if !cmd.Flags().Changed("slots") {
		return fixed, nil
	}
	if slots < 1 || slots > 10_000 {
		return nil, term.Usagef("--slots %d is out of range: give 1 to 10000", slots)
	}
	for i := range config.Settings {
		if s := &config.Settings[i]; strings.HasPrefix(s.Key, "slots.") {
			fixed[s.Flag()] = strconv.Itoa(slots)
		}
	}
	return fixed, nil
}
