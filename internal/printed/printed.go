// Package printed finds in the output of running programs what they say by lines such as
//
//	::pawl progress 3/7 epochs
//	::pawl event evaluated accuracy 0.93
//	::pawl checkpoint epoch-3
//
// [Outputs] tells how far a program is, and its last checkpoint. Nothing is kept of that but in
// memory. An output is read when somebody looks at its job, and then once a second at most, from
// where the look before has ended. So a program may print as many such lines as it likes, and
// another process of the service finds them too. A program may also tell how far it is by an event,
// which all processes of the service hear: see [ProgressEvent].
//
// [Readers] read outputs from their beginning, and hand on each event. An event is named after its
// place in the output, so it is written once however often the output is read.
package printed

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// Bounds of what looks take.
const (
	lookGap  = time.Second            // between two looks at one output
	mostRead = 256 << 10              // bytes of one look: the last ones
	mostBusy = 16                     // looks at a time; a file system that hangs keeps its own
	mostKept = 1000                   // outputs; more are kept while somebody looks at them
	lookEnds = 10 * time.Second       // how long a look may take
	lookWait = 300 * time.Millisecond // how long one waits for what looks find
)

// A Launch is what has an output of its own.
type Launch struct {
	Job     job.ID `json:"job"`
	Attempt int    `json:"attempt"`
	Launch  int    `json:"launch"`
}

// LaunchOf returns the present launch of a job.
func LaunchOf(j *job.Job) Launch { return Launch{Job: j.ID, Attempt: j.Attempt, Launch: j.Launch} }

// An Open opens an output for reading, and says how long it is.
type Open func(ctx context.Context) (r io.ReadSeekCloser, size int64, err error)

// Outputs remembers what was found. The zero value is ready. Its methods are safe for concurrent
// use.
type Outputs struct {
	mu   sync.Mutex
	of   map[Launch]*output // guarded by mu
	busy int                // guarded by mu: looks under way
}

// An output is guarded by the mu of its [Outputs].
type output struct {
	said   Said
	told   string // the last checkpoint that was told by an event; empty: none
	read   int64  // bytes that were looked at
	looked time.Time
	shared time.Time     // when other processes were told what the program has told
	due    bool          // they will be told soon
	over   chan struct{} // closed when the look under way is over; nil: there is none
}

// Look looks at outputs, and waits a moment for what they say.
func (o *Outputs) Look(ctx context.Context, all map[Launch]Open) {
	if len(all) == 0 {
		return
	}
	var over []chan struct{}
	o.mu.Lock()
	for l, open := range all {
		if c := o.begin(l, open); c != nil {
			over = append(over, c)
		}
	}
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	for _, c := range over {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}

// begin begins a look, and returns what tells that it is over; nil: there is none. o.mu is held.
func (o *Outputs) begin(l Launch, open Open) chan struct{} {
	f := o.output(l)
	if f.over != nil || time.Since(f.looked) < lookGap || o.busy >= mostBusy {
		return f.over
	}
	f.over, f.looked = make(chan struct{}), time.Now()
	o.busy++
	from, over := f.read, f.over
	go func() {
		defer close(over)
		said, read := look(open, from)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.busy--
		f.over, f.read = nil, read
		if said.Progress != nil {
			f.said.Progress = said.Progress
		}
		if said.Checkpoint != nil {
			f.said.Checkpoint = said.Checkpoint
		}
	}()
	return over
}

// output returns what is known of an output. o.mu is held.
func (o *Outputs) output(l Launch) *output {
	f := o.of[l]
	if f == nil {
		o.forget()
		f = &output{}
		o.of[l] = f
	}
	return f
}

// forget makes room for another output. o.mu is held.
func (o *Outputs) forget() {
	if o.of == nil {
		o.of = map[Launch]*output{}
	}
	if len(o.of) < mostKept {
		return
	}
	for l, f := range o.of {
		if f.over == nil && !f.due && time.Since(f.looked) > lookEnds {
			delete(o.of, l)
		}
	}
}

// Said is the last that a program has said, of each kind; nil: nothing.
type Said struct {
	Progress   *job.Progress
	Checkpoint *string
}

// Keep takes in the last checkpoint that a program has told by an event, which counts more than
// what it prints; empty: none.
func (o *Outputs) Keep(l Launch, point string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.output(l).told = point
}

// Said returns what was found.
func (o *Outputs) Said(l Launch) Said {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.of[l]
	if f == nil {
		return Said{}
	}
	said := f.said
	if told := f.told; told != "" {
		said.Checkpoint = &told
	}
	return said
}

// look reads an output from a place on, and returns the place behind its last whole line. What
// cannot be read says nothing.
func look(open Open, from int64) (said Said, read int64) {
	ctx, cancel := context.WithTimeout(context.Background(), lookEnds)
	defer cancel()
	r, size, err := open(ctx)
	if err != nil {
		return said, from
	}
	defer r.Close()
	if size < from { // it was written anew
		from = 0
	}
	start := max(from, size-mostRead)
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return said, from
	}
	text, err := io.ReadAll(io.LimitReader(r, size-start))
	if err != nil {
		return said, from
	}
	if start > from { // in the middle of a line
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		start += int64(len(text) - len(rest))
		text = rest
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	read = start + int64(len(text))
	for len(text) > 0 && (said.Progress == nil || said.Checkpoint == nil) {
		text = text[:len(text)-1]
		at := bytes.LastIndexByte(text, '\n') + 1
		if bytes.HasPrefix(text[at:], prefix) {
			l := Parse(string(text[at:min(len(text), at+2*mostLine)]))
			said.Progress, said.Checkpoint = cmp.Or(said.Progress, l.Progress), cmp.Or(said.Checkpoint, l.Checkpoint)
		}
		text = text[:at]
	}
	return said, read
}
