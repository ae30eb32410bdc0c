package recovery

import (
	"context"
	"fmt"

	"github.com/pawl-jobs/pawl/job"
)

// IsEnabled reports whether the subject of a document is enabled. The error is of kind
// [job.NotFound] if there is no such document.
type IsEnabled func(ctx context.Context, tenant, kind, name string) (bool, error)

// Test implements [Tester].
func (f IsEnabled) Test(ctx context.Context, q Question) (Answer, error) {
	kind, name := q.Params["kind"], q.Params["name"]
	if kind == "" || name == "" {
		return Answer{}, fmt.Errorf("tester %s: parameters kind and name are needed", Enabled)
	}
	enabled, err := f(ctx, q.Tenant, kind, name)
	switch {
	case job.KindOf(err) == job.NotFound:
		return Answer{Says: fmt.Sprintf("not enabled: there is no %s %s", kind, name)}, nil
	case err != nil:
		return Answer{}, err
	case enabled:
		return Answer{Clear: true, Says: fmt.Sprintf("%s %s is enabled", kind, name)}, nil
	}
	return Answer{Says: fmt.Sprintf("%s %s is disabled", kind, name)}, nil
}

// Private implements [Private]: each tenant has its own documents.
func (IsEnabled) Private() {}

// Disabled returns the block of jobs for which a system has to be there and enabled.
func Disabled(system, message string) *job.Block {
	return &job.Block{
		Code: job.SystemDisabled, Message: message, Tester: Enabled,
		Params: map[string]string{"kind": job.KindSystem, "name": system}, Line: job.SystemKey(system),
	}
}
