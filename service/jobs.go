package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pawl-jobs/pawl/claims"
	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/internal/printed"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/job/why"
	"github.com/pawl-jobs/pawl/store"
)

// A View is a job as people look at it. It has the row without Work, the notes of its kind. Until
// is [job.Job.Deadline], and the other fields say what follows from the row at this time.
type View struct {
	job.Job
	Why      string        `json:"why,omitempty"`      // one sentence: why it is where it is
	Progress *job.Progress `json:"progress,omitempty"` // of the present step; nil: not known
	// Checkpoint is the last that its program has printed: what its next attempt goes on from.
	Checkpoint string `json:"checkpoint,omitempty"`
	Folder     string `json:"folder,omitempty"`  // the job's folder, while it is there
	Results    string `json:"results,omitempty"` // the folder of its archive, once that is there
	// Started is when the newest run of the program or handler began; zero: it has not run. Ran is
	// how long that run has been RUNNING, or was. Lists have both for RUNNING jobs and for programs
	// that have ended.
	Started time.Time     `json:"started,omitzero"`
	Ran     *job.Duration `json:"ran,omitempty"` // nil: it has not run
	// Fault says what is left out because it cannot be shown; empty: nothing is.
	Fault string `json:"fault,omitempty"`
	// Unserved says that the job is ready, and that no live process claims such jobs.
	Unserved bool `json:"unserved,omitempty"`
	// MachineGone is set while no process lives on the machine that the job belongs to.
	MachineGone *Gone `json:"machine_gone,omitempty"`
	// SystemSilent is set while the program runs and its system does not answer.
	SystemSilent *Silent `json:"system_silent,omitempty"`
}

// Views is a page of jobs as people look at them. They have no Request, Resolved, Work, Notes and
// folders. Only programs have a Result. Messages have 512 bytes at most.
type Views struct {
	Jobs []View `json:"jobs"`
	Next string `json:"next,omitempty"` // the cursor of the next page; empty: this is the last
	// Since is the time of creation from which on jobs were looked at: see [job.Filter.Window].
	Since time.Time `json:"since,omitzero"`
}

// View returns one job with all that is known of it. The error is of kind NotFound if there is
// none.
func (s *Service) View(ctx context.Context, id job.ID) (View, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return View{}, err
	}
	l, err := s.look(ctx, j)
	if err != nil {
		return View{}, err
	}
	among, err := s.whereAmong(ctx, &j)
	if err != nil {
		return View{}, err
	}
	v := s.view(&j, l, among)
	if v.Started, v.Ran, err = s.run(ctx, &j); err != nil {
		return View{}, err
	}
	if name := systemOf(&j); far(&j) && v.SystemSilent == nil {
		if _, err := s.Systems().Resource(ctx, name); job.KindOf(err) == job.NotFound {
			v.Why += "; nobody looks at it, for " + err.Error() + " any more: make it again"
		}
	}
	k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper)
	if !ok {
		return v, nil
	}
	f, err := k.Files(&j)
	if err != nil {
		return v, nil //nolint:nilerr // it has no files: that is no error of a view
	}
	v.Results = there(ctx, f.ResultsFS, f.Results)
	if v.Folder = f.Folder; v.SystemSilent == nil { // a silent machine is not asked
		v.Folder = there(ctx, f.FolderFS, f.Folder)
	}
	return v, nil
}

// maxLook is how long a view waits for the machine that has the files of a job.
const maxLook = time.Second

// there returns the name of a folder, or nothing if the folder is not there. A machine that does
// not say so has it, as far as is known.
func there(ctx context.Context, fsys files.FS, name string) string {
	if name == "" {
		return ""
	}
	asked, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	if _, err := fsys.Stat(asked, name); err != nil && asked.Err() == nil && job.KindOf(err) != job.Unavailable {
		return ""
	}
	return name
}

// listedMessage is how many bytes of a message a list shows.
const listedMessage = 512

