// Package spool is what runners share whose launches are shell scripts: how a launch is decided by
// files in the job's folder, how the script tells the end of its program, and what stays of a job
// that was cleaned.
//
// # Files of a launch
//
// The files of launch n of attempt a are in [runner.Folder] of the job. [Names] has their names:
//
//	launch.<a>.<n>        who may start the script that launches
//	taken.<a>.<n>         who may start the program
//	KIND.<a>.<n>.<token>  what one launcher, or one settler, wrote for itself
//
// The first two are made once, and never moved or removed: who makes one has decided. What each
// runner writes there stands in its own package.
//
// # Messages and rooms
//
// The script stays beside the program to tell its end, as a message in the spool folder (see
// [runner.EndName]). Before it takes the launch, it makes a file that has room for the end:
// <spool>/.rooms/<message>. If it cannot, it takes nothing. Then the first line of the room says
// who took the launch. The end is written there first, so that a full disk cannot lose it, and then
// as the message. Neither file is in the job's folder, where a program may change anything: if a
// room says who took a launch, that counts.
//
// A script may also put an empty file <spool>/begun.<message> there when its program begins. A
// watch takes it away, and tells its caller to look at the launch.
//
// # Marks
//
// When a job's folder is cleaned, the room with its program's exit code is renamed to the job's
// mark, <past>/<day>/<job>. The day is that on which the job was made. So the marks of a day are
// forgotten together, and no folder becomes very large. A launcher looks for the mark first. A
// launcher that looked before the job was cleaned, and then froze, finds no folder to arm in.
package spool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner"
)

// Config configures a Spool.
type Config struct {
	// Host is where the folders are. Required.
	Host host.Host
	// Dir is the spool folder, absolute on the host. Required.
	Dir string
	// PastDir is the folder for the marks of cleaned jobs, absolute on the host. Default: the name
	// of Dir followed by ".past".
	PastDir string
	// Log receives what operators should know; [slog.Default] by default.
	Log *slog.Logger

	// Fate tells what has become of a launch that has a launch.<a>.<n>. It changes nothing. open:
	// it is not settled. Required.
	Fate func(ctx context.Context, k runner.Key, dir string) (fate runner.Fate, open bool, err error)
	// Alive reports of ends, and the scripts that took their launches, which scripts are alive, or
	// else have to be waited for. A message counts when its script is gone, or has told it Parting
	// ago. Nil: a message counts at once.
	Alive func(ctx context.Context, ends []*runner.End, taken []Words) ([]bool, error)
	// Parting is how long a script may take that has told its end; 200 ms by default. Meanwhile it
	// is looked at every LookAgain; 2 ms by default.
	Parting, LookAgain time.Duration
	// Begun is told of each launch that has begun. Nil: nobody is.
	Begun func(runner.Key)
	// Look reports whether the end in a message counts only after a look; see
	// [runner.Notice]. Nil: it always does.
	Look func(*runner.End) bool
	// Scheduled says that a scheduler runs the scripts: on other machines, and it may run one again.
	// So a launch may have runs after run 0, each with a room and a message.
	Scheduled bool
	// Relist is how often the spool is listed beside the watch of the host, which may not see what
	// another machine writes; 0: never.
	Relist time.Duration
}

// Spool is the messages, rooms and marks of one account on one host.
type Spool struct {
	Config
	FS files.FS // of the host

	mu      sync.Mutex
	watches map[*watch]bool // guarded by mu: those that go on
	caution *caution        // guarded by mu: of the watch that began last; nil: there is none
	swept   time.Time       // guarded by mu: when it was last looked for messages that nobody takes
}

// New returns a spool. It does no I/O.
func New(c Config) *Spool {
	c.PastDir = cmp.Or(c.PastDir, c.Dir+".past")
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Parting, c.LookAgain = cmp.Or(c.Parting, parting), cmp.Or(c.LookAgain, lookAgain)
	return &Spool{Config: c, FS: c.Host.Files(), watches: map[*watch]bool{}}
}

// Make makes the folders. Messages come and go all the time, and rooms stay, as marks.
func (s *Spool) Make(ctx context.Context) error {
	err := files.Spread(ctx, s.FS, s.Dir)
	if err == nil {
		err = s.FS.Mkdir(ctx, path.Join(s.Dir, Rooms))
	}
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	return nil
}

// Shell returns the shell of the host; nil: calls cost no round trips there.
func (s *Spool) Shell() host.Shell {
	sh, _ := s.Host.(host.Shell)
	return sh
}

// Names are the file names of one launch, and of one launcher or settler of it.
type Names struct {
	Folder string // [runner.Folder] of the job
	Number string // <a>.<n>
	Token  string // of the launcher or settler, random
}

// NewNames returns the names of a launch, with a new token.
func NewNames(k runner.Key, dir string) (Names, error) {
	if err := errors.Join(k.Check(), files.Check(dir)); err != nil {
		return Names{}, err
	}
	return NamesOf(k, dir, rand.Text()), nil
}

// NamesOf returns the names of a launch with a token.
func NamesOf(k runner.Key, dir, token string) Names {
	return Names{Folder: path.Join(dir, runner.Folder), Number: Number(k), Token: token}
}

// Number is how the files of a launch end.
func Number(k runner.Key) string { return fmt.Sprintf("%d.%d", k.Attempt, k.Launch) }

// Arming returns the name that decides who may start the script.
func (n Names) Arming() string { return n.Of("launch") }

// Taken returns the name that decides who may start the program.
func (n Names) Taken() string { return n.Of("taken") }

// Of returns the name of a file of the launch.
func (n Names) Of(kind string) string { return path.Join(n.Folder, kind+"."+n.Number) }

// Own returns a name that only this launcher or settler writes.
func (n Names) Own(kind string) string { return n.Of(kind) + "." + n.Token }

