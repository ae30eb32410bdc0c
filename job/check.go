package job

import "slices"

// A SystemCheck is what was found when all that jobs need of a system was tried.
type SystemCheck struct {
	// The name of the system.
	System string `json:"system" example:"lab"`

	// Whether all of it works.
	Works bool `json:"works"`

	// What was tried, in that order.
	Steps []CheckStep `json:"steps"`
}

// A CheckStep is one thing that jobs need of a system.
type CheckStep struct {
	// What was tried.
	Step string `json:"step" example:"login"`

	// ok: it works. failed: it does not. skipped: it was not tried.
	State string `json:"state" enum:"ok,failed,skipped" example:"failed"`

	// If state is failed: the condition that blocks jobs.
	Code Code `json:"code,omitempty" example:"AUTHENTICATION_FAILED"`

	// What was seen, or why it was not tried.
	Seen string `json:"seen,omitempty" example:"lab.example.org is 203.0.113.7"`

	// If state is failed: what to do.
	Advice string `json:"advice,omitempty"`
}

// The steps of a [SystemCheck], in their order.
const (
	CheckName    = "name"     // the name of the host leads to an address
	CheckConnect = "connect"  // it takes a connection
	CheckHostKey = "host_key" // it proves a key that is trusted
	CheckLogin   = "login"    // it lets the account in
	CheckShell   = "shell"    // a shell answers
	CheckTools   = "tools"    // the programs are there that Pawl needs
	CheckSFTP    = "sftp"     // files can be reached
	CheckWork    = "work"     // the work folder is there and can be written to
	CheckSpace   = "space"    // there is room in it
	CheckClock   = "clock"    // its clock is right
	CheckLaunch  = "launch"   // a program starts
	CheckAlive   = "alive"    // it is found alive
	CheckEnd     = "end"      // it is ended
	CheckTold    = "told"     // its end is told
	CheckClean   = "clean"    // nothing of it stays
)

// CheckSteps lists the steps, in their order.
var CheckSteps = []string{
	CheckName, CheckConnect, CheckHostKey, CheckLogin, CheckShell, CheckTools, CheckSFTP, CheckWork, CheckSpace,
	CheckClock, CheckLaunch, CheckAlive, CheckEnd, CheckTold, CheckClean,
}

// The states of a [CheckStep].
const (
	CheckOK      = "ok"
	CheckFailed  = "failed"
	CheckSkipped = "skipped"
)

// OK notes a step that works.
func (c *SystemCheck) OK(step, seen string) {
	c.note(CheckStep{Step: step, State: CheckOK, Seen: seen})
}

// Fail notes a step that does not work.
func (c *SystemCheck) Fail(step string, code Code, seen, advice string) {
	c.note(CheckStep{step, CheckFailed, code, seen, advice})
}

// Skip notes steps that are not tried.
func (c *SystemCheck) Skip(why string, steps ...string) {
	for _, step := range steps {
		c.note(CheckStep{Step: step, State: CheckSkipped, Seen: why})
	}
}

func (c *SystemCheck) note(s CheckStep) { c.Steps = append(c.Steps, s) }

// Failed returns the first step that failed; nil: none has.
func (c *SystemCheck) Failed() *CheckStep {
	for i := range c.Steps {
		if c.Steps[i].State == CheckFailed {
			return &c.Steps[i]
		}
	}
	return nil
}

// Finish skips all steps that are not noted, for the first one that failed, and tells whether the
// system works.
func (c *SystemCheck) Finish() {
	failed := c.Failed()
	if c.Works = failed == nil; failed != nil {
		why := "needs " + failed.Step
		for _, step := range CheckSteps {
			if !slices.ContainsFunc(c.Steps, func(s CheckStep) bool { return s.Step == step }) {
				c.Skip(why, step)
			}
		}
	}
	slices.SortStableFunc(c.Steps, func(a, b CheckStep) int {
		return slices.Index(CheckSteps, a.Step) - slices.Index(CheckSteps, b.Step)
	})
}
