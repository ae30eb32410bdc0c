package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pawl-jobs/pawl/job"
)

// Files in a data folder.
const (
	TokenFile = "token"   // the token that allows everything
	keyFile   = "job-key" // the key of programs' tokens
)

// Open reads the keys of a data folder, and makes those that are missing. It refuses a file that
// users other than its owner may read.
func Open(dir string) (*Keys, error) {
	token, err := once(filepath.Join(dir, TokenFile), newToken)
	if err != nil {
		return nil, err
	}
	if !whole(token) || strings.HasPrefix(token, jobPrefix) {
		return nil, job.Errorf(job.Invalid, "%s does not hold a token: remove it, and the next start makes one",
			filepath.Join(dir, TokenFile))
	}
	text, err := once(filepath.Join(dir, keyFile), func() string {
		var key [32]byte
		rand.Read(key[:])
		return hex.EncodeToString(key[:])
	})
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) < 32 {
		return nil, job.Errorf(job.Invalid,
			"%s does not hold a key: remove it, and the next start makes one; programs that run lose their tokens",
			filepath.Join(dir, keyFile))
	}
	return &Keys{admin: sha256.Sum256([]byte(token)), launch: key}, nil
}

// once returns the content of a file, which it makes if it is not there. If two processes do so at
// once, one of them makes it. No reader ever sees a part of it.
func once(name string, content func() string) (string, error) {
	text, err := read(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*") // 0600
	if err != nil {
		return "", job.Errorf(job.Unavailable, "make %s: %w", name, err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(content() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", job.Errorf(job.Unavailable, "make %s: %w", name, err)
	}
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", job.Errorf(job.Unavailable, "make %s: %w", name, err)
	}
	return read(name)
}

func read(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", job.Errorf(job.Unavailable, "read %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", job.Errorf(job.Unavailable, "read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return "", job.Errorf(job.Invalid, "%s is not a file: remove it, and the next start makes another", name)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return "", job.Errorf(job.Invalid, "%s belongs to user %d, and Pawl runs as user %d: "+
			"the user who made it knows what is in it; remove it, and the next start makes another",
			name, stat.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", job.Errorf(job.Invalid, "others than its owner may read %s (%v): remove it, so that the next "+
			"start makes another, or chmod 600 it if nobody has read it",
			name, info.Mode().Perm())
	}
	var b [4096]byte
	n, err := f.Read(b[:])
	if err != nil && n == 0 {
		return "", job.Errorf(job.Invalid, "%s is empty: remove it, and the next start makes another", name)
	}
	return strings.TrimSpace(string(b[:n])), nil
}
