package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// sayWhere leaves in the folder where the API is, until unsaid is called, which may be more than
// once. Processes that share the folder each leave a note of their own, which they hold locked: the
// one that goes puts another's address in the place of its own.
func (s *serving) sayWhere() (unsaid func(), err error) {
	if s.url == "" {
		return func() {}, nil
	}
	note := filepath.Join(s.dir, fmt.Sprintf(".%s-%d", ServerFile, os.Getpid()))
	var held *os.File
	err = s.alone(func() error {
		if held, err = os.OpenFile(note, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600); err != nil {
			return err
		}
		_, err := held.WriteString(s.url + "\n")
		return errors.Join(err, syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB),
			writeWhole(filepath.Join(s.dir, ServerFile), s.url+"\n"))
	})
	unsaid = sync.OnceFunc(func() {
		_ = s.alone(func() error {
			os.Remove(note)
			held.Close()
			return s.passOn()
		})
	})
	if err != nil && held != nil {
		unsaid()
	}
	return unsaid, err
}

// passOn says where another process of the folder is; where there is none, nothing is said. It is
// called alone.
func (s *serving) passOn() error {
	notes, err := filepath.Glob(filepath.Join(quotedGlob(s.dir), "."+ServerFile+"-[0-9]*"))
	if err != nil {
		return err
	}
	for _, note := range notes {
		f, err := os.Open(note)
		if err != nil {
			continue
		}
		if lives := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil; !lives {
			os.Remove(note)
			f.Close()
			continue
		}
		var url [4096]byte
		n, _ := f.Read(url[:])
		f.Close()
		return writeWhole(filepath.Join(s.dir, ServerFile), string(url[:n]))
	}
	return os.Remove(filepath.Join(s.dir, ServerFile))
}

// quotedGlob writes a path as a pattern that fits it alone.
func quotedGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// alone calls f while no other process of the folder says where it is.
func (s *serving) alone(f func() error) error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return f()
}

// ServerFile is what a server leaves in its data folder for the commands of its owner: the URL at
// which it is found. Its token lies beside that.
const ServerFile = "server"
