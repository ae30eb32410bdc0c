package programs_test

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pawl-jobs/pawl/internal/cli"
	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

// The test binary is pawl where it is called so: pawl bench local measures pawl run.
func TestMain(m *testing.M) {
	testscript.Main(testenv.Stopping(m), map[string]func(){
		"pawl": func() { os.Exit(cli.Main(context.Background(), cli.Program{Version: "dev"})) },
	})
}
