package jobfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// CommandRule says how a job is made of a command.
const CommandRule = `Instead of FILE, a command behind -- is one job: the program and its arguments, as they stand
there. It runs in a folder of its own, as all jobs do, with the files of --input in it; with --here
it runs in the present folder, and what it writes there is not archived. A shell is asked for by its
name: -- sh -c 'a | b'. Each call submits another job.`

// A CommandLine is what flags say of a job that is given as a command.
type CommandLine struct {
	name                string
	inputs, env, labels []string
	minutes             minutes
	here                bool
}

// commandFlags are the flags that go with a command.
var commandFlags = []string{"name", "input", "env", "label", "minutes", "here"}

// Flags adds the flags of a job that is given as a command.
func (c *CommandLine) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.name, "name", "", "the name of the job of a command")
	f.StringArrayVar(&c.inputs, "input", nil, "a file or folder that the command gets in its folder; may be repeated")
	f.StringArrayVar(&c.env, "env", nil,
		"a variable of the command, NAME=VALUE, or NAME as it is set here; may be repeated")
	f.StringArrayVar(&c.labels, "label", nil, "a label of the job of a command, key=value; may be repeated")
	f.Var(&c.minutes, "minutes",
		fmt.Sprintf("for how many minutes the command may run (default %g)", job.DefaultMinutes))
	f.BoolVar(&c.here, "here", false, "run the command in the present folder, and not in one of its own")
}

// minutes are the value of a flag: more than 0, which is not given.
type minutes float64

func (m *minutes) String() string { return strconv.FormatFloat(float64(*m), 'g', -1, 64) }

func (m *minutes) Type() string { return "float" }

func (m *minutes) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return errors.New("give a number of minutes that is more than 0, such as 90 or 0.5")
	}
	*m = minutes(v)
	return nil
}

// BehindDash returns the command that stands behind --; nil: a file is given.
func BehindDash(cmd *cobra.Command, args []string) []string {
	if cmd.ArgsLenAtDash() != 0 {
		return nil
	}
	return args
}

// Args sees to it that a command is given, or a file, which may be left out where least is 0.
func (c *CommandLine) Args(least int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch dash := cmd.ArgsLenAtDash(); {
		case dash == 0 && len(args) == 0:
			return errors.New("no command follows --")
		case dash == 0:
			return nil
		case dash > 0:
			return fmt.Errorf("%q stands before --: give a file, or a command behind --", args[0])
		case len(args) > 1:
			return fmt.Errorf("%q is more than one file: a command is written behind --, as in %s -- %s",
				strings.Join(args, " "), cmd.CommandPath(), strings.Join(args, " "))
		}
		for _, name := range commandFlags {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s goes with a command behind --: in a file it is a field of the job", name)
			}
		}
		return cobra.RangeArgs(least, 1)(cmd, args)
	}
}

// File returns the job of a command as the file that would describe it.
func (c *CommandLine) File(command []string, use Use) (File, error) {
	wrong := func(format string, args ...any) (File, error) {
		return File{}, term.Usagef(format, args...)
	}
	folder, err := os.Getwd()
	if err != nil {
		return File{}, err
	}
	if c.here {
		if use.Away {
			return wrong("--here is a folder of this machine, and the server is on another: leave it out")
		}
		command = append([]string{"sh", "-c", `cd "$0" && exec "$@"`, folder}, command...)
	}
	for i, word := range command {
		if !utf8.ValidString(word) { // JSON would make something else of it
			return wrong("%q is not text in UTF-8: write it to a file and pass that as an input", word)
		}
		command[i] = strings.ReplaceAll(word, "${", "$${") // nothing in it is for Pawl
	}
	fields := map[string]any{"command": command}
	if c.name != "" {
		fields["name"] = c.name
	} else if c.here {
		fields["name"] = filepath.Base(command[4])
	}
	if c.minutes != 0 {
		fields["resources"] = map[string]any{"minutes": float64(c.minutes)}
	}
	var inputs []any
	for _, from := range c.inputs {
		inputs = append(inputs, map[string]any{"from": from})
	}
	if inputs != nil {
		fields["inputs"] = inputs
	}
	for field, pairs := range map[string][]string{"env": c.env, "labels": c.labels} {
		values := map[string]any{}
		for _, p := range pairs {
			k, v, ok := strings.Cut(p, "=")
			if !ok && field == "env" {
				v, ok = os.LookupEnv(k)
			}
			if !utf8.ValidString(v) {
				return wrong("the value of --%s %s is not text in UTF-8: write it to a file and pass that as an input",
					strings.TrimSuffix(field, "s"), k)
			}
			if !ok {
				return wrong("--%s %s has no value: write %s=…", strings.TrimSuffix(field, "s"), k, k)
			}
			values[k] = strings.ReplaceAll(v, "${", "$${")
			if field == "labels" {
				values[k] = v
			}
		}
		if len(values) > 0 {
			fields[field] = values
		}
	}
	doc, err := job.Encode(fields)
	if err != nil {
		return File{}, err
	}
	e, err := item{doc: doc}.read(folder, use)
	if err != nil {
		return wrong("the job of the command:\n%w", err)
	}
	sum := sha256.Sum256(doc)
	return File{Path: CommandFile, Sum: hex.EncodeToString(sum[:]), Jobs: []Entry{e}}, nil
}

// CommandFile stands for the file in a run of a command.
const CommandFile = "(command)"
