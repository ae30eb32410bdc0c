package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/host/ssh/script"
	"github.com/pawl-jobs/pawl/job"
)

const (
	maxAnswer = 64 << 20 // how many bytes a request answers at most
	maxHeard  = 300      // how many bytes are told of a shell that does not answer
)

// Run implements [host.Shell].
func (h *Host) Run(ctx context.Context, text string, stdin []byte) (out []byte, code int, err error) {
	if strings.Contains(text, "\x00") {
		return nil, 0, job.Errorf(job.Invalid, "a script has a zero byte in it")
	}
	command := "( eval " + script.Quote(text) + "\n)"
	if len(stdin) == 0 {
		return h.ask(ctx, command+" </dev/null")
	}
	escaped := strings.NewReplacer(`\`, `\\`, "\x00", `\0000`).Replace(string(stdin))
	return h.ask(ctx, "printf %b "+script.Quote(escaped)+" | "+command)
}

// ask runs commands in the shell itself. They must not end it, and must not read its input.
func (h *Host) ask(ctx context.Context, commands string) (out []byte, code int, err error) {
	s, err := h.sh(ctx)
	if err != nil {
		return nil, 0, err
	}
	return s.ask(ctx, commands)
}

// tell is ask for commands that cannot fail.
func (h *Host) tell(ctx context.Context, commands string) (string, error) {
	out, code, err := h.ask(ctx, commands)
	if err == nil && code != 0 {
		err = &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf("its shell answers %d: %q", code, clip(out))}
	}
	return string(out), err
}

// script is tell for what runs in a subshell.
func (h *Host) script(ctx context.Context, script string) (string, error) {
	return h.tell(ctx, "(\n"+script+"\n) </dev/null 2>/dev/null; true")
}

func clip(b []byte) []byte { return b[:min(len(b), 200)] }

// sh returns the shell, a new one if there is none that works.
func (h *Host) sh(ctx context.Context) (*shell, error) {
	if s := h.shell.Load(); s != nil && s.works() && ctx.Err() == nil {
		return s, nil
	}
	return await(ctx, h, func() (*shell, error) {
		if err := h.take(h.ctx, h.shells); err != nil {
			return nil, err
		}
		defer func() { <-h.shells }()
		if s := h.shell.Load(); s != nil && s.works() {
			return s, nil // somebody has been here meanwhile
		}
		s, err := h.newShell()
		if err == nil {
			h.shell.Store(s)
		}
		return s, err
	}, func(*shell) {})
}

// A shell is a long session of /bin/sh. Requests wait in line there.
type shell struct {
	stream *connection.Session
	nonce  string // no output has it by chance
	bound  time.Duration
	queue  chan *request
	asked  *atomic.Int64 // counts the requests
	facts  facts

	mu      sync.Mutex // guards what follows
	pending []*request // written, and not yet answered
	written int        // how many were, ever
	watch   *time.Timer
	err     error // why it works no more
	self    procfs.Stat
	noise   []byte // the end of what has come before the first answer

	dead chan struct{} // closed when err is set
}

// A request is what a shell is asked. The answer is there when done is closed.
type request struct {
	commands string
	number   string
	began    bool
	done     chan struct{}
	out      []byte
	code     int
	err      error
}

// session starts /bin/sh and skips what login files print. The shell of Config.Shell, if it is to
// count, is between the two: nothing of it is on a command line of the login shell.
func (h *Host) session(shell []string) (*connection.Session, error) {
	s, err := h.pool.Open("exec /bin/sh -s")
	if err != nil || len(shell) == 0 {
		return s, err
	}
	var words strings.Builder
	for _, w := range shell {
		words.WriteString(script.Quote(w) + " ")
	}
	nonce := rand.Text()
	late := s.Expire(h.cfg.Answer)
	defer late.Stop()
	_, err = fmt.Fprintf(s, "{ echo %s; exec %s -c 'exec /bin/sh -s'\n}\n", nonce, words.String())
	if err == nil {
		err = script.Skip(s, nonce+"\n")
	}
	if err != nil {
		lost := s.Lost(job.ShellBroken, err) // its last words come meanwhile
		_ = s.Close()
		lost.Err = fmt.Errorf("/bin/sh of %s ends before it has begun%s: %w", h.cfg.Address, only(s.Said()), err)
		return nil, lost
	}
	return s, nil
}

func (h *Host) newShell() (*shell, error) {
	stream, err := h.session(h.cfg.Shell)
	if err != nil {
		return nil, err
	}
	s := &shell{
		stream: stream, nonce: rand.Text(), bound: h.cfg.Answer,
		queue: make(chan *request), dead: make(chan struct{}), asked: &h.asked,
	}
	s.watch = time.AfterFunc(time.Hour, func() { h.hangs(s) })
	s.watch.Stop()
	h.goes(s.write)
	h.goes(s.read)
	if s.facts, err = h.learn(s); err != nil {
		s.fail(err)
		return nil, err
	}
	stream.Hush() // of what its login files print
	h.hung.end(h.ctx, s)
	return s, nil
}

func (s *shell) works() bool {
	select {
	case <-s.dead:
		return false
	case <-s.stream.Gone():
		return false
	default:
		return true
	}
}

// ask waits for the answer no longer than ctx. The shell goes on: the answer is dropped.
func (s *shell) ask(ctx context.Context, commands string) ([]byte, int, error) {
	r := &request{commands: commands, done: make(chan struct{})}
	select {
	case s.queue <- r:
	case <-s.dead:
		return nil, 0, s.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	select {
	case <-r.done:
		return r.out, r.code, r.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// write sends requests, many in one packet if they wait.
func (s *shell) write() {
	for {
		var text bytes.Buffer
		select {
		case r := <-s.queue:
			s.add(r, &text)
		case <-s.dead:
			return
		}
		for more := true; more && text.Len() < 64<<10; {
			select {
			case r := <-s.queue:
				s.add(r, &text)
			default:
				more = false
			}
		}
		if _, err := s.stream.Write(text.Bytes()); err != nil {
			select {
			case <-s.dead: // it has told more before it ended
			case <-time.After(time.Second):
				s.fails("write to its shell", err)
			}
			return
		}
	}
}

// add frames a request. One that is cut anywhere lacks its closing brace, so nothing of it runs.
func (s *shell) add(r *request, text *bytes.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		r.answer(nil, 0, s.err)
		return
	}
	s.written++
	s.asked.Add(1)
	r.number = strconv.Itoa(s.written)
	if len(s.pending) == 0 {
		s.watch.Reset(s.bound)
	}
	s.pending = append(s.pending, r)
	fmt.Fprintf(text, "{ echo '%s<%s'\n%s\necho \"%[1]s>%[2]s $?\"\n}\n", s.nonce, r.number, r.commands)
}

func (r *request) answer(out []byte, code int, err error) {
	r.out, r.code, r.err = out, code, err
	close(r.done)
}

// read takes the answers in, in the order of the requests.
func (s *shell) read() {
	var text []byte
	chunk := make([]byte, 32<<10)
	seen := 0 // how much of text has no mark in it
	for {
		n, err := s.stream.Read(chunk)
		text = append(text, chunk[:n]...)
		for more := true; more; {
			var bad error
			if text, more, bad = s.take(text, seen); bad != nil {
				s.fail(bad)
				return
			}
			seen = 0
		}
		seen = max(0, len(text)-64) // a mark may be there in part
		if err != nil {
			s.fails("its shell has ended", err)
			return
		}
	}
}

// fails ends the shell because of its stream. Its last words come beside the end of its output, so
// they are read after that was waited for.
func (s *shell) fails(what string, err error) {
	lost := s.stream.Lost(job.ShellBroken, err)
	lost.Err = fmt.Errorf("%s%s: %w", what, s.heard(), err)
	s.fail(lost)
}

// heard says what a shell has printed that has answered nothing, and its last errors: maybe why it
// lets nobody in, or why it ended.
func (s *shell) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return only(string(bytes.TrimSpace(s.noise)) + "\n" + s.stream.Said())
}

// only says what a shell has said, if it has said something.
func only(said string) string {
	if said = strings.TrimSpace(said); said == "" {
		return ""
	}
	return fmt.Sprintf(", and has said only %q", said)
}

// take moves the first request on by what has come: to its beginning, or to its end. It returns the
// rest, and whether there was something to take.
func (s *shell) take(text []byte, seen int) (rest []byte, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == 0 { // it may tell why it will answer nothing
		text = text[max(0, len(text)-maxHeard):]
		s.noise = bytes.Clone(text)
		return text, false, nil
	}
	if len(s.pending) == 0 {
		return nil, false, nil // what nobody asked for
	}
	r := s.pending[0]
	if !r.began {
		mark := []byte(s.nonce + "<" + r.number + "\n")
		i := bytes.Index(text, mark)
		if i < 0 {
			text = text[max(0, len(text)-maxHeard):] // a mark, which is shorter, may be there in part
			if r.number == "1" {
				s.noise = bytes.Clone(text)
			}
			return text, false, nil
		}
		r.began, s.noise = true, nil
		return text[i+len(mark):], true, nil
	}
	mark := []byte(s.nonce + ">" + r.number + " ")
	i := bytes.Index(text[seen:], mark)
	if i < 0 {
		if len(text) > maxAnswer {
			return nil, false, &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf(
				"a request answers more than %d MiB", maxAnswer>>20)}
		}
		return text, false, nil
	}
	i += seen
	end := bytes.IndexByte(text[i:], '\n')
	if end < 0 {
		return text, false, nil
	}
	code, err := strconv.Atoi(string(text[i+len(mark) : i+end]))
	if err != nil {
		return nil, false, &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf("its shell says no exit code: %w", err)}
	}
	r.answer(bytes.Clone(text[:i]), code, nil)
	if s.pending = s.pending[1:]; len(s.pending) > 0 {
		s.watch.Reset(s.bound)
	} else {
		s.watch.Stop()
	}
	return text[i+end+1:], true, nil
}

// hangs ends a shell whose first request takes too long. Those behind it have not run; whether they
// will, nobody knows.
func (h *Host) hangs(s *shell) {
	s.stream.Kill()
	s.mu.Lock()
	if s.self.PID > 1 { // it has said who it is
		h.hung.add(s.self)
	}
	s.mu.Unlock()
	err := fmt.Errorf("a request was not answered within %s%s", s.bound, s.heard())
	s.fail(&host.Trouble{Code: job.ShellBroken, Err: err})
}

// fail ends the shell, and all that wait for it.
func (s *shell) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		s.watch.Stop()
		for _, r := range s.pending {
			r.answer(nil, 0, err)
		}
		s.pending = nil
		close(s.dead)
	}
	s.mu.Unlock()
	_ = s.stream.Close()
}

// facts are what does not change as long as a session of the shell lives.
type facts struct {
	boot    string
	machine string
	umask   uint64
	uid     string
	user    string
	locks   uint64 // the limit of file locks
	environ []string
	clock   *procfs.Clock
}

// learn asks for the facts. It also lays down the names that later requests use: the shell finds
// the tools that Pawl needs whatever PATH the login files set.
func (h *Host) learn(s *shell) (f facts, err error) {
	var exports strings.Builder
	for _, v := range h.cfg.Environ {
		exports.WriteString(script.Export(v))
	}
	f.clock = &procfs.Clock{}
	out, _, err := s.ask(h.ctx, `unset OLDPWD SHLVL SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK
`+exports.String()+`pawl_tool() { pawl_path=$PATH PATH=/usr/bin:/bin:/usr/local/bin:$PATH; command -v "$1"; set -- $?
	PATH=$pawl_path; return $1; }
pawl_setsid=$(pawl_tool setsid) pawl_cat=$(pawl_tool cat) pawl_head=$(pawl_tool head)
pawl_id=$(pawl_tool id) pawl_xargs=$(pawl_tool xargs)
pawl_missing= pawl_bare=; for pawl_t in `+strings.Join(script.Tools(), " ")+`; do
	command -v "$pawl_t" >/dev/null || pawl_bare=yes
	pawl_tool "$pawl_t" >/dev/null || pawl_missing="$pawl_missing $pawl_t"
done
[ -z "$pawl_bare" ] || PATH=${PATH:+$PATH:}/usr/bin:/bin:/usr/local/bin # behind what the account has
[ -r /proc/self/stat ] || pawl_missing="$pawl_missing /proc"
pawl_is() { s=; while read -r l; do s="$s $l"; done <"/proc/$1/stat"; s=${s##*") "}; set -- "$2" $s
	[ "$1" = "${21}" ]; } 2>/dev/null
echo "missing:$pawl_missing"; umask; "$pawl_id" -u; "$pawl_id" -un
n= i=; { read -r n </proc/sys/kernel/hostname; read -r i </etc/machine-id; } 2>/dev/null; echo "$n $i"
echo "$pawl_setsid"; "$pawl_cat" /proc/sys/kernel/random/boot_id /proc/uptime /proc/$$/stat /proc/self/limits
echo @; "$pawl_cat" /proc/self/environ`)
	said, environ, _ := strings.Cut(string(out), "\n@\n")
	missing, said, _ := strings.Cut(said, "\n")
	lines := strings.SplitN(said, "\n", 9)
	if err != nil {
		return f, err
	}
	if lack := strings.Fields(missing); len(lack) > 1 && lack[0] == "missing:" {
		return f, lacking(h.cfg.Address, lack[1:])
	}
	if len(lines) < 9 || lines[4] == "" || lines[5] == "" {
		return f, &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf("the shell of %s does not answer as a "+
			"shell of Linux does, but with %q", h.cfg.Address, clip(out))}
	}
	umask, err1 := strconv.ParseUint(lines[0], 8, 32)
	_, err2 := f.clock.Set(lines[6])
	self, err3 := procfs.ParseStat([]byte(lines[7]))
	if err := errors.Join(err1, err2, err3); err != nil {
		return f, &host.Trouble{Code: job.ShellBroken, Err: fmt.Errorf(
			"what the shell of %s answers: %w", h.cfg.Address, err)}
	}
	f.umask, f.uid, f.user, f.boot, f.locks = umask, lines[1], lines[2], lines[5], procfs.LockLimit([]byte(lines[8]))
	f.machine = strings.TrimSpace(lines[3])
	s.mu.Lock()
	s.self = self
	s.mu.Unlock()
	for v := range strings.SplitSeq(strings.TrimSuffix(environ, "\x00"), "\x00") {
		// What the shell itself sets differs from program to program.
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name) {
			f.environ = append(f.environ, v)
		}
	}
	return f, nil
}

// lacking is the error of a machine that lacks tools.
func lacking(address string, missing []string) error {
	return &host.Trouble{Code: job.ToolsMissing, Err: fmt.Errorf("%s lacks %s, which Pawl needs", address,
		script.Packages(missing))}
}
