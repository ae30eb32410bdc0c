package job

// Claim returns the change by which a session takes j, which is ready. claim is the id of the call.
//
// rated says that programs of j's tenant are launched under a rate, and ask for a moment first.
// Otherwise the claim of a job that [Job.Launches] is also the intent to launch it. Such a claim
// must be as durable as an intent.
func Claim(j *Job, session, claim ID, rated bool) Change {
	e := Entry{State: Claimed(j.State, j.Program())}
	c := Change{Job: j.ID, From: j.Guard(Fence{}), To: Worker, Set: Patch{Session: session, Claim: claim}}
	if j.Launches() && !rated {
		c.Set.Intent, e.Message = true, Launching
	}
	c.Path = []Entry{e}
	return c
}

// Claimed returns the state to which a claim moves a job that is ready in state s. From PENDING it
// moves on to the first working state. Elsewhere the job stays in its state. program tells a
// program from a task.
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

// Launches reports whether the next step of j, which is ready, is the launch of its program:
// nothing of it may still run, no wish stands, and it is not suspected of killing its processes.
func (j *Job) Launches() bool {
	return j.State == SubmittingJob && j.Lane == LaneLaunch && !j.Live && j.Wish == ""
}

// Intended reports whether j was claimed with the intent to launch it. j must be the answer of a
// claim: after another change of the job the answer means nothing.
func (j *Job) Intended() bool {
	return j.State == SubmittingJob && j.Custody == Worker && j.Live && j.Message == Launching
}
