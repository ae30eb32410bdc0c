package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// ownerFile names the process that has a folder on a file system which machines share. There flock
// may count on one machine only, and what holds is that a name is linked once.
const ownerFile = "owner"

// An Owner is a process that has, or had, a folder for itself.
type Owner struct {
	Host      string    `json:"host"`
	MachineID string    `json:"machine_id,omitempty"` // that of the host, see machine-id(5)
	Boot      string    `json:"boot"`                 // since when the host runs
	Space     string    `json:"pid_namespace"`        // in which PID counts
	PID       int       `json:"pid"`
	Start     string    `json:"start"` // when the process began, in ticks since the boot
	Since     time.Time `json:"since"` // when it took the folder
	// Sockets is a folder of the host for the socket of the process: a file system of the network
	// may have none. Empty: it only reads, for a moment.
	Sockets string `json:"sockets,omitempty"`
}

// self returns this process as an owner.
func self() (o Owner, err error) {
	o = Owner{PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second)}
	if o.Host, err = os.Hostname(); err != nil {
		return o, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return o, err
	}
	o.Boot = strings.TrimSpace(string(boot))
	if o.Space, err = os.Readlink("/proc/self/ns/pid"); err != nil {
		return o, err
	}
	id, _ := os.ReadFile("/etc/machine-id") // not every machine has one
	o.MachineID = strings.TrimSpace(string(id))
	o.Start, err = started(o.PID)
	return o, err
}

// started returns when a process began, in ticks since the boot.
func started(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fs.ErrNotExist // nothing of it runs
	}
	return fields[19], nil
}

func (o *Owner) String() string {
	return fmt.Sprintf(holderFormat+" since %s", o.PID, o.Host, o.Since.Format(time.RFC3339))
}

// is reports whether two are the same process, which has taken the folder once.
func (o *Owner) is(p *Owner) bool {
	return o.Host == p.Host && o.Boot == p.Boot && o.Space == p.Space && o.PID == p.PID && o.Start == p.Start
}

// away reports whether the owner is on another host than me, where nobody here can see whether it
// lives.
func (o *Owner) away(me *Owner) bool {
	return o.Host != me.Host || o.MachineID != me.MachineID || o.Boot == me.Boot && o.Space != me.Space
}

// lives reports whether an owner of this host runs.
func (o *Owner) lives(me *Owner) bool {
	if o.Boot != me.Boot {
		return false
	}
	start, err := started(o.PID)
	return err == nil && start == o.Start
}

// An AwayError says that a process on another host has a folder. It is of kind Locked.
type AwayError struct {
	Dir   string
	Owner Owner
	Here  string // the name of this host
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("data folder %s is in use by %v, and this is %s: run the command on %s, or stop that process; "+
		"if %s will never run it again, free the folder with pawl unlock %s",
		e.Dir, &e.Owner, e.Here, e.Owner.Host, e.Owner.Host, e.Owner.Host)
}

// Away returns the error of a folder that a process on another host has; nil: it is another error.
func Away(err error) *AwayError {
	e, _ := errors.AsType[*AwayError](err)
	return e
}

// network reports whether machines share the file system of a folder.
func onNetwork(dir string) (bool, error) {
	at, err := On(dir)
	if err != nil {
		return false, job.Errorf(job.Unavailable, "the file system of %s: %w", dir, err)
	}
	return at.Network, nil
}

// Network reports whether machines share the file system of a folder. Then one process has its
// database, and all others ask that process.
func Network(dir string) bool {
	shared, err := onNetwork(dir)
	return err == nil && shared
}

// OwnerOf returns the process that has a folder on a file system which machines share; nil: none
// has. The error is an [AwayError] where the process is on another host.
func OwnerOf(dir string) (*Owner, error) {
	me, err := self()
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "owner of data folder: %w", err)
	}
	o, err := readOwner(dir)
	switch {
	case err != nil || o == nil:
		return nil, err
	case o.away(&me):
		return o, away(dir, o, &me)
	case o.lives(&me):
		return o, nil
	}
	return nil, nil
}

func away(dir string, o, me *Owner) error {
	return job.Errorf(job.Locked, "%w", &AwayError{dir, *o, me.Host})
}

// readOwner reads who has a folder, or had it and died; nil: nobody.
func readOwner(dir string) (*Owner, error) {
	name := filepath.Join(dir, ownerFile)
	b, err := ReadOwn(name)
	// Another machine may have replaced the file while it was read.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) {
		return nil, nil
	}
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "owner of data folder: %w", err)
	}
	var o Owner
	if err := json.Unmarshal(b, &o); err != nil || o.Host == "" || o.PID <= 1 {
		return nil, job.Errorf(job.Corrupt, "%s does not name a process: if no host runs Pawl on this folder, "+
			"remove that file", name)
	}
	return &o, nil
}

