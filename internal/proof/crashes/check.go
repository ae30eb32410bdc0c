package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/checks"
	"github.com/pawl-jobs/pawl/internal/proof/ledger"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

const tenant = "default"

// A checker compares what is left of a round with its ledger.
type checker struct {
	*round
	patience time.Duration // for processes that are about to end; 20 s by default
	store    store.Store
	ledger   *ledger.Ledger
	rows     map[job.ID]*job.Job
	homes    map[string]string // the folder of each machine, by the machine's id
	programs map[string]int    // how many each machine had

	jobs, lost, twice int
	poison, blocked   int
	waited            int // times that a job stood in line and got its turn
	full              int // times that as many ran side by side as a limit lets go
	states            map[job.State]int
	said              checks.Few
}

// breaks notes what does not hold. Of many with one name the first few tell enough.
func (c *checker) breaks(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	name, _, _ := strings.Cut(text, ":")
	if !c.said.Enough(name) {
		c.round.breaks("%s", text)
	}
}

// broken is breaks where a job is known of which something does not hold.
func (c *checker) broken(_ job.ID, format string, args ...any) { c.breaks(format, args...) }

func (c *checker) check(ctx context.Context) {
	c.said, c.states, c.programs, c.homes = checks.Few{}, map[job.State]int{}, map[string]int{}, map[string]string{}
	c.patience = cmp.Or(c.patience, 20*time.Second)
	left, err := checks.Gone(ctx, c.dir, c.patience)
	if err != nil || len(left) > 0 {
		c.breaks("process_left: %v (%v)", left, err)
	}
	if c.ledger, err = ledger.Read(c.round.ledger()); err != nil {
		c.breaks("ledger: %v", err)
		return
	}
	for _, b := range c.ledger.Bad {
		c.breaks("ledger: %s", b)
	}
	rows, err := checks.Rows(ctx, c.dsn, c.folder(c.h.folders[0]), c.patience)
	if err != nil {
		c.breaks("database: %v", err)
	}
	for _, what := range rows {
		c.breaks("%s", what)
	}
	if c.store, err = c.open(ctx); err != nil {
		c.breaks("database: %v", err)
		return
	}
	defer c.store.Close()
	if c.rows, err = checks.Whole(ctx, c.store, tenant, c.broken); err != nil {
		c.breaks("database: %v", err)
		return
	}
	c.accepted()
	c.twice = checks.LaunchedTwice(c.ledger, c.broken)
	checks.RanTwice(c.ledger, c.broken)
	for id, p := range c.ledger.Promises {
		if j := c.rows[id]; j != nil {
			c.job(ctx, j, p)
		}
	}
	c.turns(ctx)
	c.orders(ctx)
	c.groups(ctx)
	checks.Histories(c.store, tenant, func(text string) { c.breaks("history: %s", text) })
	c.sessions(ctx)
	c.folders()
}

// accepted: what was accepted is exactly one job, nothing else is there, and all have ended.
func (c *checker) accepted() {
	c.jobs = len(c.ledger.Accepted)
	if c.jobs != c.round.jobs {
		c.breaks("accepted: %d jobs of %d", c.jobs, c.round.jobs)
	}
	byExternal := map[string]int{}
	for _, j := range c.rows {
		c.states[j.State]++
		byExternal[j.ExternalID]++
		if c.ledger.Promises[j.ID] == nil {
			c.breaks("stranger: job %s (%s) was never accepted", j.ID, j.ExternalID)
		}
	}
	for external, p := range c.ledger.Accepted {
		j := c.rows[p.ID]
		switch n := byExternal[external]; {
		case n > 1:
			c.breaks("twice: %d jobs are %s", n, external)
		case j == nil || j.ExternalID != external:
			c.lost++
			c.breaks("lost: job %s (%s) is not there", p.ID, external)
		case !j.State.Terminal():
			c.lost++
			c.breaks("lost: job %s (%s) was left %s", p.ID, external, j.Place)
		}
	}
}

