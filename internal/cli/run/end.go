package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/internal/cli/jobfile"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// conclude gives up the attachment, says how the jobs stand, and makes the exit code of it.
func (r *run) conclude(ctx context.Context, s *attachment) error {
	s, err := s.alone(ctx) // the process that was asked may be gone
	if err != nil {
		return errors.Join(err, s.leave())
	}
	var waiting []job.ID
	if s.node != nil {
		if waiting, err = r.strangers(ctx, s); err != nil {
			return errors.Join(err, s.leave())
		}
	}
	// What a step was doing when it was told to stop is known once the service has stopped.
	if err := s.stop(); err != nil {
		return errors.Join(err, s.leave())
	}
	code, advice := term.ExitOK, ""
	var ended []*service.View
	for _, id := range r.order {
		v, err := s.Job(ctx, id)
		if err == nil {
			err = r.last(ctx, s, &v)
		}
		if err != nil {
			return errors.Join(err, s.leave())
		}
		ended = append(ended, &v)
		code = term.WorseExit(code, term.ExitFor(v.State))
	}
	if len(waiting) > 0 {
		them := "them"
		if len(waiting) == 1 {
			them = "it"
		}
		advice = fmt.Sprintf("%s in folder %s: %s; the next pawl run goes on with %s",
			phrase.Plural(len(waiting), "other unfinished job"), r.dir, r.names(ctx, s, waiting), them)
	}
	r.view.Note("")
	var below strings.Builder
	if r.view.Terminal() && len(ended) > 1 {
		r.advise(ctx, s, &below, ended)
	}
	r.rest(ctx, s, &below, ended)
	if advice != "" {
		fmt.Fprintln(&below, r.view.Fold(term.Typed(r.cmd, advice)))
	}
	r.view.Below(below.String())
	err = r.view.Close()
	for _, v := range ended {
		if v.State == job.Failed && term.Quiet(r.cmd) {
			fmt.Fprintf(r.cmd.ErrOrStderr(), "%s  FAILED  %s: %s\n", s.Ref(ctx, &v.Job), v.Code,
				live.FirstLine(v.Message))
		}
		if v.State.Terminal() && !r.view.Terminal() && (len(ended) == 1 || v.State == job.Failed) {
			r.tell(ctx, s, v, len(ended) > 1)
		}
	}
	out := r.cmd.OutOrStdout()
	if !r.view.Terminal() && len(ended) > 1 {
		fmt.Fprintf(out, "%s: %s\n", phrase.Plural(len(ended), "job"), countStates(ended))
	}
	fmt.Fprint(out, &below)
	if err = errors.Join(err, s.leave()); err != nil {
		return err
	}
	if code != term.ExitOK {
		return term.Exit(code)
	}
	return nil
}

// tell says how one job stands, with its name where there are several.
func (r *run) tell(ctx context.Context, s *attachment, v *service.View, named bool) {
	out := r.cmd.OutOrStdout()
	if named {
		out = prefixed{out, live.Clean(v.Name) + "  "}
	}
	switch v.State {
	case job.Finished:
		fmt.Fprintf(out, "FINISHED  output: %s\n", outputOf(v))
	case job.Failed:
		fmt.Fprintf(out, "FAILED  %s: %s\n", v.Code, v.Message)
		fmt.Fprintf(out, "what to do: %s\n", term.Typed(r.cmd, s.Remedy(ctx, &v.Job)))
		if v.Folder != "" {
			fmt.Fprintf(out, "folder: %s\n", v.Folder)
		}
	case job.Canceled:
		fmt.Fprintf(out, "CANCELED  %s\n", v.Message)
	}
}

