package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// print writes a table for each variant, with a column for each system.
func (r *Report) print(out io.Writer, ledger bool) error {
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(out, "%s %s, ", name, r.Versions[name])
	}
	fmt.Fprintf(out, "%d CPUs, %s\n", r.CPUs, r.Time.Format(time.DateOnly))
	fmt.Fprintf(out, "pawl: lease %s; river: job timeout %s, rescued after %s\n", r.PawlLease, r.RiverLimit,
		r.RiverStuck)
	for _, v := range variants {
		var stories []*Story
		for i := range r.Stories {
			if r.Stories[i].Variant == v.Name {
				stories = append(stories, &r.Stories[i])
			}
		}
		fmt.Fprintf(out, "\n%s\n", v.Text)
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		row := func(fact string, of func(*Story) []string) {
			cells, lines := make([][]string, len(stories)), 0
			for i, s := range stories {
				cells[i] = of(s)
				lines = max(lines, len(cells[i]))
			}
			for n := range lines {
				fmt.Fprint(w, "  ", fact)
				for _, c := range cells {
					fmt.Fprint(w, "\t")
					if n < len(c) {
						fmt.Fprint(w, c[n])
					}
				}
				fmt.Fprintln(w)
				fact = ""
			}
		}
		row("", func(s *Story) []string { return []string{s.System} })
		row("A was stopped for", func(s *Story) []string { return []string{s.Frozen} })
		row("before A wakes up", func(s *Story) []string { return s.Before.text() })
		row("A's context then", func(s *Story) []string { return []string{s.Woke} })
		row("  ended after", func(s *Story) []string { return one(s.Lasted) })
		row("  when A returns", func(s *Story) []string { return []string{s.Left} })
		row("A's notes", func(s *Story) []string { return s.Notes })
		row("A was told", func(s *Story) []string { return orNothing(s.Told) })
		row("changed meanwhile", func(s *Story) []string { return orNothing(s.Changes) })
		row("in the end", func(s *Story) []string { return s.End.text() })
		row("B's result stands", func(s *Story) []string { return []string{yes(s.Kept)} })
		row("calls", func(s *Story) []string { return s.Calls })
		row("at once, at most", func(s *Story) []string { return []string{fmt.Sprint(s.Together)} })
		if err := w.Flush(); err != nil {
			return err
		}
		if !ledger {
			continue
		}
		for _, s := range stories {
			fmt.Fprintf(out, "  ledger of %s\n", s.System)
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, l := range s.Ledger {
				attempt := ""
				if l.Attempt > 0 {
					attempt = fmt.Sprintf("attempt %d", l.Attempt)
				}
				fmt.Fprintf(w, "    %.2fs\t%s %d\t%s\t%s\t%s\t%s\t%s\n",
					l.Time.Sub(s.Ledger[0].Time).Seconds(), l.Process, l.PID, l.Call, attempt, l.Step, l.Answer,
					l.Context)
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Row) text() []string {
	first := fmt.Sprintf("%s, attempt %d", r.State, r.Attempt)
	if r.Epoch > 0 {
		first += fmt.Sprintf(", epoch %d", r.Epoch)
	}
	all := []string{first}
	if len(r.By) > 0 {
		all = append(all, "attempted by "+strings.Join(r.By, ", "))
	}
	all = append(all, "output: "+cmp.Or(string(r.Output), "none"))
	return append(all, r.Errors...)
}

func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func orNothing(all []string) []string {
	if len(all) == 0 {
		return []string{"nothing"}
	}
	return all
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
