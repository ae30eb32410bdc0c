package service_test

import (
	"context"
	"testing"

	"github.com/pawl-jobs/pawl/broker/local"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/fake"
)

// A meanwhile is a store in which something happens after the first document was put, and before
// the caller hears of that.
type meanwhile struct {
	store.Store
	happens func()
}

func (m *meanwhile) Put(ctx context.Context, r store.Resource) (store.Resource, error) {
	put, err := m.Store.Put(ctx, r)
	if happens := m.happens; happens != nil {
		m.happens = nil
		happens()
	}
	return put, err
}

// Limits are those of the newest document, also if the caller that wrote the one before is slow.
func TestLimitsOfTheNewestDocument(t *testing.T) {
	db := &meanwhile{Store: fake.New(nil)}
	svc := service.New(service.Config{Store: db, Broker: &local.Broker{}})
	ctx, all := t.Context(), svc.Kinds()
	apply := func(doc string) {
		if _, _, err := all.Apply(ctx, []byte(doc), service.AnyVersion); err != nil {
			t.Error(err)
		}
	}
	most := func() int {
		l, err := svc.Limit(ctx, "kind/mail")
		if job.KindOf(err) == job.NotFound {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return l.Set.Most
	}
	db.happens = func() { apply(`{"name":"mail","slots":8}`) }
	if apply(`{"name":"mail","slots":4}`); most() != 8 {
		t.Errorf("the limit is %d, and the document has 8", most())
	}
	db.happens = func() {
		if err := all.Delete(ctx, "mail", service.AnyVersion); err != nil {
			t.Error(err)
		}
	}
	if apply(`{"name":"mail","slots":4}`); most() != 0 {
		t.Errorf("the limit is %d, and there is no document", most())
	}
}
