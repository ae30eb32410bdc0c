package term

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

// A Format says how a command prints what it was asked for.
type Format string

// The formats.
const (
	AsTable Format = "table" // for people
	AsWide  Format = "wide"  // the same with more columns
	AsJSON  Format = "json"  // one document, with its fields in order
	AsYAML  Format = "yaml"  // the same
	AsName  Format = "name"  // one id, or path, per line
)

// FormatFlag adds the flag -o for some formats. The first one is the default.
func FormatFlag(cmd *cobra.Command, f *Format, formats ...Format) {
	names := make([]string, len(formats))
	for i, x := range formats {
		names[i] = string(x)
	}
	*f = formats[0]
	cmd.Flags().VarP(&formatValue{f, names}, "output", "o", "how to print: "+strings.Join(names, ", "))
	CompleteFlag(cmd, "output", names)
}

// CompleteFlag lets the shell complete a flag to fixed values.
func CompleteFlag(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag is there, and only once
	}
}

type formatValue struct {
	f     *Format
	names []string
}

func (v *formatValue) String() string { return string(*v.f) }

func (v *formatValue) Type() string { return "format" }

func (v *formatValue) Set(s string) error {
	if !slices.Contains(v.names, s) {
		return fmt.Errorf("give one of %s", strings.Join(v.names, ", "))
	}
	*v.f = Format(s)
	return nil
}

// Print prints doc as a document or its names one per line, or else for people, which table does.
func (f Format) Print(out io.Writer, doc any, names []string, table func() error) error {
	switch f {
	case AsName:
		for _, name := range names {
			fmt.Fprintln(out, name)
		}
		return nil
	case AsJSON, AsYAML:
		return f.Document(out, doc)
	}
	return table()
}

// NamesOf returns the names of all that are in a list.
func NamesOf[T any](all []T, name func(*T) string) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = name(&all[i])
	}
	return names
}

// Palette colours states, for a terminal whose user has not said NO_COLOR. Every word gets a code
// of the same length, so that columns stay in line.
type Palette bool

// Colours is the palette for out: nothing is coloured where out is no terminal.
func Colours(out io.Writer) Palette {
	w, ok := out.(*live.Writer)
	if !ok || !w.Color {
		return false
	}
	w.Colors()
	return true
}

// State is a state in its colour.
func (p Palette) State(s job.State) string { return p.paint(stateColor(s), string(s)) }

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

// Plain is a text in the usual colour.
func (p Palette) Plain(s string) string { return p.paint("39", s) }

func (p Palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Cell is a state in a table.
func (p Palette) Cell(s job.State) Cell {
	c := Cell{Text: string(s)}
	if p {
		c.color = stateColor(s)
	}
	return c
}

// Padded is a state filled up to a width.
func (p Palette) Padded(s job.State, width int) string {
	return p.State(s) + strings.Repeat(" ", max(0, width-len(s)))
}
