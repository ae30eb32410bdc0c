package job

// AloneAt and PoisonAt are numbers of crashes in a row of processes that held a job.
//
// When a session dies, each job that it held may have killed its process. All of them become
// suspects. A job that was held in AloneAt crashes runs alone from then on: its process runs no
// other suspect, so the next crash accuses this job and no other one. At PoisonAt, after three
// crashes alone, it ends.
//
// A step of the job that ends, well or not, clears the job, because its process outlived the step.
// A process that lost its lease and comes back clears its jobs too: see [Job.Cleared]. A session
// that ends in good order accuses nobody.
const (
	AloneAt  = 2
	PoisonAt = AloneAt + 3
)

// Cleared returns j without suspicion, and true, when a process that lost its lease turns out to be
// alive. epoch is the epoch in which that process held j.
//
// It clears j only if nothing but the next claim or a wish has moved j since j was taken from that
// epoch. Then each crash that j is suspected of was that process's, or came before.
func (j Job) Cleared(epoch int64) (Job, bool) {
	if since := j.Epoch - epoch; j.Suspect == 0 || j.Custody == None || since < 1 || since > 2 {
		return j, false
	}
	j.Suspect = 0
	j.Lane = LaneOf(j.State, j.Program(), j.Suspect)
	return j, true
}
