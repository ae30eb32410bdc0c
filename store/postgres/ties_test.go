package postgres

import (
	"strconv"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestTies(t *testing.T) {
	for tie, text := range map[job.Ties]string{
		job.TieDependants:  tieDependants,
		job.TieUniqueStart: tieUniqueStart,
		job.TieUniqueDone:  tieUniqueDone,
		job.TieLimited:     tieLimited,
		job.TieAhead:       tieAhead,
		job.TieTurn:        tieTurn,
		job.TieKept:        tieKept,
		job.TieOrder:       tieOrder,
	} {
		if text != strconv.Itoa(int(tie)) {
			t.Errorf("tie %d is %q in SQL: it has more digits than are written there", tie, text)
		}
	}
}
