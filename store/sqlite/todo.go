package sqlite

import (
	"context"
	"errors"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/store"
)

var errTodo = errors.New("to be written")

func (s *Store) Annotate(context.Context, store.Annotation) ([]error, error) { return nil, errTodo }
func (s *Store) AddEvent(context.Context, store.NewEvent) (store.Event, error) {
	return store.Event{}, errTodo
}
func (s *Store) Remove(context.Context, string, []job.ID) ([]error, error) { return nil, errTodo }
func (s *Store) Waiting(context.Context, string, string, int) (int, error) { return 0, errTodo }
