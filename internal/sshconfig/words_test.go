package sshconfig

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/job"
)

// Lines of all kinds mean what they mean to ssh: it is asked (ssh -G) about each.
func TestLinesAsSSHReadsThem(t *testing.T) {
	t.Parallel()
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("it needs ssh")
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(alphabet string, most int) string {
		text := make([]byte, 1+r.IntN(most))
		for i := range text {
			text[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(text)
	}
	rounds := testenv.Times(60, 300)
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		config := "Host " + random("lab *?!\"'\\#", 12) + "\n User inside\n" +
			"Host *\n IdentityFile" + random(" =\t", 2) + random("ab \t\"'\\#=", 10) + "\n"
		c := Config{Home: home(t, map[string]string{"config": config}), User: "me"}
		got, ours := c.Host("lab")
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), ssh, "-F", filepath.Join(c.Home, ".ssh", "config"), "-G", "lab")
		cmd.Stdout, cmd.Stderr = &out, &errs
		theirs := cmd.Run()
		if theirs != nil && strings.Contains(errs.String(), "line 1: ") && strings.Contains(errs.String(), " argument") {
			continue // ssh wants patterns; without them no host is meant
		}
		if theirs != nil || ours != nil {
			if theirs == nil || job.KindOf(ours) != job.Invalid {
				t.Errorf("%q\n ssh says %v, %s\n Pawl says %v", config, theirs, errs.Bytes(), ours)
			}
			continue
		}
		inside, keys := false, []string(nil)
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			inside = inside || line == "user inside"
			if key, ok := strings.CutPrefix(line, "identityfile "); ok {
				keys = append(keys, key)
			}
		}
		if inside != (got.User == "inside") || !slices.Equal(keys, got.Identities) {
			t.Errorf("%q\n ssh has %v %q\n Pawl has %v %q", config, inside, keys, got.User, got.Identities)
		}
	}
}
