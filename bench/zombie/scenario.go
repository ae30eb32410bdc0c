package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// A variant is one way in which the frozen process comes back.
type variant struct {
	Name string
	Text string
	// Finished is whether the second call has ended when the frozen process wakes up. Otherwise it ends after what the
	// frozen process makes of it.
	Finished bool
	// Note is whether the frozen call, instead of returning a result, writes about its job while it runs.
	Note bool
	// Fails is whether the frozen call returns an error.
	Fails bool
}

var variants = []variant{
	{Name: "finished-result", Text: "B has finished the job; A returns a result", Finished: true},
	{Name: "finished-error", Text: "B has finished the job; A returns an error", Finished: true, Fails: true},
	{Name: "finished-note", Text: "B has finished the job; A writes a note, waits for the end of its context, writes another, and returns nothing", Finished: true, Note: true},
	{Name: "running-result", Text: "B still runs the job; A returns a result; then B returns one"},
	{Name: "running-error", Text: "B still runs the job; A returns an error; then B returns a result", Fails: true},
	{Name: "running-note", Text: "B still runs the job; A writes a note, waits for the end of its context, writes another, and returns nothing; then B returns a result", Note: true},
}

// variantOf returns the variant of a name.
func variantOf(name string) (variant, error) {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.Name == name })
	if i < 0 {
		return variant{}, fmt.Errorf("there is no variant %q", name)
	}
	return variants[i], nil
}

// A system is a job service that is looked at.
type system interface {
	// prepare makes the tables of the system in an empty database.
	prepare(ctx context.Context, dsn string) error
	// submit makes the one job.
	submit(ctx context.Context, dsn string) error
	// look reads the row of the job.
	look(ctx context.Context, dsn string) (Row, error)
	// work runs jobs until ctx ends, and then stops in good order.
	work(ctx context.Context, dsn string, s *seat) error
}

var systems = map[string]system{"pawl": pawlSystem{}, "river": riverSystem{}}

// A Row is what the database says of the job.
type Row struct {
	State    string          `json:"state"`
	Attempt  int             `json:"attempt"`
	Epoch    int64           `json:"epoch,omitempty"` // Pawl
	By       []string        `json:"by,omitempty"`    // river: attempted_by; Pawl: who holds it
	Output   json.RawMessage `json:"output,omitempty"`
	Ended    *time.Time      `json:"ended,omitempty"`
	Errors   []string        `json:"errors,omitempty"` // river: errors; Pawl: events with a message or a name
	Rescues  int             `json:"rescues,omitempty"`
	Suspect  int             `json:"suspect,omitempty"` // Pawl: crashes that the job may have caused
	Waits    bool            `json:"-"`                 // for another call of the handler
	Final    bool            `json:"-"`                 // nothing follows
}

// A Story is what was seen in one scenario.
type Story struct {
	System  string `json:"system"`
	Variant string `json:"variant"`
	Text    string `json:"text"`
	Frozen  string `json:"frozen"` // how long A was stopped
	// Before is the row when A is about to wake up, After when it has returned and its process has stopped in good order,
	// and End when B has, too.
	Before Row `json:"before"`
	After  Row `json:"after"`
	End    Row `json:"end"`
	// Changes are the differences between Before and After, and Kept is whether what stands in the end is what B's first
	// call returned.
	Changes []string `json:"changes"`
	Kept    bool     `json:"kept"`
	// Woke and Left are the context of the frozen call when it had woken up, and when it returned.
	Woke   string `json:"context_at_wake"`
	Left   string `json:"context_at_return"`
	Lasted string `json:"context_lasted,omitempty"` // from waking up to the end of the context, where the call waited for it
	// Notes are the answers to what the frozen call wrote.
	Notes []string `json:"notes,omitempty"`
	// Told is what the process of the frozen call heard of the end that it reported; nothing, where it reported none.
	Told []string `json:"told,omitempty"`
	// Calls of the handler, and Together how many of them ran at the same time at most, A's frozen one not counted before
	// it woke up.
	Calls    []string `json:"calls"`
	Together int      `json:"together"`
	Ledger   []line   `json:"ledger"`
}

// play has one variant of the scenario happen in a database of its own, with files in dir.
func play(ctx context.Context, name string, v variant, dsn, dir string) (s Story, err error) {
	sys := systems[name]
	s = Story{System: name, Variant: v.Name, Text: v.Text}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return s, err
	}
	stage := &stage{system: name, variant: v, dsn: dsn, dir: dir}
	defer stage.clear()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, %s: %w (logs and ledger are in %s)", name, v.Name, err, dir)
		}
	}()
	if err := errors.Join(sys.prepare(ctx, dsn), sys.submit(ctx, dsn)); err != nil {
		return s, err
	}

	// A takes the job, and freezes in the middle of it.
	a, err := stage.start("A")
	if err != nil {
		return s, err
	}
	if err := stage.await(ctx, "A1 is half way", stage.seen("A1", "half way")); err != nil {
		return s, err
	}
	frozen := time.Now()
	if err := a.freeze(); err != nil {
		return s, err
	}
	if err := stage.open("A1"); err != nil { // it goes on when it is woken up
		return s, err
	}

	// B finds it, and runs it.
	b, err := stage.start("B")
	if err != nil {
		return s, err
	}
	if err := stage.await(ctx, "B1 is half way", stage.seen("B1", "half way")); err != nil {
		return s, err
	}
	if v.Finished {
		if err := errors.Join(stage.open("B1"), stage.await(ctx, "B has finished", stage.final(ctx))); err != nil {
			return s, err
		}
	}
	if s.Before, err = sys.look(ctx, dsn); err != nil {
		return s, err
	}

	// A wakes up, and does what it does.
	s.Frozen = time.Since(frozen).Round(100 * time.Millisecond).String()
	if err := a.signal(syscall.SIGCONT); err != nil {
		return s, err
	}
	if err := stage.await(ctx, "A1 returns", stage.seen("A1", "returns")); err != nil {
		return s, err
	}
	if err := stage.await(ctx, "A is told what became of it", stage.told()); err != nil {
		return s, err
	}
	if err := a.stop(ctx); err != nil { // which sends whatever it has not sent yet
		return s, err
	}
	if s.After, err = sys.look(ctx, dsn); err != nil {
		return s, err
	}
	if s.After.Waits { // for another call, though B1 runs
		if err := stage.await(ctx, "the job is run once more", stage.quiet(ctx)); err != nil {
			return s, err
		}
	}
	if !v.Finished {
		if err := errors.Join(stage.open("B1"), stage.await(ctx, "B1 returns", stage.seen("B1", "returns"))); err != nil {
			return s, err
		}
	}
	if err := b.stop(ctx); err != nil {
		return s, err
	}
	if s.End, err = sys.look(ctx, dsn); err != nil {
		return s, err
	}
	lines, err := readLedger(dir)
	s.tell(lines)
	return s, err
}

