package config

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// From says where the value of a setting came from: default, FILE:LINE, a variable or a flag.
func (l *Loaded) From(key string) string { return l.froms[key] }

// Print writes every setting, its value and where that came from.
func (l *Loaded) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SETTING\tVALUE\tFROM")
	for i := range Settings {
		s := &Settings[i]
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Key, s.shown(&l.Config), l.froms[s.Key])
	}
	return t.Flush()
}

// Changes compares l with the configuration that takes its place: which settings take their new
// value at once, and which only at the next start, each as "key: old → new".
func (l *Loaded) Changes(next *Loaded) (now, later []string) {
	for i := range Settings {
		s := &Settings[i]
		if s.same(&l.Config, &next.Config) {
			continue
		}
		change := fmt.Sprintf("%s: %s → %s", s.Key, s.shown(&l.Config), s.shown(&next.Config))
		if s.Reload {
			now = append(now, change)
		} else {
			later = append(later, change)
		}
	}
	return now, later
}

// Reloaded returns l with the values of next that need no restart.
func (l *Loaded) Reloaded(next *Loaded) *Loaded {
	r := *l
	r.froms = map[string]string{}
	for i := range Settings {
		s := &Settings[i]
		from := l
		if s.Reload {
			from = next
		}
		r.froms[s.Key] = from.froms[s.Key]
		s.copy(&r.Config, &from.Config)
	}
	return &r
}

// Table is the table of all settings for the documentation, in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| in the file | flag | variable | value | default | SIGHUP | meaning " +
		"|\n|---|---|---|---|---|---|---|\n")
	for i := range Settings {
		s := &Settings[i]
		def, reload, unit := "`"+s.Default+"`", "", s.Unit()
		if s.Default == "" {
			def = "none"
		}
		if s.Reload {
			reload = "yes"
		}
		switch {
		case s.Secret():
			unit = "secret"
		case s.Min != "" && s.Max != "":
			unit += ", " + s.Min + " to " + s.Max
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s | %s | %s |\n", s.Key, s.Flag(), s.Variable(), unit, def,
			reload, s.Doc)
	}
	return b.String()
}
