package term

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

// A Table is columns for people. On a terminal each row is one line, but for a column that folds:
// ids are short where there is no room for whole ones, then columns are left out that can be
// spared, and texts are cut.
// Elsewhere all is there, unless COLUMNS says how wide it may be.
type Table struct {
	out     io.Writer
	width   int // 0: any
	columns []Column
	Rows    [][]Cell
}

// A Column has a title.
type Column struct {
	Title string
	Least int // its cells may be cut to so many; 0: never
	Spare int // where there is no room it is left out, the highest number first; 0: never

	// Fold is for the last column: its texts go on below, and are not cut.
	Fold bool
}

// A Cell has a text, a shorter one where there is no room for it, and perhaps a colour.
type Cell struct{ Text, Short, color string }

// NewTable begins a table. wide ones are never cut.
func NewTable(out io.Writer, wide bool, columns ...Column) *Table {
	t := &Table{out: out, columns: columns}
	if w, is := out.(*live.Writer); is && !wide {
		t.width = w.Width()
	}
	return t
}

// Titles are columns with nothing but a title.
func Titles(names ...string) (columns []Column) {
	for _, name := range names {
		columns = append(columns, Column{Title: name})
	}
	return columns
}

// Row adds a row of ids, cells, and what else [fmt.Sprint] writes.
func (t *Table) Row(values ...any) {
	cells := make([]Cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case job.ID:
			cells[i] = Cell{Text: v.String(), Short: v.Short()}
		case Cell:
			cells[i] = v
		default:
			cells[i] = Cell{Text: fmt.Sprint(v)}
		}
		cells[i].Text = live.Text(oneLine.Replace(cells[i].Text))
	}
	t.Rows = append(t.Rows, cells)
}

// oneLine shows what would break a row.
var oneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)

// Flush prints the table.
func (t *Table) Flush() error {
	widths := t.fit()
	var b strings.Builder
	line := func(text func(i int) Cell) {
		end := 0 // of what is to be seen
		var l strings.Builder
		for i, width := range widths {
			if width < 0 {
				continue
			}
			c := text(i)
			shown := live.Cut(c.Text, width)
			if l.Len() > 0 {
				l.WriteString("  ")
			}
			if c.color != "" {
				l.WriteString("\x1b[" + c.color + "m" + shown + "\x1b[0m")
			} else {
				l.WriteString(shown)
			}
			if shown != "" {
				end = l.Len()
			}
			l.WriteString(strings.Repeat(" ", max(0, width-live.Width(shown))))
		}
		b.WriteString(l.String()[:end] + "\n")
	}
	if slices.ContainsFunc(t.columns, func(c Column) bool { return c.Title != "" }) {
		line(func(i int) Cell { return Cell{Text: t.columns[i].Title} })
	}
	for _, r := range t.Rows {
		last := len(r) - 1
		lines := []string{r[last].Text}
		if t.columns[last].Fold {
			lines = live.Fold(r[last].Text, widths[last], 0)
		}
		for n, text := range lines {
			line(func(i int) Cell {
				switch {
				case i == last:
					return Cell{Text: text, color: r[i].color}
				case n > 0:
					return Cell{}
				}
				return r[i]
			})
		}
	}
	t.Rows = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// Text prints a text. On a terminal its lines are folded where there is room, and what follows is
// indented.
func Text(out io.Writer, text string, indent int) {
	width := 0
	if w, is := out.(*live.Writer); is {
		width = w.Width()
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintln(out, strings.Join(live.Fold(line, width, indent), "\n"))
	}
}

// WideTerminal is from how many cells on whole ids are worth more than longer texts.
const WideTerminal = 132

// leastShown is to how many cells any column may be cut.
const leastShown = 3

// fit returns how wide each column is; less than 0: it is left out.
func (t *Table) fit() []int {
	widths := make([]int, len(t.columns))
	measure := func() {
		for i, c := range t.columns {
			widths[i] = live.Width(c.Title)
			for _, r := range t.Rows {
				widths[i] = max(widths[i], live.Width(r[i].Text))
			}
		}
	}
	measure()
	// over is how far the table reaches beyond the width. It is told with the columns cut as far as
	// they may be, or as they are.
	over := func(cut bool) int {
		sum := -2
		for i, w := range widths {
			if least := t.columns[i].Least; cut && least > 0 {
				w = min(w, max(least, live.Width(t.columns[i].Title)))
			}
			if w >= 0 {
				sum += w + 2
			}
		}
		return sum - t.width
	}
	if t.width == 0 || over(false) <= 0 {
		return widths
	}
	if t.width < WideTerminal || over(true) > 0 {
		for _, r := range t.Rows {
			for i, c := range r {
				r[i].Text = cmp.Or(c.Short, c.Text)
			}
		}
		measure()
	}
	for over(true) > 0 {
		last := -1
		for i, c := range t.columns {
			if widths[i] >= 0 && c.Spare > 0 && (last < 0 || c.Spare > t.columns[last].Spare) {
				last = i
			}
		}
		if last < 0 {
			break
		}
		widths[last] = -1
	}
	// The widest text is cut first; where that is not enough, whatever is the widest. Where not even
	// that is enough the table is too wide: rows of dots say nothing.
	for _, enough := range []func(i int) bool{
		func(i int) bool {
			return widths[i] <= max(t.columns[i].Least, live.Width(t.columns[i].Title)) || t.columns[i].Least == 0
		},
		func(i int) bool { return widths[i] <= leastShown },
	} {
		for over(false) > 0 {
			widest := -1
			for i, w := range widths {
				if !enough(i) && (widest < 0 || w > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	return widths
}

// OrDash is a text, or a dash where there is none.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
