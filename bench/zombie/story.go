package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Row is what the database says of the job.
type Row struct {
	State   string          `json:"state"`
	Attempt int             `json:"attempt"`
	Epoch   int64           `json:"epoch,omitempty"` // Pawl
	By      []string        `json:"by,omitempty"`    // river: attempted_by
	Output  json.RawMessage `json:"output,omitempty"`
	Ended   *time.Time      `json:"ended,omitempty"`
	Errors  []string        `json:"errors,omitempty"` // river: errors; Pawl: events with a message or a name
	Rescues int             `json:"rescues,omitempty"`
	Suspect int             `json:"suspect,omitempty"` // Pawl: crashes that the job may have caused
	Waits   bool            `json:"-"`                 // for another call of the handler
	Final   bool            `json:"-"`                 // nothing follows
}

// A Story is what was seen in one scenario.
type Story struct {
	System  string `json:"system"`
	Variant string `json:"variant"`
	Text    string `json:"text"`
	Frozen  string `json:"frozen"` // how long A was stopped
	// Before is the row when A is about to wake up, After when it has returned and its process has
	// stopped in good order, and End when B has, too.
	Before Row `json:"before"`
	After  Row `json:"after"`
	End    Row `json:"end"`
	// Changes are the differences between Before and After, and Kept is whether what stands in the
	// end is what B's first call returned.
	Changes []string `json:"changes"`
	Kept    bool     `json:"kept"`
	// Woke and Left are the context of the frozen call when it had woken up, and when it returned.
	Woke string `json:"context_at_wake"`
	Left string `json:"context_at_return"`
	// from waking up to the end of the context, where the call waited for it
	Lasted string `json:"context_lasted,omitempty"`
	// Notes are the answers to what the frozen call wrote.
	Notes []string `json:"notes,omitempty"`
	// Told is what the process of the frozen call heard of the end that it reported; nothing, where
	// it reported none.
	Told []string `json:"told,omitempty"`
	// Calls of the handler, and Together how many of them ran at the same time at most, A's frozen
	// one not counted before it woke up.
	Calls    []string `json:"calls"`
	Together int      `json:"together"`
	Ledger   []line   `json:"ledger"`
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
		switch {
		case l.Step == "begins" || l.Step == "wakes up":
			running[l.Call] = true
		case l.Step == "returns" || l.Step == "half way" && l.Call == "A1": // where it freezes
			delete(running, l.Call)
		}
		s.Together = max(s.Together, len(running))
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
		case lateStep:
			s.Told = append(s.Told, "sent all the same: "+l.Answer)
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
			all = append(all, fmt.Sprintf("%s: %s → %s", name, cmp.Or(string(a[name]), "none"),
				cmp.Or(string(b[name]), "none")))
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
