// Package shell makes, reads and removes many small files by one request of a shell, on a machine
// where each call costs a round trip. It implements [files.Filler], [files.Loader],
// [files.ReaderOfMany] and [files.RemoverOfMany] for a file system of that machine.
//
// Requests that wait for each other are put together: then they share a round trip, and the
// programs that the shell starts. Where the shell cannot do what is asked, it is done by the file
// system, and that says why it cannot.
//
// The machine needs coreutils and findutils of GNU, or programs that know their options.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/gather"
	"github.com/pawl-jobs/pawl/job"
)

// Files are the files of a machine with a shell. It must not be copied.
type Files struct {
	// Run runs a command of /bin/sh, as a whole or not at all, and returns what it printed. The
	// command changes nothing of the shell and does not read its input. Required.
	Run func(ctx context.Context, script string) ([]byte, error)
	// Rest is the file system of the same machine. Required.
	Rest files.FS

	fills    gather.Queue[*task[[]files.Small, struct{}]]
	loads    gather.Queue[*task[string, *files.Loaded]]
	removals gather.Queue[*task[[]string, struct{}]]
}

var (
	_ files.Filler        = (*Files)(nil)
	_ files.Loader        = (*Files)(nil)
	_ files.ReaderOfMany  = (*Files)(nil)
	_ files.RemoverOfMany = (*Files)(nil)
)

const (
	most     = 32       // tasks in one request
	maxFiles = 100      // files of one Load
	maxDepth = 3        // how deep they are at most
	maxRead  = 16 << 10 // bytes of a file that Load reads
	// A program syncs so many files at most, and so many programs do at once: a disk that has several
	// files to write at the same time takes about as long as for one.
	alone   = 8
	syncers = 8
	// patience is how many seconds of a processor a request may use that removes what a program
	// left. Meanwhile others wait.
	patience = 5
)

// errNot says that the shell has not done it, for a reason that is to be found out.
var errNot = fmt.Errorf("not by one request: %w", errors.ErrUnsupported)

// A task waits for its part of a request.
type task[Q, A any] struct {
	of   Q
	done chan struct{}
	a    A
	err  error
}

