package auth

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/pawl-jobs/pawl/job"
)

// request is one with a header Authorization.
func request(header string) *http.Request {
	r, _ := http.NewRequest(http.MethodGet, "http://pawl.test/v1/jobs", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func open(t *testing.T, dir string) (*Keys, string) {
	t.Helper()
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	k.Principal = "ada"
	text, err := os.ReadFile(filepath.Join(dir, TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return k, strings.TrimSpace(string(text))
}

func TestFolderToken(t *testing.T) {
	dir := t.TempDir()
	k, token := open(t, dir)
	if !regexp.MustCompile(`^pawl_[a-z2-7]{58}$`).MatchString(token) {
		t.Fatalf("token %q", token)
	}
	for _, name := range []string{TokenFile, keyFile} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, again := open(t, dir); again != token {
		t.Error("another start makes another token")
	}
	_, others := open(t, t.TempDir())
	if others == token {
		t.Fatal("two folders have one token")
	}
	for _, header := range []string{"Bearer " + token, "bearer  " + token} {
		if c, err := k.Caller(request(header)); err != nil || c != (Caller{Principal: "ada"}) {
			t.Errorf("%q: %+v, %v", header, c, err)
		}
	}
	for _, tt := range []struct{ header, want string }{
		{"", "send the header"},
		{"Bearer ", `not of the form "Bearer TOKEN"`},
		{"Basic " + token, `not of the form "Bearer TOKEN"`},
		{token, `not of the form "Bearer TOKEN"`},
		{"Bearer " + token[:40], "not whole"},
		{"Bearer " + token + "a", "not whole"},
		{"Bearer hello", "not whole"},
		{"Bearer " + others, "not that of this service"},
	} {
		_, err := k.Caller(request(tt.header))
		if job.KindOf(err) != job.Denied || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v", tt.header, err)
		}
		if strings.Contains(err.Error(), token[5:30]) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
}

func TestFilesThatOthersMayRead(t *testing.T) {
	for _, name := range []string{TokenFile, keyFile} {
		dir := t.TempDir()
		open(t, dir)
		if err := os.Chmod(filepath.Join(dir, name), 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpoiledFiles(t *testing.T) {
	for _, content := range []string{"", "secret\n", "pawl_abc\n"} {
		for _, name := range []string{TokenFile, keyFile} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir); job.KindOf(err) != job.Invalid || !strings.Contains(err.Error(), "remove it") {
				t.Errorf("%s with %q: %v", name, content, err)
			}
		}
	}
}

func TestFolderThatIsNotThere(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestOneTokenOfManyOpeners(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	tokens := make([]*Keys, 8)
	for i := range tokens {
		all.Go(func() {
			var err error
			if tokens[i], err = Open(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, k := range tokens[1:] {
		if k != nil && (k.admin != tokens[0].admin || string(k.launch) != string(tokens[0].launch)) {
			t.Error("two openers have different keys")
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestProgramToken(t *testing.T) {
	k, _ := open(t, t.TempDir())
	row := job.Job{ID: job.NewID(), Owner: "grace", Launch: 3, Live: true}
	k.Find = func(_ context.Context, id job.ID) (job.Job, error) {
		if id != row.ID {
			return job.Job{}, job.Errorf(job.NotFound, "no job %s", id)
		}
		return row, nil
	}
	token := k.Program(row.ID, 3)
	if !regexp.MustCompile(`^pawl_job_[a-z2-7]+$`).MatchString(token) {
		t.Fatalf("token %q", token)
	}
	c, err := k.Caller(request("Bearer " + token))
	if want := (Caller{Principal: "grace", Job: row.ID, Launch: 3}); err != nil || c != want {
		t.Fatalf("%+v, %v; want %+v", c, err, want)
	}
	denied := func(token, want string) {
		t.Helper()
		if _, err := k.Caller(request("Bearer " + token)); job.KindOf(err) != job.Denied || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v", err)
		}
	}
	t.Run("of an older launch", func(*testing.T) { denied(k.Program(row.ID, 2), "does not run any more") })
	t.Run("of a job that is not there", func(*testing.T) { denied(k.Program(job.NewID(), 3), "does not run any more") })
	t.Run("of another folder", func(t *testing.T) {
		other, _ := open(t, t.TempDir())
		denied(other.Program(row.ID, 3), "not one that this service gave")
	})
	t.Run("made up with a right checksum", func(*testing.T) { denied(sealed(jobPrefix, make([]byte, 52)), "not one that this service gave") })
	t.Run("too short", func(*testing.T) { denied(sealed(jobPrefix, make([]byte, 8)), "not one that this service gave") })
	t.Run("after the launch has ended", func(*testing.T) {
		row.Live = false
		denied(token, "does not run any more")
		row.Live = true
	})
	t.Run("that cannot be looked up now", func(t *testing.T) {
		k.Find = func(context.Context, job.ID) (job.Job, error) {
			return job.Job{}, job.Errorf(job.Unavailable, "busy")
		}
		if _, err := k.Caller(request("Bearer " + token)); job.KindOf(err) != job.Unavailable {
			t.Error(err)
		}
	})
}

func TestSealedTokensAreWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 1, 60).Draw(t, "content")
		p := rapid.SampledFrom([]string{prefix, jobPrefix}).Draw(t, "prefix")
		token := sealed(p, content)
		if !whole(token) {
			t.Fatalf("%q is not whole", token)
		}
		at := rapid.IntRange(len(p), len(token)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte("abcdefghijklmnopqrstuvwxyz234567")).Draw(t, "letter")
		if spoiled := token[:at] + string(other) + token[at+1:]; other != token[at] && whole(spoiled) {
			t.Fatalf("%q counts as whole, but it was %q", spoiled, token)
		}
		if whole(token[:at]) {
			t.Fatalf("%q counts as whole, but it was cut", token[:at])
		}
	})
}
