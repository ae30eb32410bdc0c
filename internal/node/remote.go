package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/job"
)

// System returns the system of a watch, as jobs of this process have it.
func (n *Node) System(ctx context.Context, watch string) (*app.System, error) {
	return n.far.System(ctx, n.Tenant(), watch)
}

// OpenSystem opens a system on another machine with via native, without a service. closed ends its
// connection.
func OpenSystem(ctx context.Context, doc *job.System, log *slog.Logger) (sys *app.System, closed func() error,
	err error,
) {
	h, err := backends.remote(doc, nil, nil, log)
	if err != nil {
		return nil, nil, err
	}
	y := &system{doc: *doc, host: h}
	if sys, err = y.prepare(ctx, doc.Watch(""), log); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("system %s: %w", doc.Name, err), h.Close())
	}
	return sys, h.Close, nil
}
