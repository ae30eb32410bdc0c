package files_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/fake"
	"github.com/pawl-jobs/pawl/job"
)

// A stamper is a file system that answers so to Stamp.
type stamper struct {
	files.FS
	err     error
	stamped []string
}

func (s *stamper) Stamp(_ context.Context, _ time.Time, names ...string) error {
	s.stamped = append(s.stamped, names...)
	return s.err
}

// A time of a file that proves nothing is not told.
func TestStamped(t *testing.T) {
	plain, at := fake.New(), time.Unix(1e9, 0)
	for _, name := range []string{"/a", "/b"} {
		if err := plain.Put(t.Context(), name, strings.NewReader("text"), files.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		fsys files.FS
		want time.Time
		fail bool
	}{
		"it is set":       {&stamper{FS: plain}, at, false},
		"it is refused":   {&stamper{FS: plain, err: errors.New("no")}, time.Time{}, false},
		"nobody answers":  {&stamper{FS: plain, err: job.Errorf(job.Unavailable, "away")}, time.Time{}, true},
		"it cannot be":    {plain, time.Time{}, false},
		"a file is away":  {&stamper{FS: fake.New()}, time.Time{}, true},
		"a folder is too": {fake.New(), time.Time{}, true},
	} {
		for _, names := range [][]string{{"/a"}, {"/a", "/b"}} {
			infos, err := files.Stamped(t.Context(), c.fsys, at, names...)
			if (err != nil) != c.fail {
				t.Errorf("%s: %v", what, err)
			}
			for i := 0; i < len(infos) && err == nil; i++ {
				if !infos[i].ModTime().Equal(c.want) || infos[i].Size() != 4 || "/"+infos[i].Name() != names[i] {
					t.Errorf("%s: %s has %d bytes of %s", what, infos[i].Name(), infos[i].Size(), infos[i].ModTime())
				}
			}
			if s, ok := c.fsys.(*stamper); ok && len(s.stamped) < len(names) {
				t.Errorf("%s: only these were stamped: %q", what, s.stamped)
			}
		}
	}
}