// advise says why the first jobs failed, for which a line among others has no room, and once for
// each code what to do; and where the output of the others is.
func (r *run) advise(ctx context.Context, s *attachment, out io.Writer, all []*service.View) {
	const most = 5
	n, told := 0, map[job.Code]bool{}
	finished := slices.IndexFunc(all, func(v *service.View) bool { return v.State == job.Finished })
	for _, v := range all {
		if v.State != job.Failed {
			continue
		}
		if n++; n > most {
			continue
		}
		name := live.Cut(live.Clean(v.Name), mostLabel)
		if ref := s.Ref(ctx, &v.Job); ref != v.Name {
			name += " " + ref
		}
		fmt.Fprintln(out, r.view.Fold(name+"  "+live.FirstLine(v.Message)))
		if !told[v.Code] {
			fmt.Fprintln(out, r.view.Fold(name+"  what to do: "+term.Typed(r.cmd, s.Remedy(ctx, &v.Job))))
		}
		told[v.Code] = true
	}
	if n > most {
		fmt.Fprintln(out, r.view.Fold(term.Typed(r.cmd,
			fmt.Sprintf("%d more FAILED: see pawl list --state FAILED", n-most))))
	}
	if finished >= 0 {
		fmt.Fprintln(out, r.view.Fold("output: "+term.Typed(r.cmd, "pawl output "+s.Ref(ctx, &all[finished].Job))+
			", and so of each"))
	}
}

// mostLabel is how many cells of a job's name stand before what there is to say of it.
const mostLabel = 20

// rest says what becomes of the jobs that have not ended.
func (r *run) rest(ctx context.Context, s *attachment, out io.Writer, all []*service.View) {
	var paused, left []*service.View
	for _, v := range all {
		switch {
		case v.State == job.Paused:
			paused = append(paused, v)
		case !v.State.Terminal():
			left = append(left, v)
		}
	}
	what := func(vs []*service.View) string {
		if len(all) == 1 {
			return string(vs[0].State) + "  "
		}
		return phrase.Plural(len(vs), "job") + " "
	}
	if len(paused) > 0 {
		advice := "pawl resume " + s.Ref(ctx, &paused[0].Job) + " lets it go on"
		switch {
		case len(paused) > 1:
			advice = "PAUSED: pawl resume JOB lets one go on: " + r.names(ctx, s, idsOf(paused))
		case len(all) > 1:
			advice = "PAUSED: " + advice
		}
		fmt.Fprintln(out, what(paused)+term.Typed(r.cmd, advice))
	}
	if len(left) > 0 {
		as, them := "they are", "them"
		if len(left) == 1 {
			as, them = "it is", "it"
		}
		meaning := "programs that run go on without pawl, all else waits until " + r.again() + " goes on with "
		if s.Server != nil || s.node == nil && node.Occupied(ctx, r.dir) {
			meaning = s.Who() + " goes on with " + them + "; " + r.again() + " shows "
		}
		fmt.Fprintln(out, r.view.Fold(what(left)+"left as "+as+": "+meaning+them))
	}
}

// again is the command that goes on with the jobs.
func (r *run) again() string {
	switch {
	case r.file != nil && r.file.Path == jobfile.CommandFile: // each call submits another job
		return term.Typed(r.cmd, "pawl run")
	case r.anew:
		return "the same command without --new"
	}
	return "the same command"
}

func idsOf(vs []*service.View) (ids []job.ID) {
	for _, v := range vs {
		ids = append(ids, v.ID)
	}
	return ids
}

// outputOf returns where the output of a job is that finished.
func outputOf(v *service.View) string {
	if v.Results == "" {
		return v.Folder
	}
	return v.Results
}

// prefixed begins each write with a text.
type prefixed struct {
	io.Writer
	text string
}

func (p prefixed) Write(b []byte) (int, error) {
	_, err := p.Writer.Write(append([]byte(p.text), b...))
	return len(b), err
}

func countStates(vs []*service.View) string {
	n := map[job.State]int{}
	for _, v := range vs {
		n[v.State]++
	}
	var parts []string
	for _, s := range slices.Backward(job.States) {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	return strings.Join(parts, ", ")
}
