package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// A no is what sbatch says when it submits nothing, and what that means.
type no struct {
	said *regexp.Regexp
	// code is the condition; [job.SchedulerRejected]: the request is wrong.
	code job.Code
	// field is what to change in resources, of a request that is wrong.
	field string
}

// nos are looked through in order.
var nos = []no{
	{says(`temporarily unable to accept|Resource temporarily unavailable|MaxSubmitJob|GrpSubmitJob`), job.SchedulerQuota, ""},
	{says(`partition not available`), job.SchedulerPartitionUnavailable, ""},

	{says(`Wall|time limit|--time`), job.SchedulerRejected, "minutes"},
	{says(`MaxNode|GrpNode|MinNode|node count|--nodes`), job.SchedulerRejected, "nodes"},
	{says(`MaxMem|GrpMem|MinMem|memory spec`), job.SchedulerRejected, "memory"},
	{says(`MaxG[Rr][Ee][Ss]|GrpG[Rr][Ee][Ss]|generic resource|gres`), job.SchedulerRejected, "gpus"},
	{says(`MaxCpu|GrpCpu|MinCpu|processors requested|cpu count|task count`), job.SchedulerRejected, "tasks and resources.cores"},
	{says(`license`), job.SchedulerRejected, "options (--licenses)"},
	{says(`account or account|invalid account`), job.SchedulerRejected, "account"},
	{says(`invalid qos|qos spec`), job.SchedulerRejected, "qos"},
	{says(`reservation`), job.SchedulerRejected, "reservation"},
	{says(`feature`), job.SchedulerRejected, "constraint"},
	{says(`partition`), job.SchedulerRejected, "partition"},
	{says(`node configuration`), job.SchedulerRejected, "nodes, cores, memory, gpus or constraint"},
	{says(`--[a-z]|invalid option|node name|dependency|time-min`), job.SchedulerRejected, "options"},
}

// policy begins what sbatch says of all limits of accounting, after the name of the limit. Old
// versions say no name. Then it may be the number of jobs.
const policy = "Batch job submission failed: Job violates accounting"

func says(text string) *regexp.Regexp { return regexp.MustCompile("(?i)" + text) }

// silence matches what sbatch says when it has not heard what became of the submission, or when the
// controller could not deal with it now: what Slurm 22.05 says of the way to the controller, and of
// the controller. A site's own script may refuse a job in words of its own: sbatch says that an
// error is unspecified, after them. Alone it tells nothing of the request.
var silence = says(`unable to contact|timed out|connection|communication|socket|zero bytes|` +
	`temporarily|backup controller|standby|munge|authentication|authorization|protocol|not found|i/o error|` +
	`message (send|receive) failure|unexpected message|message length|zero length message|entire message|header length|` +
	`(unable|failed) to connect|find an address|now in progress|broken pipe|no route to host|unreachable|` +
	`try again|presently disabled|submissions disabled|job credential|interconnect|internal error|memory management|` +
	`incompatible versions|^([a-z ]+: )?unspecified error$|` + unconfigured)

// unconfigured is what Slurm's commands say that find no slurm.conf, or cannot read it. Where they
// get it from the controller, that may be away.
const unconfigured = `configuration (source|file)|fetch_config`

var noConfig = says(unconfigured)

// refusal returns why sbatch submitted nothing: a [runner.Refused] if the request is wrong, else a
// [host.Trouble]. It may have submitted all the same if that is SCHEDULER_UNAVAILABLE.
func refusal(ask map[string]string, a answer) error {
	said := strings.NewReplacer("sbatch: error: ", "", "sbatch: fatal: ", "").Replace(a.errs)
	words, _, limited := strings.Cut(said, policy)
	all := nos
	if limited {
		all = append(slices.Clone(nos), no{says(""), job.SchedulerQuota, ""})
	}
	for _, n := range all {
		switch {
		case !n.said.MatchString(words) || silence.MatchString(words) && n.code != job.SchedulerQuota:
		case n.code == job.SchedulerRejected:
			return &runner.Refused{Code: n.code, Said: said, Field: "resources." + n.field}
		default:
			//nolint:staticcheck // Slurm is a name
			return &host.Trouble{Code: n.code, Err: fmt.Errorf("Slurm takes no job like this now: %s", said), Ask: ask}
		}
	}
	if said != "" && a.code != 124 && a.code < 126 && !silence.MatchString(said) {
		return &runner.Refused{Code: job.SchedulerRejected, Said: said}
	}
	return unanswered("sbatch", a)
}

// Ask returns what decides whether Slurm takes another job: options of sbatch.
func Ask(q *job.Resources) map[string]string {
	return map[string]string{"partition": q.Partition, "account": q.Account, "qos": q.QOS}
}

// Test has sbatch say whether it would take a job for which the options ask are given.
func (c *Client) Test(ctx context.Context, ask map[string]string) error {
	words := "run sbatch --test-only --wrap=true"
	for _, name := range slices.Sorted(maps.Keys(ask)) {
		if v := ask[name]; v != "" {
			words += " " + spool.Quote("--"+name+"="+v)
		}
	}
	said, err := c.commands(ctx, words+"\n")
	if err == nil && said[0].code != 0 {
		err = refusal(ask, said[0])
	}
	if _, wrong := errors.AsType[*runner.Refused](err); wrong {
		return nil // who submits is told so
	}
	return err
}
