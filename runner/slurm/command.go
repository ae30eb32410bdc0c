package slurm

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"regexp"
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

// A command is one of Slurm's, with the environment of [host.Host] and a bound on its time. What it
// prints to its standard error comes after its output, in lines that begin with "! ". The last line
// is its exit code.
func (r *Runner) command(ctx context.Context, env, words string) (out, errs string, code int, err error) {
	seconds := int((r.cfg.Patience + time.Second - 1) / time.Second)
	script := clean + fmt.Sprintf(`{ errs=$(%s timeout -k 2 %d %s </dev/null 2>&1 >&3); code=$?; } 3>&1
[ -z "$errs" ] || printf '%%s\n' "$errs" | sed 's/^/! /'
echo "= $code"
`, env, seconds, words)
	text, err := r.sh(ctx, script)
	if err != nil {
		return "", "", 0, err
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	last, ok := strings.CutPrefix(lines[len(lines)-1], "= ")
	if code, err = strconv.Atoi(last); !ok || err != nil {
		return "", "", 0, job.Errorf(job.Unavailable, "a command of Slurm was cut: %.200q", text)
	}
	var said []string
	lines = lines[:len(lines)-1]
	for n := len(lines); n > 0 && strings.HasPrefix(lines[n-1], "! "); n = len(lines) {
		said = append([]string{strings.TrimPrefix(lines[n-1], "! ")}, said...)
		lines = lines[:n-1]
	}
	for _, l := range lines {
		out += l + "\n"
	}
	return out, strings.Join(said, "; "), code, nil
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

// sbatch submits a launch once. After any error but a [runner.Refused] it may be submitted.
func (r *Runner) sbatch(ctx context.Context, m spool.Names) (id string, err error) {
	out, said, code, err := r.command(ctx, "", "sbatch --parsable "+spool.Quote(m.Own("batch")))
	if err != nil {
		return "", err
	}
	if found := jobID.FindStringSubmatch(out); code == 0 && found != nil {
		return found[1], nil
	}
	said = strings.ReplaceAll(said, "sbatch: error: ", "")
	if refused(code, said) {
		return "", &runner.Refused{Code: job.SchedulerRejected, Said: said}
	}
	return "", unanswered("sbatch", code, said)
}

// unanswered is the error of a command whose answer says nothing. It is a [host.Trouble].
func unanswered(name string, code int, said string) error {
	if code == 124 || code == 137 {
		said = "it does not answer in time"
	}
	return &host.Trouble{
		Code: job.SchedulerUnavailable, Err: fmt.Errorf("Slurm does not answer: %s (exit code %d): %s", name, code, said),
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

// scancel sends a signal to the job of a launch, or cancels it. It does not matter what it says: a
// job that is gone is an error for it.
func (r *Runner) scancel(ctx context.Context, l *launch, options string) error {
	_, said, code, err := r.command(ctx, "", "scancel "+options+" --name="+spool.Quote(l.Token)+" "+spool.Quote(l.ID))
	if err == nil && (code == 124 || code >= 126 || silence.MatchString(said)) {
		err = unanswered("scancel", code, said)
	}
	return err
}

// Test implements [runner.Tested]: it asks squeue.
func (r *Runner) Test(ctx context.Context) error {
	_, err := r.queue.look(ctx, 0)
	return err
}
