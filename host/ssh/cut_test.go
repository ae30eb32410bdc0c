package ssh

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/host/ssh/script"
)

// A request that is cut at any byte does not run, not even in part, whatever shell /bin/sh is.
func TestCutRequest(t *testing.T) {
	for _, name := range []string{"dash", "bash"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sh, err := exec.LookPath(name)
			if err != nil {
				t.Skip(err)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			s := &shell{nonce: "nonce", bound: time.Hour, watch: time.NewTimer(time.Hour), asked: new(atomic.Int64)}
			var text bytes.Buffer
			s.add(&request{commands: strings.ReplaceAll(`echo begin >>RAN
( eval 'for i in 1 2; do
	echo "it'\''s $i" >>RAN
done; cat >>RAN <<END
{ here }
END
'
) </dev/null
printf %b 'a\nb\n' | cat >>RAN`, "RAN", script.Quote(ran))}, &text)
			run := func(request string) string {
				c := exec.Command(sh, "-s")
				c.Stdin = strings.NewReader(request)
				_ = c.Run() // that it was cut is a syntax error
				got, _ := os.ReadFile(ran)
				return string(got)
			}
			whole := text.String()
			for n := range len(whole) - len("\n") { // without its last line break it is whole
				if got := run(whole[:n]); got != "" {
					t.Fatalf("%q has run, and left %q", whole[:n], got)
				}
			}
			if got, want := run(whole), "begin\nit's 1\nit's 2\n{ here }\na\nb\n"; got != want {
				t.Errorf("the whole request left %q, want %q", got, want)
			}
		})
	}
}
