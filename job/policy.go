package job

import (
	"fmt"
	"math"
	"time"
)

// A Policy says how often a condition is tested, and how long a job waits for it to clear.
type Policy struct {
	// Stages follow each other. Without any, those of the condition hold.
	Stages []Stage `json:"stages,omitempty"`

	// MaxWait is how long a job waits, counted from when it was blocked. By default it waits as
	// long as the stages last. It never waits longer than that.
	MaxWait Duration `json:"max_wait,omitempty"`
}

// A Stage is a number of tests with the same time between them.
type Stage struct {
	// The time between two tests, from 10ms to 24h.
	Every Duration `json:"every" example:"60s"`

	// How many tests. In the last stage 0 stands for: for ever.
	Times int `json:"times,omitempty" minimum:"0" maximum:"1000000"`
}

// Bounds of policies.
const (
	MaxStages = 16
	MinEvery  = 10 * time.Millisecond
	MaxEvery  = 24 * time.Hour
	MaxTimes  = 1_000_000
	MaxWaited = 10 * 366 * 24 * time.Hour // of MaxWait
)

// Wait returns how long a job waits, counted from when it was blocked; 0: for ever. If the stages
// end, a job that was blocked when they began sees each of their tests.
func (p Policy) Wait() time.Duration {
	total := time.Duration(0)
	for _, s := range p.Stages {
		if s.Times == 0 {
			total = 0
			break
		}
		total += min(time.Duration(s.Every), MaxWaited/time.Duration(s.Times)) * time.Duration(s.Times)
	}
	wait := time.Duration(p.MaxWait)
	if total > 0 && (wait == 0 || total < wait) {
		return min(total, MaxWaited)
	}
	return wait
}

// Every returns the time between test n, counted from 0, and the test before it. For the first test
// it is the time since the group was opened. After the last stage its tests go on.
func (p Policy) Every(n int) time.Duration {
	for _, s := range p.Stages {
		if s.Times == 0 || n < s.Times {
			return time.Duration(s.Every)
		}
		n -= s.Times
	}
	if len(p.Stages) == 0 {
		return time.Minute
	}
	return time.Duration(p.Stages[len(p.Stages)-1].Every)
}

// Denser returns a policy that tests as often as p and o do: at any time as often as the denser of
// them. Where that takes more than [MaxStages] stages, the last one is as dense as any that it
// stands for. The job waits as long as p says.
func (p Policy) Denser(o Policy) Policy {
	var stages []Stage
	for n := 0; n < math.MaxInt; {
		every, next := Duration(min(p.Every(n), o.Every(n))), min(p.change(n), o.change(n))
		last := len(stages) - 1
		switch {
		case last >= 0 && (stages[last].Every == every || len(stages) == MaxStages):
			stages[last].Every = min(stages[last].Every, every)
			stages[last].Times += next - n
		default:
			stages = append(stages, Stage{Every: every, Times: next - n})
		}
		n = next
	}
	stages[len(stages)-1].Times = 0
	p.Stages = stages
	return p
}

// change returns the number of the first test after n that belongs to the next stage.
func (p Policy) change(n int) int {
	end := 0
	for _, s := range p.Stages {
		if end += s.Times; s.Times == 0 {
			break
		} else if n < end {
			return end
		}
	}
	return math.MaxInt
}

// Validate reports everything that is wrong with p. Its error is a [SpecError].
func (p *Policy) Validate() error {
	var v validation
	v.policy("", p)
	return v.err()
}

func (v *validation) policy(path string, p *Policy) {
	if len(p.Stages) > MaxStages {
		v.add(path+"stages", fmt.Sprintf("%d stages", len(p.Stages)), "are too many",
			fmt.Sprintf("keep to %d", MaxStages))
	}
	for i, s := range p.Stages {
		at := fmt.Sprintf("%sstages[%d].", path, i)
		if every := time.Duration(s.Every); every < MinEvery || every > MaxEvery {
			v.add(at+"every", s.Every.String(), "is out of range", fmt.Sprintf("give %v to %v", MinEvery, MaxEvery))
		}
		switch {
		case s.Times < 0 || s.Times > MaxTimes:
			v.add(at+"times", fmt.Sprint(s.Times), "is out of range",
				fmt.Sprintf("give 1 to %d, or 0 for ever", MaxTimes))
		case s.Times == 0 && i < len(p.Stages)-1:
			v.add(at+"times", "0", "is for ever, and other stages follow", "give how many tests this stage has")
		}
	}
	if w := time.Duration(p.MaxWait); w < 0 || w > MaxWaited {
		v.add(path+"max_wait", p.MaxWait.String(), "is out of range", fmt.Sprintf("give up to %v", MaxWaited))
	}
}

func (v *validation) recovery(r *Patience) {
	if r == nil {
		return
	}
	v.name("recovery.policy", r.Policy, 64)
	if r.Policy != "" && len(r.Stages) > 0 {
		v.add("recovery.policy", r.Policy, "cannot be given together with stages", "give one of them")
	}
	v.policy("recovery.", &Policy{Stages: r.Stages, MaxWait: r.MaxWait})
}

