package term

import (
	"testing"

	"github.com/pawl-jobs/pawl/job"
)

func TestWorse(t *testing.T) {
	all := []job.State{job.Finished, job.Canceled, job.Failed, job.Running}
	for i, a := range all {
		for j, b := range all {
			if got, want := WorseExit(ExitFor(a), ExitFor(b)), ExitFor(all[max(i, j)]); got != want {
				t.Errorf("%s and %s: exit code %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestExitCodes reads the table of exit codes.
func TestExitCodes(t *testing.T) {
	last := -1
	for _, c := range ExitCodes {
		if c.Code <= last || c.Meaning == "" {
			t.Errorf("code %d stands behind %d in the table, or has no meaning", c.Code, last)
		}
		last = c.Code
	}
}

// A folder that another process has, or that a newer Pawl made, is nothing that the caller did
// wrong.
func TestExitCodesOfFolders(t *testing.T) {
	for _, kind := range []job.ErrorKind{job.Locked, job.Newer} {
		if code, ok := exitOf[kind]; ok {
			t.Errorf("%s: exit code %d, want %d", kind, code, ExitBroken)
		}
	}
}
