// Package cli is the command line of pawl: the root command, what holds for all commands, and pawl
// version. The commands themselves are in the packages below, one for each subject:
//
//	term      how a command ends and what it prints: exit codes, documents, tables, advice
//	target    where a command asks: a server, a process that has a folder, or the folder
//	jobfile   files that describe jobs: read them, check them, explain their fields
//	jobs      commands about jobs: submit, list, show, cancel and their like
//	run       pawl run, which submits jobs and sees them to their end
//	admin     commands of an operator
//
// None of them knows a backend: package node opens these.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/bench/programs"
	"github.com/pawl-jobs/pawl/internal/bench/remote"
	benchslurm "github.com/pawl-jobs/pawl/internal/bench/slurm"
	"github.com/pawl-jobs/pawl/internal/cli/admin"
	"github.com/pawl-jobs/pawl/internal/cli/doctor"
	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/jobs"
	"github.com/pawl-jobs/pawl/internal/cli/run"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
)

// A Program is what a main function is made of. That of pawl has a version; others add to pawl.
type Program struct {
	Version  string
	More     node.More        // of the processes of pawl serve and pawl worker
	Commands []*cobra.Command // beside those of pawl
}

// Main runs the command line of this process and returns its exit code.
func Main(ctx context.Context, p Program) int {
	node.Version = p.Version
	if inherits() {
		return initMain()
	}
	out, errs := live.NewWriter(os.Stdout), live.NewWriter(os.Stderr)
	defer out.Close()
	defer errs.Close()
	root := rootCommand(p)
	root.SetOut(out)
	root.SetErr(errs)
	added(root)
	cmd, err := root.ExecuteContextC(ctx)
	return term.ExitCode(cmd, err)
}

func rootCommand(p Program) *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Run jobs that must not be lost",
		Long: `Pawl runs jobs that must not be lost: programs, and tasks written in Go.

An accepted job is never lost, never runs twice at once, and is always moving or waiting for something
that Pawl can name. Kill this program at any moment and start it again: it goes on where it was.

` + target.JobRule + `

Commands ask about the jobs of a data folder on this machine (--dir), or of a server (--server, or
PAWL_SERVER). A server wants a token: give it in a file with --token-file, or in PAWL_TOKEN. The token
of a server on this machine is found in its data folder.

pawl help exit-codes says what the exit codes mean.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SuggestionsMinimumDistance: 2, // two letters that changed places
	}
	term.FlagErrors(root)
	target.Flags(root)
	term.QuietFlag(root)
	for _, c := range slices.Concat(jobs.Commands(), jobfile.Commands(), admin.Commands(p.More), []*cobra.Command{
		run.Command(), doctor.Command(), bench.Command(programs.LocalCommand, programs.PaperCommand,
			remote.Command, benchslurm.Command), versionCommand(), term.ExitTopic(),
	}, p.Commands) {
		term.CheckArgs(c)
		if c.Name() != "run" { // it asks first
			interruptible(c)
		}
		root.AddCommand(c)
	}
	group(root)
	return root
}

// added makes the commands that cobra adds refuse what they do not know, as all others do.
func added(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error { return noTopic(root, args) }
		case "completion":
			c.Args, c.RunE = term.NoSubject, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			term.CheckArgs(c)
		}
	}
}

// noTopic refuses what pawl help does not know.
func noTopic(root *cobra.Command, args []string) error {
	switch cmd, rest, err := root.Find(args); {
	case err != nil || len(rest) == 0:
		return err
	case cmd == root:
		return noCommand(root, rest)
	default:
		return term.Usage(term.NoSubject(cmd, rest))
	}
}

// groups are the commands as help lists them. What is in none is listed last.
var groups = []struct {
	title    string
	commands []string
}{
	{"Run jobs:", []string{"run", "submit", "init", "validate", "explain"}},
	{"Look at jobs:", []string{"list", "show", "watch", "wait", "logs", "output", "history", "events"}},
	{"Change jobs:", []string{
		"cancel", "pause", "resume", "resubmit", "annotate", "event", "hide", "unhide", "delete",
	}},
	{"Say how jobs run:", []string{"limits", "recovery", "systems", "schedules", "ls", "apply", "get", "enable", "disable"}},
	{"Operate the service:", []string{"serve", "worker", "workers", "migrate", "reconcile", "unlock", "doctor", "bench"}},
	{"Help:", []string{"help", "completion", "version"}},
}

// group puts the commands into groups.
func group(root *cobra.Command) {
	of := map[string]string{}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			of[name] = g.title
		}
	}
	for _, c := range root.Commands() {
		c.GroupID = of[c.Name()]
	}
	root.SetHelpCommandGroupID(of["help"])
	root.SetCompletionCommandGroupID(of["completion"])
}

// interruptible ends the context of a command, and of those below it, at the first signal to stop.
// The second one ends the process at once.
func interruptible(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			context.AfterFunc(ctx, stop)
			cmd.SetContext(ctx)
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		interruptible(sub)
	}
}

// noCommand refuses what is not a command, with the names of those that it may have been meant for.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if typed := habit(args[0]); typed != "" {
		meant = ": write " + typed
	} else if near := root.SuggestionsFor(args[0]); args[0] != "" && len(near) > 0 {
		meant = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return term.Usagef("unknown command %q%s; see pawl --help", args[0], meant)
}

func versionCommand() *cobra.Command {
	var licences bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, or the licences of what is linked in",
		Example: "  pawl version\n  pawl version --notices",
		Args:    cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			if licences {
				fmt.Fprint(cmd.OutOrStdout(), notices)
				return
			}
			fmt.Fprintln(cmd.OutOrStdout(), "pawl "+node.Version)
		},
	}
	cmd.Flags().BoolVar(&licences, "notices", false, "print the notices of the modules that are linked into pawl")
	return cmd
}
