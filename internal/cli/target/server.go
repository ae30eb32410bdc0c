package target

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/folder"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/job"
)

// Variables that say where jobs are.
const (
	serverVariable = "PAWL_SERVER"
	tokenVariable  = "PAWL_TOKEN"
)

// Flags adds the flags that say where the jobs are.
func Flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.String("dir", "", "data folder (default: $PAWL_DIR, $XDG_STATE_HOME/pawl or ~/.local/state/pawl)")
	f.String("server", "", "URL of the server whose jobs are meant, instead of a folder's (default: $"+
		serverVariable+")")
	f.String("token-file", "", "file with the token for the server (default: $"+tokenVariable+
		", or that of a server on this machine)")
}

// A Server is one that a command asks over the network.
type Server struct {
	url   string
	token string
}

// ServerOf returns the server that a command is for; nil: it is for a folder. A folder that is
// named outweighs a server that only the environment names.
func ServerOf(cmd *cobra.Command) (*Server, error) {
	named, err := cmd.Flags().GetString("server")
	if err != nil {
		return nil, err
	}
	if !cmd.Flags().Changed("server") && !cmd.Flags().Changed("dir") {
		named = os.Getenv(serverVariable)
	}
	if named == "" {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	s := &Server{url: strings.TrimRight(named, "/")}
	s.token, err = tokenFor(cmd, s.url)
	return s, err
}

// tokenFor returns the token for a server: the one that is given, or that of the folder, if the
// server is its own.
func tokenFor(cmd *cobra.Command, url string) (string, error) {
	name, err := cmd.Flags().GetString("token-file")
	if err != nil {
		return "", err
	}
	if name != "" {
		b, err := os.ReadFile(name)
		token := strings.TrimSpace(string(b))
		switch {
		case err != nil:
			return "", term.Usagef("--token-file: %w", err)
		case token == "" || strings.ContainsAny(token, " \t\r\n"):
			return "", term.Usagef("--token-file %s does not hold one token: write it there alone, in one line", name)
		}
		return token, nil
	}
	if token := os.Getenv(tokenVariable); token != "" {
		return token, nil
	}
	dir := ownFolder(cmd, url)
	if dir == "" {
		return "", nil
	}
	b, err := folder.Read(filepath.Join(dir, auth.TokenFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", job.Errorf(job.Denied,
			"the token of the server on this machine: %w: ask its owner for a token, and give it with --token-file",
			err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ownFolder returns the folder of --dir, or the default one, if the server at url is its own; else
// "".
func ownFolder(cmd *cobra.Command, url string) string {
	dir, err := DataDir(cmd)
	if err != nil {
		return ""
	}
	at, err := folder.Read(filepath.Join(dir, node.ServerFile))
	if err != nil || strings.TrimRight(strings.TrimSpace(string(at)), "/") != url {
		return ""
	}
	return dir
}

// Machine returns the id of the machine that the folder stands for, or that of a server with its
// folder on this machine; "" for any other server.
func (at *Target) Machine(cmd *cobra.Command) (string, error) {
	dir := at.Folder(cmd)
	if dir == "" {
		return "", nil
	}
	return folder.Machine(dir)
}

// Folder returns the folder, or that of a server with its folder on this machine; "" for any other
// server.
func (at *Target) Folder(cmd *cobra.Command) string {
	if at.Server != nil {
		return ownFolder(cmd, at.Server.url)
	}
	return at.Dir
}

// dial returns a client of the server.
func (s *Server) dial() (*client.Client, error) {
	c, err := client.Dial(s.url, client.Options{Token: s.token})
	if err != nil {
		return nil, term.Usagef("--server, or %s: %w", serverVariable, err)
	}
	return c, nil
}

// Here reports whether the server is on this machine, so that paths mean the same to it.
func (s *Server) Here() bool { return node.Loopback(s.url) }

// advice says what to check when the server could not be asked; empty for any other error.
func (s *Server) advice(err error) string {
	switch job.KindOf(err) {
	case job.Unavailable:
		return fmt.Sprintf("check that %s is the address of the server, that pawl serve runs there, and that "+
			"this machine reaches it", s.url)
	case job.Denied:
		what := "the token is not one of the server's, or may not do this: ask an administrator of the server"
		if s.token == "" {
			what = "give a token: in a file, with --token-file, or in " + tokenVariable
			if s.Here() {
				what += ". For a server on this machine, give --dir with the server's folder and " +
					"--server with the URL that pawl serve prints: then the token is found there"
			}
		}
		return what
	}
	return ""
}
