package ssh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/host/internal/procfs"
	"github.com/pawl-jobs/pawl/host/ssh/members"
	"github.com/pawl-jobs/pawl/host/ssh/script"
	"github.com/pawl-jobs/pawl/job"
)

var (
	_ host.Host  = (*Host)(nil)
	_ host.Shell = (*Host)(nil)
)

// known returns what the shell has learned, without a round trip if there is a shell.
func (h *Host) known(ctx context.Context) (facts, error) {
	s, err := h.sh(ctx)
	if err != nil {
		return facts{}, err
	}
	return s.facts, nil
}

// Boot returns the kernel's boot id. It makes no round trip while the connection lives.
func (h *Host) Boot(ctx context.Context) (string, error) {
	f, err := h.known(ctx)
	return f.boot, err
}

// Machine returns the machine's host name and its id, see machine-id(5). It makes no round trip
// while the connection lives.
func (h *Host) Machine(ctx context.Context) (string, error) {
	f, err := h.known(ctx)
	return f.machine, err
}

// Environ returns the environment of a login, with [Config.Environ]. It makes no round trip while
// the connection lives.
func (h *Host) Environ(ctx context.Context) ([]string, error) {
	f, err := h.known(ctx)
	return slices.Clone(f.environ), err
}

// LockLimit makes no round trip while the connection lives.
func (h *Host) LockLimit(ctx context.Context) (uint64, error) {
	f, err := h.known(ctx)
	if err == nil && f.locks == 0 {
		f.locks = math.MaxUint64
	}
	return f.locks, err
}

// Uptime makes no round trip but one in ten minutes. It is behind the machine's clock by less than
// a round trip and 10 ms, and never before the start of a process that Start has returned.
func (h *Host) Uptime(ctx context.Context) (time.Duration, error) {
	f, err := h.known(ctx)
	if err != nil {
		return 0, err
	}
	if up, ok := f.clock.Now(); ok {
		return up, nil
	}
	text, err := h.tell(ctx, `read -r up </proc/uptime; echo "$up"`)
	if err != nil {
		return 0, err
	}
	up, err := f.clock.Set(text)
	if err != nil {
		return 0, fmt.Errorf("uptime of %s: %w", h.cfg.Address, err)
	}
	return up, nil
}

