package spool

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

type machine struct {
	host.Host
	fs files.FS
}

func (m machine) Files() files.FS { return m.fs }

// A room becomes the mark of its job also where it cannot be renamed, on the first of a day too,
// and is gone then.
func TestSweepWithoutRename(t *testing.T) {
	f := fake.New()
	f.Inject(fake.Fault{Op: "Rename", Err: errors.New("the connection was lost")})
	s := New(Config{Host: machine{fs: f}, Dir: "/ends", PastDir: "/past"})
	k := runner.Key{Job: job.NewID(), Attempt: 1, Launch: 2}
	for _, dir := range []string{"/ends/" + Rooms, "/past", "/job/" + runner.Folder} {
		if err := f.Mkdir(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Put(t.Context(), s.RoomName(k, 0), strings.NewReader("ran"), files.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CleanFolder(t.Context(), k, "/job", ""); err != nil {
		t.Fatal(err)
	}
	if marked, err := s.Marks(t.Context(), k.Job); err != nil || !marked {
		t.Errorf("a mark: %t, %v", marked, err)
	}
	if names, err := files.Names(t.Context(), f, "/ends/"+Rooms); err != nil || len(names) > 0 {
		t.Errorf("rooms are left: %v, %v", names, err)
	}
}
