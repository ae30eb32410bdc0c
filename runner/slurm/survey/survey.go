// Package survey asks Slurm what jobs may ask it for: the partitions with their limits, the
// accounts, and whether it keeps accounts of jobs that are over.
package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/client"
)

// A Survey is what Slurm says of itself to an account of its host.
type Survey struct {
	Version    string // such as 22.05.8
	Cluster    string
	MinJobAge  string // how long squeue knows a job that is over
	Accounting bool   // sacct tells of jobs that are over
	Enforced   string // what Slurm enforces of its accounts, such as associations,limits; "": nothing

	Partitions []job.Partition
	Partition  string   // the default; "": there is none
	Closed     []string // the partitions that take no jobs of the account, with the reason of each

	Accounts []string
	Account  string // that pays for jobs that name none; "": not known
	Submit   int    // how many jobs Slurm takes of the user at once; 0: any number
}

// maxTasks is the most that a document can say.
const maxTasks = 1_000_000

// patience bounds each command.
const patience = 20 * time.Second

// asks are the commands. After the first two any may fail.
var asks = []string{
	"scontrol show config",
	"scontrol show partition -o",
	`sinfo -h -e -o %R\|%c\|%m\|%G`,
	`id -Gn`,
	`sacctmgr -r -n -P show assoc user="$(id -un)" format=Account,Partition,MaxSubmitJobs`,
	`sacctmgr -r -n -P show user "$(id -un)" format=DefaultAccount`,
	`sacctmgr -r -n -P show qos format=Name,MaxSubmitJobsPerUser`,
}

// Of asks the Slurm of a host. dir is a folder there, for what the commands print. The error is a
// [host.Trouble] if Slurm does not answer, and of kind Invalid if it is not there.
func Of(ctx context.Context, h host.Host, dir string) (*Survey, error) {
	s := spool.New(spool.Config{Host: h, Dir: dir})
	c := client.Client{Sh: s.Sh, Patience: patience}
	said, err := c.Print(ctx, asks...)
	if err != nil {
		return nil, err
	}
	return read(said), nil
}

// A node is what the largest node of a partition has.
type node struct {
	cores, gpus int
	memory      job.Bytes
}

// read reads what the commands have printed; "" of one that failed.
func read(said []string) *Survey {
	s := &Survey{}
	config := map[string]string{}
	for line := range strings.Lines(said[0]) {
		name, v, _ := strings.Cut(line, "=")
		config[strings.TrimSpace(name)] = strings.TrimSpace(v)
	}
	s.Version, s.Cluster, s.MinJobAge = config["SLURM_VERSION"], config["ClusterName"], config["MinJobAge"]
	s.Accounting = strings.HasSuffix(config["AccountingStorageType"], "/slurmdbd")
	if s.Enforced = config["AccountingStorageEnforce"]; s.Enforced == "none" {
		s.Enforced = ""
	}
	if account := strings.TrimSpace(said[5]); fits(&job.System{Account: account}) {
		s.Account = account
	}
	bounds := s.associations(said[4])
	qos := map[string]int{}
	for _, f := range rows(said[6], 2) {
		qos[f[0]] = number(f[1])
	}
	nodes := nodesOf(said[2])
	groups := strings.Fields(said[3])
	for line := range strings.Lines(said[1]) {
		p := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			name, v, _ := strings.Cut(word, "=")
			p[name] = v
		}
		name := p["PartitionName"]
		if name == "" {
			continue
		}
		if why := s.closed(p, groups); why != "" {
			s.Closed = append(s.Closed, name+": "+why)
			continue
		}
		largest := nodes[name]
		most := job.Resources{
			Nodes: least(number(p["MaxNodes"]), number(p["TotalNodes"])), Tasks: number(p["TotalCPUs"]),
			Cores: least(largest.cores, number(p["MaxCPUsPerNode"])), GPUs: largest.gpus,
			Memory: least(largest.memory, job.Bytes(number(p["MaxMemPerNode"]))<<20), Minutes: minutes(p["MaxTime"]),
		}
		if most.Nodes > 0 { // each has at most so many cores
			most.Tasks = least(most.Tasks, most.Nodes*most.Cores)
		}
		if most.Tasks > maxTasks {
			most.Tasks = 0
		}
		part := job.Partition{Name: name, Jobs: min(least(bounds[name], qos[p["QoS"]]), job.MaxTurns)}
		if most.Nodes > 0 || most.Cores > 0 || most.Memory > 0 || most.GPUs > 0 || most.Minutes > 0 {
			part.Most = &most
		}
		if !fits(&job.System{Partitions: append(slices.Clone(s.Partitions), part)}) {
			s.Closed = append(s.Closed, name+": a document of a system cannot have it")
			continue
		}
		if p["Default"] == "YES" {
			s.Partition = name
			s.Partitions = slices.Insert(s.Partitions, 0, part)
		} else {
			s.Partitions = append(s.Partitions, part)
		}
	}
	return s
}

