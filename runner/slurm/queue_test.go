package slurm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-jobs/pawl/runner"
)

func line(words ...string) string {
	text := ""
	for i, f := range fields {
		text += fmt.Sprintf("%-*.*s", f.width, f.width, words[i])
	}
	return text + "\n"
}

// What squeue prints is read by its columns.
func TestQueueIsRead(t *testing.T) {
	rows := parseQueue(line("12_3", "TOKEN", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug") +
		"slurm_load_jobs error\n" +
		line("7", "OLD", "FAILED", "NonZeroExitCode", "768", "1795844900", "1795844901", "1795844902", "debug") +
		line("8", "OLD", "RUNNING", "None", "0", "1795844910", "1795844911", "N/A", "debug") +
		line("JOBID", "NAME", "STATE", "REASON", "EXIT_CODE", "SUBMIT_TIME", "START_TIME", "END_TIME", "PARTITION"))
	at := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	want := map[string]row{
		"TOKEN": {id: "12_3", name: "TOKEN", state: "PENDING", reason: "Resources", submitted: at(1795844903), partition: "debug"},
		"OLD": {
			id: "8", name: "OLD", state: "RUNNING", reason: "None", submitted: at(1795844910), start: at(1795844911),
			partition: "debug",
		},
	}
	if diff := cmp.Diff(want, rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzQueue(f *testing.F) {
	f.Add(line("12_3", "TOKEN", "PENDING", "Resources", "0", "1795844903", "N/A", "N/A", "debug"))
	f.Add("1\n\n  \x00")
	f.Fuzz(func(t *testing.T, out string) {
		for token, w := range parseQueue(out) {
			if token == "" || w.name != token || w.state == "" || w.id == "" {
				t.Errorf("%q: %+v", token, w)
			}
			_, _ = w.waiting(), w.phase()
		}
	})
}

// An answer is shared, an error says nothing, and a launch is missing only in two answers.
func TestQueueIsAskedRarely(t *testing.T) {
	asked, fails := 0, false
	q := queue{ask: func(context.Context) (map[string]row, error) {
		asked++
		if fails {
			return nil, errors.New("no answer")
		}
		return map[string]row{}, nil
	}}
	look := func(age time.Duration) *snapshot {
		t.Helper()
		s, err := q.look(t.Context(), age)
		if (err != nil) != fails {
			t.Error(err)
		}
		return s
	}
	l := &launch{Handle: runner.Handle{Token: "T"}}
	for range 3 {
		if q.missing(look(time.Hour), l) {
			t.Error("missing after one answer")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	fails = true
	if q.missing(look(0), l) {
		t.Error("missing after an error")
	}
	fails = false
	if !q.missing(look(0), l) {
		t.Error("not missing after a second answer")
	}
	young := &launch{Handle: runner.Handle{Token: "Y"}, place: place{Armed: time.Now().Add(time.Hour).UnixMilli()}}
	for range 3 {
		if q.missing(look(0), young) {
			t.Error("missing before it was launched")
		}
	}
}

// Only what the controller itself says of a request refuses it.
func TestRefusals(t *testing.T) {
	for said, want := range map[string]bool{
		"Batch job submission failed: Invalid partition name specified":                      true,
		"Batch job submission failed: Requested node configuration is not available":         true,
		"Batch job submission failed: Job violates accounting/QOS policy (job submit limit)": true,
		"Batch job submission failed: Socket timed out on send/recv operation":               false,
		"Batch job submission failed: Unable to contact slurm controller (connect failure)":  false,
		"Batch job submission failed: Zero Bytes were transmitted or received":               false,
		"Batch job submission failed: Protocol authentication error":                         false,
		"timeout: failed to run command 'sbatch': No such file or directory":                 false,
		"": false,
	} {
		code := 1
		if want != refused(code, said) && said[:7] != "timeout" {
			t.Errorf("%q: refused %t", said, !want)
		}
		if refused(124, said) || refused(127, said) {
			t.Errorf("%q: refused by a command that was cut, or is not there", said)
		}
	}
}
