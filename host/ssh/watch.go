package ssh

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/host/ssh/script"
	"github.com/pawl-jobs/pawl/job"
)

// looking is what a watch runs. It prints lists of names: the first at once, another each time the
// names are no longer the same. Each name ends with a zero byte, and a list with an empty name.
// IFS parts the names that are compared: no name has a slash. Every five seconds or so it prints a
// list with nothing but a slash, which is no news, so that it ends when nobody reads any more.
// Where there is a [host.Bell] it waits for that, and a subshell, which ends soon after it, rings
// each second.
const looking = `{ no() { if [ -e "$1" ]; then echo P; else echo N; fi; exit; }
cd %[1]s 2>/dev/null || no %[1]s
PATH=/usr/bin:/bin:$PATH IFS=/ last= i=0 often=25
if [ -p .bell ] && command exec 7<>.bell; then
	often=5
	(while [ -e /proc/$$/fd/7 ] && sleep 1; do echo; done) </dev/null >&7 2>/dev/null &
fi
echo %[2]s
while [ . -ef %[1]s ]; do
	set -- *
	if [ $# = 1 ] && [ ! -e "$1" ] && [ ! -L "$1" ]; then set --; fi
	i=$((i + 1))
	if [ "$*" != "$last" ] || [ $i = 1 ]; then
		last=$* i=1
		[ $# = 0 ] || printf '%%s\000' "$@"
		printf '\000'
	elif [ $i -gt $often ]; then
		i=1; printf '/\000\000' || exit
	fi
	if [ $often = 5 ]; then read -r ring <&7; else sleep 0.2; fi
done; exit
}
`

const (
	maxSilence = time.Minute // of a watch: it says something about every five seconds
	maxNames   = 16384       // how many names wait for a slow reader
)

// Watch looks at a folder five times a second, in a session of its own, or when its [host.Bell]
// rings. It does not tell a name that came and went between two looks. Each look without a bell is
// a process on the far machine, which may be the login node of many.
func (h *Host) Watch(ctx context.Context, dir string) (<-chan host.Event, error) {
	if err := errors.Join(ctx.Err(), files.Check(dir)); err != nil {
		return nil, err
	}
	s, err := await(ctx, h, func() (*connection.Session, error) { return h.session(nil) },
		func(s *connection.Session) { _ = s.Close() })
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		s.Kill()
		_ = s.Close()
	})
	r, known, err := h.look(s, dir)
	if err != nil {
		stop()
		_ = s.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	events, lists := make(chan host.Event), make(chan []string)
	h.goes(func() {
		defer close(lists)
		defer s.Close()
		silent := s.Expire(maxSilence)
		defer silent.Stop()
		for {
			names, err := list(r)
			if err != nil {
				return
			}
			silent.Reset(maxSilence)
			if len(names) == 1 && names[0] == "/" {
				continue
			}
			lists <- names
		}
	})
	h.goes(func() {
		relay(ctx, known, lists, events)
		close(events)
		stop()
		s.Kill()
		_ = s.Close()
		for range lists { // so that its sender ends
		}
	})
	return events, nil
}

// look begins to watch, and returns the names that are there.
func (h *Host) look(s *connection.Session, dir string) (*bufio.Reader, []string, error) {
	late := s.Expire(h.cfg.Answer)
	defer late.Stop()
	nonce := rand.Text()
	r := bufio.NewReader(s)
	_, err := fmt.Fprintf(s, strings.Replace(looking, "{ ", "{ echo "+nonce+"\n", 1), script.Quote(dir), nonce+"+")
	for line := ""; err == nil && !strings.HasSuffix(line, nonce+"\n"); {
		line, err = r.ReadString('\n') // login files print what they like, also half a line
	}
	var answer string
	if err == nil {
		answer, err = r.ReadString('\n')
	}
	switch {
	case err != nil:
		return nil, nil, s.Lost(job.ShellBroken, err)
	case answer == "N\n":
		return nil, nil, fs.ErrNotExist
	case answer == "P\n":
		return nil, nil, fs.ErrPermission
	}
	names, err := list(r)
	if err != nil {
		err = s.Lost(job.ShellBroken, err)
	}
	return r, names, err
}

// list reads one list.
func list(r *bufio.Reader) (names []string, err error) {
	for {
		name, err := r.ReadString(0)
		if err != nil {
			return nil, err
		}
		if name == "\x00" {
			return names, nil
		}
		names = append(names, name[:len(name)-1])
	}
}

// relay tells the names that each list has more than the one before.
func relay(ctx context.Context, last []string, lists <-chan []string, events chan<- host.Event) {
	known := set(last)
	var waiting []host.Event
	for {
		var out chan<- host.Event
		var next host.Event
		if len(waiting) > 0 {
			out, next = events, waiting[0]
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			waiting = waiting[1:]
		case names, ok := <-lists:
			if !ok {
				return
			}
			for _, name := range names {
				if !known[name] {
					waiting = append(waiting, host.Event{Name: name})
				}
			}
			if known = set(names); len(waiting) > maxNames {
				waiting = []host.Event{{Overflow: true}}
			}
		}
	}
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}
