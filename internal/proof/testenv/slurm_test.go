package testenv

import (
	"context"
	"strings"
	"testing"
)

// A job runs, and the controller can be killed and comes back.
func TestSlurm(t *testing.T) {
	s := Slurm(t)
	run := func() {
		t.Helper()
		out, err := s.Do(t.Context(), "sbatch", "--parsable", "--output=/dev/null", "--wrap=exit 3")
		if err != nil {
			t.Fatal(out, err)
		}
		id := strings.TrimSpace(out)
		ctx, cancel := context.WithTimeout(t.Context(), Patience)
		defer cancel()
		if !Until(ctx, func() bool {
			out, _ = s.Do(ctx, "scontrol", "show", "job", id, "-o")
			return strings.Contains(out, "JobState=FAILED") && strings.Contains(out, "ExitCode=3:0")
		}) {
			t.Fatal(out)
		}
	}
	run()
	s.KillController()
	s.StartController(t)
	run()
}