// job: it ended as it should, and was run as often as it says.
func (c *checker) job(ctx context.Context, j *job.Job, p *ledger.Promise) {
	l := c.ledger
	state := p.State
	var first *job.Job
	if !p.After.IsZero() {
		if first = c.rows[p.After]; first != nil && !p.Need.Met(first.State) {
			state = job.Canceled
		}
	}
	history := c.history(ctx, j.ID)
	switch {
	case !j.State.Terminal():
		return
	case checks.Deadly(history):
		c.poison++
		return
	case j.Code == job.Poison:
		if c.poison++; !checks.Poisoned(history) {
			story := ""
			for _, e := range history {
				story += fmt.Sprintf("\n  %d %s/%s %s %s %s %s", e.N, e.State, e.Custody, e.Cause, e.Actor, e.Code, e.Message)
			}
			c.breaks("poison: job %s (%s) ended %s (%s), and few of its processes had died%s",
				j.ID, p.External, j.State, j.Code, story)
		}
		return
	case l.Canceled[j.ID] && j.State != job.Canceled:
		c.breaks("cancel_forgotten: job %s (%s) was canceled and ended %s", j.ID, p.External, j.State)
	case j.State != state && !(j.State == job.Canceled && l.Asked[j.ID]):
		c.breaks("wrong_end: job %s (%s) ended %s (%s: %s), want %s", j.ID, p.External, j.State, j.Code, j.Message, state)
	case j.State == job.Canceled && state == job.Canceled && !l.Asked[j.ID] && j.Code != job.PrerequisiteFailed:
		c.breaks("wrong_end: job %s (%s) ended %s, want %s", j.ID, p.External, j.Code, job.PrerequisiteFailed)
	case j.State != job.Canceled && j.Attempt != p.Attempts:
		c.breaks("wrong_attempts: job %s (%s) ended %s (%s) at attempt %d, want %d",
			j.ID, p.External, j.State, j.Code, j.Attempt, p.Attempts)
	}
	if limited := strings.Contains(string(j.Request), `"minutes"`); j.State == job.Failed &&
		limited != (j.Code == job.TimeLimit) {
		c.breaks("wrong_code: job %s (%s) ended with %s: %s", j.ID, p.External, j.Code, j.Message)
	}
	if first != nil && j.State != job.Canceled && !first.Ended.Before(j.Ended) {
		c.breaks("too_early: job %s (%s) ended before its prerequisite", j.ID, p.External)
	}
	if j.Program() {
		c.launches(ctx, j, p)
		return
	}
	if len(l.Launches[j.ID]) > 0 {
		c.breaks("stranger: task %s launched a program", j.ID)
	}
	c.unblocked(ctx, j, p)
	for a := 1; a <= j.Attempt; a++ {
		if !l.Began(j.ID, a) && j.State != job.Canceled {
			c.breaks("not_run: attempt %d of task %s (%s, %s) was never run", a, j.ID, p.External, j.State)
		}
	}
}

// unblocked: a task that is to be blocked was, unless a crash came before. Whatever then ended that
// did so for a reason, and a task that only a person lets go on was let go by one. None failed for
// having waited for too long, or was given up.
func (c *checker) unblocked(ctx context.Context, j *job.Job, p *ledger.Promise) {
	request := string(j.Request)
	if !strings.Contains(request, `"blocks"`) {
		return
	}
	n := 0
	var since store.Event
	for _, e := range c.history(ctx, j.ID) {
		if e.Sub > 0 {
			continue
		}
		if since.State == job.Blocked {
			n++
			diverted := e.Cause == job.CauseWish && (e.State == job.Paused || e.State == job.Canceled)
			steered := (e.Cause == job.CauseWish || e.Cause == job.CauseClear) && strings.Contains(e.Message, "released by ")
			cleared := e.Cause == job.CauseClear && e.State != job.Failed && !strings.Contains(request, `"person `)
			if !diverted && !steered && !cleared {
				c.breaks("unblocked: job %s (%s) was blocked by %s and went on to %s by %s: %s",
					j.ID, p.External, since.Message, e.State, e.Cause, e.Message)
			}
		}
		since = e
	}
	c.blocked += n
	if n == 0 && j.Recoveries == 0 && j.State != job.Canceled {
		c.breaks("not_blocked: job %s (%s, %s) was never blocked", j.ID, p.External, j.State)
	}
}

