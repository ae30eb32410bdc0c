package bench

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/term"
)

// A Benchmark is a command that measures. Its flags are checked before it begins.
type Benchmark struct {
	*cobra.Command
	limit  func() time.Duration // after which it gives up
	checks []func() error
}

// Benchmark makes of cmd a command that measures.
func (o *Options) Benchmark(cmd *cobra.Command, measure func(context.Context, *Measurement) (Figures, error),
) *Benchmark {
	b := &Benchmark{Command: cmd}
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var faults []error
		for _, check := range b.checks {
			faults = append(faults, check())
		}
		if err := errors.Join(faults...); err != nil {
			return err
		}
		return o.measure(cmd, b.limit(), measure)
	}
	return b
}

// Check adds what is checked before anything is measured; its error is a usage error.
func (b *Benchmark) Check(check func() error) { b.checks = append(b.checks, check) }

// Int adds a flag for a number from low to high.
func (b *Benchmark) Int(n *int, name string, usual, low, high int, usage string) {
	b.Flags().IntVar(n, name, usual, usage)
	b.Check(func() error { return term.CheckRange(name, *n, low, high) })
}

// Timeout adds the flag --timeout.
func (b *Benchmark) Timeout(usual time.Duration) {
	var limit time.Duration
	term.DurationVar(b.Command, &limit, "timeout", usual, "give up after this time")
	b.limit = func() time.Duration { return limit }
	b.Check(func() error {
		if limit <= 0 {
			return term.Usagef("--timeout %s is out of range: give a time such as 10m", limit)
		}
		return nil
	})
}

// Profile adds the flag --cpuprofile, for the name of a file; see [StartProfile].
func (b *Benchmark) Profile(file *string, what string) {
	b.Flags().StringVar(file, "cpuprofile", "", "write "+what+" to this file, for go tool pprof")
}
