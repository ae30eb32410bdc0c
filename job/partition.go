package job

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Partition is a part of the nodes of a scheduler, with what it gives to jobs.
type Partition struct {
	// The name of the partition in the scheduler.
	Name string `json:"name" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"short"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// The most that one job may ask for in this partition. A field that is left out has no bound.
	Most *Resources `json:"most,omitempty"`

	// How many jobs may be in this partition at once, waiting in the scheduler or running. The others
	// wait in Pawl for their turn. Whoever applies the document sets the limit of the key
	// system/NAME/partition/NAME with it. By default any number.
	Jobs int `json:"jobs,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`

	// The same for the jobs of each owner.
	JobsPerUser int `json:"jobs_per_user,omitempty" zero:"refused" minimum:"1" maximum:"1000000"`
}

const (
	maxPartitions = 256
	maxAllowed    = 64 // options that a system allows
)

// scheduler checks what a document says of the scheduler of a system.
func (v *validation) scheduler(s *System) {
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"account", s.Account != ""},
		{"partition", s.Partition != ""},
		{"partitions", len(s.Partitions) > 0},
		{"options", len(s.Options) > 0},
	} {
		if f.set && !s.Scheduled() {
			v.add(f.path, "", "belongs to a system with a scheduler", "remove it, or give runner: slurm")
		}
	}
	v.directive("account", s.Account)
	v.directive("partition", s.Partition)
	v.many("partitions", len(s.Partitions), maxPartitions)
	for i := range min(len(s.Partitions), maxPartitions) {
		p, at := &s.Partitions[i], fmt.Sprintf("partitions[%d].", i)
		if p.Name == "" {
			v.add(at+"name", "", "is missing", "give the name of the partition in Slurm, as sinfo prints it")
		}
		v.name(at+"name", p.Name, 128)
		v.text(at+"description", p.Description, 2048)
		if p.Most != nil {
			v.amounts(at+"most.", p.Most)
		}
		for field, n := range map[string]int{"jobs": p.Jobs, "jobs_per_user": p.JobsPerUser} {
			if n < 0 || n > MaxTurns {
				v.add(at+field, strconv.Itoa(n), "is out of range", fmt.Sprintf("give 1 to %d", MaxTurns))
			}
		}
		if slices.ContainsFunc(s.Partitions[:i], func(o Partition) bool { return o.Name == p.Name }) {
			v.add(at+"name", p.Name, "is given twice", "give each partition once")
		}
	}
	if len(s.Partitions) > 0 && s.Partition != "" && s.partition(s.Partition) == nil {
		v.add("partition", s.Partition, "is none of partitions", "give "+s.named())
	}
	v.many("options", len(s.Options), maxAllowed)
	for i, o := range s.Options {
		at := fmt.Sprintf("options[%d]", i)
		if name, _, valued := strings.Cut(o, "="); valued {
			v.add(at, o, "has a value", "give the name alone: "+short(name))
		} else {
			v.option(at, o, o)
		}
	}
}

// partition returns a partition by its name; nil: there is none.
func (s *System) partition(name string) *Partition {
	for i := range s.Partitions {
		if s.Partitions[i].Name == name {
			return &s.Partitions[i]
		}
	}
	return nil
}

// named lists the partitions for people.
func (s *System) named() string {
	names := make([]string, len(s.Partitions))
	for i, p := range s.Partitions {
		names[i] = p.Name
	}
	return short(strings.Join(names, " or "))
}

// Complete fills in what a job leaves to the scheduler of the system. A system without one leaves r
// as it is.
func (s *System) Complete(r *Resources) {
	if s.Scheduled() {
		r.Account, r.Partition = cmp.Or(r.Account, s.Account), cmp.Or(r.Partition, s.Partition)
	}
}

// Least returns what the smallest job asks a system for.
func (s *System) Least() Resources {
	r := Resources{Nodes: 1, Tasks: 1, Cores: 1, Minutes: 5}
	s.Complete(&r)
	return r
}

// CheckWait returns how long the program of a check may take to start. Schedulers look at new jobs
// once in a while.
func (s *System) CheckWait() time.Duration {
	if s.Scheduled() {
		return 80 * time.Second
	}
	return 30 * time.Second
}

// PartitionKeys returns the keys of the partition that a system chooses for j: see [Job.Keys].
// There are none if its document lists no partitions.
func (s *System) PartitionKeys(j *Job) []string {
	if len(s.Partitions) == 0 {
		return nil
	}
	key := PartitionKey(s.Name, s.Partition)
	return slices.DeleteFunc(j.Keys(s.Name, s.Partition), func(k string) bool {
		return k != key && !strings.HasPrefix(k, key+"/")
	})
}

