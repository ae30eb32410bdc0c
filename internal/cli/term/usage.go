package term

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-jobs/pawl/job"
)

// A UsageError is a command that was called wrongly.
type UsageError struct{ err error }

// Error implements error.
func (e *UsageError) Error() string { return e.err.Error() }

// Usage is an error that says how a command was called wrongly.
func Usage(err error) error { return &UsageError{err} }

// Usagef is such an error with the text of fmt.Errorf.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// FlagErrors makes errors of the flags of a command, and of those below it, usage errors.
func FlagErrors(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w%s; see %s --help", err, meantFlag(cmd, err), cmd.CommandPath())
	})
}

// flagHabits are flags of other programs, with those that pawl has for the purpose. A command takes
// the first that it has. What is no flag stands in the job file.
var flagHabits = []struct{ names, here string }{
	{"time t timeout walltime time-limit", "--minutes"},
	{"lines n tail", "--tail --limit --name"},
	{"job-name J N title L", "--name"},
	{"jobs j parallel P max-jobs concurrency slots S", "--jobs"},
	{"chdir D cwd C workdir working-directory wd", "--here"},
	{"json", "--output=json"},
	{"export setenv e E", "--env"},
	{"l labels tag tags", "--label"},
	{"follow w tail", "--follow --wait"},
	{"W block sync", "--wait"},
	{"f file input i in", "--input --follow"},
	{"cpus c cpus-per-task cores ncpus threads", "resources: {cores: 4}"},
	{"mem memory m ram", "resources: {memory: 4GB}"},
	{"gpus gres G", "resources: {gpus: 1}"},
	{"nodes ntasks", "resources: {nodes: 2, tasks: 8}"},
	{"priority p nice", "priority: 0"},
	{"delay begin start-at", "delay: 1h"},
	{"retries retry tries", "retry: {max_attempts: 3}"},
	{"after dependency depends d", "order: {key: NAME}"},
	{"queue partition q group g", "--queue queue: NAME"},
	{"array a", "jobs: […]"},
}

// meantFlag continues an error about a flag that a command does not have, or about a number below
// 0.
func meantFlag(cmd *cobra.Command, err error) string {
	text := err.Error()
	name, long := strings.CutPrefix(text, "unknown flag: --")
	if rest, short := strings.CutPrefix(text, "unknown shorthand flag: '"); short {
		name = rest[:1]
	} else if !long {
		return ""
	}
	if !long && name >= "0" && name <= "9" {
		return ": write -- before a number below 0"
	}
	for _, h := range flagHabits {
		if !slices.Contains(strings.Fields(h.names), name) {
			continue
		}
		field := h.here
		for strings.HasPrefix(field, "--") {
			flag, rest, _ := strings.Cut(field, " ")
			if f := cmd.Flags().Lookup(strings.TrimSuffix(flag[2:], "=json")); f != nil && !f.Hidden {
				return ": did you mean " + flag + "?"
			}
			field = rest
		}
		if field != "" && cmd.Flags().Lookup("minutes") != nil {
			return ": write " + field + " in a job file"
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := job.Nearest(name, names...); long && near != "" {
		return ": did you mean --" + near + "?"
	}
	return ""
}

// CheckArgs makes errors of a command's arguments usage errors. An empty one is such an error for
// all commands: often a variable of a script is not set.
func CheckArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				err = noEmpty(cmd, args)
			}
			if err == nil {
				return nil
			}
			// cobra counts
			if text := err.Error(); strings.Contains(text, "arg(s)") || strings.HasPrefix(text, "unknown command") {
				what := "an argument is missing"
				if len(args) > 0 {
					what = fmt.Sprintf("%q is not what it takes", strings.Join(args, " "))
				}
				err = fmt.Errorf("%s: write %s", what, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
			return Usagef("%w; see %s --help", err, cmd.CommandPath())
		}
	}
	for _, sub := range c.Commands() {
		CheckArgs(sub)
	}
}

// noEmpty refuses an argument that is empty, by the name that it has in the usage line. The command
// of a job, which stands behind --, may have such ones.
func noEmpty(cmd *cobra.Command, args []string) error {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 && strings.Contains(cmd.Use, "-- COMMAND") {
		args = args[:dash]
	}
	i := slices.Index(args, "")
	if i < 0 {
		return nil
	}
	names, value := []string{}, false // value: it is that of a flag
	for _, word := range strings.Fields(cmd.Use)[1:] {
		word = strings.TrimLeft(word, "[")
		if name := word[:len(word)-len(strings.TrimLeft(word, letters))]; name != "" && !value {
			names = append(names, name)
		}
		value = strings.Contains(word, "--")
	}
	if len(names) == 0 {
		return errors.New("the argument is empty: give it a value")
	}
	return fmt.Errorf("%s is empty: give it a value", names[min(i, len(names)-1)])
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// NoSubject refuses what is none of the commands below a command.
func NoSubject(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if names == nil {
		return fmt.Errorf("%s has no %q below it", cmd.CommandPath(), args[0])
	}
	meant := ": give one of " + strings.Join(names, ", ")
	if near := job.Nearest(args[0], names...); near != "" {
		meant = ": did you mean " + near + "?"
	}
	return fmt.Errorf("%s does not know %q%s", cmd.CommandPath(), args[0], meant)
}