// do adds a task to a queue, and waits until it is done or ctx ends. The request itself goes on,
// for it is that of others, too.
func do[Q, A any](ctx context.Context, q *gather.Queue[*task[Q, A]], of Q,
	serve func(context.Context, []*task[Q, A]) error,
) (A, error) {
	t := &task[Q, A]{of: of, done: make(chan struct{}), err: errNot}
	q.Add(t, most, func(all []*task[Q, A]) {
		err := serve(context.WithoutCancel(ctx), all)
		for _, t := range all {
			if err != nil {
				t.err = err
			}
			close(t.done)
		}
	})
	select {
	case <-t.done:
		return t.a, t.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// begin is the beginning of each script.
const begin = `PATH=/usr/bin:/bin:/usr/local/bin:$PATH
there() { [ -e "$1" ] || [ -L "$1" ]; }
`

// Fill implements [files.Filler].
func (f *Files) Fill(ctx context.Context, list []files.Small) error {
	size := 0
	for _, s := range list {
		if err := files.Check(s.Name); err != nil {
			return err
		}
		size += len(s.Content)
	}
	if size > files.MaxManyBytes || len(list) > files.MaxMany || ctx.Err() != nil {
		return errors.Join(errNot, ctx.Err())
	}
	_, err := do(ctx, &f.fills, list, f.fill)
	return err
}

func (f *Files) fill(ctx context.Context, all []*task[[]files.Small, struct{}]) error {
	var free, folders, puts, durable, names, made strings.Builder
	syncs := 0
	modes := map[fs.FileMode]*strings.Builder{} // files whose mode the umask does not give
	for i, t := range all {
		fmt.Fprintf(&free, "t%d=1\n", i)
		above, holds := map[string]bool{}, map[string]bool{}
		for _, s := range t.of {
			fmt.Fprintf(&free, "there %s && { t%d=; echo '%d exists'; }\n", quote(s.Name), i, i)
			dir := s.Name
			if s.Mode.IsDir() {
				fmt.Fprintf(&made, "[ -d %s ] || t%d=\n", quote(s.Name), i)
			} else {
				dir = path.Dir(s.Name)
				fmt.Fprintf(&puts, "[ \"$t%d\" ] && { umask %o; %s >%s || t%d=; }\n",
					i, 0o666&^s.Mode.Perm(), text(s.Content), quote(s.Name), i)
				if !s.NoSync {
					syncs++
					fmt.Fprintf(&durable, "[ \"$t%d\" ] && set -- \"$@\" %s\n", i, quote(s.Name))
					if !holds[dir] {
						holds[dir] = true
						fmt.Fprintf(&names, "[ \"$t%d\" ] && set -- \"$@\" %s\n", i, quote(dir))
					}
				}
				if mode := s.Mode.Perm(); mode&0o111 != 0 {
					if modes[mode] == nil {
						modes[mode] = &strings.Builder{}
					}
					fmt.Fprintf(modes[mode], "[ \"$t%d\" ] && set -- \"$@\" %s\n", i, quote(s.Name))
				}
			}
			if !above[dir] {
				above[dir] = true
				fmt.Fprintf(&folders, "[ \"$t%d\" ] && set -- \"$@\" %s\n", i, quote(dir))
			}
		}
		fmt.Fprintf(&made, "[ \"$t%d\" ] && echo '%d made'\n", i, i)
	}
	script := begin + "umask go-w\n" + free.String() + "set --\n" + folders.String() +
		"[ $# = 0 ] && exit\nmkdir -p \"$@\"\nset -C\n" + puts.String()
	for mode, named := range modes {
		script += fmt.Sprintf("set --\n%s[ $# = 0 ] || chmod %o \"$@\" || exit\n", named, mode)
	}
	const sync = "[ $# = 0 ] || sync \"$@\" || exit\n"
	if syncs <= alone {
		script += "set --\n" + durable.String() + names.String() + sync
	} else {
		script += fmt.Sprintf("set --\n%s[ $# = 0 ] || printf '%%s\\000' \"$@\" | xargs -0 -n %d -P %d sync || exit\nset --\n%s",
			durable.String(), alone, syncers, names.String()) + sync
	}
	script += made.String()
	return f.ask(ctx, script, len(all), func(i int, what string) {
		switch what {
		case "exists":
			all[i].err = fs.ErrExist
		case "made":
			all[i].err = nil
		}
	})
}

// text is a command that prints some bytes.
func text(b []byte) string {
	s := string(b)
	if !strings.Contains(s, "\x00") {
		return "printf %s " + quote(s)
	}
	return "printf %b " + quote(strings.NewReplacer(`\`, `\\`, "\x00", `\0000`).Replace(s))
}

// ask runs a script that says something of tasks, in lines of their number and a word.
func (f *Files) ask(ctx context.Context, script string, tasks int, says func(i int, what string)) error {
	out, err := f.Run(ctx, "(\n"+script+"\n) </dev/null 2>/dev/null")
	for line := range strings.Lines(string(out)) {
		number, what, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < tasks {
			says(i, what)
		}
	}
	return err
}

// RemoveAll implements [files.RemoverOfMany].
func (f *Files) RemoveAll(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var errs, refused []error
	for _, name := range names {
		err := files.Check(name)
		if name == "/" {
			err = job.Errorf(job.Invalid, "remove %s: refused", name)
		}
		if err != nil {
			refused = append(refused, err)
		}
	}
	if refused == nil && len(names) <= files.MaxMany && ctx.Err() == nil {
		if _, err := do(ctx, &f.removals, names, f.remove); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	for _, name := range names {
		errs = append(errs, f.Rest.Remove(ctx, name))
	}
	return errors.Join(errs...)
}

func (f *Files) remove(ctx context.Context, all []*task[[]string, struct{}]) error {
	script, look := begin+"set --", ""
	for i, t := range all {
		for _, name := range t.of {
			script += " " + quote(name)
			look += "there " + quote(name) + " || "
		}
		look += fmt.Sprintf("echo '%d gone'\n", i)
	}
	script += fmt.Sprintf("\nulimit -t %d\nrm -rf --one-file-system \"$@\"\n%s", patience, look)
	return f.ask(ctx, script, len(all), func(i int, what string) {
		if what == "gone" {
			all[i].err = nil
		}
	})
}

// quote makes a word of the shell of any text without a zero byte.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
