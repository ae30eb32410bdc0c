package turns

import (
	"flag"
	"os"
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// What is drawn at random is drawn a hundred times in the long tests alone.
func TestMain(m *testing.M) {
	if !testenv.Long() {
		flag.Set("rapid.checks", "25") // -rapid.checks says another number
	}
	os.Exit(m.Run())
}