// Views returns a page of jobs, newest first, with why each is where it is: see
// [store.Reader.List].
func (s *Service) Views(ctx context.Context, q store.Query) (Views, error) {
	page, err := s.List(ctx, q)
	if err != nil {
		return Views{}, err
	}
	l, err := s.look(ctx, page.Jobs...)
	if err != nil {
		return Views{}, err
	}
	vs := Views{Jobs: make([]View, len(page.Jobs)), Next: page.Next, Since: page.Since}
	for i := range page.Jobs {
		page.Jobs[i].Message = job.Shorten(page.Jobs[i].Message, listedMessage)
		v := s.view(&page.Jobs[i], l, "")
		switch {
		case v.State == job.Running:
			v.Started, v.Ran = v.Since, ranFor(s.Now().Sub(v.Since))
		case v.Kind == job.KindApp && v.Result != nil:
			v.Started, v.Ran = programRan(v.Result)
		}
		vs.Jobs[i] = v
	}
	return vs, nil
}

// run returns when the newest run of j began, and how long it has been RUNNING, from the history.
func (s *Service) run(ctx context.Context, j *job.Job) (started time.Time, ran *job.Duration, err error) {
	if j.N == 1 {
		return started, nil, nil // it was submitted, and nothing else
	}
	var total time.Duration
	var since time.Time // of the state RUNNING; zero: it is another
	for e, err := range s.history(ctx, j.ID) {
		if err != nil {
			return started, nil, err
		}
		switch {
		case e.State == job.Running && since.IsZero():
			if since = e.At; started.IsZero() {
				started = e.At
			}
		case e.State != job.Running && !since.IsZero():
			total, since = total+e.At.Sub(since), time.Time{}
		}
		if e.State == job.Pending || e.State == job.Waiting { // it begins anew
			started, total = time.Time{}, 0
		}
	}
	if started.IsZero() {
		return started, nil, nil
	}
	if !since.IsZero() {
		total += s.Now().Sub(since)
	}
	return started, ranFor(total), nil
}

// programRan returns when a program began and how long it ran, from its result.
func programRan(result json.RawMessage) (time.Time, *job.Duration) {
	var r struct {
		Started time.Time     `json:"started"`
		Ran     *job.Duration `json:"ran"`
	}
	if json.Unmarshal(result, &r) != nil {
		return time.Time{}, nil
	}
	return r.Started, r.Ran
}

// ranFor is a time for which something ran, to the millisecond.
func ranFor(d time.Duration) *job.Duration {
	ran := job.Duration(max(0, d).Round(time.Millisecond))
	return &ran
}

// maxBehind is how many jobs are counted at most that stand before a job.
const maxBehind = 10_000

// whereAmong says where a waiting job stands among others, and how its group stands if it is
// blocked. It continues the sentence of [why.Stands]. Lists do without it.
func (s *Service) whereAmong(ctx context.Context, j *job.Job) (string, error) {
	switch {
	case j.Line != "":
		return s.inLine(ctx, j)
	case j.Group != "":
		return s.inGroup(ctx, j)
	case j.Custody != job.Ready:
		return "", nil
	}
	behind, err := s.cfg.Store.Behind(ctx, j, maxBehind)
	return phrase.Behind(behind, maxBehind, "first of its kind", "of its kind", "of its kind") + " in queue " + j.Queue, err
}

// inLine says which jobs go before a job that waits for its turn, and how many have a turn.
func (s *Service) inLine(ctx context.Context, j *job.Job) (string, error) {
	q := store.TurnQuery{Tenant: j.Tenant, Key: j.Line}
	if job.Sole(j.Line) {
		q.Holders = 1
	}
	turns, err := s.cfg.Store.Turns(ctx, q)
	if err != nil || len(turns) == 0 {
		return "", err
	}
	closed := ""
	if turns[0].Shut {
		if closed, err = s.shut(ctx, j); err != nil {
			return "", err
		}
	}
	held, waiting := 0, 0
	for _, o := range turns[0].Owners {
		held, waiting = held+o.Held, waiting+o.Waiting
	}
	behind, err := s.cfg.Store.Behind(ctx, j, maxBehind)
	if err != nil {
		return "", err
	}
	stands := phrase.Behind(behind, maxBehind, "first of its owner's jobs", "of its owner's jobs", "of its owner's jobs")
	if job.Ordered(j.Line) {
		stands = phrase.Behind(behind, maxBehind, "the next one", "job", "jobs")
	}
	holds := phrase.Count(held, "has one", "have one")
	if l := turns[0].Limit; l != nil && j.Line == job.LimitOf(j.Line) && l.Most > 0 && !turns[0].Shut {
		holds = fmt.Sprintf("%d of %d have one", held, l.Most)
	}
	if job.Sole(j.Line) {
		if holds = "nobody has it"; len(turns[0].Holders) > 0 {
			holds = "job " + turns[0].Holders[0].String() + " has it"
		}
	}
	return stands + "; " + holds + ", and " + phrase.Count(waiting, "waits", "wait") + closed, nil
}