// Words are the content of a file of a launch. The first word says what it means.
type Words []string

// Is reports whether the first word is as given, and how many follow.
func (w Words) Is(word string, more int) bool { return len(w) == more+1 && w[0] == word }

// maxWords is the most bytes in such a file.
const maxWords = 4096

// A Taker is who took a launch: a script.
type Taker struct {
	Token   string
	Process host.Process // the script
	Locks   uint64       // the limit of file locks of its programs; 0: they have none of their own
	Rest    []string     // what else the runner writes
}

// Taker reads who took a launch.
func (w Words) Taker() (t Taker, ok bool) {
	if len(w) < 6 || w[0] != "taken" {
		return t, false
	}
	t.Token, t.Process.Boot, t.Rest = w[1], w[2], w[6:]
	_, err := fmt.Sscan(strings.Join(w[3:6], " "), &t.Process.PID, &t.Process.Start, &t.Locks)
	return t, err == nil
}

// Write writes a file that is to be linked to the name that counts.
func (s *Spool) Write(ctx context.Context, name, words string) error {
	return s.FS.Put(ctx, name, strings.NewReader(words+"\n"), files.PutOptions{Passing: true})
}

// LinkOnce makes a name with whole content, unless it is there.
func (s *Spool) LinkOnce(ctx context.Context, m Names, kind, words, name string) error {
	if err := s.Write(ctx, m.Own(kind), words); err != nil {
		return err
	}
	return unlessThere(s.FS.Link(ctx, m.Own(kind), name))
}

// QuickLinkOnce is LinkOnce where a power failure may take the name.
func (s *Spool) QuickLinkOnce(ctx context.Context, m Names, kind, words, name string) error {
	if err := s.Write(ctx, m.Own(kind), words); err != nil {
		return err
	}
	return unlessThere(files.QuickLink(ctx, s.FS, m.Own(kind), name))
}

func unlessThere(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Read returns what a name holds, nil if it is not there.
func (s *Spool) Read(ctx context.Context, name string) (Words, error) {
	b, err := files.ReadFile(ctx, s.FS, name, maxWords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return append(Words{}, strings.Fields(string(b))...), nil
}

// Acknowledge implements [runner.Runner]: it removes messages.
func (s *Spool) Acknowledge(ctx context.Context, names []string) error {
	var errs []error
	for few := range slices.Chunk(names, maxPeek) {
		var told []string
		for _, name := range few {
			if _, _, err := runner.ParseEndName(name); err != nil {
				errs = append(errs, fmt.Errorf("acknowledge %s: %w", name, err))
				continue
			}
			told = append(told, path.Join(s.Dir, name))
		}
		if err := files.RemoveAll(ctx, s.FS, told...); err != nil {
			errs = append(errs, fmt.Errorf("acknowledge ends: %w", err))
			continue
		}
		s.mu.Lock()
		for w := range s.watches {
			for _, name := range few {
				delete(w.given, name)
			}
		}
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Told implements [runner.Runner]: it lists the messages.
func (s *Spool) Told(ctx context.Context) (all []runner.Notice, err error) {
	names, err := files.Names(ctx, s.FS, s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", s.Dir, err)
	}
	for _, name := range names {
		if k, _, err := runner.ParseEndName(name); err == nil {
			all = append(all, runner.Notice{Key: k, Name: name})
		}
	}
	return all, nil
}

// notArmed is [runner.ErrNotArmed], and says why.
type notArmed struct{ error }

func (e *notArmed) Unwrap() []error { return []error{e.error, runner.ErrNotArmed} }

// NotArmed returns err as one of a launch that was not armed.
func NotArmed(err error) error { return &notArmed{err} }

// Said returns what the script of a launch said by itself, such as why it gave up; "" if it cannot
// be read.
func (s *Spool) Said(ctx context.Context, k runner.Key, dir, token string) string {
	f, err := s.FS.Open(ctx, NamesOf(k, dir, token).Own("log"))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, saying))
	return strings.ToValidUTF8(strings.Trim(string(b), " \t\r\n\x00"), "\uFFFD")
}

// GaveUp is the end of a launch whose script gave up before it took it, for what the script said.
func (s *Spool) GaveUp(ctx context.Context, h runner.Handle, dir, boot, said string) *runner.End {
	why, _, _ := strings.Cut(said, "\n")
	rooms := path.Join(s.Dir, Rooms)
	switch {
	case strings.Contains(why, "fork"): // the only word for it that all shells have
		why = runner.CannotFork
	case strings.HasSuffix(why, "uota exceeded"): // glibc says of what it is a quota
		why = runner.OverQuota
	case s.full(ctx, dir): // which keeps no word of it
		why = runner.NoRoom
	case s.full(ctx, rooms):
		why = runner.NoRoom + runner.NoRoomIn + rooms
	case strings.Contains(why, "No space left"):
		why = runner.NoRoom
	default:
		why = cmp.Or(why, "it said nothing more: it was killed, or the file system was full")
		why = runner.GaveUp + strings.ToValidUTF8(why[:min(len(why), 250)], "")
	}
	return &runner.End{Key: h.Key, Token: h.Token, Boot: boot, Code: 126, Ended: time.Now().UTC(), NotStarted: why}
}

// NoRoom reports whether an error says that a file system takes nothing more of the account.
func NoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS)
}

// full reports whether the file system of a folder takes nothing.
func (s *Spool) full(ctx context.Context, dir string) bool {
	at, can := s.FS.(files.Sizer)
	if !can {
		return false
	}
	space, err := at.Space(ctx, dir)
	const enough = 64 << 10 // for what a launch leaves
	return err == nil && (space.NoFile || space.ReadOnly || space.Free < enough)
}
