package sqlite

import "github.com/pawl-jobs/pawl/job"

// The ties of a job as SQL has them, one bit each: the digits of the constants of package job.
const (
	tieAhead = string(rune('0'+job.TieAhead/10)) + string(rune('0'+job.TieAhead%10))
	tieTurn  = string(rune('0'+job.TieTurn/10)) + string(rune('0'+job.TieTurn%10))
	tieKept  = string(rune('0'+job.TieKept/10)) + string(rune('0'+job.TieKept%10))
	tieOrder = string(rune('0'+job.TieOrder/100)) + string(rune('0'+job.TieOrder/10%10)) +
		string(rune('0'+job.TieOrder%10))
)
