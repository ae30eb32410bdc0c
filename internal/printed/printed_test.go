package printed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

func TestParse(t *testing.T) {
	text := func(s string) *string { return &s }
	running := func(done, total int64) Line {
		return Line{Progress: &job.Progress{What: "running", Done: done, Total: total}}
	}
	event := func(name, message, data string) Line {
		e := &job.CustomEvent{Name: name, Message: message}
		if data != "" {
			e.Data = json.RawMessage(data)
		}
		return Line{Event: e}
	}
	for line, want := range map[string]Line{
		"::pawl progress 40":              running(40, 100),
		"::pawl progress 40.7%\r":         running(40, 100),
		"::pawl progress 1200/0":          running(1200, 0),
		"::pawl progress 3/7 epochs  ":    {Progress: &job.Progress{What: "epochs", Done: 3, Total: 7}},
		"::pawl progress 5 a\x1b[31m\xff": {Progress: &job.Progress{What: "a\x1b[31m?", Done: 5, Total: 100}},
		"::pawl event saved":              event("saved", "", ""),
		"::pawl event saved  3 of 7 \r":   event("saved", "3 of 7", ""),
		"::pawl event saved a\xff\x00b":   event("saved", "a??b", ""),
		`::pawl event loss {"n": 1}`:      event("loss", "", `{"n": 1}`),
		`::pawl event loss {"n": 1} x`:    event("loss", `{"n": 1} x`, ""),
		"::pawl checkpoint epoch 3 ":      {Checkpoint: text("epoch 3")},
		"::pawl event checkpoint epoch 4": {
			Event:      &job.CustomEvent{Name: "checkpoint", Message: "epoch 4"},
			Checkpoint: text("epoch 4"),
		},
		"::pawl checkpoint":              {Checkpoint: text("")},
		"::pawl event progress 3/7 done": {Progress: &job.Progress{What: "done", Done: 3, Total: 7}},
		"::pawl event progress much":     {},
	} {
		if diff := cmp.Diff(want, Parse(line)); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
	for _, line := range []string{
		"", "40", "::pawl", "::pawl progress", "::pawl progress ", "::pawl progress -1", "::pawl progress 101",
		"::pawl progress x", "::pawl progress NaN", "::pawl progress Inf", "::pawl progress 1/", "::pawl progress 1/-2",
		"::pawl progress 1e300/3", " ::pawl progress 4", "::pawl progress 1/2/3",
		"::pawl progress 4" + strings.Repeat(" ", 2*mostLine),
		"::pawl event", "::pawl event RUNNING x", "::pawl event ../x y", "::pawl event x " + strings.Repeat("x", mostLine),
		"::pawl checkpoint \xff", "::pawl checkpoint a\x00b", "::pawl checkpoint " + strings.Repeat("x", mostLine),
		"::pawl other 4",
	} {
		if l := Parse(line); l != (Line{}) {
			t.Errorf("%q says %+v", line, l)
		}
	}
}

type file struct {
	*bytes.Reader
	got *int
}

func (f file) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	*f.got += n
	return n, err
}

func (file) Close() error { return nil }

func TestLook(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var o Outputs
		var text []byte
		var wrong error
		got, opened := 0, 0
		l := Launch{Job: job.NewID(), Attempt: 1, Launch: 1}
		look := func() (job.Progress, bool) {
			o.Look(t.Context(), map[Launch]Open{l: func(context.Context) (io.ReadSeekCloser, int64, error) {
				opened++
				return file{bytes.NewReader(text), &got}, int64(len(text)), wrong
			}})
			if p := o.Said(l).Progress; p != nil {
				return *p, true
			}
			return job.Progress{}, false
		}
		is := func(want string) {
			t.Helper()
			time.Sleep(lookGap) // of the bubble
			if p, ok := look(); fmt.Sprint(p.Done, "/", p.Total, " ", ok) != want {
				t.Errorf("%d/%d %t, want %s", p.Done, p.Total, ok, want)
			}
		}
		is("0/0 false")
		text = append(text, "begin\n::pawl progress 10\nmore\n::pawl prog"...)
		is("10/100 true")
		text = append(text, "ress 20\n"...) // the rest of the line
		is("20/100 true")
		text = append(text, "::pawl progress much\nother\n"...)
		is("20/100 true")
		wrong = errors.New("away")
		is("20/100 true")
		wrong = nil

		// A million lines cost no more than the last ones.
		got = 0
		text = append(text, bytes.Repeat([]byte("::pawl progress 30\n"), 1e6)...)
		text = append(text, "::pawl progress 31\n"...)
		is("31/100 true")
		if got > mostRead {
			t.Errorf("%d bytes were read", got)
		}
		// Nobody looks twice within a second.
		before := opened
		for range 1000 {
			look()
		}
		if opened != before {
			t.Errorf("opened %d times", opened-before)
		}
		text = []byte("::pawl progress 1/3\n") // anew
		is("1/3 true")
		text = append(text, bytes.Repeat([]byte("x"), 2*mostRead)...) // no end of line
		is("1/3 true")
		text = append(text, "\n::pawl progress 2/3\n"...)
		is("2/3 true")
		text = append(text, "::pawl checkpoint 4\n::pawl progress 3/3\n::pawl event x\n"...)
		is("3/3 true")
		if c := o.Said(l).Checkpoint; c == nil || *c != "4" {
			t.Errorf("checkpoint %v", c)
		}
	})
}

// Who looks does not wait for a file system that hangs, and others are looked at meanwhile.
func TestHangingFiles(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var o Outputs
		hang := make(chan struct{})
		stuck := func(context.Context) (io.ReadSeekCloser, int64, error) {
			<-hang
			return nil, 0, io.EOF
		}
		all := map[Launch]Open{}
		for i := range 3 * mostBusy {
			all[Launch{Launch: i}] = stuck
		}
		o.Look(t.Context(), all)
		if o.busy != mostBusy {
			t.Errorf("%d looks hang, want %d", o.busy, mostBusy)
		}
		close(hang)
		synctest.Wait()
		if o.busy != 0 {
			t.Errorf("%d looks are left", o.busy)
		}
	})
}

// What a program tells one process, the others hear: the first at once, then the newest once a
// second.
func TestTell(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		var here, there Outputs
		l := Launch{Job: job.NewID(), Attempt: 2, Launch: 3}
		messages := make(chan []byte, 10)
		go there.Hear(t.Context(), messages)
		sent := 0
		share := func(p job.Progress) {
			m, err := News(l, p)
			if err != nil {
				t.Error(err)
			}
			sent++
			messages <- m
		}
		is := func(o *Outputs, done int64) {
			t.Helper()
			synctest.Wait()
			if p := o.Said(l).Progress; p == nil || p.Done != done {
				t.Errorf("%+v, want %d", p, done)
			}
		}
		for n := range int64(100) {
			here.Tell(l, job.Progress{What: "rounds", Done: n, Total: 100}, share)
			if n == 0 {
				time.Sleep(time.Millisecond)
				is(&there, 0)
			}
		}
		is(&here, 99)
		is(&there, 0)
		time.Sleep(lookGap)
		is(&there, 99)
		if sent != 2 {
			t.Errorf("%d messages were sent", sent)
		}
		messages <- []byte("junk")
		is(&there, 99)
	})
}
