package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A style is the parameters of an SGR sequence.
type style string

const (
	bold   style = "1"
	faint  style = "2"
	red    style = "1;31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
	bright style = "1;36"
)

// A line is text in styles.
type line struct {
	spans []span
	whole bool // never cut: it is there to be copied
}

type span struct {
	text  string
	style style
}

func text(s string) line { return line{spans: []span{{s, ""}}} }

func (l line) with(s string, st style) line {
	l.spans = append(slices.Clip(l.spans), span{s, st})
	return l
}

// render cuts the line to width cells.
func (l line) render(width int, color bool) string {
	total := 0
	for _, s := range l.spans {
		total += cells.StringWidth(s.text)
	}
	room := width - 1 // for the text that goes before the sign that more follows
	var b strings.Builder
	for _, s := range l.spans {
		t, over := s.text, false
		if !l.whole && total > width {
			over = cells.StringWidth(t) > room
			if over {
				t = cells.Truncate(t, room, "") + "…"
			}
			room -= cells.StringWidth(t)
		}
		if color && s.style != "" && t != "" {
			t = "\x1b[" + string(s.style) + "m" + t + "\x1b[0m"
		}
		b.WriteString(t)
		if over {
			break
		}
	}
	return strings.TrimRight(b.String(), " ")
}

func styleOf(s job.State) style {
	switch {
	case s == job.Finished:
		return green
	case s == job.Failed:
		return red
	case s == job.Canceled || s == job.Blocked || s == job.Paused:
		return yellow
	case s == job.Running:
		return bright
	case s.Working():
		return cyan
	}
	return faint
}

// Lines draws the board into at most height lines of at most width cells.
func (b *Board) Lines(now time.Time, width, height int) []string {
	return b.draw(now, width, height, false)
}

// End draws the board for the last time: of one job, what is there to be copied, such as the name
// of a folder, is not broken, and may be wider than width.
func (b *Board) End(now time.Time, width, height int) []string {
	return b.draw(now, width, height, true)
}

func (b *Board) draw(now time.Time, width, height int, last bool) []string {
	if height < 1 || width < 1 || len(b.Jobs) == 0 {
		return nil
	}
	var lines []line
	if len(b.Jobs) == 1 {
		lines = b.one(b.Jobs[0], now, width, height, last)
	} else {
		lines = b.many(now, width, height)
	}
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		out = append(out, l.render(width, b.Color))
	}
	return out
}

// mostLog is how many log lines are shown of a job at most.
const mostLog = 8

// one draws one job. Where there is little room, the log goes first, then the way, then the note.
func (b *Board) one(s *Job, now time.Time, width, height int, last bool) []line {
	head := line{spans: []span{{Clean(s.Name), bold}, {"  " + s.ID.String(), faint}}}
	if s.Attempts > 1 {
		head = head.with(fmt.Sprintf("  attempt %d of %d", s.Attempt, s.Attempts), "")
	}
	if s.Wish == job.WishCancel && !s.State.Terminal() {
		head = head.with("  cancel is asked for", yellow)
	}
	stand, end := []line{s.stand(now)}, []line(nil)
	if s.progress.What != "" && !s.State.Terminal() {
		stand = append(stand, text("  "+s.bar(width-2)))
	}
	if s.State.Terminal() {
		stand, end = nil, s.ending(now, width, last)
	}
	var note []line
	if b.Note != "" {
		note = []line{line{}.with(Clean(b.Note), faint)}
	}
	way := s.way(width)
	room := height - 1 - len(stand) - len(end)
	if room < len(note) {
		note = nil
	}
	room -= len(note)
	if room < len(way) {
		way = nil
	}
	room -= len(way)
	tail := s.lines()
	tail = tail[max(0, len(tail)-max(0, min(mostLog, room))):]
	lines := append([]line{head}, way...)
	lines = append(lines, stand...)
	for _, t := range tail {
		lines = append(lines, line{spans: []span{{"  | ", faint}, {Clean(t), ""}}})
	}
	lines = append(append(lines, end...), note...)
	return lines[max(0, len(lines)-height):]
}

// way tells through which states the job has come in this attempt, and how long it was in each.
func (s *Job) way(width int) []line {
	var lines []line
	at := line{spans: []span{{"  ", ""}}}
	used := 2
	for i, stay := range s.Stays {
		name, took := string(stay.State), " "+Spent(stay.For)
		switch {
		case i == len(s.Stays)-1:
			took = "" // it is said where the job stands
		}
		arrow, wide := "", 0
		if i > 0 {
			arrow, wide = " → ", 3
		}
		// Each line but the last ends with an arrow.
		if i > 0 && used+wide+len(name)+len(took)+2 > width {
			lines = append(lines, at.with(" →", faint))
			at, arrow, wide, used = line{spans: []span{{"  ", ""}}}, "", 0, 2
		}
		st := faint
		if i == len(s.Stays)-1 {
			st = styleOf(stay.State)
		}
		at = at.with(arrow, faint).with(name, st).with(took, "")
		used += wide + len(name) + len(took)
	}
	if used > 2 {
		lines = append(lines, at)
	}
	return lines
}