// fits reports whether a document can have these fields.
func fits(doc *job.System) bool {
	doc.Name, doc.Runner = "cluster", job.RunnerSlurm
	b, err := job.Encode(doc)
	if err == nil {
		_, err = job.ParseSystem(b)
	}
	return err == nil
}

// associations reads the accounts of the user, and returns how many jobs each partition takes of
// the default one.
func (s *Survey) associations(text string) map[string]int {
	bounds := map[string]int{}
	for _, f := range rows(text, 3) {
		account, partition, most := f[0], f[1], number(f[2])
		if !slices.Contains(s.Accounts, account) {
			s.Accounts = append(s.Accounts, account)
		}
		switch {
		case account != s.Account:
		case partition == "":
			s.Submit = most
		default:
			bounds[partition] = most
		}
	}
	return bounds
}

// closed says why a partition takes no jobs of the account; "": it does.
func (s *Survey) closed(p map[string]string, groups []string) string {
	among := func(list string, mine ...string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(one string) bool { return slices.Contains(mine, one) })
	}
	open := func(list string) bool { return list == "" || list == "ALL" || list == "(null)" }
	switch allowed := p["AllowAccounts"]; {
	case p["RootOnly"] == "YES":
		return "only root may use it"
	case !open(p["AllowGroups"]) && len(groups) > 0 && !among(p["AllowGroups"], groups...):
		return "only these groups may use it: " + p["AllowGroups"]
	case !open(allowed) && len(s.Accounts) > 0 && !among(allowed, s.Accounts...):
		return "only these accounts may use it: " + allowed
	case len(s.Accounts) > 0 && allowed == "" && !slices.ContainsFunc(s.Accounts, func(one string) bool {
		return !among(p["DenyAccounts"], one)
	}):
		return "these accounts may not use it: " + p["DenyAccounts"]
	case p["State"] == "INACTIVE":
		return "it is inactive"
	}
	return ""
}

// nodesOf reads what the largest node of each partition has.
func nodesOf(text string) map[string]node {
	all := map[string]node{}
	for _, f := range rows(text, 4) {
		n := all[f[0]]
		n.cores = max(n.cores, number(strings.TrimSuffix(f[1], "+")))
		n.memory = max(n.memory, job.Bytes(number(strings.TrimSuffix(f[2], "+")))<<20)
		gpus := 0
		for one := range strings.SplitSeq(f[3], ",") {
			one, _, _ = strings.Cut(one, "(")
			if kind := strings.Split(one, ":"); kind[0] == "gpu" {
				gpus += number(kind[len(kind)-1])
			}
		}
		n.gpus = max(n.gpus, gpus)
		all[f[0]] = n
	}
	return all
}

// rows splits lines of so many words, with | between them.
func rows(text string, n int) (all [][]string) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "|"); len(f) == n && f[0] != "" {
			all = append(all, f)
		}
	}
	return all
}

// number reads one; 0: it is none, or there is no bound.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > job.MaxTurns*1000 {
		return 0
	}
	return n
}

// least returns the smaller of two bounds; 0: there is none.
func least[T int | job.Bytes](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// minutes reads [<days>-]<hours>:<minutes>:<seconds>; 0: it is none, or there is no bound.
func minutes(s string) float64 {
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	f := strings.Split(rest, ":")
	if len(f) != 3 {
		return 0
	}
	return float64(number(days)*24*60 + number(f[0])*60 + number(f[1]))
}

// Complete fills in what a document leaves open: partitions, and the default partition and account.
func (s *Survey) Complete(doc *job.System) {
	doc.Account = cmp.Or(doc.Account, s.Account)
	if len(doc.Partitions) == 0 {
		doc.Partitions = s.Partitions
	}
	named := slices.ContainsFunc(doc.Partitions, func(p job.Partition) bool { return p.Name == s.Partition })
	if doc.Partition == "" && named {
		doc.Partition = s.Partition
	}
}

// Lines says for people what was found.
func (s *Survey) Lines() []string {
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	lines := []string{fmt.Sprintf("Slurm %s, cluster %s: %s", cmp.Or(s.Version, "of an unknown version"),
		cmp.Or(s.Cluster, "without a name"), count(len(s.Partitions), "partition"))}
	for _, why := range s.Closed {
		lines = append(lines, "left out: partition "+why)
	}
	kept := "it keeps no accounts: a job that squeue has forgotten is known by its files alone"
	if s.Accounting {
		kept = "it keeps accounts: sacct tells of jobs that squeue has forgotten"
	}
	lines = append(lines, kept+", which is after "+cmp.Or(s.MinJobAge, "some minutes"))
	if s.Enforced != "" {
		lines = append(lines, "it enforces "+s.Enforced+" of its accounts")
	}
	if len(s.Accounts) > 0 {
		lines = append(lines, fmt.Sprintf("accounts: %s; by default %s", strings.Join(s.Accounts, ", "), cmp.Or(s.Account, "none")))
	}
	if s.Submit > 0 {
		lines = append(lines, fmt.Sprintf("it takes at most %d jobs of the user at once", s.Submit))
	}
	return lines
}
