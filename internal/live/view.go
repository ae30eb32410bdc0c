package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Config says what a view has around it. See [Terminal].
type Config struct {
	Out io.Writer
	// Size returns the width and height of the terminal that Out is; nil if it is none.
	Size func() (width, height int)
	// Resized tells that Size has changed.
	Resized <-chan os.Signal
	// In is the terminal on which questions are answered; nil if there is nobody to ask.
	In Input
	// Color lets states have colours on a terminal.
	Color bool
	// Clean takes what a terminal obeys out of plain lines: Out is a terminal on which nothing can
	// be drawn in place.
	Clean bool
}

// leastLast is how many lines the last frame has at least, whatever stands below it.
const leastLast = 4

// frameGap is the least time between two frames.
const frameGap = 100 * time.Millisecond

// A View shows a board: on a terminal as frames that are drawn in place, elsewhere as one line for
// each thing that happens. All methods may be called at any time; after Close they only keep the
// board.
type View struct {
	cfg     Config
	changed chan struct{} // holds one when there is something to draw
	stop    chan struct{}
	done    chan struct{}

	mu     sync.Mutex // guards all below, and keeps writes apart
	board  *Board
	screen screen
	print  bytes.Buffer // to be printed above the next frame
	asking bool         // the board stands still
	apart  bool         // what is told now is shown together
	closed bool
	below  int   // how many lines come below the last frame
	err    error // the first one of writing

	elsewhere, again string
}

// NewView returns a view of a board, which belongs to the view from then on. It draws from then on
// until Close.
func NewView(cfg Config, b *Board) *View {
	v := &View{
		cfg: cfg, board: b, changed: make(chan struct{}, 1), stop: make(chan struct{}),
		done: make(chan struct{}),
	}
	b.Color = cfg.Color
	v.screen.out = cfg.Out
	if cfg.Size == nil {
		close(v.done)
	} else {
		go v.run()
	}
	return v
}

// run draws when something has changed, and when the clock of the seconds ticks.
func (v *View) run() {
	defer close(v.done)
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		select {
		case <-v.changed:
		case <-clock.C:
		case <-v.cfg.Resized:
		case <-v.stop:
			return
		}
		v.mu.Lock()
		v.frame()
		v.mu.Unlock()
		select {
		case <-time.After(frameGap):
		case <-v.stop:
			return
		}
	}
}

// frame draws the board. It is called with mu held.
func (v *View) frame() {
	if v.asking || v.closed || v.apart {
		return
	}
	width, height := v.cfg.Size()
	v.keep(v.screen.draw(v.board.Lines(time.Now(), width-1, height-1), v.whole(), width, false))
}

// whole takes the whole lines out of what is to be printed.
func (v *View) whole() []byte {
	n := bytes.LastIndexByte(v.print.Bytes(), '\n') + 1
	return v.print.Next(n)
}

func (v *View) keep(err error) {
	if v.err == nil {
		v.err = err
	}
}

// touch says that there is something to draw.
func (v *View) touch() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// Fold breaks a text between its words to fit the terminal, if there is one.
func (v *View) Fold(s string) string {
	if v.cfg.Size == nil {
		return s
	}
	width, _ := v.cfg.Size()
	return strings.Join(fold(s, width-1, 2), "\n")
}

// Terminal reports whether the view draws on a terminal.
func (v *View) Terminal() bool { return v.cfg.Size != nil }

// Together shows what f tells in one frame, at its end.
func (v *View) Together(f func()) {
	set := func(apart bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.apart = apart
		v.touch()
	}
	set(true)
	defer set(false)
	f()
}

// Elsewhere says which other process runs the jobs, so that they go on when this one leaves them;
// empty: this one does. again is the command that shows them later, and goes on with them.
func (v *View) Elsewhere(who, again string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.elsewhere, v.again = who, again
}

// Row takes in a job's row; see [Board.Row].
func (v *View) Row(j *job.Job, f Facts) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.board.Row(j, f)
	v.touch()
}

// Event takes in an event of a job that is on the board; see [Board.Event].
func (v *View) Event(e job.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if since, shown := v.board.Event(e); shown {
		v.say(e.Job, EventLine(e, since))
	}
	v.touch()
}

// Log takes in a line that a job's program wrote, without its end.
func (v *View) Log(id job.ID, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.board.Log(id, line)
	v.say(id, "  | "+line)
	v.touch()
}

