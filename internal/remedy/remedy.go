// Package remedy says what to do where the check of a system fails.
package remedy

import (
	"fmt"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Of says what to do about a step of the check of a system that failed, for a code if there is one.
// It is empty if nothing is known.
func Of(doc *job.System, step string, code job.Code) string {
	h, name := &doc.Host, doc.Name
	edit := fmt.Sprintf("pawl get system %s -o yaml >%[1]s.yaml; change it; pawl apply -f %[1]s.yaml", name)
	switch code {
	case "":
		if step == job.CheckWork {
			return "see that it is a folder, and give the account the right to write there, or name another folder in " +
				"work: " + edit
		}
		return ""
	case job.HostUnknown:
		return "look at the name service of this machine, or correct host.address: " + edit
	case job.HostRefused:
		return fmt.Sprintf("look whether its SSH server runs (systemctl status ssh), and whether it listens on port %d; "+
			"else correct host.port: %s", h.Port, edit)
	case job.AuthenticationFailed:
		return fmt.Sprintf("where a certificate has expired, have it signed anew; else add the public half of one of these "+
			"keys to ~/.ssh/authorized_keys of %s there (ssh-copy-id), or name the right ones in host.identities; a key with "+
			"a passphrase works only through an agent, which the process that runs jobs finds by its SSH_AUTH_SOCK. Where "+
			"the key is there, the log of sshd says why it is refused: options before the key (from=, expiry-time=), a home "+
			"folder, .ssh or authorized_keys that others may write, or a login shell that is not there", h.User)
	case job.ShellBroken:
		return "look at the login shell and the login files of the account, at its limits (ulimit -a), and at what takes " +
			"the place of a shell (ForceCommand in sshd_config, command= in authorized_keys): ssh there, and run " +
			"/bin/sh -c 'echo works'"
	case job.ChannelRefused:
		return "sshd_config there needs a line Subsystem sftp internal-sftp, and MaxSessions of 3 or more"
	case job.FilesystemFull, job.DiskQuotaExceeded:
		return "free space there, or name a folder on another file system in work: " + edit
	}
	for _, info := range job.Codes {
		if info.Code == code {
			return strings.ReplaceAll(info.Remedy, "NAME", name)
		}
	}
	return ""
}
