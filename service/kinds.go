package service

import (
	"context"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/kinds"
)

var kindDocs = resourceKind[kinds.Kind]{
	kind: kinds.Document, parse: kinds.Parse, limits: (*kinds.Kind).Limit,
	name: func(k *kinds.Kind) string { return k.Name }, disable: func(k *kinds.Kind, v bool) { k.Disabled = v },
}

// Kinds returns the documents of kinds of task: what holds for jobs that do not say it themselves.
func (s *Service) Kinds() Resources[kinds.Kind] { return Resources[kinds.Kind]{s, &kindDocs} }

// declared returns what is known of a kind of task; nil: nothing is, or it is no task.
func (s *Service) declared(ctx context.Context, kind string) (*kinds.Declared, error) {
	if kind == "" || kind == job.KindApp {
		return nil, nil
	}
	known, err := s.docs.known(ctx, s.cfg.Tenant)
	if err != nil {
		return nil, err
	}
	return known.kinds[kind], nil
}

// indexed is [kinds.Indexed]. A kind that cannot be read now has no index.
func (s *Service) indexed(ctx context.Context, f job.Filter) job.Filter {
	return kinds.Indexed(f, func(kind string) *kinds.Declared {
		d, _ := s.declared(ctx, kind)
		return d
	})
}
