package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// Only what the controller itself says of a request refuses it, and the message says what to
// change.
func TestRefusals(t *testing.T) {
	const (
		failed   = "sbatch: error: Batch job submission failed: "
		violates = failed + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
	)
	for said, want := range map[string]string{
		"sbatch: error: invalid partition specified: x; " + failed +
			"Invalid partition name specified": "partition",

		failed + "User's group not permitted to use this partition":                "partition",
		failed + "Invalid account or account/partition combination specified":      "account",
		failed + "Invalid qos specification":                                       "qos",
		failed + "Requested reservation is invalid":                                "reservation",
		failed + "Invalid feature specification":                                   "constraint",
		failed + "Requested time limit is invalid (missing or exceeds some limit)": "minutes",
		failed + "Node count specification invalid":                                "nodes",
		failed + "Invalid license specification":                                   "options (--licenses)",
		"sbatch: error: Invalid generic resource (gres) specification":             "gpus",
		"sbatch: error: Memory specification can not be satisfied; " + failed +
			"Requested node configuration is not available": "memory",

		failed + "Requested node configuration is not available": "nodes, cores, memory, gpus or constraint",

		"sbatch: unrecognized option '--nosuch'; Try \"sbatch --help\" for more information": "options",
		"sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.":     "options",
		"sbatch: error: unrecognized --hint argument \"foo\", see --hint=help":               "options",
		"sbatch: error: Invalid numeric value \"0\" for --ntasks-per-node.":                  "options",
		failed + "Job dependency problem":                                                    "options",
		failed + "Invalid time-min specification (exceeds job's time or other limits)":       "options",
		"sbatch: error: QOSMaxWallDurationPerJobLimit; " + violates:                          "minutes",
		"sbatch: error: AssocMaxNodePerJobLimit; " + violates:                                "nodes",
		failed + "I do not like it":                                                          "-",

		"sbatch: error: QOSMaxSubmitJobPerUserLimit; " + violates: "SCHEDULER_QUOTA",
		"sbatch: error: AssocMaxSubmitJobLimit; " + violates:      "SCHEDULER_QUOTA",
		violates: "SCHEDULER_QUOTA",
		"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying": "SCHEDULER_QUOTA",
		failed + "Required partition not available (inactive or drain)":                "SCHEDULER_PARTITION_UNAVAILABLE",
		"allocation failure: Required partition not available (inactive or drain)":     "SCHEDULER_PARTITION_UNAVAILABLE",

		failed + "Socket timed out on send/recv operation":              "SCHEDULER_UNAVAILABLE",
		failed + "Unable to contact slurm controller (connect failure)": "SCHEDULER_UNAVAILABLE",
		failed + "Zero Bytes were transmitted or received":              "SCHEDULER_UNAVAILABLE",
		failed + "Protocol authentication error":                        "SCHEDULER_UNAVAILABLE",
		"":                                                              "SCHEDULER_UNAVAILABLE",

		// what the controller or the way to it is at fault for
		failed + "Message receive failure":                                                           "SCHEDULER_UNAVAILABLE",
		failed + "Message send failure":                                                              "SCHEDULER_UNAVAILABLE",
		failed + "Unexpected message received":                                                       "SCHEDULER_UNAVAILABLE",
		failed + "Insane message length":                                                             "SCHEDULER_UNAVAILABLE",
		failed + "Received zero length message":                                                      "SCHEDULER_UNAVAILABLE",
		failed + "Received message length < 0":                                                       "SCHEDULER_UNAVAILABLE",
		failed + "Failed to send entire message":                                                     "SCHEDULER_UNAVAILABLE",
		failed + "Header lengths are longer than data received":                                      "SCHEDULER_UNAVAILABLE",
		failed + "Memory management error":                                                           "SCHEDULER_UNAVAILABLE",
		failed + "Incompatible versions of client and server code":                                   "SCHEDULER_UNAVAILABLE",
		failed + "Can't find an address, check slurm.conf":                                           "SCHEDULER_UNAVAILABLE",
		failed + "Unable to connect to database":                                                     "SCHEDULER_UNAVAILABLE",
		failed + "Failed to open authentication public key":                                          "SCHEDULER_UNAVAILABLE",
		failed + "Failed to connect to authentication agent":                                         "SCHEDULER_UNAVAILABLE",
		failed + "Slurm backup controller in standby mode":                                           "SCHEDULER_UNAVAILABLE",
		failed + "I/O error writing script/environment to file":                                      "SCHEDULER_UNAVAILABLE",
		failed + "Unable to create job record, try again":                                            "SCHEDULER_UNAVAILABLE",
		failed + "Error generating job credential":                                                   "SCHEDULER_UNAVAILABLE",
		failed + "Error configuring interconnect":                                                    "SCHEDULER_UNAVAILABLE",
		failed + "Requested operation is presently disabled":                                         "SCHEDULER_UNAVAILABLE",
		failed + "System submissions disabled":                                                       "SCHEDULER_UNAVAILABLE",
		failed + "Slurm internal error, contact system administrator":                                "SCHEDULER_UNAVAILABLE",
		failed + "Controller is in standby mode, try a different controller":                         "SCHEDULER_UNAVAILABLE",
		failed + "Job update not available right now, the DB index is being set, try again in a bit": "SCHEDULER_UNAVAILABLE",
		failed + "Operation now in progress":                                                         "SCHEDULER_UNAVAILABLE",
		failed + "No route to host":                                                                  "SCHEDULER_UNAVAILABLE",
		failed + "Network is unreachable":                                                            "SCHEDULER_UNAVAILABLE",
		failed + "Broken pipe":                                                                       "SCHEDULER_UNAVAILABLE",

		// A site's own script refuses in words of its own, and sbatch adds these. Alone they say nothing.
		failed + "Unspecified error": "SCHEDULER_UNAVAILABLE",
		"sbatch: error: Name an account with --account; " + failed + "Unspecified error": "options",
		"sbatch: error: Jobs of yours are small; " + failed + "Unspecified error":        "-",

		// the configuration is not there, or not on a file system that is mounted
		"sbatch: error: fetch_config: DNS SRV lookup failed; " +
			"sbatch: error: _establish_config_source: failed to fetch config; " +
			"sbatch: fatal: Could not establish a configuration source": "SCHEDULER_UNAVAILABLE",
		"sbatch: error: ClusterName needs to be specified; " +
			"sbatch: fatal: Unable to process configuration file": "SCHEDULER_UNAVAILABLE",
	} {
		got := ""
		err := refusal(Ask(&job.Resources{Partition: "p"}), answer{errs: said, code: 1})
		if r, ok := errors.AsType[*runner.Refused](err); ok {
			got = "-"
			if strings.Contains(r.Said, "error: ") || strings.Contains(r.Said, "fatal: ") {
				t.Errorf("it says %q", r.Said)
			}
			if r.Field != "" {
				got = strings.TrimPrefix(r.Field, "resources.")
			}
		}
		if tr, ok := errors.AsType[*host.Trouble](err); ok {
			got = string(tr.Code)
			if (tr.Ask["partition"] == "p") != (tr.Code != job.SchedulerUnavailable) {
				t.Errorf("%q asks for %v", said, tr.Ask)
			}
		}
		if got != want {
			t.Errorf("%q: %s, not %s", said, got, want)
		}
	}
	err := refusal(nil, answer{errs: "sbatch: fatal: Could not establish a configuration source", code: 1})
	if !strings.Contains(err.Error(), "env: {SLURM_CONF: /path/slurm.conf}") {
		t.Errorf("it says %q", err)
	}
	for _, code := range []int{124, 127, 137} {
		if _, wrong := errors.AsType[*runner.Refused](refusal(nil, answer{errs: "something", code: code})); wrong {
			t.Errorf("refused by a command that was cut, or is not there: %d", code)
		}
	}
}
