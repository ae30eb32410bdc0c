// Package systems has the commands that add, check and reach systems: other machines, and
// schedulers.
package systems

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/sshconfig"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// Commands are those below pawl systems. complete completes the name of a system.
func Commands(complete cobra.CompletionFunc) []*cobra.Command {
	return []*cobra.Command{
		addCommand(), surveyCommand(complete), checkCommand(complete), trustCommand(complete), loginCommand(complete),
	}
}

// Here stands in a document for the machine of the folder, until that is known.
const Here = "here"

// trustRule says when the key of a host is trusted.
const trustRule = `A host proves with a key that it is the host. Compare the first key that it shows with what its
administrator says: the fingerprint is printed, and you are asked. A key that stands in your
known_hosts is known already. --yes answers yes, for scripts.`

func addCommand() *cobra.Command {
	var ssh, config, via, from string
	var everywhere, yes, slurm bool
	cmd := &cobra.Command{
		Use:   "add NAME [--ssh HOST] [--slurm]",
		Short: "Add a machine that ssh reaches, or Slurm",
		Long: `Add makes a system of a machine that you reach with ssh HOST. It takes from ~/.ssh/config HostName,
User, Port, IdentityFile and ProxyJump, also of files that it includes. What needs ProxyCommand or
Match is refused: with --via openssh the ssh program makes the connection, by its own configuration.

` + trustRule + `

The jobs of the system are run by processes of one machine, which holds the key files, the agent or
the open connection: that of the data folder, or the one of --from. With --everywhere each machine
of the service has them.

With --slurm the programs of the system are jobs of Slurm, whose commands are on the host, or without
--ssh on this machine. Slurm is asked for its partitions, their limits, and the default partition and
account, and what it says stands in the document. pawl systems survey NAME asks again.

pawl get system NAME -o yaml prints the document that is made; change it,
and apply it again, for a work folder, variables or a shell of its own.`,
		Example: `  pawl systems add lab --ssh lab.example.org
  pawl systems add hpc --slurm
  pawl systems add cluster --ssh login --via openssh`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, ctx := args[0], cmd.Context()
			if ssh == "" && !slurm {
				return term.Usagef("no host is named: give one with --ssh, as you would to ssh, or --slurm for the " +
					"Slurm of this machine")
			}
			for _, name := range []string{"from", "everywhere", "via", "ssh-config"} {
				if ssh == "" && cmd.Flags().Changed(name) {
					return term.Usagef("--%s is for a machine that ssh reaches: give --ssh, too", name)
				}
			}
			err := target.With(target.Open, func(ctx context.Context, _ *cobra.Command, at *target.Target) error {
				_, err := at.Systems().Resource(ctx, name)
				return err
			})(cmd, args)
			if err == nil {
				return job.Errorf(job.Conflict, "system %s is there already: choose another name, or look at it with "+
					"pawl get system %s -o yaml", name, name)
			}
			if job.KindOf(err) != job.NotFound {
				return err
			}
			s := job.System{Name: name}
			if slurm {
				s.Runner = job.RunnerSlurm
			}
			var t *truster
			switch {
			case ssh == "":
				s.Env = SlurmEnv()
			case via == job.ViaOpenSSH:
				if config != "" {
					return term.Usagef("--ssh-config is for --via native: the ssh program goes by its own files")
				}
				s.Host = job.Host{Kind: job.HostSSH, Via: via, Address: ssh}
			default:
				if t, err = newTruster(cmd, yes); err != nil {
					return err
				}
				if s.Host, err = t.config(config).Host(ssh); err != nil {
					return err
				}
				s.Host.Via = via
			}
			switch {
			case ssh == "":
			case everywhere:
				s.Host.Keys = job.KeysEverywhere
			default:
				s.Host.From = cmp.Or(from, Here)
			}
			if _, err := checked(&s); err != nil {
				return err
			}
			if t != nil {
				if _, err := t.trust(ctx, &s.Host); err != nil {
					return err
				}
			}
			apply := func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				if s.Host.From == Here {
					if s.Host.From, err = at.Machine(cmd); err != nil {
						return err
					}
					if s.Host.From == "" {
						return term.Usagef("the folder of the server is elsewhere: give --from, the id of the machine "+
							"that reaches %s, as %s shows it, or --everywhere", ssh,
							term.Typed(cmd, "pawl workers -o wide"))
					}
				}
				if slurm {
					if err := surveyed(ctx, cmd, at, &s); err != nil {
						return err
					}
				}
				return applySystem(ctx, cmd, at, &s, 0, "made")
			}
			return target.With(target.OpenWriting, apply)(cmd, args)
		},
	}
	cmd.Flags().StringVar(&ssh, "ssh", "", "the host as ssh takes it: a Host of ~/.ssh/config, a name or an address, "+
		"with or without user@")
	cmd.Flags().StringVar(&config, "ssh-config", "", "the file to read in place of ~/.ssh/config")
	cmd.Flags().StringVar(&via, "via", job.ViaNative, "what makes the connection: native, or openssh, the ssh program")
	cmd.Flags().StringVar(&from, "from", "",
		"the id of the machine that holds what reaches the host (default: that of "+
			"the data folder)")
	cmd.Flags().BoolVar(&everywhere, "everywhere", false, "each machine of the service holds what reaches the host")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask whether the keys shall be trusted")
	cmd.Flags().BoolVar(&slurm, "slurm", false, "Slurm starts the programs: ask it for its partitions and accounts")
	cmd.MarkFlagsMutuallyExclusive("from", "everywhere")
	return cmd
}