// stand says where the job stands now.
func (s *Job) stand(now time.Time) line {
	l := line{}.with(string(s.State), styleOf(s.State))
	if s.suspended() {
		l = l.with(" (suspended)", yellow)
	}
	in := ticking(now.Sub(s.Entered))
	if s.State == job.Running && s.Limit > 0 {
		in += " of " + short(s.Limit.Round(time.Second))
	}
	l = l.with("  "+in, "").with("  elapsed "+ticking(s.elapsed(now)), faint)
	if m := s.reason(now); m != "" {
		l = l.with("  "+FirstLine(m), "")
	}
	return l
}

// reason is what there is to say about an unfinished job beside its state.
func (s *Job) reason(now time.Time) string {
	if s.Custody == job.Gate && s.Due.After(now) {
		layout := time.TimeOnly
		if s.Due.Sub(now) > 12*time.Hour {
			layout = time.DateTime
		}
		until := "until " + s.Due.In(now.Location()).Format(layout)
		if s.Message != "" {
			until += ": " + s.Message
		}
		return until
	}
	return s.Message
}

// bar shows how far the present step has come.
func (s *Job) bar(width int) string {
	p, size := s.progress, size
	if s.State == job.Running { // the program counts what it likes
		size = func(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }
	}
	told := size(float64(p.Done))
	if p.Total > 0 {
		told += " of " + size(float64(p.Total))
	}
	if r := s.rate(); r > 0 && s.State != job.Running {
		told += "  " + size(r) + "/s"
	}
	what := Clean(p.What)
	n := min(20, width-len("  []  ")-cells.StringWidth(what)-cells.StringWidth(told))
	if p.Total <= 0 || n < 5 {
		return what + "  " + told
	}
	full := int(int64(n) * min(max(p.Done, 0), p.Total) / p.Total)
	if p.Total > 1<<50 { // the product above may not fit
		full = int(float64(n) * min(1, float64(max(p.Done, 0))/float64(p.Total)))
	}
	return fmt.Sprintf("%s  [%s%s]  %s", what, strings.Repeat("█", full), strings.Repeat("░", n-full), told)
}

// ending says how the job ended, where its output is, and what to do.
func (s *Job) ending(now time.Time, width int, last bool) []line {
	l := line{}.with(string(s.State), styleOf(s.State)).with("  after "+Spent(s.elapsed(now)), "")
	ran, times := time.Duration(0), 0
	for _, stay := range s.Stays {
		if stay.State == job.Running {
			ran += stay.For
			times++
		}
	}
	if times > 0 {
		l = l.with(", of which it ran "+Spent(ran), "")
	}
	lines := []line{l}
	add := func(t string) {
		for _, part := range fold(Clean(t), width, 2) {
			lines = append(lines, text(part))
		}
	}
	place := func(name, folder string) {
		if folder = Clean(folder); last {
			lines = append(lines, line{spans: []span{{name + folder, ""}}, whole: true})
		} else {
			add(name + folder)
		}
	}
	switch s.State {
	case job.Finished:
		if s.Results != "" {
			place("output: ", s.Results)
		}
	case job.Failed:
		add(fmt.Sprintf("%s: %s", s.Code, strings.ReplaceAll(s.Message, "\n", "; ")))
		advice := s.Advice
		if advice == "" {
			advice = strings.ReplaceAll(remedy(s.Code), "JOB", s.ref())
		}
		if advice != "" {
			add("what to do: " + advice)
		}
		if s.Folder != "" {
			place("folder: ", s.Folder)
		}
	default:
		if s.Message != "" {
			add(FirstLine(s.Message))
		}
	}
	return lines
}

func remedy(c job.Code) string {
	for _, i := range job.Codes {
		if i.Code == c {
			return i.Remedy
		}
	}
	return ""
}

// many draws one line for each job.
func (b *Board) many(now time.Time, width, height int) []line {
	count := line{}.with(plural(len(b.Jobs), "job")+": ", bold)
	counts := countsOf(b.Jobs)
	for i, c := range counts {
		if i > 0 {
			count = count.with(", ", "")
		}
		count = count.with(c.text, styleOf(c.state))
	}
	foot := []line{count}
	if b.Note != "" && height > 3 {
		foot = append(foot, line{}.with(Clean(b.Note), faint))
	}
	room := height - len(foot)
	head := room > min(3, len(b.Jobs))
	if head {
		room--
	}
	shown, rest := b.Jobs, []*Job(nil)
	if len(shown) > room {
		shown, rest = choose(b.Jobs, max(0, room-1))
	}
	b.shown = shown
	labels := b.labels()
	var t table
	if head {
		name := "NAME"
		if b.IDs {
			name = "ID        NAME"
		}
		t = append(t, row{cells: [5]string{name, "STATE", "IN STATE", "ELAPSED"}, state: faint, other: faint})
	}
	for _, s := range shown {
		in := ""
		if !s.State.Terminal() {
			in = ticking(now.Sub(s.Entered))
		}
		state := string(s.State)
		if s.suspended() {
			state += "*"
		}
		elapsed := ticking(s.elapsed(now))
		if s.State.Terminal() {
			elapsed = Spent(s.elapsed(now))
		}
		t = append(t, row{
			cells: [5]string{labels[s], state, in, elapsed, Clean(s.news(now))},
			state: styleOf(s.State),
			job:   s,
		})
	}
	lines := t.lines(width)
	if len(rest) > 0 && len(shown) > 0 {
		var parts []string
		for _, c := range countsOf(rest) {
			parts = append(parts, c.text)
		}
		lines = append(lines, line{}.with(fmt.Sprintf("… and %d more: %s", len(rest), strings.Join(parts, ", ")),
			faint))
	}
	return append(lines, foot...)
}

