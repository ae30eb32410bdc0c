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

// A Block is trouble that stops a job for now and may clear. It says what the trouble is, how to
// find out that it has cleared, and how long the job waits for that.
//
// A Block is an error. The code that meets the trouble makes one, and its callers may wrap it to
// add what they know. [Blocking] finds it again.
type Block struct {
	// Code is the condition. It must be recoverable.
	Code Code `json:"code"`
	// Message says what happened, for people. It does not decide about the group of the job.
	Message string `json:"message,omitempty"`
	// AnyCode says that Code does not decide about the group of the job. Trouble that goes from one
	// condition to another, such as a connection that is refused and then times out, is one group
	// then. The group shows the newest code and message.
	AnyCode bool `json:"any_code,omitempty"`
	// Tester is the name of the test that finds out, with Params, whether the condition has
	// cleared. All jobs of a tenant with the same Code, Tester, Params and Machine are one group.
	// The group is tested as a whole.
	Tester string            `json:"tester"`
	Params map[string]string `json:"params,omitempty"`
	// Machine is the only machine on which the test can be made; empty: any machine.
	Machine string `json:"machine,omitempty"`
	// Line is the key of a limit, such as that of a system. While the block stands, jobs that need
	// a turn of this key and are not under way wait in its line; empty: other jobs go on.
	Line string `json:"line,omitempty"`
	// Apart says that the job holds nothing while it waits, and that other jobs can go on. It gives
	// up its place among the programs that are made ready, so that many blocked jobs are in
	// nobody's way.
	Apart bool `json:"apart,omitempty"`
	// Policy says when the condition is tested, and how long the job waits. The zero value stands
	// for the default policy of Code.
	Policy Policy `json:"policy,omitzero"`
	// After is how long the first test has to wait, because the other side asked for it. A busy
	// server does so.
	After Duration `json:"after,omitempty"`
}

func (b *Block) Error() string {
	if b.Message == "" {
		return string(b.Code)
	}
	return b.Message
}

// Blocking returns the block that err wraps, with the whole text of err as its message; nil: err
// wraps none.
func Blocking(err error) *Block {
	var b *Block
	if !errors.As(err, &b) {
		return nil
	}
	whole := *b
	whole.Message = err.Error()
	return &whole
}

const groupBytes = 12 // groupBytes is how many bytes of a hash are in the key of a group.

// Group returns the key of the group that b puts jobs of a tenant into: 24 hexadecimal digits. It
// follows from the tenant, Code (unless AnyCode is set), Tester, Params and Machine, and is the
// same in every version of Pawl.
func (b *Block) Group(tenant string) string {
	code := b.Code
	if b.AnyCode {
		code = ""
	}
	// a map is written in the order of its keys
	doc, err := json.Marshal([]any{tenant, code, b.Tester, b.Params, b.Machine})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(doc)
	return hex.EncodeToString(sum[:groupBytes])
}

// IsGroup reports whether key has the form of the key of a group. The group need not exist.
func IsGroup(key string) bool {
	b, err := hex.DecodeString(key)
	return err == nil && len(b) == groupBytes && key == strings.ToLower(key)
}

// Probe returns the key of the question that a test of b asks. All groups with the same question
// share one answer, also groups of other tenants or with other conditions.
func (b *Block) Probe() string {
	return (&Block{Tester: b.Tester, Params: b.Params, Machine: b.Machine}).Group("")
}

// Filled returns b with its policy filled in, and with a message that every database takes.
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

// Wait returns how long a job waits that b blocks; 0: for ever. The time before the first test,
// After, comes before the stages of the policy, so that no test is missed.
func (b *Block) Wait() time.Duration {
	p := b.Filled().Policy
	if b.After > 0 && time.Duration(b.After) > p.Every(0) {
		p.Stages = append([]Stage{{Every: b.After, Times: 1}}, p.Stages...)
	}
	return p.Wait()
}

// Bounds of a block.
const (
	MaxParams     = 32
	maxParam      = 1024 // bytes of a name and its value
	maxTesterName = 64
)

// Check reports what is wrong with b. An error is a defect of the code that made b.
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

// Released returns the change by which a blocked job goes on where it was blocked. why says for the
// history what ended the block.
//
// A job that was interrupted [MaxRecoveries] times fails instead. It goes on all the same while
// something of it may still run: the worker that claims it finds out.
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

// Lapsed returns the change that ends a blocked job whose [Job.Deadline] has passed. tried says
// what was done about the trouble. Its code is [RecoveryTimeout], or the code of the block where
// credentials were refused: they are wrong.
func Lapsed(j *Job, tried string, now time.Time) Change {
	code := RecoveryTimeout
	switch j.Code {
	case AuthenticationFailed, FirstAuthenticationFailed:
		code = j.Code
	}
	return GivenUp(j, code, fmt.Sprintf("%s has not cleared within %s: %s; %s", j.Code, rounded(now.Sub(j.Since)),
		j.Message, tried))
}

// GivenUp returns the change that ends a blocked job as FAILED. The caller makes sure that nothing
// of the job may still run.
func GivenUp(j *Job, code Code, message string) Change {
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: None}
	c.Path = []Entry{{State: Failed, Code: code, Message: message}}
	return c
}

// rounded returns d to the second, or to the millisecond below a minute.
func rounded(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}
