package app_test

import (
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// Login files that end their shell, as by exit 0, are no success of the program.
func TestLoginFilesThatEndTheirShell(t *testing.T) {
	h := open(t)
	h.stop()
	h.start(func(p *parts) { p.Local.Shell = []string{"/bin/sh", "-l"} })
	for text, want := range map[string]job.State{"exit 0\n": job.Failed, "cd /\nPATH=/nowhere\n": job.Finished} {
		home := t.TempDir()
		h.write(text, home, ".profile")
		s := shell("echo ran")
		s.Env = map[string]string{"HOME": home}
		id := h.submit(s)
		j := h.end(id)
		const why = "login files ended /bin/sh -l"
		told := j.Code == job.LaunchFailed && strings.Contains(j.Message, why)
		if j.State != want || told != (want == job.Failed) {
			t.Errorf("%q: %s, %s: %s", text, j.State, j.Code, j.Message)
		}
	}
}
