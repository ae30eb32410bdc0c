package filestest

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/files"
)

func volume(t *testing.T, f files.FS, dir string) {
	if _, ok := f.(files.Divided); !ok {
		t.Skip("it does not tell volumes apart")
	}
	top := files.Volume(t.Context(), f, dir)
	for _, name := range []string{top, path.Join(dir, "not/there")} {
		if got := files.Volume(t.Context(), f, name); got != top {
			t.Errorf("the volume of %s is %s, and that of %s is %s", name, got, dir, top)
		}
	}
	if !strings.HasPrefix(dir+"/", strings.TrimSuffix(top, "/")+"/") {
		t.Errorf("%s does not lie below %s", dir, top)
	}
}

func space(t *testing.T, f files.FS, dir string) {
	s, ok := f.(files.Sizer)
	if !ok {
		t.Skip("it cannot tell")
	}
	got, err := s.Space(t.Context(), dir)
	must(t, err)
	if got.Size <= 0 || got.Free < 0 || got.Free > got.Size {
		t.Errorf("%+v", got)
	}
	if _, err := s.Space(t.Context(), path.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a name that is not there: %v", err)
	}
}