// groups: nobody belongs to one any more.
func (c *checker) groups(ctx context.Context) {
	left, err := c.store.Groups(ctx, store.GroupQuery{Tenant: tenant})
	if err != nil {
		c.breaks("database: %v", err)
	}
	for _, g := range left {
		c.breaks("group_left: %s has %d jobs, and %d wait in its line: %s", g.Key, g.Jobs, g.Behind, g.Stands(time.Now()))
	}
}

// launches: each attempt of a program was started once. The time of a program begins with its
// wrapper, so it may be over before the program has written its line.
func (c *checker) launches(ctx context.Context, j *job.Job, p *ledger.Promise) {
	started := c.ledger.Launches[j.ID]
	for attempt := range started {
		if attempt > j.Attempt {
			c.breaks("stranger: attempt %d of job %s (%s) was started, and it has %d", attempt, j.ID, p.External, j.Attempt)
		}
	}
	for a := 1; a <= j.Attempt; a++ {
		if started[a] == 0 && j.State != job.Canceled && !c.timedOut(ctx, j, a) {
			c.breaks("not_run: attempt %d of job %s (%s, %s %s: %s) was never started",
				a, j.ID, p.External, j.State, j.Code, j.Message)
		}
	}
}

// timedOut reports whether an attempt of a job was ended because its time was over.
func (c *checker) timedOut(ctx context.Context, j *job.Job, attempt int) bool {
	return slices.ContainsFunc(c.history(ctx, j.ID), func(e store.Event) bool {
		var failure struct{ Attempt int }
		return e.Code == job.TimeLimit && json.Unmarshal(e.Data, &failure) == nil && failure.Attempt == attempt
	})
}

// history returns the events of a job.
func (c *checker) history(ctx context.Context, id job.ID) []store.Event {
	page, err := c.store.Events(ctx, store.EventQuery{Tenant: tenant, Job: id, Limit: 10_000})
	if err != nil {
		c.breaks("database: %v", err)
	}
	return page.Events
}

// sessions: that of a process that ended by itself ended in good order. And no more jobs ended as
// POISON than can have: of a session that crashed one job at most was the only suspect, and that
// three times makes a POISON.
func (c *checker) sessions(ctx context.Context) {
	all, err := c.store.Sessions(ctx)
	if err != nil {
		c.breaks("database: %v", err)
		return
	}
	crashed, newest := 0, map[int]store.SessionInfo{}
	for _, s := range all { // the newest first
		if s.Crashed {
			crashed++
		}
		if _, later := newest[s.Process.PID]; !later {
			newest[s.Process.PID] = s
		}
	}
	for _, pid := range c.orderly {
		// Told to stop while it began its session, it may have ended that before it was there.
		if s, known := newest[pid]; known && (s.Crashed || s.Ended.IsZero()) && s.Renewed.After(s.Started) {
			c.breaks("session_left: process %d ended in good order, and its session %s did not (crashed %t)",
				pid, s.ID, s.Crashed)
		}
	}
	if c.poison*(job.PoisonAt-job.AloneAt) > crashed {
		c.breaks("poison: %d jobs, and %d sessions crashed", c.poison, crashed)
	}
}

