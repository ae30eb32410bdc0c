package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

func watchCommand() *cobra.Command {
	var c choice
	var untilEnded bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show jobs in a table that moves",
		Long: `Watch shows the jobs that the filter chooses now or later, until it is interrupted: on a terminal in a
table that moves, elsewhere with a line for each event. Without a filter it shows the unfinished
jobs. Ending it does not affect the jobs.

` + filterRule,
		Example: `  pawl watch --until-ended
  pawl watch --filter 'label.project=x created>24h' --until-ended`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := c.filter()
			if err != nil {
				return err
			}
			if len(f) == 0 {
				f = job.Unended()
			}
			return target.With(target.Open, func(ctx context.Context, cmd *cobra.Command, at *target.Target) error {
				terminal, release := live.Terminal(os.Stdin, os.Stdout)
				defer release()
				if terminal.Size == nil {
					terminal.Out = cmd.OutOrStdout()
				}
				w := &watch{
					cmd: cmd, at: at, filter: f, untilEnded: untilEnded,
					view: live.NewView(terminal, &live.Board{IDs: true}), shown: map[job.ID]bool{},
				}
				err := w.do(ctx)
				return errors.Join(w.view.Close(), err)
			})(cmd, args)
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&untilEnded, "until-ended", false, "end when all jobs that are shown have ended")
	return cmd
}

// A watch is one call of pawl watch.
type watch struct {
	cmd        *cobra.Command
	at         *target.Target
	filter     job.Filter
	untilEnded bool

	view    *live.View
	shown   map[job.ID]bool // the jobs on the board, and whether they have ended
	unended int             // of those
}

// do shows the jobs until ctx ends, which is no error.
func (w *watch) do(ctx context.Context) error {
	served := w.at.Served(ctx)
	cursor, err := w.at.Cursor(ctx) // before the list: what happens meanwhile is seen twice rather than not at all
	if err != nil {
		return err
	}
	page, err := w.at.List(ctx, store.Query{Filter: w.filter, Limit: target.MostListed})
	if err != nil {
		return err
	}
	w.view.Together(func() {
		for i := len(page.Jobs) - 1; i >= 0; i-- { // the oldest first
			w.show(&page.Jobs[i])
		}
	})
	if page.Next != "" {
		w.view.Note(fmt.Sprintf("only the newest %d of the jobs are shown: choose fewer with --filter",
			target.MostListed))
	}
	if !served {
		fmt.Fprintln(w.view, term.Typed(w.cmd, "nothing runs the jobs "+w.at.Where()+
			" now: pawl run goes on with programs, or pawl serve"))
		return term.Exit(term.ExitLeft)
	}
	if w.view.Err() != nil || w.untilEnded && w.unended == 0 {
		return nil
	}
	w.at.Patient()
	if w.view.Terminal() {
		looking, stop := context.WithCancel(ctx)
		var lines sync.WaitGroup
		lines.Go(func() { w.lastLines(looking) })
		defer lines.Wait()
		defer stop()
	}
	for e, err := range w.at.Events(ctx, client.EventQuery{Filter: lasting(w.filter), After: cursor, Follow: true}) {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := w.take(ctx, e.Event); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if w.view.Err() != nil || w.untilEnded && w.unended == 0 {
			return nil // to close the view says what is wrong
		}
	}
	fmt.Fprintln(w.view, term.Typed(w.cmd, "the process that ran the jobs "+w.at.Where()+
		" has stopped: pawl run goes on with programs, or pawl serve"))
	return term.Exit(term.ExitLeft)
}

// show puts a job on the board.
func (w *watch) show(v *service.View) {
	if w.shown[v.ID] = v.State.Terminal(); !v.State.Terminal() {
		w.unended++
	}
	w.row(v)
	if !w.view.Terminal() {
		fmt.Fprintf(w.view, "%s  %s  %s  %s\n", v.ID, live.Clean(v.Name), v.State, live.FirstLine(v.Why))
	}
}

func (w *watch) row(v *service.View) {
	w.view.Row(&v.Job, live.Facts{Ref: v.ID.Short(), Folder: v.Folder, Results: v.Results})
}

// lastLines shows each second what the programs wrote last whose jobs are shown. A job without a
// log is asked once.
func (w *watch) lastLines(ctx context.Context) {
	silent := map[job.ID]bool{}
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		for _, id := range w.view.Running() {
			if silent[id] {
				continue
			}
			line, err := w.lastLine(ctx, id)
			if silent[id] = job.KindOf(err) == job.NotFound && line == ""; line != "" {
				w.view.Last(id, line)
			}
		}
		select {
		case <-clock.C:
		case <-ctx.Done():
			return
		}
	}
}

// mostLast is how many bytes are read of a last line.
const mostLast = 1 << 20

// lastLine returns the last line of what a job's program has written, or the end of it where that
// is long.
func (w *watch) lastLine(ctx context.Context, id job.ID) (string, error) {
	log, err := w.at.Log(ctx, id, service.LogQuery{Tail: 1})
	if err != nil {
		return "", err
	}
	defer log.Close()
	line := ""
	keep := func(s string) { line = s }
	err = term.EachLine(io.LimitReader(log, mostLast), keep, keep)
	return line, err
}

// take takes in an event. A job that is not on the board is looked at.
func (w *watch) take(ctx context.Context, e job.Event) error {
	ended, shown := w.shown[e.Job]
	if shown && (ended || e.Name != "") {
		return nil
	}
	if shown {
		w.view.Event(e)
		if !e.State.Terminal() {
			return nil
		}
		w.shown[e.Job] = true
		w.unended--
	}
	v, err := w.at.Job(ctx, e.Job)
	switch {
	case job.KindOf(err) == job.NotFound: // it was deleted meanwhile
		return nil
	case err != nil:
		return err
	case shown:
		w.row(&v)
	case w.filter.Match(&v.Job):
		w.show(&v)
	}
	return nil
}

// lasting returns the terms of a filter whose answer stays the same for as long as a job is there.
func lasting(f job.Filter) (terms job.Filter) {
	for _, t := range f {
		switch t.Field {
		case "kind", "app", "owner", "queue", "name", "id", "external_id", "created", "machine", "priority":
			terms = append(terms, t)
		}
	}
	return terms
}