// claim makes this process the owner of a folder on a file system which machines share.
func claim(dir string, reads bool) (me Owner, err error) {
	if me, err = self(); err != nil {
		return me, job.Errorf(job.Unavailable, "owner of data folder: %w", err)
	}
	defer func() {
		if err != nil && me.Sockets != "" {
			os.Remove(me.Sockets)
		}
	}()
	for {
		switch was, err := readOwner(dir); {
		case err != nil:
			return me, err
		case was == nil:
		case was.away(&me) && was.Sockets == "":
			return me, &readingError{away(dir, was, &me)}
		case was.away(&me):
			return me, away(dir, was, &me)
		case was.lives(&me):
			return me, inUse(dir, was.String(), was.Sockets == "")
		default:
			if err := dismiss(dir, was); err != nil {
				return me, err
			}
		}
		if !reads && me.Sockets == "" {
			if me.Sockets, err = os.MkdirTemp("", "pawl-"); err != nil {
				return me, job.Errorf(job.Unavailable, "a folder for the socket: %w", err)
			}
		}
		if err := link(dir, &me); !errors.Is(err, fs.ErrExist) {
			if err != nil {
				err = job.Errorf(job.Unavailable, "take data folder: %w", err)
			}
			return me, err
		}
	}
}

// link gives a folder to an owner if nobody has it. To link a name is one step at the server. Its
// answer may be lost: the number of links tells.
func link(dir string, o *Owner) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+ownerFile+"-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), filepath.Join(dir, ownerFile))
	if info, statErr := os.Stat(f.Name()); err != nil && statErr == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 2 {
			return nil
		}
	}
	return err
}

// dismiss takes a folder from an owner. If somebody else has it by now, it stays with that.
func dismiss(dir string, o *Owner) error {
	aside, err := os.MkdirTemp(dir, "."+ownerFile+"-*")
	if err != nil {
		return job.Errorf(job.Unavailable, "free data folder: %w", err)
	}
	defer os.RemoveAll(aside)
	err = os.Rename(filepath.Join(dir, ownerFile), filepath.Join(aside, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return job.Errorf(job.Unavailable, "free data folder: %w", err)
	}
	now, err := readOwner(aside)
	if err == nil && now != nil && !now.is(o) {
		err = os.Link(filepath.Join(aside, ownerFile), filepath.Join(dir, ownerFile))
	}
	if err != nil {
		return job.Errorf(job.Unavailable, "free data folder: %w", err)
	}
	if here, err := os.Hostname(); err == nil && here == o.Host && o.Sockets != "" {
		os.Remove(filepath.Join(o.Sockets, "socket"))
		os.Remove(o.Sockets)
	}
	return nil
}

// Unlock takes a folder from a process on another host, which must have that name. That process
// must be dead for good, or it and the next one would both write.
func Unlock(dir, host string) (Owner, error) {
	o, err := OwnerOf(dir)
	if shared, err := onNetwork(dir); err != nil {
		return Owner{}, err
	} else if !shared {
		return Owner{}, job.Errorf(job.Conflict,
			"data folder %s is on a disk of this machine, where no other host can have it", dir)
	}
	switch {
	case err != nil && Away(err) == nil:
		return Owner{}, err
	case o == nil:
		return Owner{}, job.Errorf(job.Conflict, "no process has data folder %s: nothing was done", dir)
	case Away(err) == nil:
		return Owner{}, job.Errorf(job.Conflict, "data folder %s is in use by %v, which runs on this host: "+
			"stop it; nothing was done", dir, o)
	case o.Host != host:
		return Owner{}, job.Errorf(job.Conflict, "data folder %s is in use by %v, and not from host %s: "+
			"nothing was done", dir, o, host)
	}
	return *o, dismiss(dir, o)
}

// Sockets returns the folder in which the process listens that has a folder.
func Sockets(dir string) (string, error) {
	if !Network(dir) || Shared(dir) {
		return dir, nil
	}
	o, err := OwnerOf(dir)
	if err != nil {
		return "", err
	}
	if o == nil || o.Sockets == "" {
		return "", job.Errorf(job.NotFound, "no process has data folder %s", dir)
	}
	info, err := os.Lstat(o.Sockets)
	if err == nil {
		err = errors.Join(owned(o.Sockets, info), unwritten(o.Sockets, info))
	}
	return o.Sockets, err
}
