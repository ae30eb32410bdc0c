package printed

import (
	"context"
	"encoding/json"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// ProgressEvent is the name of an event by which a program says how far it is. Its message is what
// follows "::pawl progress" in a line. It is no part of the history.
const ProgressEvent = "progress"

// Topic carries the progress that programs tell to all processes of the service.
const Topic = "progress"

// A news is a message on it.
type news struct {
	Launch
	Progress job.Progress `json:"progress"`
}

// ParseProgress reads the message of a [ProgressEvent]. Errors are of type [job.SpecError].
func ParseProgress(message string) (job.Progress, error) {
	if p := progress(message); p != nil {
		return *p, nil
	}
	return job.Progress{}, &job.SpecError{Problems: []job.Problem{{
		Path: "message", Value: job.Shorten(message, mostWhat), What: "is no progress",
		Remedy: "give a percentage such as 40, or 3/7 and what is counted",
	}}}
}

// Tell takes in how far a program says it is, and shares it with the other processes: the newest,
// once a second.
func (o *Outputs) Tell(l Launch, p job.Progress, share func(job.Progress)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.output(l)
	f.said.Progress = &p
	if f.due {
		return
	}
	f.due = true
	time.AfterFunc(max(0, lookGap-time.Since(f.shared)), func() {
		o.mu.Lock()
		f.due, f.shared = false, time.Now()
		p := *f.said.Progress
		o.mu.Unlock()
		share(p)
	})
}

// News returns the message on [Topic] that says what a program has told.
func News(l Launch, p job.Progress) ([]byte, error) { return json.Marshal(news{l, p}) }

// Hear takes in the messages of all processes on [Topic], until ctx ends.
func (o *Outputs) Hear(ctx context.Context, messages <-chan []byte) {
	for {
		select {
		case m := <-messages:
			var n news
			if json.Unmarshal(m, &n) == nil {
				o.mu.Lock()
				o.output(n.Launch).said.Progress = &n.Progress
				o.mu.Unlock()
			}
		case <-ctx.Done():
			return
		}
	}
}
