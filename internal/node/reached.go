package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pawl-jobs/pawl/host"
	"github.com/pawl-jobs/pawl/job"
)

// reached remembers in a folder which accounts have let this machine in. A refusal by one that
// never has is a mistake in its document, most likely. One that has may let it in again.
type reached struct{ dir string }

func (r reached) file(tenant string, doc *job.System) string {
	at := &doc.Host
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%d\n", tenant, at.User, at.Address, at.Port))
	return filepath.Join(r.dir, hex.EncodeToString(sum[:12]))
}

// note notes that an account has let this machine in.
func (r reached) note(tenant string, doc *job.System) error {
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(r.file(tenant, doc), nil, 0o600)
}

// judge returns an error of the first contact with an account as it is meant: a refusal by one that
// has never let this machine in is [job.FirstAuthenticationFailed].
func (r reached) judge(tenant string, doc *job.System, err error) error {
	t, ok := errors.AsType[*host.Trouble](err)
	if !ok || t.Code != job.AuthenticationFailed || exists(r.file(tenant, doc)) {
		return err
	}
	return &host.Trouble{Code: job.FirstAuthenticationFailed, Err: err}
}
