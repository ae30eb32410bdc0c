package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

// A format says how a command prints what it was asked for.
type format string

// The formats.
const (
	asTable format = "table" // for people
	asWide  format = "wide"  // the same with more columns
	asJSON  format = "json"  // one document, of which the fields keep their order
	asYAML  format = "yaml"  // the same
	asName  format = "name"  // one id, or path, per line
)

// formatFlag adds the flag -o for some formats, of which the first is the default.
func formatFlag(cmd *cobra.Command, f *format, formats ...format) {
	names := make([]string, len(formats))
	for i, x := range formats {
		names[i] = string(x)
	}
	*f = formats[0]
	cmd.Flags().VarP(&formatValue{f, names}, "output", "o", "how to print: "+strings.Join(names, ", "))
	complete(cmd, "output", names)
}

// complete lets the shell complete a flag to fixed values.
func complete(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is there, and only once
	}
}

type formatValue struct {
	f     *format
	names []string
}

func (v *formatValue) String() string { return string(*v.f) }
func (v *formatValue) Type() string   { return "format" }

func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.names, s) {
		return fmt.Errorf("give one of %s", strings.Join(v.names, ", "))
	}
	*v.f = format(s)
	return nil
}

// print prints doc as a document or its names one per line, or else for people, which table does.
func (f format) print(out io.Writer, doc any, names []string, table func() error) error {
	switch f {
	case asName:
		for _, name := range names {
			fmt.Fprintln(out, name)
		}
		return nil
	case asJSON, asYAML:
		return f.document(out, doc)
	}
	return table()
}

// namesOf returns the names of all that are in a list.
func namesOf[T any](all []T, name func(*T) string) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = name(&all[i])
	}
	return names
}

// palette colours states, for a terminal whose user has not said NO_COLOR. Every word gets a code of the same length, so
// that columns stay in line.
type palette bool

func colours(out io.Writer) palette {
	w, ok := out.(*live.Writer)
	if !ok || !w.Color {
		return false
	}
	w.Colors()
	return true
}

func (p palette) state(s job.State) string { return p.paint(stateColor(s), string(s)) }

func stateColor(s job.State) string {
	switch s {
	case job.Finished:
		return "32" // green
	case job.Failed:
		return "31" // red
	case job.Blocked, job.Paused, job.Canceled:
		return "33" // yellow
	}
	return "39"
}

func (p palette) plain(s string) string { return p.paint("39", s) }

func (p palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// cell is a state in a table.
func (p palette) cell(s job.State) cell {
	c := cell{text: string(s)}
	if p {
		c.color = stateColor(s)
	}
	return c
}

// padded is a state filled up to a width.
func (p palette) padded(s job.State, width int) string {
	return p.state(s) + strings.Repeat(" ", max(0, width-len(s)))
}
