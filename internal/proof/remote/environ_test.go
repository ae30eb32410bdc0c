package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/app"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// result returns the text of a file that a job has archived.
func (w *world) result(id job.ID, name string) string {
	w.t.Helper()
	j, err := w.Job(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	_, results := app.Places(&j)
	text, err := os.ReadFile(filepath.Join(results, name))
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.history(id))
	}
	return string(text)
}

// The work folder begins with a variable that only the account there has.
func TestWorkIsAVariable(t *testing.T) {
	testenv.Aside(t)
	t.Parallel()
	w := open(t)
	scratch := filepath.Join(w.dir, "scratch")
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash", Lines: []string{"SetEnv SCRATCH=" + scratch}})
	if err := os.Mkdir(scratch, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(scratch, s.UID, s.GID); err != nil {
		t.Fatal(err)
	}
	named := fmt.Sprintf("%q", w.work("lab", s))
	w.document(strings.Replace(w.text("lab", s, s.Port), named, `"$SCRATCH/${LOGNAME}/jobs"`, 1))
	program := w.program("lab", "")
	program.Script = "pwd -P >where; " + program.Script
	id := w.submit(program)[0]
	w.finished(id)
	work := filepath.Join(scratch, s.User, "jobs")
	if got, want := w.result(id, "where"), filepath.Join(work, "work", "default", id.String())+"\n"; got != want {
		t.Errorf("it ran in %q, want %q", got, want)
	}
	w.empty(work)
}

// A system has a login shell, and a profile with a function that changes the environment, as module
// does. The program has that environment. As it is a bash, it has the function, too.
func TestLoginShell(t *testing.T) {
	t.Parallel()
	s := testenv.SSHD(t, testenv.SSHOptions{Shell: "bash"})
	w := open(t)
	profile := `module() { eval "export LOADED=\"\${LOADED:+\$LOADED:}$2\""; }; export -f module
		shopt -q login_shell && export LOGIN=yes
		module load "it's gcc"`
	w.document(strings.Replace(w.text("lab", s, s.Port), `"host"`,
		fmt.Sprintf(`"shell": ["bash", "-l"], "profile": %q, "host"`, profile), 1))
	program := w.program("lab", "")
	program.Script = "#!/usr/bin/env bash\n" +
		`echo "$LOGIN $LOADED" >sees; module load mpi; echo "$LOADED" >>sees; ` + program.Script
	id := w.submit(program)[0]
	w.finished(id)
	if got, want := w.result(id, "sees"), "yes it's gcc\nit's gcc:mpi\n"; got != want {
		t.Errorf("it sees %q, want %q", got, want)
	}
	w.empty(w.work("lab", s))
}
