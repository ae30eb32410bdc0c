package node

import (
	"context"
	"errors"
	"log/slog"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
)

// System returns the system of a watch, as jobs of this process have it.
func (n *Node) System(ctx context.Context, watch string) (*app.System, error) {
	return n.far.System(ctx, n.Tenant(), watch)
}

// OpenSystem opens a system on another machine, without a service. closed ends its connection.
func OpenSystem(ctx context.Context, doc *job.System, log *slog.Logger) (sys *app.System, closed func() error,
	err error,
) {
	watch := doc.Watch()
	s := &systems{log: log, docs: map[string]job.System{watch: *doc}, open: map[string]*system{}}
	if sys, err = s.System(ctx, s.tenant, watch); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return sys, s.Close, nil
}
