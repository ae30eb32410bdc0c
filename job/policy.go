package job

import (
	"fmt"
	"math"
	"time"
)

// A Policy says when a condition is tested, and for how long a job waits for it. It is data.
type Policy struct {
	// Stages follow each other. Where there are none, those of the condition are meant.
	Stages []Stage `json:"stages,omitempty"`

	// MaxWait is how long a job waits, from the moment it was blocked: for as long as the stages
	// last, by default, and no longer than that.
	MaxWait Duration `json:"max_wait,omitempty"`
}

// A Stage tests Times times, once Every.
type Stage struct {
	// How much time lies between two tests.
	Every Duration `json:"every" example:"60s"`

	// How many tests; 0, of the last stage alone, is for ever.
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

// Wait returns how long a job waits from the moment it was blocked; 0: for ever. Where stages come
// to an end, a job that was blocked as they began sees each of their tests.
func (p Policy) Wait() time.Duration {
	total := time.Duration(0)
	for _, s := range p.Stages {
		if s.Times == 0 {
			total = 0
			break
		}
		total += min(time.Duration(s.Every)*time.Duration(s.Times), MaxWaited)
	}
	wait := time.Duration(p.MaxWait)
	if total > 0 && (wait == 0 || total < wait) {
		return min(total, MaxWaited)
	}
	return wait
}

// Every returns how much time lies between test n, counted from 0, and the one before, or the
// moment at which a group was opened. Where somebody still waits when the stages have come to their
// end, the last one goes on.
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

// Denser returns a policy that tests as often as p and o do, whichever is more often at the time;
// where that takes too many stages the last of them are as often as any of theirs. How long a job
// waits is not its concern: that is what p says.
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

// change returns the first test after n that may be as far from the one before as those of another
// stage are.
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

// Validate reports everything that is wrong with p; its error is a [SpecError].
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
		v.add("recovery.policy", r.Policy, "stands beside stages", "give one of them")
	}
	v.policy("recovery.", &Policy{Stages: r.Stages, MaxWait: r.MaxWait})
}

// A RecoveryPolicy is a policy with a name. One whose name is that of a condition is the policy of
// the condition, where a job has none; one that has the name of a kind of job, or of an app, a dot,
// and that of a condition is that of these jobs.
type RecoveryPolicy struct {
	// The name of the policy; that of a condition, such as FILESYSTEM_FULL, for all jobs that it
	// blocks and that have no policy of their own; with a kind of job or an app and a dot before
	// it, such as mail.TASK_BLOCKED, for those jobs.
	Name string `json:"name" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" example:"patient"`

	// For people.
	Description string `json:"description,omitempty" maxLength:"2048"`

	// It is as if it were not there.
	Disabled bool `json:"disabled,omitempty"`

	// When a condition is tested, stage by stage; as the condition has it by default.
	Stages []Stage `json:"stages,omitempty" maxItems:"16"`

	// How long a job waits for it at most, from the moment it was blocked; for as long as the
	// stages last by default.
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

// Choose returns the policy by which a job waits that b has blocked, and that is of a kind or an
// app: what the job says comes first, then what is said for these and the condition, then what is
// for the condition, and then what b says. named returns policies by name; nil: there is none.
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

// PolicyOf returns the policy of a condition. The numbers are those of Tapis Jobs (its recovery
// configurations), but for those of hosts that cannot be reached: there their sum ended the wait
// after 30 and 65 minutes, where 3 hours were meant.
func PolicyOf(code Code) Policy {
	if p, found := policies[code]; found {
		return p
	}
	return stepwise(48*time.Hour, 2, 10*time.Second, 10, 20*time.Second, 10, time.Minute, 100, 2*time.Minute, 0,
		5*time.Minute)
}

var (
	minutely = stepwise(48*time.Hour, 0, time.Minute)
	reached  = stepwise(3*time.Hour, 5, time.Minute, 5, 2*time.Minute, 0, 5*time.Minute)
)

var policies = map[Code]Policy{
	SystemDisabled:            minutely,
	AppDisabled:               minutely,
	TenantSuspended:           minutely,
	SchedulerQuota:            minutely,
	FilesystemFull:            minutely,
	MachineExhausted:          stepwise(48*time.Hour, 6, 10*time.Second, 0, time.Minute),
	HostUnreachable:           reached,
	ConnectionTimeout:         reached,
	SchedulerUnavailable:      reached,
	FilesUnavailable:          stepwise(0, 5, time.Minute, 30, 2*time.Minute),
	AuthenticationFailed:      stepwise(0, 15, time.Minute),
	FirstAuthenticationFailed: stepwise(0, 3, time.Minute),
	HostKeyChanged:            stepwise(48*time.Hour, 0, 5*time.Minute),
}

// stepwise makes a policy of how often and how far apart, stage by stage.
func stepwise(wait time.Duration, stages ...any) Policy {
	p := Policy{MaxWait: Duration(wait)}
	for i := 0; i < len(stages); i += 2 {
		p.Stages = append(p.Stages, Stage{Every: Duration(stages[i+1].(time.Duration)), Times: stages[i].(int)})
	}
	return p
}