// folders: archives are right, and nothing is left that should be gone.
func (c *checker) folders() {
	machines := c.h.machines()
	for _, m := range machines {
		id, err := os.ReadFile(filepath.Join(c.folder(m), "machine"))
		if err != nil {
			c.breaks("folder: %v", err)
		}
		c.homes[strings.TrimSpace(string(id))] = m
		if err := checks.Folder(c.folder(m), tenant, c.fileLeft); err != nil {
			c.breaks("folder: %v", err)
		}
	}
	if far := c.farPrograms(); far != "" {
		if err := checks.Folder(c.folder(far), tenant, c.farLeft); err != nil {
			c.breaks("folder: %v", err)
		}
	}
	if err := checks.Strays(c.folder("archive"), tenant, c.fileLeft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.breaks("folder: %v", err)
	}
	for _, j := range c.rows {
		if !j.Program() {
			continue
		}
		home := c.homes[j.Machine]
		c.programs[home]++
		if home == "" {
			c.breaks("stranger: job %s is of machine %s, which none of the folders is", j.ID, j.Machine)
		}
		for _, m := range c.workers() {
			work := filepath.Join(c.folder(m), "work", tenant, j.ID.String())
			switch _, err := os.Lstat(work); {
			case os.IsNotExist(err):
			case m != home && m != c.farPrograms() || c.farPrograms() != "" && m == home:
				c.breaks("stranger: job %s is of machine %s, and %s is there (%v)", j.ID, home, work, err)
			case j.State == job.Finished:
				c.breaks("work_left: job %s is FINISHED, and %s is there (%v)", j.ID, work, err)
			}
		}
		if j.State == job.Finished {
			c.archive(j, home)
		}
	}
}

// workers returns the folders below which programs ran.
func (c *checker) workers() []string {
	if far := c.farPrograms(); far != "" {
		return append(c.h.machines(), far)
	}
	return c.h.machines()
}

// farLeft is fileLeft for the other machine. A look there takes a while, so some kills come within
// three of them, and then nobody reads the message.
func (c *checker) farLeft(name string) {
	id, _, _ := strings.Cut(filepath.Base(name), ".")
	if j, err := job.ParseID(id); err == nil && checks.Deadly(c.history(context.Background(), j)) {
		return
	}
	c.fileLeft(name)
}

func (c *checker) fileLeft(name string) {
	c.breaks("file_left: %s", strings.TrimPrefix(name, c.dir+"/"))
}

// archive: it holds what the program wrote, nothing more, and its manifest says so. It is in the
// folder of its machine, or where the job wanted it.
func (c *checker) archive(j *job.Job, home string) {
	_, results := app.Places(j)
	dir := filepath.Join(c.folder(home), "archive", tenant, filepath.Base(results)) // the folder may have been copied
	if strings.HasPrefix(filepath.Base(results), "to-") {
		dir = filepath.Join(c.folder("archive"), filepath.Base(results))
	}
	stdout := fmt.Sprintf("%s %d\n", j.ID, j.Attempt)
	if strings.Contains(string(j.Request), `"inputs"`) {
		stdout += "an input\nan input\n"
	}
	want := map[string]string{"stdout": stdout, "stderr": "", "made/file": fmt.Sprintf("%d\n", j.Attempt)}
	var manifest struct {
		Files []struct {
			Name   string `json:"name"`
			Size   int64  `json:"size"`
			SHA256 string `json:"sha256"`
		} `json:"files"`
	}
	b, err := os.ReadFile(filepath.Join(dir, app.ManifestFile))
	if err == nil {
		err = json.Unmarshal(b, &manifest)
	}
	if err != nil {
		c.breaks("manifest: job %s: %v", j.ID, err)
		return
	}
	listed := map[string]bool{}
	for _, f := range manifest.Files {
		sum := sha256.Sum256([]byte(want[f.Name]))
		if listed[f.Name] || f.Size != int64(len(want[f.Name])) || f.SHA256 != hex.EncodeToString(sum[:]) {
			c.breaks("manifest: job %s: %+v", j.ID, f)
		}
		listed[f.Name] = true
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != text || !listed[name] {
			c.breaks("archive: job %s: %s holds %q (%v, in the manifest: %t), want %q", j.ID, name, got, err, listed[name], text)
		}
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, name)
		if err == nil && strings.HasPrefix(d.Name(), ".pawl-") && d.IsDir() {
			return fs.SkipDir // reported once, by folders
		}
		if _, known := want[rel]; err == nil && !d.IsDir() && !known && rel != app.ManifestFile && !files.Temporary(name) {
			c.breaks("archive: job %s: %s should not be there", j.ID, rel)
		}
		return err
	})
	if err != nil {
		c.breaks("archive: %v", err)
	}
}
