// Command private runs a command with a private PostgreSQL server of its own, whose connection
// string it finds in PAWL_DB:
//
//	go run ./internal/proof/testenv/private sh -c 'pawl bench tasks --slots 2000 --db "$PAWL_DB"'
//
// It is that of the server's socket. The server commits as production does, and is gone with its
// data when the command has ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/pawl-jobs/pawl/internal/proof/testenv"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "private: give a command to run")
		os.Exit(2)
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "private:", err)
		code = 1
	}
	os.Exit(code)
}

func run(command []string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := testenv.StartPostgres(ctx)
	if err != nil {
		return 1, err
	}
	defer server.Stop()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "PAWL_DB="+server.Socket("postgres"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
