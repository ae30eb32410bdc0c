package term

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	xterm "golang.org/x/term"
)

// Answerable returns an error if nobody is there to be asked. instead says what to do then.
func Answerable(cmd *cobra.Command, instead string) error {
	if !xterm.IsTerminal(int(os.Stdin.Fd())) {
		return Usagef("%s cannot ask, for standard input is no terminal: %s", cmd.CommandPath(), instead)
	}
	return nil
}

// Confirm asks a question. If the answer is not yes, the command is over.
func Confirm(ctx context.Context, cmd *cobra.Command, question string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? y or n: ", question)
	answer, err := readAnswer(ctx, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was done")
		return Exit(ExitLeft)
	}
	return nil
}

// readAnswer reads a line, unless ctx ends before that.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	read := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		read <- strings.TrimSpace(line)
	}()
	select {
	case line := <-read:
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
