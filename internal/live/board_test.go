package live

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/job"
)

var update = flag.Bool("update", false, "write the golden files anew")

// start is when the jobs of the tests were submitted.
var start = time.Date(2026, 3, 4, 8, 30, 0, 0, time.UTC)

// A story makes a board.
type story struct {
	b    Board
	rows map[int]*job.Job
	seen map[int]int64
}

// id makes ids that are the same in each run.
func id(n int) job.ID {
	i, err := job.ParseID(fmt.Sprintf("01a1fd3a-49c6-7ace-ba57-%012x", 0x25560921e000+n))
	if err != nil {
		panic(err)
	}
	return i
}

func (s *story) add(n int, name string, attempts int) *story {
	if s.rows == nil {
		s.rows, s.seen = map[int]*job.Job{}, map[int]int64{}
	}
	s.rows[n] = &job.Job{ID: id(n), Name: name, MaxAttempts: attempts, Created: start, Since: start, Place: pending}
	s.row(n)
	return s
}

func (s *story) row(n int) {
	s.b.Row(s.rows[n], Facts{
		Ref: s.rows[n].Name, Limit: 10 * time.Minute,
		Folder: "/data/work/default/" + id(n).String(), Results: "/data/archive/default/" + id(n).String(),
	})
}

// on adds an event, after so long.
func (s *story) on(n int, after time.Duration, place job.Place, code job.Code, message string) *story {
	s.seen[n]++
	s.b.Event(job.Event{
		Job: id(n), N: s.seen[n], State: place.State, Custody: place.Custody, At: start.Add(after), Code: code, Message: message,
	})
	return s
}

var (
	pending    = job.Place{State: job.Pending, Custody: job.Ready}
	waiting    = job.Place{State: job.Waiting, Custody: job.Gate}
	inputs     = job.Place{State: job.ProcessingInputs, Custody: job.Worker}
	staging    = job.Place{State: job.StagingInputs, Custody: job.Worker}
	stagingJob = job.Place{State: job.StagingJob, Custody: job.Worker}
	submitting = job.Place{State: job.SubmittingJob, Custody: job.Worker}
	running    = job.Place{State: job.Running, Custody: job.Monitor}
	archiving  = job.Place{State: job.Archiving, Custody: job.Worker}
	finished   = job.Place{State: job.Finished, Custody: job.None}
	failed     = job.Place{State: job.Failed, Custody: job.None}
	canceled   = job.Place{State: job.Canceled, Custody: job.None}
	blocked    = job.Place{State: job.Blocked, Custody: job.Recovery}
)

const ms = time.Millisecond

// toStaging, toRunning and toEnd take a job so far, from the time at on.
func (s *story) toStaging(n int, at time.Duration) *story {
	return s.on(n, at, pending, "", "").on(n, at+3*ms, inputs, "", "").on(n, at+8*ms, staging, "", "")
}

func (s *story) toRunning(n int, at time.Duration) *story {
	return s.toStaging(n, at).on(n, at+1008*ms, stagingJob, "", "").on(n, at+1009*ms, submitting, "", "").
		on(n, at+1009*ms, submitting, "", "about to be launched").on(n, at+1011*ms, running, "", "")
}

func (s *story) toEnd(n int, at time.Duration, place job.Place, code job.Code, message string) *story {
	return s.toRunning(n, 0).on(n, at, archiving, "", "ended").on(n, at+5*ms, place, code, message)
}

func (s *story) log(n int, lines ...string) *story {
	for _, l := range lines {
		s.b.Log(id(n), l)
	}
	return s
}

func (s *story) progress(n int, at time.Duration, p job.Progress) *story {
	s.b.Progress(id(n), p, start.Add(at))
	return s
}

