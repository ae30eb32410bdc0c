package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// ClientConfig writes an ssh_config with a Host of that name, which is the server, and returns the
// name of the file.
func (s *SSH) ClientConfig(tb testing.TB, host string) string {
	tb.Helper()
	dir := tb.TempDir()
	known, file := filepath.Join(dir, "known_hosts"), filepath.Join(dir, "config")
	text := fmt.Sprintf("Host %s\n  HostName %s\n  Port %d\n  User %s\n  IdentityFile %s\n  UserKnownHostsFile %s\n"+
		"  IdentitiesOnly yes\n  BatchMode yes\n  LogLevel ERROR\n", host, s.Host, s.Port, s.User, s.Key, known)
	for name, text := range map[string]string{
		known: fmt.Sprintf("[%s]:%d %s\n", s.Host, s.Port, s.HostKey),
		file:  text,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return file
}
