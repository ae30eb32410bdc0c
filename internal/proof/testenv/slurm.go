package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Scheduler is a private Slurm. Its partition debug has one node, which pretends to have 64 cores.
// Jobs run on this machine, as the user who submits them. It keeps no accounts, unless it was
// started by Accounted. Its KillWait is two seconds, and a job that it runs again waits for 30.
//
// The other partitions are short, which gives jobs one minute; pair, which has a second node too;
// and drained, which takes no jobs.
//
// Its methods are called one at a time.
type Scheduler struct {
	// Conf is its slurm.conf: the value of SLURM_CONF for its commands.
	Conf string

	dir      string
	apart    bool // each node sees only its own processes, and nothing in the folder hidden
	hidden   string
	grouped  bool     // the processes of a job are in a control group
	first    string   // the name of its node
	lines    []string // more of its slurm.conf
	accounts bool     // it keeps accounts
	ctld     *child
	all      []*child  // in the order in which they were started, without ctld and books
	books    []*child  // of accounting: the database, and slurmdbd
	ports    [2]string // of books
}

// slurm is that of this test process.
var slurm struct {
	sync.Mutex
	server *Scheduler
	err    error // why it could not be started; it is not tried again
}

// Slurm returns the Slurm of this test process and starts it when it does not run yet. Tests share
// it. Who stops its controller starts it again. A short run starts none, and the test is skipped.
func Slurm(tb testing.TB) *Scheduler {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: it starts Slurm")
	}
	slurm.Lock()
	defer slurm.Unlock()
	if slurm.server == nil && slurm.err == nil {
		slurm.server, slurm.err = StartSlurm()
	}
	if errors.Is(slurm.err, ErrMissing) {
		missing(tb, slurm.err)
	}
	if slurm.err != nil {
		tb.Fatal(slurm.err)
	}
	return slurm.server
}

// OwnSlurm starts a Slurm for one test, which need not think of others, with more lines in its
// slurm.conf. It is stopped when the test is over.
func OwnSlurm(tb testing.TB, lines ...string) *Scheduler {
	tb.Helper()
	return ownSlurm(tb, &Scheduler{lines: lines})
}

