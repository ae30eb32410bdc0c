package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
)

// A table is columns for people. On a terminal each row is one line: ids are short where there is no room for whole ones,
// then columns are left out that can be spared, and texts are cut. Elsewhere all is there, unless COLUMNS says how wide it may be.
type table struct {
	out     io.Writer
	width   int // 0: any
	columns []column
	rows    [][]cell
}

// A column has a title.
type column struct {
	title string
	least int // its cells may be cut to so many; 0: never
	spare int // where there is no room it is left out, the highest number first; 0: never
}

// A cell has a text, a shorter one where there is no room for it, and perhaps a colour.
type cell struct{ text, short, color string }

// newTable begins a table. wide ones are never cut.
func newTable(out io.Writer, wide bool, columns ...column) *table {
	t := &table{out: out, columns: columns}
	if w, is := out.(*live.Writer); is && !wide {
		t.width = w.Width()
	}
	return t
}

// titles are columns with nothing but a title.
func titles(names ...string) (columns []column) {
	for _, name := range names {
		columns = append(columns, column{title: name})
	}
	return columns
}

// row adds a row of ids, cells, and what else [fmt.Sprint] writes.
func (t *table) row(values ...any) {
	cells := make([]cell, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case job.ID:
			cells[i] = cell{text: v.String(), short: v.Short()}
		case cell:
			cells[i] = v
		default:
			cells[i] = cell{text: fmt.Sprint(v)}
		}
		cells[i].text = live.Text(oneLine.Replace(cells[i].text))
	}
	t.rows = append(t.rows, cells)
}

// oneLine shows what would break a row.
var oneLine = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)

// flush prints the table.
func (t *table) flush() error {
	widths := t.fit()
	var b strings.Builder
	line := func(text func(i int) cell) {
		end := 0 // of what is to be seen
		var l strings.Builder
		for i, width := range widths {
			if width < 0 {
				continue
			}
			c := text(i)
			shown := live.Cut(c.text, width)
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
	if slices.ContainsFunc(t.columns, func(c column) bool { return c.title != "" }) {
		line(func(i int) cell { return cell{text: t.columns[i].title} })
	}
	for _, r := range t.rows {
		line(func(i int) cell { return r[i] })
	}
	t.rows = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// wideTerminal is from how many cells on whole ids are worth more than longer texts.
const wideTerminal = 132

// fit returns how wide each column is; less than 0: it is left out.
func (t *table) fit() []int {
	widths := make([]int, len(t.columns))
	measure := func() {
		for i, c := range t.columns {
			widths[i] = live.Width(c.title)
			for _, r := range t.rows {
				widths[i] = max(widths[i], live.Width(r[i].text))
			}
		}
	}
	measure()
	// over is how far the table reaches beyond the width. It is told with the columns cut as far as they may be, or as they are.
	over := func(cut bool) int {
		sum := -2
		for i, w := range widths {
			if least := t.columns[i].least; cut && least > 0 {
				w = min(w, max(least, live.Width(t.columns[i].title)))
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
	if t.width < wideTerminal || over(true) > 0 {
		for _, r := range t.rows {
			for i, c := range r {
				r[i].text = cmp.Or(c.short, c.text)
			}
		}
		measure()
	}
	for over(true) > 0 {
		last := -1
		for i, c := range t.columns {
			if widths[i] >= 0 && c.spare > 0 && (last < 0 || c.spare > t.columns[last].spare) {
				last = i
			}
		}
		if last < 0 {
			break
		}
		widths[last] = -1
	}
	// The widest text is cut first; where that is not enough, whatever is the widest.
	for _, enough := range []func(i int) bool{
		func(i int) bool {
			return widths[i] <= max(t.columns[i].least, live.Width(t.columns[i].title)) || t.columns[i].least == 0
		},
		func(i int) bool { return widths[i] <= 1 },
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
