package term

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
)

// Stages writes when a condition is tested.
func Stages(all []job.Stage) string {
	if len(all) == 0 {
		return "as the condition has it"
	}
	var parts []string
	for _, s := range all {
		part := "every " + KeptFor(s.Every)
		if s.Times > 0 {
			part = fmt.Sprintf("%d times ", s.Times) + part
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", then ")
}

// KeptFor writes for how long jobs are kept, without the zeros at the end.
func KeptFor(d job.Duration) string {
	if d == 0 {
		return "for ever"
	}
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if short, ok := strings.CutSuffix(text, zero); ok && !strings.ContainsAny(short[len(short)-1:], "0123456789") {
			text = short
		}
	}
	return text
}

// Typed makes advice that can be typed as it is: where --dir or --server was given, its commands
// need it too.
func Typed(cmd *cobra.Command, advice string) string {
	flags := ""
	for _, name := range []string{"dir", "server", "token-file"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			flags += " --" + name + " " + phrase.Quoted(cmp.Or(f.Value.String(), "''"))
		}
	}
	if flags == "" {
		return advice
	}
	return command.ReplaceAllStringFunc(advice, func(c string) string { return c + flags })
}

// command matches a command of pawl that is for a folder or a server, within advice.
var command = regexp.MustCompile(`\bpawl (run|submit|wait|watch|list|show|history|events|logs|output|cancel|pause|` +
	`resume|resubmit|hide|unhide|annotate|event|apply|get|delete|enable|disable|workers|systems?|reconcile)\b`)

// CleanLines returns each line of a text as it can be shown on a terminal.
func CleanLines(text string) string {
	return strings.Join(live.Lines(text), "\n")
}
