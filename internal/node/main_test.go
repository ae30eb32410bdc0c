package node

import (
	"testing"

	"github.com/pawl-jobs/pawl/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
