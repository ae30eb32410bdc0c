package bed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/bench"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// A Slurm is a private Slurm on the loopback address with one node, this machine, which pretends to
// have [SlurmCores] cores. It keeps the processes of a job in a control group, as most clusters do,
// where this machine has those of the first version. Its commands for queries are counted.
type Slurm struct {
	dir     string
	node    string    // the name of its node, which no other Slurm of this machine has
	auth    string    // the folder of munge, which has a user of its own
	servers []*server // in the order in which they were started
}

// SlurmCores is how many cores the node pretends to have.
const SlurmCores = 64

// slurmPrograms are what a private Slurm needs.
var slurmPrograms = []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo"}

// StartSlurm starts a Slurm with its files in dir, which it makes. It ends with this process. Where
// that cannot be, the error is a usage error that says what is missing.
func StartSlurm(ctx context.Context, dir string) (_ *Slurm, err error) {
	at := map[string]string{}
	for _, name := range slurmPrograms {
		if at[name], err = exec.LookPath(name); err != nil {
			if at[name], err = exec.LookPath("/usr/sbin/" + name); err != nil {
				return nil, term.Usagef("%s is missing, and a private Slurm is what is measured: install it "+
					"(Debian: apt install slurm-wlm munge)", name)
			}
		}
	}
	if os.Getuid() != 0 {
		return nil, term.Usagef("a node of Slurm needs root: run this as root, in a container for example")
	}
	munge, err := user.Lookup("munge")
	if err != nil {
		return nil, term.Usagef("the user munge is missing: install munge (Debian: apt install munge)")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	s := &Slurm{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start Slurm: %w", err), s.Close())
		}
	}()
	if err := s.files(munge); err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(munge.Uid)
	gid, _ := strconv.Atoi(munge.Gid)
	auth := s.auth
	cmd := exec.Command(at["munged"], "--foreground", "--socket="+auth+"/sock", "--key-file="+auth+"/key",
		"--pid-file="+auth+"/pid", "--log-file="+auth+"/log", "--seed-file="+auth+"/seed")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := s.start(ctx, cmd, func() bool { _, err := os.Stat(auth + "/sock"); return err == nil }); err != nil {
		return nil, err
	}
	// Between the moment a port is found free and the server's bind, another process can take it.
	for range 3 {
		if err = s.configure(); err != nil {
			return nil, err
		}
		answers := func() bool { _, err := s.Do(ctx, "sinfo", "-h"); return err == nil }
		if err = s.start(ctx, exec.Command(at["slurmctld"], "-D", "-f", s.conf()), answers); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	idle := func() bool {
		out, _ := s.Do(ctx, "sinfo", "-h", "-o", "%T")
		return strings.TrimSpace(out) == "idle"
	}
	return s, s.start(ctx, exec.Command(at["slurmd"], "-D", "-f", s.conf(), "-N", s.node), idle)
}

// files makes the folders of the servers, and the commands that count.
func (s *Slurm) files(munge *user.User) error {
	uid, _ := strconv.Atoi(munge.Uid)
	gid, _ := strconv.Atoi(munge.Gid)
	var err error
	if s.auth, err = os.MkdirTemp("", "pawl-bench-munge-"); err != nil { // it cannot get into every folder
		return err
	}
	auth, key := s.auth, make([]byte, 1024)
	_, _ = rand.Read(key) // it does not fail
	faults := []error{os.Chmod(auth, 0o711), os.MkdirAll(s.dir, 0o755)}
	for name, mode := range map[string]os.FileMode{"state": 0o700, "spool": 0o755, "bin": 0o755} {
		faults = append(faults, os.Mkdir(filepath.Join(s.dir, name), mode))
	}
	faults = append(faults, os.WriteFile(auth+"/key", key, 0o400), os.Chown(auth, uid, gid), os.Chown(auth+"/key", uid, gid))
	for _, name := range queries {
		real, err := exec.LookPath(name)
		if err != nil {
			continue // it is asked nothing, then
		}
		script := fmt.Sprintf("#!/bin/sh\necho >>'%s'\nexec %s \"$@\"\n", s.count(name), real)
		faults = append(faults, os.WriteFile(filepath.Join(s.dir, "bin", name), []byte(script), 0o755))
	}
	return errors.Join(faults...)
}

// queries are the commands that are counted.
var queries = []string{"squeue", "scontrol", "sacct"}

func (s *Slurm) count(name string) string { return filepath.Join(s.dir, name+".count") }

// Queries returns how often a system has called a command.
func (s *Slurm) Queries(name string) (int, error) {
	b, err := os.ReadFile(s.count(name))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return bytes.Count(b, []byte("\n")), err
}

// freezer is where control groups of the first version keep the processes of jobs.
const freezer = "/sys/fs/cgroup/freezer"

func (s *Slurm) conf() string { return filepath.Join(s.dir, "slurm.conf") }

func hostname() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	return name
}

