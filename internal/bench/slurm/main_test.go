package slurm

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
