package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/job"
)

// limited starts a command with a limit of the shell.
func limited(limit string) []string {
	return []string{"sh", "-c", limit + ` && exec pawl "$@"`, "sh"}
}

// submit submits a job and returns its id.
func (p *served) submit(body string) string {
	p.Helper()
	code, answer := p.get("POST", "/v1/jobs", body)
	var made struct {
		ID  string   `json:"id"`
		IDs []string `json:"ids"`
	}
	if err := json.Unmarshal([]byte(answer), &made); code/100 != 2 || err != nil {
		p.Fatalf("submit: %d, %s", code, answer)
	}
	return made.ID
}

// becomes waits until a job is in a state, and returns how it is then.
func (p *served) becomes(id string, want job.State) job.Job {
	p.Helper()
	for {
		switch j := p.job(id); {
		case j.State == want:
			return j
		case j.State.Terminal():
			p.Fatalf("job %s is %s (%s), not %s", id, j.State, j.Message, want)
		}
	}
}

// job returns a job, once somebody can look.
func (p *served) job(id string) (j job.Job) {
	p.Helper()
	for {
		code, answer := p.get("GET", "/v1/jobs/"+id, "")
		if code == 503 { // nobody can look now
			continue
		}
		if err := json.Unmarshal([]byte(answer), &j); code != 200 || err != nil {
			p.Fatalf("job %s: %d, %s", id, code, answer)
		}
		return j
	}
}

// TestIdleCallers leaves 120 connections open, without a token, at a service that may open 100
// files.
func TestIdleCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it waits until the service gives up on idle connections")
	}
	p := startServeBy(t, limited("ulimit -n 100"), t.TempDir(), nil)
	for range 120 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var ids []string
	for range 8 {
		ids = append(ids, p.submit(`{"command":["true"]}`))
	}
	for _, id := range ids {
		p.becomes(id, job.Finished)
	}
	if code, answer := p.get("GET", "/readyz", ""); code != 200 {
		t.Errorf("/readyz answers %d: %s", code, answer)
	}
	p.signal(unix.SIGTERM)
	if code := p.end(); code != term.ExitOK {
		t.Errorf("it ends with %d:\n%s", code, p.log)
	}
}

// TestNoDescriptors takes from a service that works all descriptors that it does not have open.
func TestNoDescriptors(t *testing.T) {
	p := startServe(t, t.TempDir(), nil)
	p.becomes(p.submit(`{"command":["true"]}`), job.Finished)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(len(open))
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for range 5 {
		ids = append(ids, p.submit(`{"command":["true"]}`))
	}
	// Which of them waits in recovery, and which is asked about its launch again and again, is a
	// matter of which descriptor is free at which moment.
	for blocked := false; !blocked; {
		for _, id := range ids {
			j := p.job(id)
			if blocked = blocked || j.State == job.Blocked; j.State == job.Failed {
				t.Fatalf("job %s is %s: %s", id, j.State, j.Message)
			}
		}
	}
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	groups, code := ran(t, []string{"pawl"}, "recovery", "list", "-o", "name", "--dir", p.dir)
	if code != term.ExitOK || strings.Count(groups, "\n") != 1 {
		t.Fatalf("the groups of blocked jobs: %d, %s", code, groups)
	}
	if said, code := ran(t, []string{"pawl"}, "recovery", "try", strings.TrimSpace(groups), "--dir",
		p.dir); code != term.ExitOK {
		t.Fatalf("try: %d, %s", code, said)
	}
	for _, id := range ids {
		p.becomes(id, job.Finished)
	}
}

// TestTooFewDescriptors starts a service that could not work.
func TestTooFewDescriptors(t *testing.T) {
	out, code := ran(t, limited("ulimit -n 40"), "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0")
	if code != term.ExitSettings || !strings.Contains(out, "LimitNOFILE") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// ran runs a command to its end, and returns what it said and its exit code.
func ran(t testing.TB, command []string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(command[0], slices.Concat(command[1:], args)...)
	cmd.Env = own(t)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