// Start starts a detached program with setsid, by two forks: that of the shell's substitution, and
// that of setsid. No shell starts it in the background, because then it would ignore SIGINT and
// SIGQUIT.
func (h *Host) Start(ctx context.Context, c host.Command) (host.Process, error) {
	if len(c.Argv) == 0 || !path.IsAbs(c.Argv[0]) {
		return host.Process{}, job.Errorf(job.Invalid, "start %q: the program is not an absolute path", c.Argv)
	}
	for _, v := range slices.Concat(c.Argv, []string{c.Dir, c.Stdout, c.Stderr}) {
		if strings.Contains(v, "\x00") {
			return host.Process{}, job.Errorf(job.Invalid, "start %q: %q has a zero byte in it", c.Argv, v)
		}
	}
	s, err := h.sh(ctx)
	if err != nil {
		return host.Process{}, err
	}
	var text strings.Builder
	text.WriteString("pawl_start=$(set --")
	for _, a := range c.Argv {
		text.WriteString(" " + script.Quote(a))
	}
	dir, stdout, stderr := script.Quote(c.Dir), script.Quote(c.Stdout), script.Quote(c.Stderr)
	fmt.Fprintf(&text, "\n"+
		"no() { if [ -e \"$1\" ]; then echo \"P $2\"; else echo \"N $2\"; fi; exit; }\n"+
		"[ -f \"$1\" ] && [ -x \"$1\" ] || no \"$1\" \"$1\"\n"+
		"cd %s || no %[1]s %[1]s\n"+
		"umask %[4]o; true >>%[2]s || no %[5]s %[2]s; true >>%[3]s || no %[6]s %[3]s\n"+
		"exec 3>&1 </dev/null >>%[2]s 2>>%[3]s; umask %[7]o\n",
		dir, stdout, stderr, s.facts.umask|0o022, script.Quote(path.Dir(c.Stdout)), script.Quote(path.Dir(c.Stderr)), s.facts.umask)
	for _, v := range c.Env {
		if !script.Exportable(v) {
			return host.Process{}, job.Errorf(job.Invalid, "start %q: %q is no variable that a shell can pass on",
				c.Argv, v)
		}
		text.WriteString(script.Export(v))
	}
	text.WriteString(`unset OLDPWD
exec "$pawl_setsid" -f /bin/sh -c 'read -r s </proc/$$/stat; echo "S $s" >&3; exec "$@" 3>&-' sh "$@") 2>/dev/null
echo "$pawl_start"`)
	out, _, err := s.ask(ctx, text.String())
	if err != nil {
		return host.Process{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	kind, what, _ := strings.Cut(strings.TrimSuffix(string(out), "\n"), " ")
	switch kind {
	case "N":
		return host.Process{}, &fs.PathError{Op: "start", Path: what, Err: fs.ErrNotExist}
	case "P":
		return host.Process{}, &fs.PathError{Op: "start", Path: what, Err: fs.ErrPermission}
	}
	st, err := procfs.ParseStat([]byte(what))
	if kind != "S" || err != nil {
		return host.Process{}, fmt.Errorf("start %s: its shell answers %q, see also %s", c.Argv[0], clip(out), c.Stderr)
	}
	p := host.Process{PID: st.PID, Start: st.Start, Boot: s.facts.boot}
	s.facts.clock.AtLeast(p.Started())
	return p, nil
}

// Alive reads the files of all processes by one program.
func (h *Host) Alive(ctx context.Context, ps []host.Process) ([]bool, error) {
	boot, err := h.Boot(ctx)
	if err != nil {
		return nil, err
	}
	alive := make([]bool, len(ps))
	var names []string
	for _, p := range ps {
		if p.PID > 1 && p.Boot == boot {
			names = append(names, strconv.Itoa(p.PID)+"/stat")
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	starts := map[int]uint64{}
	for few := range slices.Chunk(names, 10_000) {
		out, err := h.tell(ctx, `(cd /proc && exec "$pawl_head" -v -c 1024 `+strings.Join(few, " ")+
			") 2>/dev/null </dev/null; "+script.Ran)
		if err != nil {
			return nil, fmt.Errorf("look at processes: %w", err)
		}
		for _, text := range script.Heads([]byte(out), few) {
			// A process that ends while it is read has an empty file.
			if st, err := procfs.ParseStat(text); err == nil && st.Alive() {
				starts[st.PID] = st.Start
			}
		}
	}
	for i, p := range ps {
		start, is := starts[p.PID]
		alive[i] = is && start == p.Start && p.Boot == boot
	}
	return alive, nil
}

// Members looks as [members.Census.Find] says.
func (h *Host) Members(ctx context.Context, fs []host.Family) ([][]host.Member, error) {
	f, err := h.known(ctx)
	if err != nil {
		return nil, err
	}
	return h.census.Find(ctx, members.Machine{Tell: h.tell, Boot: f.boot, UID: f.uid, User: f.user, Locks: f.locks}, fs)
}

// Signal compares the start of each process in the same request that signals it.
func (h *Host) Signal(ctx context.Context, ps []host.Process, sig syscall.Signal) error {
	boot, err := h.Boot(ctx)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range ps {
		if p.PID > 1 && p.Boot == boot {
			fmt.Fprintf(&text, "pawl_is %d %d && ! kill -%d %[1]d 2>/dev/null && pawl_is %[1]d %[2]d && echo %[1]d\n",
				p.PID, p.Start, int(sig))
		}
	}
	if text.Len() == 0 {
		return nil
	}
	out, err := h.tell(ctx, text.String()+"true")
	if err != nil {
		return fmt.Errorf("signal processes: %w", err)
	}
	var errs []error
	for pid := range strings.FieldsSeq(out) {
		errs = append(errs, fmt.Errorf("signal process %s: %w", pid, syscall.EPERM))
	}
	return errors.Join(errs...)
}
