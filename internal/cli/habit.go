package cli

import (
	"slices"
	"strings"
)

// habits are commands of batch systems and of queues of commands (Slurm, PBS, LSF, task-spooler,
// pueue, nq, GNU parallel), and of a shell, with what is typed here.
var habits = []struct{ names, typed string }{
	{"sbatch qsub bsub add enqueue queue batch nq ts tsp job new create", "pawl submit FILE, or pawl submit -- COMMAND"},
	{"srun exec once do", "pawl run FILE, or pawl run -- COMMAND"},
	{"squeue qstat bjobs ps status jobs stat top monitor", "pawl list, or pawl watch for a table that moves"},
	{"sacct seff scontrol info describe inspect why", "pawl show JOB, or pawl history JOB for all that happened"},
	{"scancel qdel bkill kill stop terminate abort", "pawl cancel JOB"},
	{"log tail cat follow fq stdout stderr peek bpeek", "pawl logs JOB, with -f to follow it"},
	{"restart retry rerun requeue redo repeat replay", "pawl resubmit JOB"},
	{"rm remove clean clear purge prune forget", "pawl delete job JOB, or pawl hide JOB to leave it out of lists"},
	{"parallel xargs concurrency slots", "pawl run --jobs 4 FILE, or pawl limits set system/local 4"},
	{"start continue unpause", "pawl resume JOB; what is not paused starts by itself while pawl serve or pawl run runs"},
	{"hold qhold suspend freeze stash", "pawl pause JOB"},
	{"pueued server daemon up", "pawl serve"},
	{"cron crontab at every schedule", "pawl schedules add NAME --every 1h -- COMMAND"},
	{"results artifacts outputs download fetch files", "pawl output JOB"},
	{
		"edit update modify alter qalter",
		"pawl annotate JOB for labels and notes; for more pawl cancel JOB, and submit another",
	},
	{"sinfo pbsnodes bhosts nodes hosts machines partitions", "pawl systems; of Slurm also pawl systems survey NAME"},
	{"queues", "pawl get queues"},
	{"kinds", "pawl get kinds"},
	{"group groups limit", "pawl limits, with limits: [KEY] in the job file"},
	{"template example", "pawl init"},
	{"lint check verify test", "pawl validate FILE"},
	{"man docs usage", "pawl help"},
}

// habit returns what is typed here for a command of another system; "": it is none.
func habit(name string) string {
	for _, h := range habits {
		if slices.Contains(strings.Fields(h.names), strings.ToLower(name)) {
			return h.typed
		}
	}
	return ""
}