func trustCommand(complete cobra.CompletionFunc) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "trust NAME",
		Short: "Trust the key that a machine has now",
		Long: `Trust asks the machine of a system, and those on the way to it, for their keys. It prints the
fingerprint of each one that is not trusted yet beside those that are, and records it once you have
said yes. Jobs that are blocked because a key has changed go on at the next test.

` + trustRule,
		Example:           "  pawl systems trust lab",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			var was service.Resource[job.System]
			err := target.With(target.Open, func(ctx context.Context, _ *cobra.Command, at *target.Target) (err error) {
				was, err = at.Systems().Resource(ctx, args[0])
				return err
			})(cmd, args)
			if err != nil {
				return err
			}
			s := was.Doc
			switch {
			case s.Host.Kind != job.HostSSH:
				return job.Errorf(job.Invalid, "system %s is not reached by ssh: it has no key to trust", s.Name)
			case s.Host.Via == job.ViaOpenSSH:
				return job.Errorf(job.Invalid,
					"the ssh program reaches system %s, and trusts what stands in known_hosts: "+
						"log in once with ssh %s", s.Name, s.Host.Address)
			}
			t, err := newTruster(cmd, yes)
			if err != nil {
				return err
			}
			changed, err := t.trust(cmd.Context(), &s.Host)
			if err != nil {
				return err
			}
			if !changed {
				fmt.Fprintf(cmd.OutOrStdout(), "system %s unchanged\n", s.Name)
				return nil
			}
			return target.With(target.OpenWriting,
				func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
					return applySystem(ctx, cmd, at, &s, was.Version, "replaced")
				})(cmd, args)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask whether the keys shall be trusted")
	return cmd
}

// checked returns the document of a system.
func checked(s *job.System) ([]byte, error) {
	doc, err := job.Encode(s)
	if err == nil {
		_, err = job.ParseSystem(doc)
	}
	return doc, err
}

