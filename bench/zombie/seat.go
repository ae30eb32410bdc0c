package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A line of the ledger is one step of a handler, or something that a process heard.
type line struct {
	Time    time.Time `json:"time"`
	Process string    `json:"process"`
	PID     int       `json:"pid"`
	Call    string    `json:"call,omitempty"` // A1 is the first call in process A
	Attempt int       `json:"attempt,omitempty"`
	Epoch   int64     `json:"epoch,omitempty"`
	Step    string    `json:"step"`
	Context string    `json:"context,omitempty"`
	Answer  string    `json:"answer,omitempty"`
}

// ledger is the file's name.
const ledger = "ledger"

// toldStep is the step of a process that hears what became of the end of a job that it reported.
// lateStep follows where it gave the report up: what the database answers to the same report all
// the same.
const (
	toldStep = "is told"
	lateStep = "sends it late"
)

// readLedger returns all lines that are complete.
func readLedger(dir string) ([]line, error) {
	text, err := os.ReadFile(filepath.Join(dir, ledger))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []line
	for text := range strings.Lines(string(text)) {
		if !strings.HasSuffix(text, "\n") {
			break
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// A seat is the part of a process that both systems have in common: what its handler does.
type seat struct {
	name    string // A or B
	dir     string
	variant variant

	mu    sync.Mutex
	calls int   // guarded by mu
	err   error // guarded by mu: the first of writing the ledger
}

// write appends a line to the ledger.
func (s *seat) write(l line) {
	l.Time, l.Process, l.PID = time.Now(), s.name, os.Getpid()
	text, err := json.Marshal(l)
	if err == nil {
		err = appendTo(filepath.Join(s.dir, ledger), append(text, '\n'))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// appendTo appends in one call of the system, so that lines of several processes stay whole.
func appendTo(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// A try is a call of the handler, as the system has it.
type try struct {
	attempt int
	epoch   int64
	// note writes something about the job at once, whatever has become of the context of the call.
	note func(text string) error
}

// handle is the handler of both systems. It returns the result of the call, or an error; both
// empty: no result. It takes no notice of its context, as a handler does that is busy elsewhere,
// except where the variant has it wait for it.
func (s *seat) handle(ctx context.Context, t try) (string, error) {
	s.mu.Lock()
	s.calls++
	call := fmt.Sprintf("%s%d", s.name, s.calls)
	s.mu.Unlock()
	step := func(what, answer string) {
		s.write(line{Call: call, Attempt: t.attempt, Epoch: t.epoch, Step: what, Context: state(ctx), Answer: answer})
	}
	step("begins", "")
	if call == "A1" || call == "B1" {
		step("half way", "")
		if err := s.pass(call); err != nil {
			return "", err
		}
	}
	if call != "A1" {
		step("returns", "a result")
		return "result of " + call, nil
	}
	step("wakes up", "")
	switch v := s.variant; {
	case v.Fails:
		step("returns", "an error")
		return "failed " + call, errors.New("failed in " + call)
	case v.Note:
		step("writes", answer(t.note("first note of "+call)))
		select {
		case <-ctx.Done():
			step("context ends", "")
		case <-time.After(patience):
			step("waits no longer", "")
		}
		step("writes", answer(t.note("second note of "+call)))
		step("returns", "nothing")
		return "", nil
	}
	step("returns", "a result")
	return "result of " + call, nil
}

// patience is how long a call waits for the end of its context.
const patience = 10 * time.Second

// pass waits until the call is let through. Its process is ended from outside when that never
// happens.
func (s *seat) pass(call string) error {
	for {
		_, err := os.Stat(filepath.Join(s.dir, call))
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		<-time.After(pollEvery)
	}
}

// state says whether a context has ended, and why.
func state(ctx context.Context) string {
	if ctx.Err() == nil {
		return "alive"
	}
	return context.Cause(ctx).Error()
}

// answer says what became of a write.
func answer(err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	return "accepted"
}
