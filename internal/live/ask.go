package live

import (
	"context"
	"io"
	"os"
	"strings"
	"time"
)

// A Choice is what is to become of the unfinished jobs.
type Choice int

// The choices.
const (
	Leave  Choice = iota // this process ends, the jobs stay as they are
	Cancel               // the jobs end
	GoOn                 // nothing changes
)

func (c Choice) String() string { return [...]string{"leave", "cancel", "go on"}[c] }

// An Input is a terminal that can be asked.
type Input interface {
	io.Reader
	// SetReadDeadline makes a Read that waits return once t has passed; the zero time ends that.
	SetReadDeadline(t time.Time) error
	// Ready drops what was typed before there was a question, and reports whether it can be asked
	// now: a process in the background cannot.
	Ready() bool
}

// Stopped waits for signals and returns what ends the run, [Leave] or [Cancel]. An interrupt puts
// the question of [View.Ask], and another one while it stands leaves at once; so does any other
// signal. When ctx ends first, because nothing is left to be asked about, it returns [GoOn].
func (v *View) Stopped(ctx context.Context, signals <-chan os.Signal) Choice {
	for {
		select {
		case <-ctx.Done():
			return GoOn
		case s := <-signals:
			if s != os.Interrupt {
				return Leave
			}
		}
		asking, withdraw := context.WithCancel(ctx)
		chosen := make(chan Choice, 1)
		go func() { chosen <- v.Ask(asking) }()
		var choice Choice
		select {
		case choice = <-chosen:
		case <-signals:
			withdraw()
			<-chosen
			choice = Leave
		}
		withdraw()
		if ctx.Err() == nil && choice != GoOn {
			return choice
		}
	}
}

const prompt = "c, l or g: "

// question is the question about n unfinished jobs, folded to width. elsewhere and again are those
// of [View.Elsewhere].
func question(n int, elsewhere, again string, width int) []string {
	jobs, them := "the unfinished job", "it"
	if n != 1 {
		jobs, them = "the "+plural(n, "unfinished job"), "them"
	}
	meaning := "programs that run go on without pawl, all else waits until " + again + " goes on with " + them
	if elsewhere != "" {
		meaning = elsewhere + " goes on with " + them + "; " + again + " shows " + them
	}
	lines := fold("What shall become of "+jobs+"?", width, 2)
	for _, c := range []string{
		"  c  cancel " + them,
		"  l  leave " + them + ": " + meaning,
		"  g  go on (Enter does that, too)",
	} {
		lines = append(lines, fold(c, width, 5)...)
	}
	return lines
}

// choices are the answers.
var choices = map[string]Choice{
	"c": Cancel, "cancel": Cancel, "l": Leave, "leave": Leave, "g": GoOn, "go on": GoOn, "": GoOn,
}

// ask reads lines until one is an answer, and calls again after each that is none and done after
// the one that is. Where ctx or the input ends first, the answer is to leave.
func ask(ctx context.Context, in Input, again, done func(answer string)) Choice {
	defer in.SetReadDeadline(time.Time{}) //nolint:errcheck // then the next question finds out
	release := context.AfterFunc(ctx, func() {
		in.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // then the next line ends the question
	})
	defer release()
	for {
		answer, err := readLine(in)
		if err != nil || ctx.Err() != nil {
			return Leave
		}
		if c, ok := choices[strings.ToLower(strings.TrimSpace(answer))]; ok {
			done(answer)
			return c
		}
		again(answer)
	}
}

// readLine reads to the end of a line and not beyond it.
func readLine(in io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for {
		n, err := in.Read(b[:])
		switch {
		case n == 1 && b[0] == '\n':
			return strings.TrimSuffix(string(line), "\r"), nil
		case n == 1 && len(line) < 1<<10:
			line = append(line, b[0])
		case err != nil:
			return "", err
		}
	}
}
