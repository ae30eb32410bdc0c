package filestest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/files"
)

func readMany(t *testing.T, f files.FS, dir string) {
	r, ok := f.(files.ReaderOfMany)
	if !ok {
		t.Skip("it reads one file after the other")
	}
	work := path.Join(dir, "a job's $(folder)")
	must(t, f.Mkdir(t.Context(), work))
	var names []string
	for i, content := range contents {
		names = append(names, path.Join(work, fmt.Sprintf("-it's\n\"f\" %d", i)))
		put(t, f, names[i], content)
	}
	got, err := r.ReadMany(t.Context(), names)
	must(t, err)
	for i, content := range contents {
		if string(got[i]) != content {
			t.Errorf("%q has %d bytes, want %d", names[i], len(got[i]), len(content))
		}
	}
	put(t, f, path.Join(work, "large"), strings.Repeat("x", files.MaxSmall+600))
	if l, ok := f.(files.Linker); ok {
		must(t, l.Symlink(t.Context(), names[1], path.Join(work, "link")))
	}
	for _, name := range []string{
		work, path.Join(work, "absent"), path.Join(work, "large"), path.Join(work, "link"), "relative",
	} {
		if _, err := r.ReadMany(t.Context(), []string{names[1], name}); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// copyMany: files of all sizes, with names and contents of all kinds. Those that cannot be copied
// are told, each by itself.
func copyMany(t *testing.T, f files.FS, dir string) {
	ctx := t.Context()
	from, to := path.Join(dir, "from"), path.Join(dir, "it's to")
	for _, dir := range []string{from, to} {
		must(t, f.Mkdir(ctx, dir))
	}
	all := append([]string{strings.Repeat("large", 300_000), strings.Repeat("l", files.MaxSmall+1)}, contents...)
	for i := range 130 { // more than one group
		all = append(all, fmt.Sprint(i))
	}
	modes := []fs.FileMode{0o644, 0o600, 0o755}
	var list []files.CopyItem
	total := 0
	for i, content := range all {
		name := path.Join(from, fmt.Sprintf("f'\n%d", i))
		must(t, f.Put(ctx, name, strings.NewReader(content), files.PutOptions{Mode: modes[i%3]}))
		info, err := f.Stat(ctx, name)
		must(t, err)
		list = append(list, files.CopyItem{From: name, To: path.Join(to, fmt.Sprint(i)), Info: info})
		total += len(content)
	}
	const gone, barred = 20, 40 // one of its group was removed; the place of another is a folder
	must(t, f.Remove(ctx, list[gone].From))
	must(t, f.Mkdir(ctx, list[barred].To))
	put(t, f, list[50].To, "what was there")

	moved := 0
	told := map[int]bool{}
	err := files.CopyMany(ctx, f, f, list, files.CopyOptions{Progress: func(n int) { moved += n }},
		func(i int, c files.Copied, err error) error {
			if told[i] {
				t.Errorf("%d is told twice", i)
			}
			told[i] = true
			read, ok := errors.AsType[*files.ReadError](err)
			switch {
			case i == gone && (!ok || !errors.Is(read, fs.ErrNotExist)):
				t.Errorf("one that is not there: %v", err)
			case i == barred && (err == nil || ok):
				t.Errorf("one whose place is taken: %v", err)
			case i != gone && i != barred && (err != nil || c.Size != int64(len(all[i])) || c.SHA256 != sum(all[i])):
				t.Errorf("%d: %v, %d bytes of %d", i, err, c.Size, len(all[i]))
			}
			return nil
		})
	must(t, err)
	for i, content := range all {
		switch {
		case !told[i]:
			t.Errorf("%d is not told", i)
		case i == gone || i == barred:
			total -= len(content)
		default:
			info, err := f.Stat(ctx, list[i].To)
			must(t, err)
			if info.Mode() != modes[i%3] || read(t, f, list[i].To) != content {
				t.Errorf("%d: mode %s, %d bytes, want %d", i, info.Mode(), info.Size(), len(content))
			}
		}
	}
	if moved != total && moved != total+len(all[barred]) {
		t.Errorf("%d bytes were told, want %d", moved, total)
	}

	enough := errors.New("enough")
	if err := files.CopyMany(ctx, f, f, list, files.CopyOptions{},
		func(int, files.Copied, error) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the error of the caller: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if err := files.CopyMany(ctx, f, f, list, files.CopyOptions{},
		func(_ int, _ files.Copied, err error) error { return err }); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func sum(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}
