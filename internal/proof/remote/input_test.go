package remote

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// An input comes from the web, and the connection to the system is cut in the middle of it. The
// program finds it whole.
func TestWebInput(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	poem := make([]byte, largeSize)
	random := rand.NewChaCha8([32]byte{})
	random.Read(poem)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/data/a poem" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(poem))
	}))
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	t.Cleanup(web.Close)
	p := testenv.NewProxy(t, s.Addr())
	w.system("lab", s, p.Port)
	program := w.program("lab", "")
	program.Inputs[0].From = w.small
	program.Script = `cp "in/a poem" poem; ` + program.Script
	sum := sha256.Sum256(poem)
	program.Inputs = append(program.Inputs,
		job.Input{From: web.URL + "/data/a%20poem", To: "in/a poem", SHA256: hex.EncodeToString(sum[:])},
		job.Input{From: web.URL + "/nothing", Optional: true})
	p.CutAfter(testenv.Up, largeSize/2)
	id := w.submit(program)[0]
	w.finished(id)
	if at := w.stoppedAt(id); !slices.Contains(at, job.StagingInputs) {
		t.Errorf("the cut was not in the transfer of the input, but in %q", at)
	}
	if got := w.result(id, "poem"); got != string(poem) {
		t.Errorf("it has %d bytes, and not those of the web", len(got))
	}
	w.empty(w.work("lab", s))
}

// While a large input is on its way to a system, and while a large result comes from there, people
// see how many bytes have moved. The proxy holds the bytes back until that was seen.
func TestProgress(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	const size, part = 20 << 20, 4 << 20
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	input := filepath.Join(w.dir, "large")
	random := rand.NewChaCha8([32]byte{})
	content := make([]byte, size)
	random.Read(content)
	w.write(input, string(content))
	send, leave := w.program("", ""), w.program("", "")
	for _, spec := range []*job.Spec{&send, &leave} {
		spec.Inputs[0].From = w.small
	}
	send.Inputs = append(send.Inputs, job.Input{From: input, To: "in/large"})
	leave.Script = fmt.Sprintf("head -c %d /dev/zero >large; ", size) + leave.Script
	for name, tt := range map[string]struct {
		what  string
		spec  job.Spec
		d     testenv.Direction
		total int64
	}{
		"inputs":  {"staging inputs", send, testenv.Up, size + 500},
		"results": {"archiving", leave, testenv.Down, size + 500},
	} {
		t.Run(name, func(t *testing.T) {
			p := testenv.NewProxy(t, s.Addr())
			w.system(name, s, p.Port)
			tt.spec.System = name
			p.HoldAfter(tt.d, part)
			id := w.submit(tt.spec)[0]
			var seen []int64 // values between nothing and all, each greater than the one before
			last := int64(0)
			for len(seen) < 2 {
				w.eventually("more bytes have moved", func() bool {
					v, err := w.View(t.Context(), id)
					if err != nil || v.Progress == nil || v.Progress.What != tt.what {
						return false
					}
					moved := v.Progress.Done
					if moved < last || moved >= tt.total || v.Progress.Total != tt.total {
						t.Fatalf("%+v, after %d of %d bytes", v.Progress, last, tt.total)
					}
					more := moved > last && p.Holds(tt.d)
					last = moved
					return more
				})
				seen = append(seen, last)
				p.HoldAfter(tt.d, part)
				p.Hold()
			}
			p.HoldAfter(tt.d, -1)
			p.Hold()
			w.finished(id)
			t.Logf("people saw %d", seen)
		})
	}
}

// A program changes inputs in place, to others of the same size, within the second in which they
// were staged: it gives them the time that they would have then. They are results, and no others.
func TestInputsChangedAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{})
	w := open(t)
	w.system("lab", s, s.Port)
	from := filepath.Join(w.dir, "folder")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"changed", "kept"} {
		w.write(filepath.Join(from, name), "before")
	}
	for what, attempts := range map[string]int{"in the first attempt": 1, "in the second attempt": 2} {
		spec := job.Spec{
			System: "lab", Inputs: []job.Input{{From: from, To: "in"}, {From: w.input, To: "large"}, {From: w.small, To: "small"}},
			Retry: &job.RetryPolicy{MaxAttempts: attempts, Backoff: job.Backoff{Base: 1}},
			Script: fmt.Sprintf(`[ "$PAWL_ATTEMPT" = %d ] || exit 1; for f in in/changed large; do
				t=$(stat -c %%Z $f); printf after. | dd of=$f conv=notrunc; touch -m -d @$t $f; done`, attempts),
		}
		ids := w.submit(spec)
		j, err := w.Wait(t.Context(), ids[0])
		if err != nil || j.State != job.Finished {
			t.Fatalf("%s: %s, %v\n%s", what, j.State, err, w.history(ids[0]))
		}
		_, results := app.Places(&j)
		for name, changed := range map[string]bool{"in/changed": true, "in/kept": false, "large": true, "small": false} {
			b, err := os.ReadFile(filepath.Join(results, name))
			if archived := err == nil; archived != changed || archived && !strings.HasPrefix(string(b), "after.") {
				t.Errorf("%s: %s is archived: %t, %.10q", what, name, archived, b)
			}
		}
	}
}
