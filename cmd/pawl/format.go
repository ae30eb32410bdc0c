package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"golang.org/x/term"

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

// document prints doc as JSON or YAML.
func (f format) document(out io.Writer, doc any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return err
	}
	text := b.Bytes()
	if f == asYAML {
		ordered, err := inOrder(text)
		if err != nil {
			return err
		}
		if text, err = yaml.MarshalWithOptions(ordered, yaml.IndentSequence(true), yaml.UseLiteralStyleIfMultiline(true)); err != nil {
			return err
		}
	}
	_, err := out.Write(text)
	return err
}

// inOrder reads JSON so that maps keep the order of their fields, and numbers are as they are written.
func inOrder(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value func() (any, error)
	value = func() (any, error) {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		switch t {
		case json.Delim('{'):
			m := yaml.MapSlice{}
			for dec.More() {
				k, err := dec.Token()
				if err != nil {
					return nil, err
				}
				v, err := value()
				if err != nil {
					return nil, err
				}
				m = append(m, yaml.MapItem{Key: k, Value: v})
			}
			_, err = dec.Token()
			return m, err
		case json.Delim('['):
			list := []any{}
			for dec.More() {
				v, err := value()
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err = dec.Token()
			return list, err
		}
		if n, ok := t.(json.Number); ok {
			return exactNumber(n), nil
		}
		return t, nil
	}
	return value()
}

// An exactNumber is written as it is.
type exactNumber json.Number

// MarshalYAML implements [yaml.BytesMarshaler].
func (n exactNumber) MarshalYAML() ([]byte, error) { return []byte(n), nil }

// palette colours states, for a terminal whose user has not said NO_COLOR. Every word gets a code of the same length, so
// that columns stay in line.
type palette bool

func colours(out io.Writer) palette {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	return palette(term.IsTerminal(int(f.Fd())))
}

func (p palette) state(s job.State) string {
	switch s {
	case job.Finished:
		return p.paint("32", string(s)) // green
	case job.Failed:
		return p.paint("31", string(s)) // red
	case job.Blocked, job.Paused, job.Canceled:
		return p.paint("33", string(s)) // yellow
	}
	return p.paint("39", string(s))
}

func (p palette) plain(s string) string { return p.paint("39", s) }

func (p palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// padded is a state filled up to a width.
func (p palette) padded(s job.State, width int) string {
	return p.state(s) + strings.Repeat(" ", max(0, width-len(s)))
}

// A table is columns for people.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer) table { return table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

func (t table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t table) flush() error { return t.w.Flush() }