// Limits returns the limits that the partitions of a system ask for.
func (s *System) Limits() (all []Limit) {
	for i := range s.Partitions {
		p := &s.Partitions[i]
		key := PartitionKey(s.Name, p.Name)
		if p.Jobs > 0 {
			all = append(all, Limit{Key: key, Most: p.Jobs})
		}
		if p.JobsPerUser > 0 {
			all = append(all, Limit{Key: key + "/" + limitUser + "/*", Most: p.JobsPerUser})
		}
	}
	return all
}

// A bound is one resource: what a job asks for, and the most that it may.
type bound struct {
	field       string
	asked, most float64
	text        string // the most, for people
}

func (b bound) exceeded() bool { return b.most > 0 && b.asked > b.most }

// bounds returns what a job asks for beside the most that it may.
func bounds(r, most *Resources) []bound {
	return []bound{
		{"nodes", float64(r.Nodes), float64(most.Nodes), strconv.Itoa(most.Nodes)},
		{"tasks", float64(r.Tasks), float64(most.Tasks), strconv.Itoa(most.Tasks)},
		{"cores", float64(r.Cores), float64(most.Cores), strconv.Itoa(most.Cores)},
		{"gpus", float64(r.GPUs), float64(most.GPUs), strconv.Itoa(most.GPUs)},
		{"memory", float64(r.Memory), float64(most.Memory), most.Memory.String()},
		{"minutes", r.Minutes, most.Minutes, strconv.FormatFloat(most.Minutes, 'g', -1, 64)},
	}
}

// fits reports whether a partition takes what a job asks for.
func (p *Partition) fits(r *Resources) bool {
	return p.Most == nil || !slices.ContainsFunc(bounds(r, p.Most), bound.exceeded)
}

// nearest returns the partition that takes what a job asks for and has the least time; "": none
// does.
func (s *System) nearest(r *Resources) string {
	name, least := "", math.Inf(1)
	for i := range s.Partitions {
		p, minutes := &s.Partitions[i], math.MaxFloat64
		if p.Most != nil && p.Most.Minutes > 0 {
			minutes = p.Most.Minutes
		}
		if p.fits(r) && minutes < least {
			name, least = p.Name, minutes
		}
	}
	return name
}

// Refuse returns a problem for each field in which r asks for more than s gives to one job.
func (s *System) Refuse(r *Resources) (problems []Problem) {
	var asked Resources
	if r != nil {
		asked = *r
	}
	asked.Minutes = cmp.Or(asked.Minutes, DefaultMinutes)
	if asked.Nodes > 1 && !s.Scheduled() {
		why := "is too many: system " + s.Name + " has no scheduler, so a job there has one node"
		problems = append(problems, Problem{
			"resources.nodes", strconv.Itoa(asked.Nodes), why,
			"give 1, or name a system with runner: slurm",
		})
	}
	if s.Most != nil {
		for _, b := range bounds(&asked, s.Most) {
			if b.exceeded() && (b.field != "nodes" || s.Scheduled()) {
				problems = append(problems, Problem{"resources." + b.field, "", "is more than system " + s.Name +
					" gives to one job", "give up to " + b.text})
			}
		}
	}
	if !s.Scheduled() {
		return problems
	}
	for i, o := range asked.Options {
		if name, _, _ := strings.Cut(o, "="); !slices.Contains(s.Options, name) {
			remedy := "remove it: the system takes none"
			if len(s.Options) > 0 {
				remedy = "give one of " + short(strings.Join(s.Options, ", "))
			}
			problems = append(problems, Problem{
				fmt.Sprintf("resources.options[%d]", i), short(o), "is not among the options of system " + s.Name, remedy,
			})
		}
	}
	return append(problems, s.refusePartition(asked)...)
}

// refusePartition returns the problems of a job with its partition.
func (s *System) refusePartition(r Resources) (problems []Problem) {
	s.Complete(&r)
	if len(s.Partitions) == 0 {
		return nil
	}
	p := s.partition(r.Partition)
	if p == nil {
		return []Problem{{
			"resources.partition", short(r.Partition), "is no partition of system " + s.Name, "give " + s.named(),
		}}
	}
	if p.Most == nil {
		return nil
	}
	other := s.nearest(&r)
	for _, b := range bounds(&r, p.Most) {
		if !b.exceeded() {
			continue
		}
		remedy := "give up to " + b.text
		if other != "" {
			remedy += ", or resources.partition: " + other + ", which takes it"
		}
		what := fmt.Sprintf("is more than partition %s of system %s gives to one job", p.Name, s.Name)
		problems = append(problems, Problem{"resources." + b.field, "", what, remedy})
	}
	return problems
}
