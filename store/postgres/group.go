package postgres

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

// Tests implements [store.Groups].
func (s *Store) Tests(ctx context.Context, duty string, limit int) (store.Tests, error) { panic("groups") }

// Tested implements [store.Groups].
func (s *Store) Tested(ctx context.Context, f job.Fence, found []store.Test) (store.Effects, error) { panic("groups") }

// Steer implements [store.Groups].
func (s *Store) Steer(ctx context.Context, steer store.Steer) ([]error, store.Effects, error) { panic("groups") }

// Groups implements [store.Groups].
func (s *Store) Groups(ctx context.Context, q store.GroupQuery) ([]store.Group, error) { panic("groups") }
