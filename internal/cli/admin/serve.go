package admin

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/node"
)

func serveCommand(more node.More) *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the REST API and run jobs until stopped",
		Long: `Serve runs the jobs of the data folder and serves the REST API, until it is stopped by SIGINT or
SIGTERM, or by pawl workers stop. Programs that run then go on; the next process on the folder looks
after them. --roles names the parts of this that the process plays.

With --db the jobs are in a PostgreSQL database, on which any number of processes work, on any
number of machines. The data folder stands for the machine then: it has the programs and files of
the jobs that its processes accepted. A password belongs in PAWL_DB or the file, not on the command
line, where every user of the machine can read it.

The first start makes a token in the data folder, for its owner only. Commands on this machine find
it by themselves. On an address that others can reach, serve wants the files of a certificate, or
the word that a proxy speaks TLS.

Each setting has a flag, a variable PAWL_… and a name in the configuration file, in this order of
precedence; docs/configuration.md lists them. SIGHUP reads the file again.`,
		Example: `  pawl serve
  pawl serve --listen 127.0.0.1:0 --print-config
  pawl serve --listen :443 --tls-cert cert.pem --tls-key key.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			var cfg *config.Loaded
			if err := node.Begin(cmd.Context(),
				func() (err error) { cfg, err = loadConfig(cmd, dir, nil); return err }); err != nil {
				return err
			}
			if show {
				return printConfig(cmd.OutOrStdout(), dir, cfg)
			}
			reread := func() (*config.Loaded, error) { return loadConfig(cmd, dir, nil) }
			return node.Serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), dir, cfg, reread, more)
		},
	}
	cmd.Flags().BoolVar(&show, "print-config", false, "print each setting, its value and where it comes from, and end")
	configFlags(cmd, func(*config.Setting) bool { return true })
	return cmd
}

func printConfig(w io.Writer, dir string, cfg *config.Loaded) error {
	file := cfg.File
	if file == "" {
		file = "none"
	}
	fmt.Fprintf(w, "data folder: %s\nconfiguration file: %s\n\n", dir, file)
	return cfg.Print(w)
}