// configure writes the configuration, with ports that are free. Slurm begins jobs as soon as it
// can.
func (s *Slurm) configure() error {
	var ports [2]string
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	lines := []string{
		"ClusterName=pawl-bench", "SlurmctldHost=$HOST(127.0.0.1)", "SlurmctldPort=" + ports[0], "SlurmdPort=" + ports[1],
		"SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", "AuthInfo=socket=$AUTH/sock", "CredType=cred/munge",
		"ProctrackType=proctrack/$TRACK", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_CPU", "MpiDefault=none", "SwitchType=switch/none",
		"MailProg=/bin/true", "ReturnToService=2", "PropagateResourceLimits=NONE",
		"AccountingStorageType=accounting_storage/none", "JobCompType=jobcomp/none", "MinJobAge=300", "KillWait=2",
		"MessageTimeout=60",
		"MaxJobCount=200000", "MaxArraySize=10001",
		"SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0",
		"StateSaveLocation=$DIR/state", "SlurmdSpoolDir=$DIR/spool", "SlurmctldPidFile=$DIR/slurmctld.pid",
		"SlurmdPidFile=$DIR/slurmd.pid", "SlurmdParameters=config_overrides",
		fmt.Sprintf("NodeName=$NODE NodeHostname=$HOST NodeAddr=127.0.0.1 CPUs=%d RealMemory=20000", SlurmCores),
		"PartitionName=debug Nodes=$NODE Default=YES MaxTime=INFINITE State=UP", "",
	}
	track := "linuxproc"
	if unix.Access(freezer, unix.W_OK) == nil {
		track = "cgroup" // as most clusters have it
	}
	s.node = "bench" + ports[1]
	text := strings.NewReplacer("$HOST", hostname(), "$NODE", s.node, "$TRACK", track, "$DIR", s.dir,
		"$AUTH", s.auth).Replace(strings.Join(lines, "\n"))
	err := os.WriteFile(filepath.Join(s.dir, "cgroup.conf"), []byte("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"), 0o644)
	return errors.Join(err, os.WriteFile(s.conf(), []byte(text), 0o644))
}

// Do runs one of Slurm's commands, and returns what it printed. It is not counted.
func (s *Slurm) Do(ctx context.Context, name string, args ...string) (string, error) {
	return s.Run(ctx, 20*time.Second, name, args...)
}

// Run runs a command with the environment of Slurm's commands, and returns what it printed.
func (s *Slurm) Run(ctx context.Context, limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "SLURM_CONF="+s.conf()), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// Hold keeps jobs from beginning: they are accepted, and wait. false lets them begin again.
func (s *Slurm) Hold(ctx context.Context, hold bool) error {
	state := "State=UP"
	if hold {
		state = "State=DOWN"
	}
	_, err := s.Do(ctx, "scontrol", "update", "PartitionName=debug", state)
	return err
}

// Clear cancels all jobs, and waits until they are gone.
func (s *Slurm) Clear(ctx context.Context) error {
	for {
		if _, err := s.Do(ctx, "scancel", "--partition=debug"); err != nil {
			return err
		}
		out, err := s.Do(ctx, "squeue", "-h", "-o", "%i")
		if err != nil || strings.TrimSpace(out) == "" {
			return err
		}
		if err := bench.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// System returns the document of a system of this Slurm, with its folders in work.
func (s *Slurm) System(name, work string) *job.System {
	return &job.System{
		Name: name, Work: work, Runner: job.RunnerSlurm, Host: job.Host{Kind: job.HostLocal},
		Env: map[string]string{
			"SLURM_CONF": s.conf(), "PATH": filepath.Join(s.dir, "bin") + ":" + os.Getenv("PATH"),
		},
	}
}

// Close ends its jobs and its servers. It can be called again.
func (s *Slurm) Close() error {
	if len(s.servers) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_ = s.Clear(ctx) // whatever it leaves is killed by its folder
		cancel()
	}
	for len(s.servers) > 0 {
		last := len(s.servers) - 1
		s.servers[last].end()
		s.servers = s.servers[:last]
	}
	// The folders of a control group have files that cannot be removed, and go with it.
	groups, _ := filepath.Glob(filepath.Join(freezer, "slurm_"+s.node, "uid_*"))
	for _, name := range append(groups, filepath.Join(freezer, "slurm_"+s.node)) {
		_ = unix.Rmdir(name) // it has none of a job any more, or it is not there
	}
	if s.auth == "" {
		return nil
	}
	return os.RemoveAll(s.auth)
}

// A server is a child of this process.
type server struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start starts a server, and waits until it is ready.
func (s *Slurm) start(ctx context.Context, cmd *exec.Cmd, ready func() bool) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.Dir = "/"
	cmd.SysProcAttr.Setpgid = true // a Ctrl-C at the terminal is for the benchmark
	dieWithParent(cmd.SysProcAttr)
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(cmd.Path)+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	c, started := &server{cmd, make(chan struct{})}, make(chan error, 1)
	go func() {
		// The kernel counts as the parent the thread that forked, so that thread has to live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is seen in its log
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	for !ready() {
		select {
		case <-c.done:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s ended at once: %s", cmd.Path, text[max(0, len(text)-1000):])
		default:
		}
		if err := bench.Wait(ctx, 10*time.Millisecond); err != nil {
			c.end()
			return err
		}
	}
	s.servers = append(s.servers, c)
	return nil
}

func (c *server) end() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}