func TestBoard(t *testing.T) {
	one := func() *story { return new(story).add(0, "wordcount", 1) }
	steps := func(n int) (lines []string) {
		for i := range n {
			lines = append(lines, fmt.Sprintf("step %d of 30", i+1))
		}
		return lines
	}
	// Twenty jobs as they stand in the middle of a run.
	twenty := func() *story {
		s := new(story)
		for i := range 20 {
			s.add(i, fmt.Sprintf("sim-%02d", i+1), 1)
			switch {
			case i == 6:
				s.toEnd(i, 40*time.Second, failed, job.ProgramFailed, "sim ended with exit code 3 after 39s")
			case i < 12:
				s.toEnd(i, time.Duration(30+i)*time.Second, finished, job.NormalCompletion, "")
			case i < 16:
				s.toRunning(i, 0).log(i, fmt.Sprintf("iteration %d", 100*i))
			default:
				s.on(i, 0, pending, "", "")
			}
		}
		return s
	}
	type frame struct {
		name          string
		story         *story
		at            time.Duration // of the frame
		width, height int
		color, last   bool
	}
	for _, f := range []frame{
		{name: "nothing", story: new(story)},
		{name: "new", story: one()},
		{name: "pending", story: one().on(0, 0, pending, "", ""), at: 1500 * ms},
		{name: "staging", story: one().toStaging(0, 0).
			progress(0, 10*ms, job.Progress{What: "staging inputs", Done: 0, Total: 1 << 30}).
			progress(0, 4010*ms, job.Progress{What: "staging inputs", Done: 400 << 20, Total: 1 << 30}), at: 4100 * ms},
		{name: "staging_unknown_total", story: one().toStaging(0, 0).
			progress(0, 10*ms, job.Progress{What: "staging inputs", Done: 5 << 20}), at: 900 * ms},
		{name: "running", story: one().toRunning(0, 0).log(0, steps(12)...), at: 131 * time.Second},
		{name: "running_color", story: one().toRunning(0, 0).log(0, steps(2)...), at: 131 * time.Second, color: true},
		{name: "running_low", story: one().toRunning(0, 0).log(0, steps(12)...), at: 131 * time.Second, height: 7},
		{name: "running_lowest", story: one().toRunning(0, 0).log(0, steps(12)...), at: 131 * time.Second, height: 2},
		{name: "running_narrow", story: one().toRunning(0, 0).log(0, "a line that is longer than the terminal is wide"), at: 131 * time.Second, width: 40},
		{name: "running_hostile", story: one().toRunning(0, 0).
			log(0, "10%\r20%\r30%", "\x1b[2J\x1b[31mred\x1b[0m", "\x1b]0;title\a日本語日本語日本語日本語日本語", "tab\tstop"), at: 2 * time.Second, width: 30},
		{name: "running_progress", story: one().toRunning(0, 0).log(0, steps(2)...).
			progress(0, 10*time.Second, job.Progress{What: "epochs", Done: 0, Total: 7}).
			progress(0, 14*time.Second, job.Progress{What: "epochs", Done: 3, Total: 7}), at: 15 * time.Second},
		{name: "suspended", story: func() *story {
			s := one().toRunning(0, 0)
			s.rows[0].Wish = job.WishPause
			s.row(0)
			return s.on(0, 4*time.Second, running, "", "suspended by ada")
		}(), at: 5 * time.Second},
		{name: "pause_asked", story: func() *story {
			s := one().toRunning(0, 0)
			s.rows[0].Wish = job.WishPause
			s.row(0)
			return s.on(0, 4*time.Second, running, "", "to be suspended by ada")
		}(), at: 5 * time.Second},
		{name: "cancel_asked", story: func() *story {
			s := one().toRunning(0, 0)
			s.rows[0].Wish = job.WishCancel
			s.row(0)
			return s
		}(), at: 5 * time.Second},
		{name: "archiving", story: one().toRunning(0, 0).log(0, "30 words").
			on(0, 60*time.Second, archiving, "", "ended with exit code 0").
			progress(0, 60*time.Second, job.Progress{What: "archiving", Done: 0, Total: 900}).
			progress(0, 62*time.Second, job.Progress{What: "archiving", Done: 900, Total: 900}), at: 62 * time.Second},
		{name: "finished", story: one().toRunning(0, 0).log(0, "30 words").
			on(0, 60*time.Second, archiving, "", "ended with exit code 0").on(0, 61*time.Second, finished, job.NormalCompletion, ""), at: time.Hour},
		{name: "finished_narrow", story: one().toEnd(0, 60*time.Second, finished, job.NormalCompletion, ""), at: time.Hour, width: 50},
		{name: "finished_last", story: one().toEnd(0, 60*time.Second, finished, job.NormalCompletion, ""), at: time.Hour, width: 50, last: true},
		{name: "failed", story: one().toRunning(0, 0).log(0, "I was about to divide by zero").
			on(0, 2*time.Second, archiving, "", "ended with exit code 3").
			on(0, 2100*ms, failed, job.ProgramFailed, "sh ended with exit code 3 after 1s"), at: time.Hour},
		{name: "failed_before", story: one().on(0, 0, pending, "", "").on(0, 3*ms, inputs, "", "").
			on(0, 5*ms, failed, job.InputMissing, "input /data/a-long-name/of-a-folder/that-holds-what-is-missing/nothing.txt is not there: no such file or directory"), at: time.Hour},
		{name: "canceled", story: one().toRunning(0, 0).on(0, 9*time.Second, canceled, job.CanceledByUser, "canceled by ada"), at: time.Hour},
		{name: "waiting", story: func() *story {
			s := one().on(0, 0, waiting, "", "")
			s.rows[0].Due = start.Add(2 * time.Minute)
			s.row(0)
			return s
		}(), at: 5 * time.Second},
		{name: "second_attempt", story: func() *story {
			s := new(story).add(0, "retried", 3).toRunning(0, 0).log(0, "attempt 1").
				on(0, 10*time.Second, archiving, "", "ended with exit code 1").
				on(0, 11*time.Second, waiting, job.ProgramFailed, "sh ended with exit code 1 after 9s")
			s.rows[0].Due = start.Add(13 * time.Second)
			s.row(0)
			return s
		}(), at: 12 * time.Second},
		{name: "blocked", story: one().toStaging(0, 0).on(0, 4*time.Second, blocked, job.FilesystemFull, "no space left on /data"), at: 64 * time.Second},
		{name: "note", story: func() *story {
			s := one().toRunning(0, 0)
			s.b.Note = "this process also runs 3 other unfinished jobs"
			return s
		}(), at: 5 * time.Second},

		{name: "two", story: new(story).add(0, "first", 1).add(1, "a job with a longer name", 1).toRunning(0, 0).log(0, "step 1").on(1, 0, pending, "", ""), at: 2 * time.Second},
		{name: "twenty", story: twenty(), at: 50 * time.Second},
		{name: "twenty_wide", story: twenty(), at: 50 * time.Second, width: 140},
		{name: "twenty_color", story: twenty(), at: 50 * time.Second, height: 8, color: true},
		{name: "twenty_low", story: twenty(), at: 50 * time.Second, height: 10},
		{name: "twenty_lowest", story: twenty(), at: 50 * time.Second, height: 1},
		{name: "twenty_low_2", story: twenty(), at: 50 * time.Second, height: 2},
		{name: "twenty_low_3", story: twenty(), at: 50 * time.Second, height: 3},
		{name: "twenty_last", story: twenty(), at: 50 * time.Second, width: 60, last: true},
		{name: "same_names", story: new(story).add(0, "sim", 1).add(1, "sim", 1).add(2, "other", 1).toRunning(0, 0).on(1, 0, pending, "", "").on(2, 0, pending, "", ""), at: 2 * time.Second},
		{name: "many_failed", story: func() *story {
			s := new(story)
			for i := range 30 {
				s.add(i, fmt.Sprintf("sim-%02d", i+1), 1)
				if i < 20 {
					s.toEnd(i, 3*time.Second, failed, job.ProgramFailed, "sim ended with exit code 3")
				} else {
					s.toRunning(i, 0)
				}
			}
			return s
		}(), at: 5 * time.Second, height: 10},
		{name: "many_staging", story: new(story).add(0, "large", 1).add(1, "日本語のとても長い名前の仕事です、切られる", 1).toStaging(0, 0).toRunning(1, 0).
			progress(0, 10*ms, job.Progress{What: "staging inputs", Done: 0, Total: 1 << 30}).
			progress(0, 2010*ms, job.Progress{What: "staging inputs", Done: 200 << 20, Total: 1 << 30}).
			log(1, "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語"), at: 3 * time.Second},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.width == 0 {
				f.width = 80
			}
			if f.height == 0 {
				f.height = 24
			}
			f.story.b.Color = f.color
			draw := f.story.b.Lines
			if f.last {
				draw = f.story.b.End
			}
			lines := draw(start.Add(f.at), f.width, f.height)
			if len(lines) > f.height {
				t.Errorf("%d lines, want %d at most", len(lines), f.height)
			}
			for _, l := range lines {
				if w := cells.StringWidth(strip(l)); w > f.width && !f.last {
					t.Errorf("%q has %d cells, want %d at most", l, w, f.width)
				}
			}
			got := strings.Join(append(lines, ""), "\n")
			golden := filepath.Join("testdata", "board", f.name+".golden")
			if f.color {
				got = strings.ReplaceAll(got, "\x1b", "␛")
			}
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the frame has changed (-golden +now); go test ./internal/live -update writes it anew:\n%s", diff)
			}
		})
	}
}