// news is the last that is known of a job, for its line among others.
func (s *Job) news(now time.Time) string {
	switch {
	case s.State == job.Finished:
		return s.Results
	case s.State == job.Failed:
		return fmt.Sprintf("%s: %s", s.Code, FirstLine(s.Message))
	case s.State == job.Canceled:
		return FirstLine(s.Message)
	case s.Wish == job.WishCancel:
		return "cancel is asked for"
	case s.progress.What != "":
		return s.bar(0)
	case s.State == job.Running && s.last() != "":
		return s.last()
	}
	return FirstLine(s.reason(now))
}

// shorter is what there is to say of a job that has finished where there is no room for the name of
// its folder: the last line of its log, or the end of that name.
func (s *Job) shorter(room int) string {
	if last := Clean(s.last()); last != "" {
		return last
	}
	name := []rune(Clean(s.Results))
	for len(name) > 0 && cells.StringWidth(string(name)) >= room {
		name = name[1:]
	}
	return "…" + string(name)
}

// choose takes the n jobs that matter most: those that failed or are blocked, then those that move.
// The first leave half of the room to the others that move. Both lists stay in the order of the
// board.
func choose(jobs []*Job, n int) (shown, rest []*Job) {
	byRank := map[int][]*Job{}
	for _, s := range jobs {
		byRank[rank(s)] = append(byRank[rank(s)], s)
	}
	troubled := byRank[0]
	moving := min(len(byRank[1]), n/2)
	take := map[*Job]bool{}
	for _, s := range troubled[:min(len(troubled), n-moving)] {
		take[s] = true
	}
	for r := 1; r <= ranks; r++ {
		for _, s := range byRank[r] {
			if len(take) < n {
				take[s] = true
			}
		}
	}
	for _, s := range jobs {
		if take[s] {
			shown = append(shown, s)
		} else {
			rest = append(rest, s)
		}
	}
	return shown, rest
}

// ranks is the last rank.
const ranks = 4

func rank(s *Job) int {
	switch {
	case s.State == job.Failed || s.State == job.Blocked:
		return 0
	case s.State.Working() && s.Custody != job.Ready:
		return 1
	case !s.State.Terminal():
		return 2
	case s.State == job.Canceled:
		return 3
	}
	return ranks
}

type stateCount struct {
	state job.State
	text  string
}

// countsOf counts jobs by state: what is done, then what is under way, those far on first, then
// what is in trouble.
func countsOf(jobs []*Job) []stateCount {
	order := []job.State{
		job.Finished, job.Archiving, job.Running, job.Queued, job.SubmittingJob, job.StagingJob, job.StagingInputs,
		job.ProcessingInputs, job.Pending, job.Waiting, job.Blocked, job.Paused, job.Canceled, job.Failed,
	}
	n := map[job.State]int{}
	for _, s := range jobs {
		n[s.State]++
	}
	var counts []stateCount
	for _, s := range order {
		if n[s] > 0 {
			counts = append(counts, stateCount{s, fmt.Sprintf("%d %s", n[s], s)})
		}
	}
	return counts
}

// A table lays out the lines of several jobs. The columns after the second are aligned to the
// right, but for the last, which takes what is left.
type table []row

type row struct {
	cells [5]string
	state style // of the second column
	other style
	job   *Job
}

func (t table) lines(width int) []line {
	var widths [4]int
	for _, r := range t {
		for i := range widths {
			widths[i] = max(widths[i], cells.StringWidth(r.cells[i]))
		}
	}
	widths[0] = min(widths[0], max(12, min(40, width/3)))
	right := func(s string, n int) string { return strings.Repeat(" ", max(0, n-cells.StringWidth(s))) + s }
	var lines []line
	room := width - len("  ")*len(widths)
	for _, w := range widths {
		room -= w
	}
	for _, r := range t {
		last := r.cells[4]
		if r.job != nil && r.job.State == job.Finished && cells.StringWidth(last) > room {
			last = r.job.shorter(room)
		}
		lines = append(lines, line{spans: []span{
			{pad(cut(r.cells[0], widths[0]), widths[0]) + "  ", r.other},
			{pad(r.cells[1], widths[1]), r.state},
			{"  " + right(r.cells[2], widths[2]) + "  " + right(r.cells[3], widths[3]), r.other},
			{"  " + last, ""},
		}})
	}
	return lines
}
