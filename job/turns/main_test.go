package turns

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestMain(m *testing.M) {
	testenv.Draws(8, 25, 100)
	m.Run()
}
