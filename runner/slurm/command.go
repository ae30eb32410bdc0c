package slurm

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
	"github.com/pawl-jobs/pawl/runner/internal/spool"
)

// clean are lines that unset the variables by which Slurm's commands would do something else than
// their options say. They also drop what the caller may have as a job of Slurm itself.
const clean = `for name in $(env | sed -n 's/^\(S[A-Z]*_[A-Za-z0-9_]*\)=.*/\1/p'); do
	case $name in
	SLURM_CONF) ;;
	SBATCH_* | SLURM_* | SQUEUE_* | SCANCEL_*) unset "$name" ;;
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

// An answer is what came of a command.
type answer struct {
	out, errs string
	code      int
}

// commands runs a script that calls run, with the environment of [host.Host], and returns what came
// of each call.
func (r *Runner) commands(ctx context.Context, script string) (all []answer, err error) {
	seconds := int((r.cfg.Patience + time.Second - 1) / time.Second)
	text, err := r.sh(ctx, clean+fmt.Sprintf(run, seconds)+script+"echo done\n")
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

// sh runs a script on the host and returns what it printed.
func (r *Runner) sh(ctx context.Context, script string) (string, error) {
	if sh := r.Shell(); sh != nil {
		out, _, err := sh.Run(ctx, script, nil)
		return string(out), err
	}
	name := path.Join(r.Dir, "."+rand.Text())
	p, err := r.Host.Start(ctx, host.Command{
		Argv: []string{"/bin/sh", "-c", script}, Dir: "/", Stdout: name, Stderr: name + ".err",
	})
	defer files.RemoveAll(context.WithoutCancel(ctx), r.FS, name, name+".err") //nolint:errcheck // a hidden file stays
	if err != nil {
		return "", err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		alive, err := r.Host.Alive(ctx, []host.Process{p})
		if err != nil {
			return "", err
		}
		if !alive[0] {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	b, err := files.ReadFile(ctx, r.FS, name, 64<<20)
	return string(b), err
}

var jobID = regexp.MustCompile(`(?m)^(\d+)(;[^\n]*)?$`)

// accepted reads what sbatch says of a submission: the id of the job. After any error but a
// [runner.Refused] it may be submitted.
func accepted(a answer) (id string, err error) {
	if found := jobID.FindStringSubmatch(a.out); a.code == 0 && found != nil {
		return found[1], nil
	}
	a.errs = strings.ReplaceAll(a.errs, "sbatch: error: ", "")
	if refused(a.code, a.errs) {
		return "", &runner.Refused{Code: job.SchedulerRejected, Said: a.errs}
	}
	return "", unanswered("sbatch", a)
}

// unanswered is the error of a command whose answer says nothing. It is a [host.Trouble].
func unanswered(name string, a answer) error {
	if a.code == 124 || a.code == 137 {
		a.errs = "it does not answer in time"
	}
	return &host.Trouble{
		Code: job.SchedulerUnavailable, Err: fmt.Errorf("Slurm does not answer: %s (exit code %d): %s", name, a.code, a.errs),
	}
}

// silence matches what sbatch says when it has not heard what became of the submission, or when the
// controller could not deal with it now.
var silence = regexp.MustCompile(`(?i)unable to contact|timed out|connection|communication|socket|zero bytes|` +
	`temporarily|backup controller|standby|munge|authentication|authorization|protocol|not found|i/o error`)

// refused reports whether sbatch was told that the request itself is wrong.
func refused(code int, said string) bool {
	return said != "" && code != 124 && code < 126 && !silence.MatchString(said)
}

// A cancel is a job of Slurm that is to be canceled, or to get a signal.
type cancel struct {
	name, options string
	done          chan error
}

// cancels is a script of scancel with the options %s, for jobs whose names are the words %s: each of
// them <name>.<task>, and <name>.N/A if it is not part of an array. squeue says under which ids they
// are known now. A task of an array has no name of its own for scancel: by the name of its array, scancel
// 22.05 cancels all of its tasks that wait, whatever id it is given.
const cancels = `options=%s wanted=' %s ' names=%s ids=
found=$(run squeue -h -r -t all -n "$names" -o '%%j %%K %%i')
echo "$found"
while read -r name task id; do
	case $wanted in *" $name.$task "*) ;; *) continue ;; esac
	case $task in
	N/A) run scancel $options --name="$name" "$id" ;;
	*) ids="$ids $id" ;;
	esac
done <<END
$found
END
[ -z "$ids" ] || run scancel $options $ids
`

// scancel sends a signal to the job of a launch, or cancels it, together with others that wait for
// that. It does not matter what scancel says: a job that is gone is an error for it.
func (r *Runner) scancel(ctx context.Context, l *launch, options string) error {
	c := &cancel{l.Name, options, make(chan error, 1)}
	r.cancels.Add(c, maxArray, func(batch []*cancel) {
		for len(batch) > 0 {
			options, names, words := batch[0].options, map[string]bool{}, []string{}
			like := func(c *cancel) bool { return c.options == options }
			for _, c := range batch {
				name, task, isTask := strings.Cut(c.name, "_")
				if like(c) && !isTask {
					task = "N/A"
				}
				if like(c) {
					names[name], words = true, append(words, name+"."+task)
				}
			}
			said, err := r.commands(context.WithoutCancel(ctx), fmt.Sprintf(cancels, spool.Quote(options),
				strings.Join(words, " "), strings.Join(slices.Collect(maps.Keys(names)), ",")))
			for i, a := range said {
				if a.code == 124 || a.code >= 126 || silence.MatchString(a.errs) || i == 0 && a.code != 0 {
					err = unanswered("scancel", a)
				}
			}
			for _, c := range batch {
				if like(c) {
					c.done <- err
				}
			}
			batch = slices.DeleteFunc(batch, like)
		}
	})
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Test implements [runner.Tested]: it asks squeue.
func (r *Runner) Test(ctx context.Context) error {
	_, err := r.queue.look(ctx, 0)
	return err
}