// Running returns the jobs that are shown now and whose programs run.
func (v *View) Running() (ids []job.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	shown := v.board.shown
	if len(v.board.Jobs) == 1 {
		shown = v.board.Jobs
	}
	for _, s := range shown {
		if s.State == job.Running {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Last takes in what a job's program wrote last; see [Board.Last]. Where lines are plain it is not
// shown.
func (v *View) Last(id job.ID, line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.board.Last(id, line)
	v.touch()
}

// Progress takes in how far the present step of a job has come. Where lines are plain it is not
// shown.
func (v *View) Progress(id job.ID, p job.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.board.Progress(id, p, time.Now())
	v.touch()
}

// Note sets the line for what concerns no single job.
func (v *View) Note(s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s != "" && s != v.board.Note && v.cfg.Size == nil {
		v.line(s)
	}
	v.board.Note = s
	v.touch()
}

// Write prints whole lines above the board, such as those of a logger, as text.
func (v *View) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := p
	if v.cfg.Size != nil || v.cfg.Clean {
		text = []byte(Text(string(p)))
	}
	if v.cfg.Size == nil || v.closed {
		_, err := v.cfg.Out.Write(text)
		v.keep(err)
		return len(p), err
	}
	v.touch()
	v.print.Write(text)
	return len(p), nil
}

// say prints a plain line about a job. Where there are several, it begins with the job's name. It
// is called with mu held.
func (v *View) say(id job.ID, s string) {
	if v.cfg.Size != nil {
		return
	}
	if len(v.board.Jobs) > 1 {
		s = v.board.prefix(id) + "  " + s
	}
	v.line(s)
}

func (v *View) line(s string) {
	if v.cfg.Clean {
		s = Clean(s)
	}
	_, err := fmt.Fprintln(v.cfg.Out, s)
	v.keep(err)
}

// Below says what is printed below the last frame, so that both fit the terminal together.
func (v *View) Below(text string) {
	if v.cfg.Size == nil {
		return
	}
	width, _ := v.cfg.Size()
	rows := 0
	for line := range strings.Lines(text) {
		rows += max(1, (cells.StringWidth(strip(strings.TrimSuffix(line, "\n")))+width-1)/width)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.below = rows
}

// Close draws the last frame, leaves it where it is, and returns the first error of writing.
func (v *View) Close() error {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return v.err
	}
	v.closed = true
	close(v.stop)
	if v.cfg.Size != nil {
		if b := v.print.Bytes(); len(b) > 0 && b[len(b)-1] != '\n' {
			v.print.WriteByte('\n')
		}
		width, height := v.cfg.Size()
		v.keep(v.screen.draw(v.board.End(time.Now(), width-1, max(height-1-v.below, leastLast)), v.whole(), width,
			true))
	}
	v.mu.Unlock()
	<-v.done
	return v.err
}

// Err returns the first error of writing.
func (v *View) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// EventLine is one line of a job's story. since is the event with which the job came into the state
// before; within one state there is only something to say.
func EventLine(e, since job.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-17s", e.At.Local().Format("15:04:05.000"), e.State)
	if since.N > 0 && e.State != since.State {
		fmt.Fprintf(&b, "  after %s %s", Spent(e.At.Sub(since.At)), since.State)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, "  %s", FirstLine(e.Message))
	}
	return strings.TrimRight(b.String(), " ")
}

// Ask says what can be done about the unfinished jobs and returns what is chosen. Meanwhile the
// board stands still. Where nobody can be asked, or ctx ends, the choice is [Leave].
func (v *View) Ask(ctx context.Context) Choice {
	if v.cfg.In == nil || v.cfg.Size == nil || !v.cfg.In.Ready() {
		return Leave
	}
	v.mu.Lock()
	if v.closed || v.asking {
		v.mu.Unlock()
		return Leave
	}
	width, height := v.cfg.Size()
	lines := question(len(v.board.Unfinished()), v.elsewhere, v.again, width-1)
	room := max(1, height-1-len(lines))
	v.keep(v.screen.draw(v.board.Lines(time.Now(), width-1, room), v.whole(), width, false))
	v.keep(v.screen.add(lines, prompt))
	v.asking = true
	v.mu.Unlock()

	typed := func(answer string) { // the terminal has shown what was typed, and gone to the next line
		v.mu.Lock()
		defer v.mu.Unlock()
		v.screen.below(cells.StringWidth(prompt + answer))
	}
	choice := ask(ctx, v.cfg.In, func(answer string) {
		typed(answer)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.keep(v.screen.add(nil, prompt))
	}, typed)

	v.mu.Lock()
	defer v.mu.Unlock()
	v.asking = false
	v.touch()
	return choice
}
