package postgres

import "github.com/pawl-jobs/pawl/job"

// The ties of a job as SQL has them, one bit each: the digits of the constants of package job.
const (
	tieDependants  = string(rune('0' + job.TieDependants))
	tieUniqueStart = string(rune('0' + job.TieUniqueStart))
	tieUniqueDone  = string(rune('0' + job.TieUniqueDone))
	tieLimited     = string(rune('0' + job.TieLimited))
	tieAhead       = string(rune('0'+job.TieAhead/10)) + string(rune('0'+job.TieAhead%10))
	tieTurn        = string(rune('0'+job.TieTurn/10)) + string(rune('0'+job.TieTurn%10))
	tieKept        = string(rune('0'+job.TieKept/10)) + string(rune('0'+job.TieKept%10))
	tieOrder       = string(rune('0'+job.TieOrder/100)) + string(rune('0'+job.TieOrder/10%10)) +
		string(rune('0'+job.TieOrder%10))

	tieUnique = tieUniqueStart + ` | ` + tieUniqueDone // keys that it holds
	tieRows   = tieDependants + ` | ` + tieUnique      // all that have nothing to do with turns
)