// shut says what closes the line of a job. If several groups do, it names the first that is not
// clear, and how many more there are.
func (s *Service) shut(ctx context.Context, j *job.Job) (string, error) {
	gs, err := s.groups(ctx, store.GroupQuery{Tenant: j.Tenant, Line: job.LimitOf(j.Line)})
	if err != nil || len(gs) == 0 {
		return "", err
	}
	g := &gs[max(0, slices.IndexFunc(gs, func(g groups.Group) bool { return g.Clear.IsZero() }))]
	is := " (group " + g.Key + ")"
	if more := len(gs) - 1; more > 0 {
		is += fmt.Sprintf(" and %d more", more)
	}
	if !g.Clear.IsZero() {
		return "; the line opens by and by after " + string(g.Block.Code) + is + ": " + g.Stands(s.engine.Now()), nil
	}
	return "; the line is closed since " + g.BlockedSince().Local().Format(time.RFC3339) + ": " + string(g.Block.Code) +
		", " + g.Block.Message +
		is + "; " + g.Stands(s.engine.Now()), nil
}

// inGroup says how many jobs are in the group of a blocked job, how many of them were blocked
// before it, and what becomes of the group.
func (s *Service) inGroup(ctx context.Context, j *job.Job) (string, error) {
	gs, err := s.cfg.Store.Groups(ctx, store.GroupQuery{Tenant: j.Tenant, Key: j.Group})
	if err != nil || len(gs) == 0 {
		return "", err
	}
	behind, err := s.cfg.Store.Behind(ctx, j, maxBehind)
	if err != nil {
		return "", err
	}
	g := &gs[0]
	why := ", in group " + g.Key + " of " +
		phrase.Count(g.Jobs, "job", "jobs") + phrase.Behind(behind, maxBehind, "first of them", "of them", "of them") + "; " +
		g.Stands(s.engine.Now())
	switch {
	case j.Live:
		why += "; it has no deadline, for launch " + strconv.Itoa(j.Launch) + " of it may still run"
	case !g.Fails(j.Until).IsZero():
		why += "; it fails at " + j.Until.Local().Format(time.RFC3339) + " unless that clears"
	}
	return why, nil
}

// view returns a job as people look at it. among says where it stands among others.
func (s *Service) view(j *job.Job, l look, among string) View {
	j.Message = job.Text(j.Message)
	v := View{Job: *j, Why: why.Stands(j, time.Now(), l.served) + among + why.Alone(j, l.served)}
	v.Checkpoint = s.checkpoint(j)
	v.Work, v.Until = nil, j.Deadline()
	v.Fault = v.Mend()
	l.note(&v, among)
	if p, ok := s.Progress(j); ok {
		v.Progress = &p
	}
	return v
}

// Progress returns how far the present step of j has come. ok is false if this process does not
// work on j, or has nothing to tell.
func (s *Service) Progress(j *job.Job) (job.Progress, bool) {
	if p := s.outputs.Said(printed.LaunchOf(j)).Progress; p != nil && says(j) {
		return *p, true
	}
	if j.Custody != job.Worker {
		return job.Progress{}, false
	}
	if k, ok := s.cfg.Kinds[j.Kind].(engine.Keeper); ok {
		return k.Progress(j)
	}
	if w := claims.ReadWork(j); !j.Program() && w.Progress != nil && w.Epoch == j.Epoch {
		return *w.Progress, true
	}
	return job.Progress{}, false
}

// A Gone is a machine without a live process.
type Gone struct {
	Machine string    `json:"machine"`
	Since   time.Time `json:"since,omitzero"` // when its last process was heard of; zero: none is known
}

