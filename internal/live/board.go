package live

import (
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Board is what is known of some jobs, in the order in which they are shown. It is not safe for
// concurrent use.
type Board struct {
	Jobs  []*Job
	Note  string // one more line, such as what else the process does
	Color bool   // states in colour
	IDs   bool   // among others each job begins with the end of its id

	shown    []*Job // among others, the last time
	byID     map[job.ID]*Job
	prefixes map[job.ID]string // of plain lines
}

// A Job is what a board knows of a job. Zero values stand for what is not known.
type Job struct {
	ID   job.ID
	Name string
	Ref  string // what a user types for it; the end of its id by default

	State    job.State
	Custody  job.Custody
	Entered  time.Time // when it came into its state
	Created  time.Time
	Ended    time.Time
	Due      time.Time // until when a gate holds it
	Stays    []Stay    // of this attempt; the last one is the present state's
	Attempt  int       // from 1
	Attempts int       // how many it may have
	Limit    time.Duration
	Wish     job.Wish
	Code     job.Code
	Message  string // the newest one of its state
	Tail     []string
	Part     string // of a line that has no end yet, which comes behind Tail

	Folder, Results string
	Advice          string // what to do about its failure; that of its code by default

	since job.Event // with which it came into its state
	seen  int64     // number of the newest event

	progress job.Progress
	told     time.Time    // when progress was told
	first    job.Progress // of the same step
	began    time.Time    // when first was told
}

// A Stay is the time that a job spent in a state.
type Stay struct {
	State job.State
	From  time.Time
	For   time.Duration // 0 for the present state
}

// Facts are what a board cannot see in a job's row.
type Facts struct {
	Ref             string        // what a user types for the job
	Limit           time.Duration // how long its program may run
	Folder, Results string        // folders that are there, or will be
	Advice          string        // what to do about its failure; that of its code by default
}

// mostTail is how many log lines are kept of a job.
const mostTail = 10

// Row takes in a job's row, and adds the job if it is not on the board. Where the job stands it
// learns from events, once there are any.
func (b *Board) Row(j *job.Job, f Facts) {
	s := b.byID[j.ID]
	if s == nil {
		s = &Job{ID: j.ID, Attempt: 1, Created: j.Created}
		if b.byID == nil {
			b.byID = map[job.ID]*Job{}
		}
		b.byID[j.ID] = s
		b.Jobs = append(b.Jobs, s)
	}
	if s.seen == 0 {
		s.State, s.Custody, s.Entered, s.Ended = j.State, j.Custody, j.Since, j.Ended
		s.Code, s.Message = j.Code, j.Message
	}
	s.Name, s.Attempts, s.Wish, s.Due = j.Name, j.MaxAttempts, j.Wish, j.Due
	s.Ref, s.Limit, s.Folder, s.Results, s.Advice = f.Ref, f.Limit, f.Folder, f.Results, f.Advice
}

// Event takes in one event of a job's history. Events come in their order, from the first one;
// those that came before are left out. It returns the event with which the job had come into the
// state before, and whether the event says anything that a person should see.
func (b *Board) Event(e job.Event) (since job.Event, shown bool) {
	s := b.byID[e.Job]
	if s == nil || e.N <= s.seen {
		return job.Event{}, false
	}
	s.seen, since = e.N, s.since
	stays := since.N > 0 && e.State == since.State
	if !stays {
		s.enter(e)
	}
	s.Custody = e.Custody
	if e.Message != "" {
		s.Message = e.Message
	}
	return since, !stays || e.Message != ""
}

// enter takes in the event that leads s into another state.
func (s *Job) enter(e job.Event) {
	if n := len(s.Stays); n > 0 {
		s.Stays[n-1].For = e.At.Sub(s.Stays[n-1].From)
	}
	// A job that goes back with a code has failed an attempt, and has another.
	if s.since.State.Working() && (e.State == job.Waiting || e.State == job.Pending) && e.Code != "" {
		s.Attempt++
		s.Stays = nil
	}
	s.Stays = append(s.Stays, Stay{State: e.State, From: e.At})
	if e.N == 1 {
		s.Created = e.At
	}
	if e.State == job.Running {
		s.Tail, s.Part = nil, ""
	}
	s.since, s.State, s.Entered = e, e.State, e.At
	s.Code, s.Message = e.Code, ""
	s.progress, s.first, s.began = job.Progress{}, job.Progress{}, time.Time{}
	if e.State.Terminal() {
		s.Ended = e.At
	}
}

// Log takes in a line of a job's log.
func (b *Board) Log(id job.ID, line string) {
	if s := b.byID[id]; s != nil {
		if len(s.Tail) == mostTail {
			copy(s.Tail, s.Tail[1:])
			s.Tail = s.Tail[:mostTail-1]
		}
		s.Tail, s.Part = append(s.Tail, newest(line)), ""
	}
}

// Last takes in the beginning of a line that a job's program goes on with, or the last line that it
// has written where those before are not known.
func (b *Board) Last(id job.ID, line string) {
	if s := b.byID[id]; s != nil && s.State == job.Running {
		s.Part = newest(line)
	}
}

// newest is what a line shows that its program may have written again and again.
func newest(line string) string {
	line = strings.TrimRight(line, "\r\n")
	return strings.Clone(clip(line[strings.LastIndexByte(line, '\r')+1:]))
}

// lines are the last lines of the log.
func (s *Job) lines() []string {
	if s.Part == "" {
		return s.Tail
	}
	return append(slices.Clip(s.Tail), s.Part)
}

// last is the last line of the log.
func (s *Job) last() string {
	if lines := s.lines(); len(lines) > 0 {
		return lines[len(lines)-1]
	}
	return ""
}

// Progress takes in how far the present step of a job has come.
func (b *Board) Progress(id job.ID, p job.Progress, now time.Time) {
	s := b.byID[id]
	if s == nil {
		return
	}
	if s.began.IsZero() || s.first.What != p.What || p.Done < s.progress.Done {
		s.first, s.began = p, now
	}
	s.progress, s.told = p, now
}

// rate is how many bytes a second the present step moves, 0 before that can be said.
func (s *Job) rate() float64 {
	if d := s.told.Sub(s.began); d >= time.Second {
		return float64(s.progress.Done-s.first.Done) / d.Seconds()
	}
	return 0
}

// Unfinished returns the jobs that have not ended.
func (b *Board) Unfinished() []*Job {
	var jobs []*Job
	for _, s := range b.Jobs {
		if !s.State.Terminal() {
			jobs = append(jobs, s)
		}
	}
	return jobs
}

// labels returns what the jobs are called beside each other: their names, and where several share
// one also the ends of their ids.
func (b *Board) labels() map[*Job]string {
	shared := map[string]int{}
	for _, s := range b.Jobs {
		shared[s.Name]++
	}
	labels := make(map[*Job]string, len(b.Jobs))
	for _, s := range b.Jobs {
		labels[s] = Clean(s.Name)
		if b.IDs {
			labels[s] = s.ID.Short() + "  " + labels[s]
		} else if shared[s.Name] > 1 {
			labels[s] = cut(labels[s], mostShared) + " " + s.ID.Short()
		}
	}
	return labels
}

// mostShared is how many cells of a name stand before the end of an id.
const mostShared = 16

// elapsed is how long the job has been there.
func (s *Job) elapsed(now time.Time) time.Duration {
	if !s.Ended.IsZero() {
		now = s.Ended
	}
	return now.Sub(s.Created)
}

// suspended reports whether the program is known to stand still where it is.
func (s *Job) suspended() bool { return job.Suspended(s.Custody, s.Message) }

// ref is what a user types for the job.
func (s *Job) ref() string {
	if s.Ref != "" {
		return s.Ref
	}
	return s.ID.Short()
}

// prefix is the label of a job, as wide as that of every other, for its line among theirs.
func (b *Board) prefix(id job.ID) string {
	if len(b.prefixes) != len(b.Jobs) {
		b.prefixes = make(map[job.ID]string, len(b.Jobs))
		labels, width := b.labels(), 0
		for _, l := range labels {
			width = max(width, min(mostPrefix, cells.StringWidth(l)))
		}
		for s, l := range labels {
			b.prefixes[s.ID] = pad(l, width)
		}
	}
	return b.prefixes[id]
}

// mostPrefix is to how many cells labels are filled up.
const mostPrefix = 32