func ownSlurm(tb testing.TB, s *Scheduler) *Scheduler {
	tb.Helper()
	if testing.Short() {
		tb.Skip("-short: it starts Slurm")
	}
	s, err := start(s)
	if errors.Is(err, ErrMissing) {
		missing(tb, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

func stopSlurm() {
	slurm.Lock()
	defer slurm.Unlock()
	if slurm.server != nil {
		slurm.server.Stop()
		slurm.server = nil
	}
}

// StartSlurm starts a Slurm of the caller's own, who must call [Scheduler.Stop]. The error has
// [ErrMissing] in its chain if this machine lacks something that it needs.
func StartSlurm() (*Scheduler, error) { return start(&Scheduler{}) }

// ApartSlurm starts a Slurm for one test, like [OwnSlurm]. Each of its nodes sees only its own
// processes, and nothing of what is in the folder hidden, if that is not "". It takes a system that
// makes name spaces.
func ApartSlurm(tb testing.TB, hidden string) *Scheduler {
	tb.Helper()
	if err := exec.Command("unshare", "--mount", "--pid", "--fork", "true").Run(); err != nil {
		missing(tb, fmt.Errorf("unshare: %w: a name space of processes is %w", err, ErrMissing))
	}
	return ownSlurm(tb, &Scheduler{apart: true, hidden: hidden})
}

// GroupedSlurm starts a Slurm for one test, like [OwnSlurm]. It keeps the processes of a job in a
// control group, as most clusters do, and gives a job no more memory than it asks for. Where the
// machine has no control groups of the first version the test is skipped.
func GroupedSlurm(tb testing.TB) *Scheduler {
	tb.Helper()
	for _, at := range []string{freezer, memory} {
		if unix.Access(at, unix.W_OK) != nil {
			tb.Skipf("%s cannot be written, or is not there", at)
		}
	}
	return ownSlurm(tb, &Scheduler{grouped: true})
}

// Where control groups of the first version keep the processes of jobs, and bound their memory.
const (
	freezer = "/sys/fs/cgroup/freezer"
	memory  = "/sys/fs/cgroup/memory"
)

// removeGroups removes a control group with all below it. It may not be there.
func removeGroups(name string) {
	below, _ := filepath.Glob(filepath.Join(name, "*"))
	for _, group := range below {
		if info, err := os.Lstat(group); err == nil && info.IsDir() {
			removeGroups(group)
		}
	}
	_ = unix.Rmdir(name)
}

func start(s *Scheduler) (*Scheduler, error) {
	if err := s.open(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start Slurm: %w", err)
	}
	return s, nil
}

func (s *Scheduler) open() error {
	for _, name := range []string{"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "sbatch"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%s is %w: install it (Debian: slurm-wlm, munge)", name, ErrMissing)
		}
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("a node of Slurm is %w: only root can be one", ErrMissing)
	}
	munge, err := user.Lookup("munge")
	if err != nil {
		return fmt.Errorf("the user munge is %w: install the package munge", ErrMissing)
	}
	uid, _ := strconv.Atoi(munge.Uid)
	gid, _ := strconv.Atoi(munge.Gid)
	if s.dir, err = os.MkdirTemp("", "pawl-slurm-"); err != nil {
		return err
	}
	auth := filepath.Join(s.dir, "munge")
	key := make([]byte, 1024)
	_, _ = rand.Read(key) // it does not fail
	if err := errors.Join(os.Chmod(s.dir, 0o755), os.Mkdir(auth, 0o711), os.Mkdir(filepath.Join(s.dir, "state"), 0o700),
		os.Mkdir(filepath.Join(s.dir, "spool"), 0o755), os.WriteFile(filepath.Join(auth, "key"), key, 0o400),
		os.Chown(auth, uid, gid), os.Chown(filepath.Join(auth, "key"), uid, gid)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	munged := exec.Command("/usr/sbin/munged", "--foreground", "--socket="+auth+"/sock", "--key-file="+auth+"/key",
		"--pid-file="+auth+"/pid", "--log-file="+auth+"/log", "--seed-file="+auth+"/seed")
	munged.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	c, err := startChild(ctx, munged, "")
	if err != nil {
		return err
	}
	s.all = append(s.all, c)
	if !Until(ctx, func() bool { _, err := os.Stat(auth + "/sock"); return err == nil }) {
		return errors.New("munged does not listen")
	}
	if s.accounts {
		if err := s.openAccounts(ctx); err != nil {
			return err
		}
	}
	// Between the moment a port is found free and the server's bind, another process can take it.
	for range 3 {
		if err = s.configure(); err != nil {
			return err
		}
		if err = s.startController(ctx); err != nil {
			continue
		}
		if err = s.startNodes(ctx, secondNode, s.first); err == nil {
			break
		}
		s.ctld.end(syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	return s.idle(ctx)
}

// secondNode is a node on this machine, too.
const secondNode = "pawl-second"

func (s *Scheduler) startNodes(ctx context.Context, names ...string) error {
	for _, name := range names {
		cmd := exec.Command("/usr/sbin/slurmd", "-D", "-f", s.Conf, "-N", name)
		if s.apart {
			cmd = inNamespace(cmd, s.hidden)
		}
		node, err := startChild(ctx, cmd, "started")
		if err != nil {
			for ; len(s.all) > 1; s.all = s.all[:len(s.all)-1] {
				s.all[len(s.all)-1].end(syscall.SIGKILL)
			}
			return err
		}
		s.all = append(s.all, node)
	}
	return nil
}

func hostname() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	return name
}

// configure writes its configuration, with ports that are free.
func (s *Scheduler) configure() error {
	var ports [3]string
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
	}
	s.Conf, s.first = filepath.Join(s.dir, "slurm.conf"), hostname()
	track := "linuxproc"
	if s.grouped {
		track, s.first = "cgroup", "pawl"+ports[1] // the groups of a node are named after it
		s.lines = append(s.lines, "TaskPlugin=task/cgroup", "SelectTypeParameters=CR_CPU_Memory", "DefMemPerNode=200")
		groups := []byte("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n")
		if err := os.WriteFile(filepath.Join(s.dir, "cgroup.conf"), groups, 0o644); err != nil {
			return err
		}
	}
	accounting := "JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none"
	if s.accounts {
		accounting = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=1\n" +
			"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort=" +
			s.ports[1] + "\nAccountingStoragePass=" + s.dir + "/munge/sock"
	}
	values := strings.NewReplacer("$ACCOUNTING", accounting, "$HOST", hostname(), "$FIRST", s.first, "$TRACK", track,
		"$DIR", s.dir, "$CTLD", ports[0], "$NODE", ports[1], "$SECOND", secondNode, "$OTHER", ports[2])
	text := slurmConf + strings.Join(s.lines, "\n") + "\n"
	return os.WriteFile(s.Conf, []byte(values.Replace(text)), 0o644)
}

const slurmConf = `ClusterName=pawl-test
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$CTLD
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge/sock,cred_expire=30
CredType=cred/munge
ProctrackType=proctrack/$TRACK
TaskPlugin=task/none
$ACCOUNTING
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
ReturnToService=2
PropagateResourceLimits=NONE
JobCompType=jobcomp/none
MinJobAge=300
KillWait=2
MessageTimeout=60
MaxJobCount=20000
MaxArraySize=10001
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=2
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/slurmd.%n.pid
SlurmdParameters=config_overrides
NodeName=$FIRST NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$NODE CPUs=64 RealMemory=20000 Features=near,fast
NodeName=$SECOND NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$OTHER CPUs=4 RealMemory=20000 Features=fast
PartitionName=debug Nodes=$FIRST Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=$FIRST MaxTime=1 State=UP
PartitionName=pair Nodes=$FIRST,$SECOND MaxTime=60 State=UP
PartitionName=drained Nodes=$FIRST MaxTime=60 State=DRAIN
`

func (s *Scheduler) startController(ctx context.Context) (err error) {
	s.ctld, err = startChild(ctx, exec.Command("/usr/sbin/slurmctld", "-D", "-f", s.Conf), "started on cluster")
	return err
}

// idle waits until the controller answers and the node takes jobs.
func (s *Scheduler) idle(ctx context.Context) error {
	said := ""
	if !Until(ctx, func() bool {
		said, _ = s.Do(ctx, "sinfo", "-h", "-o", "%T", "-p", "debug")
		said = strings.TrimSpace(said)
		if strings.HasPrefix(said, "drain") {
			s.Resume(ctx)
		}
		return said == "idle" || said == "mixed" || said == "allocated" || said == "completing"
	}) {
		return fmt.Errorf("its node is %q; slurmctld said:\n%s", said, s.ctld.log)
	}
	return nil
}

// Env returns the variables that its commands need.
func (s *Scheduler) Env() []string { return []string{"SLURM_CONF=" + s.Conf} }

// Do runs a command of Slurm, and returns what it printed. It gives the command ten seconds.
func (s *Scheduler) Do(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environ("SLURM_", s.Env()...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// StopController ends slurmctld, which saves its state. The node and its jobs go on.
func (s *Scheduler) StopController() { s.ctld.end(syscall.SIGTERM) }

// KillController ends slurmctld as a crash would, with SIGKILL.
func (s *Scheduler) KillController() { s.ctld.end(syscall.SIGKILL) }

// StartController starts slurmctld again, and returns when it takes jobs.
func (s *Scheduler) StartController(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := s.startController(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := s.idle(ctx); err != nil {
		tb.Fatal(err)
	}
}

// Resume lets its node take jobs again, as an administrator would. Slurm drains a node that says
// that it runs already what it is to run, as after a crash of the controller.
func (s *Scheduler) Resume(ctx context.Context) {
	_, _ = s.Do(ctx, "scontrol", "update", "nodename="+s.first, "state=resume") // or it is up, which is an error
}

// Left reports whether the node still has to clean up after a job. If the job runs again meanwhile,
// its script may be removed.
func (s *Scheduler) Left(id string) bool {
	n, _ := strconv.Atoi(id)
	names, _ := filepath.Glob(filepath.Join(s.dir, "spool", "*", fmt.Sprintf("job%05d*", n)))
	return len(names) > 0
}

// Log returns the end of what slurmctld has logged since it was last started.
func (s *Scheduler) Log() string { return s.ctld.log.String() }

// NodeLog returns the end of what slurmd has logged.
func (s *Scheduler) NodeLog() string { return s.all[len(s.all)-1].log.String() }

// Stop ends its jobs and its servers, and removes what it has in files.
func (s *Scheduler) Stop() {
	if s.ctld != nil && len(s.all) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		_, _ = s.Do(ctx, "scancel", "--signal=KILL", "--full", "--partition=debug,short,pair,drained")
		_, _ = s.Do(ctx, "scancel", "--state=PENDING", "--partition=debug,short,pair,drained")
		Until(ctx, func() bool { out, err := s.Do(ctx, "squeue", "-h"); return err != nil || strings.TrimSpace(out) == "" })
		cancel()
	}
	for i := len(s.all) - 1; i > 0; i-- {
		s.all[i].end(syscall.SIGTERM)
	}
	if s.ctld != nil {
		s.ctld.end(syscall.SIGKILL)
	}
	for i := len(s.books) - 1; i >= 0; i-- {
		s.books[i].end(syscall.SIGTERM)
	}
	if len(s.all) > 0 {
		s.all[0].end(syscall.SIGTERM)
	}
	s.endSteps()
	if s.grouped {
		for _, at := range []string{freezer, memory} {
			removeGroups(filepath.Join(at, "slurm_"+s.first))
			removeGroups(filepath.Join(at, "slurm_"+secondNode))
		}
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// endSteps ends what is left of jobs that a controller had forgotten: their steps outlive it.
func (s *Scheduler) endSteps() {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err != nil || s.Conf == "" || !bytes.Contains(env, []byte("SLURM_CONF="+s.Conf+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(path.Base(path.Dir(name))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