// A Silent is a system that does not answer.
type Silent struct {
	System string `json:"system"`
	store.Silence
}

// A look tells which processes were there when jobs were looked at.
type look struct {
	served   bool                // some process runs jobs of the store
	machine  string              // the machine of this process
	sessions []store.SessionInfo // read if one of them may matter to a job
}

// look finds out which processes are there for jobs. It says from fresh rows, never from memory,
// that none is there.
func (s *Service) look(ctx context.Context, jobs ...job.Job) (l look, err error) {
	s.lookAtOutputs(ctx, jobs)
	l.served, l.machine = s.cfg.Served(ctx), s.cfg.Machine
	if !l.served || !slices.ContainsFunc(jobs, func(j job.Job) bool {
		return j.Custody == job.Ready || far(&j) || bound(&j)
	}) {
		return l, nil
	}
	if l.sessions, err = s.sessions.there(ctx); err != nil {
		return l, err
	}
	if slices.ContainsFunc(jobs, func(j job.Job) bool { return l.gone(&j) != nil || l.unserved(&j) != "" }) {
		l.sessions, err = s.sessions.now(ctx)
	}
	return l, err
}

// bound reports whether only processes of one machine can go on with the job.
func bound(j *job.Job) bool { return j.Machine != "" && !j.State.Terminal() }

// note notes in a view that no process is there for its job.
func (l *look) note(v *View, among string) {
	if !l.served {
		return // which the sentence says
	}
	if v.MachineGone = l.gone(&v.Job); v.MachineGone != nil {
		v.Unserved = v.Custody == job.Ready
		v.Why = v.MachineGone.why(v, among)
		return
	}
	if v.SystemSilent = l.silent(&v.Job); v.SystemSilent != nil {
		v.Why += "; " + v.SystemSilent.String()
	}
	if why := l.unserved(&v.Job); why != "" {
		v.Unserved, v.Why = true, why+ready(&v.Job)+among
	}
}

// far reports whether the program of a job runs on another machine than the service.
func far(j *job.Job) bool { return j.Custody == job.Monitor && strings.Contains(j.Watch, "/") }

// silent returns the system of a job whose program runs, if its watcher says that it does not
// answer.
func (l *look) silent(j *job.Job) *Silent {
	if !far(j) {
		return nil
	}
	for i := range l.sessions {
		s := &l.sessions[i]
		if silence, silent := s.Process.Silent[job.WatchDuty(j.Watch)]; silent && s.Live {
			system, _, _ := strings.Cut(j.Watch, "/")
			return &Silent{system, silence}
		}
	}
	return nil
}

func (s *Silent) String() string {
	return "system " + s.System + " does not answer since " + s.Since.Local().Format(time.RFC3339) + ": " + s.Message
}

// unserved says that a job is ready and no process claims it. It is empty if a process does, or if
// the job is not ready.
func (l *look) unserved(j *job.Job) string {
	if j.Custody != job.Ready {
		return ""
	}
	drained := false
	for i := range l.sessions {
		s := &l.sessions[i]
		if !s.Live || !s.Process.Serves(job.QueueKind{Queue: j.Queue, Kind: j.Kind}, j.Machine) ||
			!s.Process.ServesTenant(j.Tenant) {
			continue
		}
		if s.Mode == store.Work {
			return ""
		}
		drained = true
	}
	why := "no live process claims jobs of kind " + j.Kind + " in queue " + j.Queue
	if j.Machine != "" {
		why += " on machine " + j.Machine
	}
	if drained {
		why += ": those that would were told to drain"
	}
	return why
}

// gone returns the machine of a job if it has no live process.
func (l *look) gone(j *job.Job) *Gone {
	if !bound(j) || j.Machine == l.machine {
		return nil
	}
	return goneFrom(j.Machine, l.sessions)
}

// goneFrom returns a machine if none of its processes in sessions is alive; nil: one is.
func goneFrom(machine string, sessions []store.SessionInfo) *Gone {
	g := &Gone{Machine: machine}
	for i := range sessions {
		s := &sessions[i]
		if s.Process.Machine != machine {
			continue
		}
		if s.Live {
			return nil
		}
		heard := s.Renewed
		if !s.Ended.IsZero() && !s.Crashed {
			heard = s.Ended
		}
		if heard.After(g.Since) {
			g.Since = heard
		}
	}
	return g
}