// tell takes out of the ledger what it says of the frozen call, and compares the rows.
func (s *Story) tell(lines []line) {
	s.Ledger = lines
	s.Changes = differences(s.Before, s.After)
	s.Kept = string(s.End.Output) == `"result of B1"`
	var woke time.Time
	running := map[string]bool{}
	for _, l := range lines {
		if l.Step == "begins" {
			s.Calls = append(s.Calls, fmt.Sprintf("%s (attempt %d)", l.Call, l.Attempt))
		}
		switch l.Step {
		case "begins", "wakes up":
			running[l.Call] = true
		case "half way":
			running[l.Call] = l.Call != "A1" // which freezes
		case "returns":
			delete(running, l.Call)
		}
		n := 0
		for _, is := range running {
			if is {
				n++
			}
		}
		s.Together = max(s.Together, n)
		if l.Process != "A" {
			continue
		}
		switch l.Step {
		case "wakes up":
			s.Woke, woke = l.Context, l.Time
		case "writes":
			s.Notes = append(s.Notes, l.Answer)
		case "context ends":
			s.Lasted = l.Time.Sub(woke).Round(time.Millisecond).String()
		case "returns":
			s.Left = l.Context
		case toldStep:
			s.Told = append(s.Told, l.Answer)
		case "sent late":
			s.Told = append(s.Told, "sent late: "+l.Answer)
		}
	}
}

// differences lists the fields of a row that changed, as JSON has them.
func differences(before, after Row) []string {
	all, common := []string{}, 0
	for common < min(len(before.Errors), len(after.Errors)) && before.Errors[common] == after.Errors[common] {
		common++
	}
	for _, gone := range before.Errors[common:] {
		all = append(all, "errors: without "+gone)
	}
	for _, more := range after.Errors[common:] {
		all = append(all, "errors: and "+more)
	}
	before.Errors, after.Errors = nil, nil
	a, b := fields(before), fields(after)
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if string(a[name]) != string(b[name]) {
			all = append(all, fmt.Sprintf("%s: %s → %s", name, cmp.Or(string(a[name]), "none"), cmp.Or(string(b[name]), "none")))
		}
	}
	return all
}

func fields(r Row) map[string]json.RawMessage {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it was JSON when it was read
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		panic(err)
	}
	return all
}

// A stage is where one scenario happens.
type stage struct {
	system  string
	variant variant
	dsn     string
	dir     string
	actors  []*process
}

// clear ends the processes that are left.
func (s *stage) clear() {
	for _, p := range s.actors {
		p.kill()
	}
}

// open lets a call go on that waits for it.
func (s *stage) open(call string) error {
	return os.WriteFile(filepath.Join(s.dir, call), nil, 0o666)
}

// await asks again and again until the answer is yes, or an actor has died.
func (s *stage) await(ctx context.Context, what string, ask func() (bool, error)) error {
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		for _, p := range s.actors {
			if err := p.died(); err != nil {
				return fmt.Errorf("waiting until %s: %w", what, err)
			}
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		}
	}
}

// pollEvery is how often conditions are looked at.
const pollEvery = 20 * time.Millisecond

// seen asks whether the ledger has a line.
func (s *stage) seen(call, step string) func() (bool, error) {
	return func() (bool, error) {
		lines, err := readLedger(s.dir)
		return slices.ContainsFunc(lines, func(l line) bool { return l.Call == call && l.Step == step }), err
	}
}

func (s *stage) final(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		r, err := systems[s.system].look(ctx, s.dsn)
		return r.Final, err
	}
}

// told asks whether A has heard of the end that it reported. It need not hear of it: after a while the answer is yes.
func (s *stage) told() func() (bool, error) {
	enough := time.Now().Add(3 * time.Second)
	return func() (bool, error) {
		lines, err := readLedger(s.dir)
		return time.Now().After(enough) || slices.ContainsFunc(lines, func(l line) bool { return l.Process == "A" && l.Step == toldStep }), err
	}
}

// quiet asks whether the job was called once more, and that call has ended.
func (s *stage) quiet(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		r, err := systems[s.system].look(ctx, s.dsn)
		if err != nil || !r.Final {
			return false, err
		}
		lines, err := readLedger(s.dir)
		return slices.ContainsFunc(lines, func(l line) bool { return l.Step == "returns" && l.Call != "A1" && l.Call != "B1" }), err
	}
}
