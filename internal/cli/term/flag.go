package term

import (
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

var (
	// emptyMeans are flags that mean something when they are empty: not what the environment says.
	emptyMeans = []string{"server", "db"}
	// pathFlags take the paths of files here, which may be any bytes.
	pathFlags = []string{"dir", "token-file", "file", "config", "ssh-config"}
)

// checkFlags refuses flags for texts that were given empty, or are no text, and durations that are
// not more than 0. These would count as not given, which is seldom what was meant: often a variable
// of a script is not set. What is not UTF-8 would become something else in JSON.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if d, is := f.Value.(*duration); is && *d <= 0 && f.DefValue == "0s" && f.NoOptDefVal == "" && err == nil {
			err = Usagef("--%s must be more than 0: give a duration such as 10m; see %s --help", f.Name, cmd.CommandPath())
		}
		values := []string{f.Value.String()}
		if list, is := f.Value.(pflag.SliceValue); is {
			values = list.GetSlice()
		} else if f.Value.Type() != "string" {
			return
		}
		mixed := slices.IndexFunc(values, func(v string) bool { return !utf8.ValidString(v) })
		switch {
		case err != nil:
		case (len(values) == 0 || slices.Contains(values, "")) && !slices.Contains(emptyMeans, f.Name):
			err = Usagef("--%s is empty: give it a value, or leave it out; see %s --help", f.Name, cmd.CommandPath())
		case mixed >= 0 && !slices.Contains(pathFlags, f.Name):
			err = Usagef("--%s %q is not text: give it in UTF-8", f.Name, values[mixed])
		}
	})
	return err
}

// CheckRange is a usage error unless low <= value <= high.
func CheckRange(flag string, value, low, high int) error {
	if value < low || value > high {
		return Usagef("--%s %d is out of range: give %d to %d", flag, value, low, high)
	}
	return nil
}
