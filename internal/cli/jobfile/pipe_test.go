package jobfile

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

// No right helps to read a pipe. Its place does.
func TestAPipeAsInput(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, problems := surroundings(&job.Spec{Command: []string{"true"}, Inputs: []job.Input{{From: pipe}}}, nil, false)
	if len(problems) != 1 || strings.Contains(problems[0].Remedy, "right") ||
		!strings.Contains(problems[0].Remedy, "in_place") {
		t.Errorf("%+v", problems)
	}
}
