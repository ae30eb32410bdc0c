package node

import (
	"context"
	"os"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner/slurm/survey"
)

// Survey asks the Slurm of a system what jobs may ask it for. It reaches the machine as a process
// of a data folder does, and leaves nothing there.
func Survey(ctx context.Context, doc *job.System, dir, tenant string) (*survey.Survey, error) {
	var h machine
	var err error
	if doc.Host.Kind == job.HostSSH {
		h, err = backends.remote(doc, loginOf(dir, tenant, doc), nil, QuietLog)
	} else {
		h, err = backends.host(doc.Name, "", doc.Env, nil)
	}
	if err != nil {
		return nil, err
	}
	defer h.Close()
	said, err := os.MkdirTemp("", "pawl-survey-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(said)
	return survey.Of(ctx, h, said)
}
