// Package client calls Slurm's commands on a host, each with a bound on its time.
package client

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/internal/gather"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/sacct"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/squeue"
)

// clean are lines that unset the variables by which Slurm's commands would do something else than
// their options say. They also drop what the caller may have as a job of Slurm itself.
const clean = `for name in $(env | sed -n 's/^\(S[A-Z]*_[A-Za-z0-9_]*\)=.*/\1/p'); do
	case $name in
	SLURM_CONF) ;;
	SBATCH_* | SRUN_* | SLURM_* | SQUEUE_* | SCANCEL_* | SACCT_* | SINFO_* | SCONTROL_* | SACCTMGR_*) unset "$name" ;;
	esac
done
cd /
`

// run is a function that runs a command of Slurm, with a bound on its time. What the command prints
// to its standard error comes after its output, in lines that begin with "! ". The last line is its
// exit code. After a command that was cut no other one is run. The %%d is the bound in seconds.
const run = `late=
run() {
	[ -z "$late" ] || { echo '= 124'; return; }
	{ errs=$(timeout -k 2 %d "$@" </dev/null 2>&1 >&3); code=$?; } 3>&1
	[ -z "$errs" ] || printf '%%s\n' "$errs" | sed 's/^/! /'
	echo "= $code"
	[ $code != 124 ] || late=yes
}
`

// A Client calls them for one account. Many may use it at once.
type Client struct {
	// Sh runs a script on the host, and returns what it printed. Required.
	Sh func(ctx context.Context, script string) (string, error)
	// Patience bounds each command.
	Patience time.Duration

	cancels gather.Queue[*cancel]
}

// An answer is what came of a command.
type answer struct {
	out, errs string
	code      int
}

// commands runs a script that calls run, with the environment of [host.Host], and returns what came
// of each call.
func (c *Client) commands(ctx context.Context, script string) (all []answer, err error) {
	seconds := int((c.Patience + time.Second - 1) / time.Second)
	text, err := c.Sh(ctx, clean+fmt.Sprintf(run, seconds)+script+"echo done\n")
	if err != nil {
		return nil, err
	}
	rest, whole := strings.CutSuffix(text, "done\n")
	var a answer
	begin, at := 0, 0
	for line := range strings.Lines(rest) {
		at += len(line)
		if said, ok := strings.CutPrefix(line, "! "); ok {
			a.errs += strings.TrimSpace(said) + "; "
		} else if code, ok := strings.CutPrefix(line, "= "); ok {
			a.code, err = strconv.Atoi(strings.TrimSpace(code))
			whole = whole && err == nil
			a.errs = strings.TrimSuffix(a.errs, "; ")
			all, a, begin = append(all, a), answer{}, at
		} else {
			a.out = rest[begin:at]
		}
	}
	if !whole || len(all) == 0 || begin != len(rest) {
		return nil, job.Errorf(job.Unavailable, "a command of Slurm was cut: %.200q", text)
	}
	return all, nil
}

var jobID = regexp.MustCompile(`(?m)^(\d+)(;[^\n]*)?$`)

// A Submission is what came of an sbatch.
type Submission struct {
	ID  string // of the job
	Err error  // after any error but a [runner.Refused] it may be submitted
}

// A Batch is a batch script.
type Batch struct {
	Name string            // of its file
	Ask  map[string]string // see [Ask]
}

// Submit submits batch scripts by one request. After an error any of them may be submitted.
func (c *Client) Submit(ctx context.Context, batches []Batch) ([]Submission, error) {
	script := ""
	for _, b := range batches {
		script += "run sbatch --parsable " + spool.Quote(b.Name) + "\n"
	}
	said, err := c.commands(ctx, script)
	if err == nil && len(said) != len(batches) {
		err = job.Errorf(job.Unavailable, "sbatch was called %d times and answered %d times", len(batches), len(said))
	}
	if err != nil {
		return nil, err
	}
	all := make([]Submission, len(said))
	for i, a := range said {
		all[i].ID, all[i].Err = accepted(batches[i].Ask, a)
	}
	return all, nil
}

// Queue asks for all jobs of the account.
func (c *Client) Queue(ctx context.Context) (none squeue.Answer, _ error) {
	said, err := c.commands(ctx, "run "+squeue.Command()+"\n")
	if err != nil {
		return none, err
	}
	if a, ok := squeue.Parse(said[0].out); ok && said[0].code == 0 {
		return a, nil
	}
	return none, unanswered("squeue", said[0])
}

// Print runs commands, and returns what each has printed; "" of one that failed. The first must not
// fail: the error is a [host.Trouble] if Slurm does not answer it, and of kind NotFound if it is
// not there.
func (c *Client) Print(ctx context.Context, commands ...string) ([]string, error) {
	said, err := c.commands(ctx, "run "+strings.Join(commands, "\nrun ")+"\n")
	switch {
	case err != nil:
		return nil, err
	case len(said) != len(commands):
		return nil, job.Errorf(job.Unavailable, "%d commands of Slurm were called and %d answered", len(commands), len(said))
	case said[0].code == 126 || said[0].code == 127:
		return nil, job.Errorf(job.NotFound, "Slurm is not there: %s", said[0].errs)
	case said[0].code != 0:
		return nil, unanswered(strings.Fields(commands[0])[0], said[0])
	}
	all := make([]string, len(said))
	for i, a := range said {
		if a.code == 0 {
			all[i] = a.out
		}
	}
	return all, nil
}