// A RecoveryPolicy is a policy with a name. The name of a condition makes it the policy of all jobs
// that the condition blocks. A kind of job or an app, a dot and a condition make it the policy of
// those jobs. A policy with any other name holds for the jobs whose specs name it.
type RecoveryPolicy struct {
	// The name of the policy. The name of a condition, such as FILESYSTEM_FULL, makes it hold for
	// all jobs that the condition blocks and that have no policy of their own. With a kind of job
	// or an app and a dot before it, such as mail.TASK_BLOCKED, it holds for those jobs alone. Any
	// other name is for jobs that name it.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"patient"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// The policy is ignored.
	Disabled bool `json:"disabled,omitempty"`

	// When a condition is tested, stage by stage. By default as often as the condition says.
	Stages []Stage `json:"stages,omitempty" maxItems:"16"`

	// How long a job waits at most, from when it was blocked. By default as long as the stages
	// last.
	MaxWait Duration `json:"max_wait,omitempty" example:"12h"`
}

// Policy returns what p says.
func (p *RecoveryPolicy) Policy() Policy { return Policy{Stages: p.Stages, MaxWait: p.MaxWait} }

// ParsePolicy reads the document of a policy; see [ParseSpec] for its errors.
func ParsePolicy(doc []byte) (RecoveryPolicy, error) {
	var p RecoveryPolicy
	if err := parseResource(doc, &p, KindPolicy); err != nil {
		return p, err
	}
	var v validation
	v.resource(p.Name, p.Description)
	policy := p.Policy()
	v.policy("", &policy)
	if len(p.Stages) == 0 && p.MaxWait == 0 {
		v.add("stages", "", "are missing", "say when the condition is tested, or how long a job waits in max_wait")
	}
	return p, v.err()
}

// Choose returns the policy for a job that b blocks. The word of the job itself, r, comes first.
// Then comes the policy for its app or kind and the condition, then that for the condition, then
// that of b. r may be nil. of is the app or the kind. named returns a policy by its name; nil:
// there is none.
func (r *Patience) Choose(b *Block, of string, named func(name string) *Policy) Policy {
	p := b.Policy
	over := func(o *Policy) {
		if o == nil {
			return
		}
		if len(o.Stages) > 0 {
			p = *o
		} else if o.MaxWait > 0 {
			p.MaxWait = o.MaxWait
		}
	}
	over(named(string(b.Code)))
	over(named(of + "." + string(b.Code)))
	if r == nil {
		return p
	}
	if r.Policy != "" {
		over(named(r.Policy))
	}
	over(&Policy{Stages: r.Stages, MaxWait: r.MaxWait})
	return p
}

// PolicyOf returns the default policy of a condition. Most numbers are those of Tapis Jobs, from
// its recovery configurations. Hosts that cannot be reached are the exception: Tapis gives them up
// after 30 minutes to 3 hours, and here they may be away for a week. An outage over a weekend fails
// no job: those that wait cost nothing, and each condition of a host has the same patience, because
// an outage goes from one to the other.
func PolicyOf(code Code) Policy {
	if p, found := policies[code]; found {
		return p
	}
	return stepwise(48*time.Hour, 2, 10*time.Second, 10, 20*time.Second, 10, time.Minute, 100, 2*time.Minute, 0,
		5*time.Minute)
}

const week = 7 * 24 * time.Hour

var (
	minutely = stepwise(48*time.Hour, 0, time.Minute)
	// A host that cannot be reached.
	away = stepwise(week, 5, time.Minute, 5, 2*time.Minute, 0, 5*time.Minute)
	// A connection that broke, which may well be there again.
	broken = stepwise(week, 2, 10*time.Second, 10, 20*time.Second, 10, time.Minute, 0, 5*time.Minute)
	// A host that refuses: each test is a failed login, and servers lock accounts with too many.
	refusing = stepwise(week, 0, 5*time.Minute)
)

var policies = map[Code]Policy{
	SystemDisabled:            minutely,
	AppDisabled:               minutely,
	TenantSuspended:           minutely,
	SchedulerQuota:            minutely,
	FilesystemFull:            minutely,
	FilesystemReadOnly:        minutely,
	MachineExhausted:          stepwise(48*time.Hour, 6, 10*time.Second, 0, time.Minute),
	HostUnknown:               away,
	HostUnreachable:           away,
	HostRefused:               away,
	ConnectionTimeout:         away,
	ChannelRefused:            broken,
	ConnectionLost:            broken,
	ShellBroken:               away,
	HostKeyUnknown:            refusing,
	HostKeyChanged:            refusing,
	AuthenticationFailed:      refusing,
	FirstAuthenticationFailed: stepwise(0, 3, time.Minute),
	ToolsMissing:              away,
	SchedulerUnavailable:      away,
	FilesUnavailable:          stepwise(0, 5, time.Minute, 30, 2*time.Minute),
	LoginRequired:             stepwise(week, 0, time.Minute),
	ArgsUnreadable:            stepwise(week, 3, time.Second, 0, time.Minute),

	SchedulerPartitionUnavailable: away,
}

// stepwise makes a policy from pairs: how many tests, and the time between them.
func stepwise(wait time.Duration, stages ...any) Policy {
	p := Policy{MaxWait: Duration(wait)}
	for i := 0; i < len(stages); i += 2 {
		p.Stages = append(p.Stages, Stage{Every: Duration(stages[i+1].(time.Duration)), Times: stages[i].(int)})
	}
	return p
}
