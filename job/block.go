package job

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// A Block says why a job cannot go on now although the cause may clear, how that is found out, and
// for how long the job waits for it. It is an error: who meets the trouble makes one, and callers
// add what they know by wrapping it. See [Blocking].
type Block struct {
	// Code is the condition: one that is recoverable.
	Code Code `json:"code"`
	// Message says what happened. It is for people and tells no jobs apart.
	Message string `json:"message,omitempty"`
	// Tester finds out, with Params, whether the condition has cleared. All jobs of a tenant with
	// the same Code, Tester, Params and Machine are one group, and are tested together.
	Tester string            `json:"tester"`
	Params map[string]string `json:"params,omitempty"`
	// Machine is where alone that can be found out; empty: anywhere.
	Machine string `json:"machine,omitempty"`
	// Line is the key of the limit in whose line all those wait meanwhile who are not under way
	// yet, such as that of a system; empty: others may go on.
	Line string `json:"line,omitempty"`
	// Apart says that the job holds nothing while it waits, and that others may well go on: it
	// gives up its place among those that are made ready, so that many such jobs are in nobody's
	// way.
	Apart bool `json:"apart,omitempty"`
	// Policy says when the condition is tested, and for how long the job waits; the zero value is
	// that of Code, see [PolicyOf].
	Policy Policy `json:"policy,omitzero"`
	// After is how long the condition is not tested at all, for that is what was asked for by who
	// has the trouble: a server that is busy.
	After Duration `json:"after,omitempty"`
}

func (b *Block) Error() string {
	if b.Message == "" {
		return string(b.Code)
	}
	return b.Message
}

// Blocking returns the block that err wraps, with what the whole of err says; nil: there is none.
func Blocking(err error) *Block {
	var b *Block
	if !errors.As(err, &b) {
		return nil
	}
	whole := *b
	whole.Message = err.Error()
	return &whole
}

// groupBytes is how many bytes of a hash the key of a group has.
const groupBytes = 12

// Group returns the key of the group that b makes of jobs of a tenant. It is the same for as long
// as the block is, in each version of Pawl.
func (b *Block) Group(tenant string) string {
	// a map is written in the order of its keys
	doc, err := json.Marshal([]any{tenant, b.Code, b.Tester, b.Params, b.Machine})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:groupBytes])
}

// IsGroup reports whether key is the key of a group, of one that is there or not.
func IsGroup(key string) bool {
	b, err := hex.DecodeString(key)
	return err == nil && len(b) == groupBytes && key == strings.ToLower(key)
}

// Probe returns the key of what is asked of the world to find out whether a block has cleared: it
// is the same for groups, of other tenants and with other conditions too, to which one answer is
// enough.
func (b *Block) Probe() string {
	return (&Block{Tester: b.Tester, Params: b.Params, Machine: b.Machine}).Group("")
}

// Filled returns b with the policy that holds, and a message that every database takes.
func (b Block) Filled() Block {
	if len(b.Policy.Stages) == 0 {
		wait := b.Policy.MaxWait
		if b.Policy = PolicyOf(b.Code); wait > 0 {
			b.Policy.MaxWait = wait
		}
	}
	b.Params, b.Message = maps.Clone(b.Params), Text(b.Message)
	return b
}

// Wait returns how long a job waits that b blocks; 0: for ever. While nothing is tested no test is
// missed: the stages begin after that.
func (b *Block) Wait() time.Duration {
	p := b.Filled().Policy
	if b.After > 0 && time.Duration(b.After) > p.Every(0) {
		p.Stages = append([]Stage{{Every: b.After, Times: 1}}, p.Stages...)
	}
	return p.Wait()
}

// bounds of a block.
const (
	MaxParams     = 32
	maxParam      = 1024 // bytes of a name and its value
	maxTesterName = 64
)

// Check says what is wrong with b, which is a defect of whoever made it.
func (b *Block) Check() error {
	if !b.Code.Recoverable() {
		return fmt.Errorf("%q is no condition that may clear", b.Code)
	}
	if b.Tester == "" || len(b.Tester) > maxTesterName {
		return fmt.Errorf("%s: a tester with a name of 1 to %d bytes is needed", b.Code, maxTesterName)
	}
	if !plain(b.Tester) || !plain(b.Machine) || !plain(b.Line) {
		return fmt.Errorf("%s: tester %q, machine %q or line %q is no text", b.Code, b.Tester, b.Machine, b.Line)
	}
	if len(b.Params) > MaxParams {
		return fmt.Errorf("%s: %d parameters of a tester are too many: keep to %d", b.Code, len(b.Params), MaxParams)
	}
	for k, v := range b.Params {
		if !plain(k) || !plain(v) {
			return fmt.Errorf("%s: parameter %.40q of a tester is no text: %.40q", b.Code, k, v)
		}
		if len(k)+len(v) > maxParam {
			return fmt.Errorf("%s: parameter %.40q of a tester is too long: keep it to %d bytes", b.Code, k, maxParam)
		}
	}
	if b.After < 0 || time.Duration(b.After) > MaxEvery {
		return fmt.Errorf("%s: no test for %v is out of range: give up to %v", b.Code, b.After, MaxEvery)
	}
	if err := b.Policy.Validate(); err != nil {
		return fmt.Errorf("%s: %w", b.Code, err)
	}
	return nil
}

// Released returns the change by which a blocked job goes on where it was blocked. why says what
// came to its end. One of which something may still run does so however often it was interrupted:
// the worker that claims it finds out.
func Released(j *Job, why string, now time.Time) Change {
	c := Change{Job: j.ID, From: j.Guard(Fence{})}
	if j.Recoveries >= MaxRecoveries && !j.Live {
		c.To = None
		c.Path = []Entry{{State: Failed, Code: RecoveryLimit, Message: "interrupted too often; see its history"}}
		return c
	}
	p := Next(j, j.Resume, now)
	c.To, c.Set.Recovery = p.Custody, true
	c.Path = []Entry{{State: p.State, Message: why}}
	return c
}

// Lapsed returns the change that ends a blocked job for which the trouble lasted too long, by its
// [Job.Deadline]. tried says what was done about it. Credentials that were refused all the time are
// wrong.
func Lapsed(j *Job, tried string, now time.Time) Change {
	code := RecoveryTimeout
	if j.Code == AuthenticationFailed || j.Code == FirstAuthenticationFailed {
		code = j.Code
	}
	return GivenUp(j, code, fmt.Sprintf("%s has not cleared within %s: %s; %s", j.Code, rounded(now.Sub(j.Since)),
		j.Message, tried))
}

// GivenUp returns the change that ends a blocked job as FAILED. It is not for one of which
// something may still run.
func GivenUp(j *Job, code Code, message string) Change {
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: None}
	c.Path = []Entry{{State: Failed, Code: code, Message: message}}
	return c
}

// rounded returns d as people say it.
func rounded(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