// Accounts asks Slurm's accounting for jobs by name, of those that were submitted since a moment.
// The error is [sacct.ErrNone] where there is none.
func (c *Client) Accounts(ctx context.Context, names []string, since time.Time) (sacct.Answer, error) {
	said, err := c.commands(ctx, "run "+sacct.Command(names, time.Since(since))+"\n")
	if err != nil {
		return nil, err
	}
	if a, ok := sacct.Parse(said[0].out); ok && said[0].code == 0 {
		return a, nil
	}
	if code := said[0].code; code == 126 || code == 127 || noAccounts.MatchString(said[0].errs) {
		return nil, sacct.ErrNone
	}
	return nil, unanswered("sacct", said[0])
}

// noAccounts matches what sacct says where Slurm keeps no accounts.
var noAccounts = says(`accounting storage is disabled`)

// accepted reads what sbatch says of a submission: the id of the job. After any error but a
// [runner.Refused] it may be submitted.
func accepted(ask map[string]string, a answer) (id string, err error) {
	if found := jobID.FindStringSubmatch(a.out); a.code == 0 && found != nil {
		return found[1], nil
	}
	return "", refusal(ask, a)
}

// unanswered is the error of a command whose answer says nothing. It is a [host.Trouble].
func unanswered(name string, a answer) error {
	switch {
	case a.code == 124 || a.code == 137:
		a.errs = "it does not answer in time"
	case a.code == 0:
		a.errs = fmt.Sprintf("it printed what it never prints by itself: %.100q", a.out)
	}
	if noConfig.MatchString(a.errs) {
		a.errs += ". It finds no configuration of Slurm: where slurm.conf lies elsewhere than usual, " +
			"the document of the system says so: env: {SLURM_CONF: /path/slurm.conf}"
	}
	//nolint:staticcheck // Slurm is a name
	err := fmt.Errorf("Slurm does not answer: %s (exit code %d): %s", name, a.code, a.errs)
	return &host.Trouble{Code: job.SchedulerUnavailable, Err: err}
}

// cut reports whether the exit code is not the command's own: it was cut, killed, or not started.
// Slurm's commands end with any code up to 255, such as scancel with 229 for a job that is just
// ending.
func cut(code int) bool {
	return code == 124 || code == 126 || code == 127 || code == 128+int(syscall.SIGKILL) || code == 128+int(syscall.SIGTERM)
}

// A cancel is a job of Slurm with which a command does something, such as scancel.
type cancel struct {
	name, command string
	done          chan error
}

// cancels is a script that calls the command %s for jobs whose names are the words %s: each of them
// <name>.<task>, and <name>.N/A if it is not part of an array. squeue says under which ids they are
// known now. A task of an array has no name of its own for scancel: by the name of its array,
// scancel 22.05 cancels all of its tasks that wait, whatever id it is given.
const cancels = `command=%s wanted=' %s ' names=%s ids=
found=$(run squeue -h -r -t all -n "$names" -o '%%j %%K %%i')
echo "$found"
while read -r name task id; do
	case $wanted in *" $name.$task "*) ;; *) continue ;; esac
	case $task$command in
	N/Ascancel*) run $command --name="$name" "$id" ;;
	*) ids="$ids $id" ;;
	esac
done <<END
$found
END
[ -z "$ids" ] || run $command $ids
`

// Cancel sends a signal to a job, or cancels it, together with others that wait for that. name is
// its name, and _<task> for a task of an array. It does not matter what scancel says: a job that is
// gone is an error for it.
func (c *Client) Cancel(ctx context.Context, name, options string) error {
	return c.tell(ctx, name, "scancel "+options)
}

// Hold keeps a job that waits in the queue, or lets it go on there. It does not matter what
// scontrol says: a job that runs is an error for it.
func (c *Client) Hold(ctx context.Context, name string, hold bool) error {
	if hold {
		return c.tell(ctx, name, "scontrol uhold") // an administrator could be the only one to release others
	}
	return c.tell(ctx, name, "scontrol release")
}

func (c *Client) tell(ctx context.Context, name, command string) error {
	one := &cancel{name, command, make(chan error, 1)}
	c.cancels.Add(one, maxCancels, func(batch []*cancel) { c.cancel(context.WithoutCancel(ctx), batch) })
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxCancels is how many jobs are canceled by one request.
const maxCancels = 512

// cancel cancels jobs, those with the same command together.
func (c *Client) cancel(ctx context.Context, batch []*cancel) {
	for len(batch) > 0 {
		command, names, words := batch[0].command, map[string]bool{}, []string{}
		like := func(one *cancel) bool { return one.command == command }
		for _, one := range batch {
			name, task, isTask := strings.Cut(one.name, "_")
			if !isTask {
				task = "N/A"
			}
			if like(one) {
				names[name], words = true, append(words, name+"."+task)
			}
		}
		said, err := c.commands(ctx, fmt.Sprintf(cancels, spool.Quote(command), strings.Join(words, " "),
			strings.Join(slices.Collect(maps.Keys(names)), ",")))
		for i, a := range said {
			if cut(a.code) || silence.MatchString(a.errs) || i == 0 && a.code != 0 {
				err = unanswered(strings.Fields(command)[0], a)
			}
		}
		for _, one := range batch {
			if like(one) {
				one.done <- err
			}
		}
		batch = slices.DeleteFunc(batch, like)
	}
}
