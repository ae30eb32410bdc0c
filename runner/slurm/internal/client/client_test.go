package client

import "testing"

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
