package term

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/job"
)

// A duration is the value of a flag, as [job.ParseDuration] reads it.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Type() string { return "duration" }

func (d *duration) Set(text string) error {
	v, err := job.ParseDuration(text)
	if err != nil {
		return errors.New("give a duration such as 90s, 1h30m or 1d")
	}
	*d = duration(v)
	return nil
}

// DurationVar adds a flag that takes a duration.
func DurationVar(cmd *cobra.Command, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	cmd.Flags().Var((*duration)(d), name, usage)
}

// CheckRange is a usage error unless low <= value <= high.
func CheckRange(flag string, value, low, high int) error {
	if value < low || value > high {
		return Usagef("--%s %d is out of range: give %d to %d", flag, value, low, high)
	}
	return nil
}
