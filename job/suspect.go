package job

// When a session dies, each job that it held may be what killed its process: it becomes a suspect,
// and so do its neighbours. One that was held in AloneAt crashes runs alone from then on, as the
// only such job of its process, so that the next crash accuses it and none of the others. At
// PoisonAt, after three crashes of that kind, it ends.
//
// It counts crashes in a row. A step of the job that comes to an end, well or not, clears it, for
// its process has outlived that; so does a process that lost its lease and comes back, see
// [Job.Cleared]. A session that ends in good order accuses nobody.
const (
	AloneAt  = 2
	PoisonAt = AloneAt + 3
)

// Cleared returns the row without suspicion, and true, for a process that held j in an epoch, lost
// its lease and lives: where the job was taken from that epoch and nobody has let go of it since.
// Nothing but the next claim or a wish has moved it then, and any crash that it is suspected of was
// that process's or came before.
func (j Job) Cleared(epoch int64) (Job, bool) {
	if since := j.Epoch - epoch; j.Suspect == 0 || j.Custody == None || since < 1 || since > 2 {
		return j, false
	}
	j.Suspect = 0
	j.Lane = LaneOf(j.State, j.Program(), j.Suspect)
	return j, true
}
