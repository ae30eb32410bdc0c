package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// A file is copied on the machine itself: each part of it, with its holes. What cannot be copied so
// is read and written, which says why it cannot.
func TestCopyFile(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "csh"})
	far := open(t, config(s)).Files()
	own := far.(files.Copier)
	content := make([]byte, 17<<20+5)
	random := rand.NewChaCha8([32]byte{})
	random.Read(content[:1<<20])
	random.Read(content[16<<20:])
	for name, want := range map[string][]byte{"it's large": content, "empty": nil, "ends in a hole": make([]byte, 1<<20+1)} {
		from := filepath.Join(s.Work, name)
		if err := os.WriteFile(from, want, 0o754); err != nil {
			t.Fatal(err)
		}
		sum := 0
		size, err := own.CopyFile(t.Context(), from, from+" copy", files.PutOptions{Mode: 0o750}, func(n int) { sum += n })
		if err != nil || size != int64(len(want)) || sum != len(want) {
			t.Errorf("%s: %d bytes, progress %d, %v; want %d", name, size, sum, err, len(want))
		}
		got, err := os.ReadFile(from + " copy")
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the copy is not like it: %d bytes, %v", name, len(got), err)
		}
		info, err := os.Stat(from + " copy")
		if err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		if name == "it's large" && files.Allocated(info) > 5<<20 {
			t.Errorf("the hole takes room: %d bytes", files.Allocated(info))
		}
	}

	_, err := own.CopyFile(t.Context(), s.Work+"/none", s.Work+"/x", files.PutOptions{}, nil)
	if _, ok := errors.AsType[*files.ReadError](err); !ok || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := own.CopyFile(t.Context(), s.Work, s.Work+"/x", files.PutOptions{}, nil); err == nil {
		t.Error("a folder is copied")
	}
	secret := filepath.Join(s.Work, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o000); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // else it belongs to the user
		sum := 0
		_, err := own.CopyFile(t.Context(), secret, s.Work+"/x", files.PutOptions{}, func(n int) { sum += n })
		if !errors.Is(err, errors.ErrUnsupported) || sum != 0 {
			t.Errorf("what may not be read: %v, progress %d", err, sum)
		}
		_, err = files.Copy(t.Context(), far, s.Work+"/x", far, secret, files.CopyOptions{NoDigest: true})
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("what may not be read, by Copy: %v", err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := own.CopyFile(ended, filepath.Join(s.Work, "it's large"), s.Work+"/x", files.PutOptions{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	list, err := os.ReadDir(s.Work)
	if err != nil || len(list) != 7 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}
