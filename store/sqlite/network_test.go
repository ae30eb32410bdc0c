package sqlite_test

import (
	"os"
	"testing"
	"time"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
	"github.com/pawl-jobs/pawl/store"
	"github.com/pawl-jobs/pawl/store/storetest"
)

// On a file system of the network the store keeps the whole contract.
func TestNetwork(t *testing.T) {
	if !testenv.Long() {
		t.Skip("it is long: three minutes")
	}
	root := testenv.SSHFS(t, testenv.SSHD(t, testenv.SSHOptions{}))
	storetest.Run(t, func(t *testing.T) (store.Store, storetest.Clock) {
		dir, err := os.MkdirTemp(root, "") //nolint:usetesting // it is in the mount
		if err != nil {
			t.Fatal(err)
		}
		o := &opener{clock: &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, dir: dir}
		return o.Open(t), o
	})
}
