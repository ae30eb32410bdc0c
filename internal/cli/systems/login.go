package systems

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

func loginCommand(complete cobra.CompletionFunc) *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use:   "login NAME",
		Short: "Log in to a machine with the ssh program",
		Long: `Login opens the connection of a system with host.via openssh. It runs ssh in this terminal, by your own
ssh_config, and you answer what the host asks: a one-time code, the PIN of a card. The connection
then stays open in the background, and the jobs of the system use it. Pawl never logs in by itself
there: when the connection is gone, jobs wait until you log in again.

Run it on the machine of host.from, as the user who runs Pawl there.`,
		Example: `  pawl systems login lab
  pawl systems login lab --stop`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: complete,
		RunE: target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
			name := cmd.Flags().Arg(0)
			l, err := loginOf(ctx, cmd, at, name)
			if err != nil {
				return err
			}
			out, open := cmd.OutOrStdout(), l.Check(ctx) == nil
			switch {
			case stop && !open:
				fmt.Fprintf(out, "system %s: nobody is logged in\n", name)
			case stop:
				if err := l.Logout(ctx); err != nil {
					return fmt.Errorf("system %s: %w", name, err)
				}
				fmt.Fprintf(out, "system %s: logged out\n", name)
			case open:
				fmt.Fprintf(out, "system %s: logged in already\n", name)
			default:
				if err := l.Open(ctx, cmd.InOrStdin(), out, cmd.ErrOrStderr()); err != nil {
					return fmt.Errorf("system %s: %w", name, err)
				}
				fmt.Fprintf(out, "system %s: logged in, until the host ends it or you do with %s\n", name,
					term.Typed(cmd, "pawl systems login "+name+" --stop"))
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "close the connection; what runs there runs on")
	return cmd
}

// loginOf returns the login of a system whose connection is opened on this machine.
func loginOf(ctx context.Context, cmd *cobra.Command, at *target.Target, name string) (*node.Login, error) {
	row, err := at.Systems().Resource(ctx, name)
	if err != nil {
		return nil, err
	}
	s := row.Doc
	switch {
	case s.Host.Kind != job.HostSSH:
		return nil, job.Errorf(job.Invalid, "system %s is not reached by ssh: nobody has to log in", name)
	case s.Host.Via != job.ViaOpenSSH:
		return nil, job.Errorf(job.Invalid,
			"Pawl itself logs in to system %s, with keys; host.via openssh is for hosts that ask a person", name)
	}
	machine, err := at.Machine(cmd)
	if err != nil {
		return nil, err
	}
	if machine == "" || s.Host.From != machine && s.Host.Keys != job.KeysEverywhere {
		return nil, job.Errorf(job.Invalid, "system %s is reached from machine %s, and this is another one: run the "+
			"command there, with --dir if its data folder is not the usual one", name,
			cmp.Or(s.Host.From, "of the service"))
	}
	who, err := at.Whoami(ctx)
	if err != nil {
		return nil, err
	}
	return node.LoginOf(at.Folder(cmd), who.Tenant, &s), nil
}
