package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// SQL returns a statement, or a part of one, in which {Ready} or {TieTurn} stands for the constant
// of package job that has this name: 'ready', and 32. It panics at a name that is none of
// [constants] and [bounds]. Statements are made once, when the program starts.
func SQL(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		if strings.Trim(name, letters) != "" || name == "" || name[0] > 'Z' { // it is the brace of an array, say
			b.WriteString("{")
			text = rest
			continue
		}
		value := constants[name] + bounds[name]
		if value == "" {
			panic("store: no constant of package job for SQL is named {" + name + "}")
		}
		b.WriteString(value)
		text = after
	}
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// constants are the constants of package job that statements may name, as SQL has them.
var constants = map[string]string{
	"Waiting":          quoted(job.Waiting),
	"Pending":          quoted(job.Pending),
	"ProcessingInputs": quoted(job.ProcessingInputs),
	"StagingInputs":    quoted(job.StagingInputs),
	"StagingJob":       quoted(job.StagingJob),
	"SubmittingJob":    quoted(job.SubmittingJob),
	"Queued":           quoted(job.Queued),
	"Running":          quoted(job.Running),
	"Archiving":        quoted(job.Archiving),
	"Blocked":          quoted(job.Blocked),
	"Paused":           quoted(job.Paused),
	"Finished":         quoted(job.Finished),
	"Failed":           quoted(job.Failed),
	"Canceled":         quoted(job.Canceled),

	"Gate":     quoted(job.Gate),
	"Ready":    quoted(job.Ready),
	"Worker":   quoted(job.Worker),
	"Monitor":  quoted(job.Monitor),
	"Recovery": quoted(job.Recovery),
	"User":     quoted(job.User),
	"None":     quoted(job.None),

	"WishCancel": quoted(job.WishCancel),

	"TieDependants":  digits(job.TieDependants),
	"TieUniqueStart": digits(job.TieUniqueStart),
	"TieUniqueDone":  digits(job.TieUniqueDone),
	"TieLimited":     digits(job.TieLimited),
	"TieAhead":       digits(job.TieAhead),
	"TieTurn":        digits(job.TieTurn),
	"TieKept":        digits(job.TieKept),
	"TieMet":         digits(job.TieMet),
	"TieOrder":       digits(job.TieOrder),
	"TiePass":        digits(job.TiePass),

	"LaneFinish":  quoted(job.LaneFinish),
	"LaneLaunch":  quoted(job.LaneLaunch),
	"LanePrepare": quoted(job.LanePrepare),
	"LaneTask":    quoted(job.LaneTask),
	"LaneAlone":   quoted(job.LaneAlone),

	"CauseSubmit":   quoted(job.CauseSubmit),
	"CauseClaim":    quoted(job.CauseClaim),
	"CauseWork":     quoted(job.CauseWork),
	"CauseDiverted": quoted(job.CauseDiverted),
	"CauseDue":      quoted(job.CauseDue),
	"CauseTurn":     quoted(job.CauseTurn),

	"KindApp":          quoted(job.KindApp),
	"UntilStart":       quoted(job.UntilStart),
	"DebtDependants":   quoted(job.DebtDependants),
	"NormalCompletion": quoted(job.NormalCompletion),
	"Launching":        quoted(job.Launching),

	"DurationPattern": quoted(job.DurationPattern),
	"LimitKeyPattern": quoted(job.LimitKeyPattern),
	"OwnKeyPattern":   quoted(job.OwnKeyPattern),
	"MaxLimitKey":     strconv.Itoa(job.MaxLimitKey),
	"MaxJobLimits":    strconv.Itoa(job.MaxJobLimits),
	"MaxTenant":       strconv.Itoa(job.MaxTenant),
	"MaxOwner":        strconv.Itoa(job.MaxOwner),
	"MaxExternalID":   strconv.Itoa(job.MaxExternalID),
	"MaxKey":          strconv.Itoa(job.MaxKey),
	"MaxLabels":       strconv.Itoa(job.MaxLabels),
	"MaxArgs":         strconv.Itoa(job.MaxArgs),
	"MaxNotes":        strconv.Itoa(job.MaxNotes),
	"MaxVersion":      strconv.Itoa(job.MaxVersion),
	"MaxName":         strconv.Itoa(job.MaxName),
	"MaxDepth":        strconv.Itoa(job.MaxDepth),
}

// bounds are what statements may name beside that: it is made of package job.
var bounds = map[string]string{
	"MaxDelay": strconv.Itoa(int(job.MaxDelay / time.Second)), // seconds
	"MinTime":  quoted(job.MinTime.Format(time.RFC3339)),
	"MaxTime":  quoted(job.MaxTime.Format(time.RFC3339)),

	// TooDeep is a path to lists and maps that are nested too deeply.
	"TooDeep": quoted(fmt.Sprintf(`strict $.**{%d} ? (@.type() == "array" || @.type() == "object")`, job.MaxDepth)),
}

// quoted is a word as SQL has it. Words of package job have no quotes in them.
func quoted[T ~string](word T) string { return "'" + string(word) + "'" }

func digits(bits job.Ties) string { return strconv.Itoa(int(bits)) }
