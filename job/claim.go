package job

// Claim returns the change that takes j, which is ready, into the custody of a session. rated says
// that programs of j's tenant are launched at moments that are asked for first; else the claim of a
// job that [Job.Launches] is the intent to launch it as well, and as durable as one.
func Claim(j *Job, session, claim ID, rated bool) Change {
	e := Entry{State: Claimed(j.State, j.Program())}
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: Worker, Set: Patch{Session: session, Claim: claim}}
	if j.Launches() && !rated {
		c.Set.Intent, e.Message = true, Launching
	}
	c.Path = []Entry{e}
	return c
}

// Claimed returns the state that a claim moves a ready job to: a claim is itself the change to the
// first working state, and leaves a job that is further on where it is. program tells a program
// from a task.
func Claimed(s State, program bool) State {
	switch {
	case s != Pending:
		return s
	case program:
		return ProcessingInputs
	}
	return Running
}

// Launching is the message of an intent to launch a program.
const Launching = "about to be launched"

// Launches reports whether the launch of its program is what comes next for j, which is ready:
// nothing of it may run, nobody wishes otherwise, and it is not suspected to be what kills its
// processes.
func (j *Job) Launches() bool {
	return j.State == SubmittingJob && j.Lane == LaneLaunch && !j.Live && j.Wish == ""
}

// Intended reports whether j, as a claim answered it, was claimed with the intent to launch it: no
// other change of a job that stays in custody worker is answered by a claim.
func (j *Job) Intended() bool {
	return j.State == SubmittingJob && j.Custody == Worker && j.Live && j.Message == Launching
}