// since says since when the machine is gone.
func (g *Gone) since() string {
	if g.Since.IsZero() {
		return ", where no process is"
	}
	return ", which is gone since " + g.Since.Local().Format(time.RFC3339)
}

// ready says since when a job is ready. It follows the words that say what the job waits for.
func ready(j *job.Job) string { return "; ready since " + j.Since.Local().Format(time.RFC3339) }

// why says why a job of the machine is where it is.
func (g *Gone) why(v *View, among string) string {
	is := "machine " + g.Machine + g.since()
	switch v.Custody {
	case job.Ready:
		return "waits for a process of " + is + ready(&v.Job) + among
	case job.Worker:
		return "was in the hands of a process of " + is
	case job.Monitor:
		return why.Unwatched(&v.Job) + ", on " + is
	}
	return v.Why + "; it belongs to " + is
}

// maxFound is how many jobs an error lists if a reference fits several.
const maxFound = 20

// Find returns the job that ref names. ref is an id, at least [job.LeastIDPart] hex digits with
// which one id begins or ends, or a name.
//
// If several jobs have the name, Find returns the one that has not ended, or else the newest. With
// hidden it returns the newest hidden job of the name, if there is one. The error is of kind
// Conflict, with a list, if ref fits several jobs: several of the name have not ended, or it is
// also part of another id. It is of kind NotFound if ref fits none.
func (s *Service) Find(ctx context.Context, ref string, hidden bool) (View, error) {
	switch {
	case ref == "":
		return View{}, job.Errorf(job.Invalid, "the job is empty: give the name or the id of a job")
	case !utf8.ValidString(ref) || strings.ContainsRune(ref, 0):
		return View{}, job.Errorf(job.Invalid, "%q is neither a name nor an id: give text in UTF-8 without NUL", ref)
	}
	if id, err := job.ParseID(ref); err == nil {
		return s.View(ctx, id)
	}
	found, err := s.named(ctx, ref, hidden)
	if err != nil {
		return View{}, err
	}
	byID, err := s.withPart(ctx, ref)
	if err != nil {
		return View{}, err
	}
	for i := range byID {
		if len(found) == 0 || found[0].ID != byID[i].ID {
			found = append(found, byID[i])
		}
	}
	switch len(found) {
	case 0:
		return View{}, job.Errorf(job.NotFound, "no job %q", ref)
	case 1:
		return s.View(ctx, found[0].ID)
	}
	var ids strings.Builder
	for i := range found {
		fmt.Fprintf(&ids, "\n%s  %s  %s", found[i].ID, found[i].Name, found[i].State)
	}
	return View{}, job.Errorf(job.Conflict, "%q names more than one job: give the id of one of them%s", ref, &ids)
}

// named returns the jobs of a name that have not ended. If all have ended it returns the newest,
// which may be hidden.
func (s *Service) named(ctx context.Context, name string, hidden bool) ([]job.Job, error) {
	all := job.Where("name", job.Is, name)
	tries := []store.Query{
		{Filter: all.And("custody", job.IsNot, string(job.None)), Limit: maxFound},
		{Filter: all, Limit: 1},
		{Filter: all.And("hidden", job.Is, "true"), Limit: 1},
	}
	if hidden {
		tries = []store.Query{tries[2], tries[0], tries[1]}
	}
	for _, q := range tries {
		if page, err := s.List(ctx, q); err != nil || len(page.Jobs) > 0 {
			return page.Jobs, err
		}
	}
	return nil, nil
}

// withPart returns the jobs of any age whose ids begin or end with ref.
func (s *Service) withPart(ctx context.Context, ref string) ([]job.Job, error) {
	patterns := job.IDPatterns(ref)
	if patterns == nil {
		return nil, nil
	}
	f := job.Where("id", job.Like, patterns...).
		And("created", job.AtLeast, time.Unix(0, 0).UTC().Format(time.RFC3339)).And("hidden", job.Is, "true", "false")
	page, err := s.List(ctx, store.Query{Filter: f, Limit: maxFound})
	return page.Jobs, err
}
