package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/runner/slurm/internal/sacct"
)

// An answer of sacct counts if it is whole. One that is late, cut or noise says nothing, and only
// Slurm's own word says that there are no accounts.
func TestAccounts(t *testing.T) {
	const (
		heading = "JobID|State|ExitCode|Submit|Start|End|UserCPU|SystemCPU|MaxRSS|Partition|NodeList|JobName\n"
		row     = "1|TIMEOUT|0:0|1|2|3|00:00|00:00||debug|n1|T\n"
	)
	for name, c := range map[string]struct {
		said string
		err  error
		want string
	}{
		"an answer":    {heading + row + "= 0\ndone\n", nil, "TIMEOUT"},
		"nothing":      {heading + "= 0\ndone\n", nil, ""},
		"late":         {heading + row + "= 124\ndone\n", new(host.Trouble), ""},
		"failed":       {"! sacct: error: Connection refused\n= 1\ndone\n", new(host.Trouble), ""},
		"noise":        {"Welcome!\n" + heading + row + "= 0\ndone\n", new(host.Trouble), ""},
		"not a word":   {"= 0\ndone\n", new(host.Trouble), ""},
		"cut":          {heading + row, errors.New("cut"), ""},
		"no accounts":  {"! Slurm accounting storage is disabled\n= 1\ndone\n", sacct.ErrNone, ""},
		"no such tool": {"! timeout: failed to run command 'env': No such file\n= 127\ndone\n", sacct.ErrNone, ""},
	} {
		c1 := Client{Sh: func(context.Context, string) (string, error) { return c.said, nil }, Patience: time.Second}
		a, err := c1.Accounts(t.Context(), []string{"T"}, time.Now())
		_, trouble := errors.AsType[*host.Trouble](err)
		_, wanted := c.err.(*host.Trouble) //nolint:errorlint // it is made above
		if (err == nil) != (c.err == nil) || trouble != wanted || errors.Is(err, sacct.ErrNone) != errors.Is(c.err, sacct.ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
		if a["T"].State != c.want {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