// applySystem puts a system in the place of its version at a target.
func applySystem(ctx context.Context, cmd *cobra.Command, at *target.Target, s *job.System, version int64,
	become string,
) error {
	doc, err := checked(s)
	if err == nil {
		_, _, err = at.Systems().Apply(ctx, s.Name, doc, version)
	}
	if err != nil {
		return fmt.Errorf("system %s: %w", s.Name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "system %s %s\n", s.Name, become)
	return nil
}

// A truster asks hosts for their keys, and a person whether to trust them.
type truster struct {
	cmd   *cobra.Command
	asker sshconfig.Asker
	yes   bool
}

func newTruster(cmd *cobra.Command, yes bool) (*truster, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, job.Errorf(job.Invalid, "no home folder with ssh's files: %w", err)
	}
	known, err := sshconfig.ReadKnown(home)
	return &truster{
		cmd: cmd, yes: yes,
		asker: sshconfig.Asker{Home: home, Agent: os.Getenv("SSH_AUTH_SOCK"), Known: known},
	}, err
}

// config is the file of that name, or ~/.ssh/config.
func (t *truster) config(file string) sshconfig.Config {
	c := sshconfig.Config{File: file, Home: t.asker.Home}
	if who, err := user.Current(); err == nil {
		c.User = who.Username
	}
	return c
}

// trust has the keys of a host trusted, and those of the hosts on the way to it. It reports whether
// that changes anything.
func (t *truster) trust(ctx context.Context, h *job.Host) (changed bool, err error) {
	hops := append(slices.Clone(h.Jump), job.Hop{
		Address: h.Address, Port: cmp.Or(h.Port, job.DefaultPort), User: h.User, Identities: h.Identities,
		HostKeys: h.HostKeys,
	})
	for i := range hops {
		now, err := t.trustLast(ctx, hops[:i+1])
		if err != nil {
			return false, err
		}
		changed = changed || now
	}
	last := len(hops) - 1
	h.Jump, h.HostKeys = append([]job.Hop(nil), hops[:last]...), hops[last].HostKeys
	return changed, nil
}

// trustLast has the key of the last of hops trusted. Those of the others are.
func (t *truster) trustLast(ctx context.Context, hops []job.Hop) (changed bool, err error) {
	hop := &hops[len(hops)-1]
	key, err := t.asker.Key(ctx, hops)
	if err != nil {
		return false, err
	}
	name, line := fmt.Sprintf("%s, port %d", hop.Address, hop.Port), sshconfig.Line(key)
	out := t.cmd.ErrOrStderr()
	was := make([]string, len(hop.HostKeys))
	for i, k := range hop.HostKeys {
		words := strings.Fields(k)
		if strings.Join(words[:2], " ") == line { // a comment may follow
			fmt.Fprintf(out, "%s: its key is trusted already: %s\n", name, sshconfig.Fingerprint(line))
			return false, nil
		}
		was[i] = sshconfig.Fingerprint(k)
	}
	known, where, err := t.asker.Known.Has(hop, key)
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", name, err)
	case len(was) > 0:
		fmt.Fprintf(out, "%s: its key has changed\n  trusted: %s\n  now:     %s\n", name,
			strings.Join(was, "\n           "), sshconfig.Fingerprint(line))
		switch {
		case known:
			fmt.Fprintln(out, "  The new key stands in known_hosts.")
		case where != "":
			fmt.Fprintf(out, "  %s has another key than the new one.\n", where)
		}
	case where != "":
		return false, job.Errorf(job.Denied,
			"%s has the key %s, but %s has another one for it: find out which is right; "+
				"if it is the new one, remove the other with ssh-keygen -R", name, sshconfig.Fingerprint(line), where)
	case known:
		fmt.Fprintf(out, "%s: its key is known already, from known_hosts: %s\n", name, sshconfig.Fingerprint(line))
		hop.HostKeys = []string{line}
		return true, nil
	default:
		fmt.Fprintf(out, "%s: nobody has trusted its key yet\n  now:     %s\n", name, sshconfig.Fingerprint(line))
	}
	if !t.yes {
		if err := term.Answerable(t.cmd, "compare the key, and then give --yes"); err != nil {
			return false, err
		}
		if err := term.Confirm(ctx, t.cmd, "Trust this key"); err != nil {
			return false, err
		}
	}
	hop.HostKeys = []string{line}
	return true, nil
}
