package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEmptyFlags gives each flag for a text, of each command, as empty.
func TestEmptyFlags(t *testing.T) {
	var paths [][]string
	var list func(c *cobra.Command)
	list = func(c *cobra.Command) {
		paths = append(paths, strings.Fields(c.CommandPath())[1:])
		for _, sub := range c.Commands() {
			list(sub)
		}
	}
	list(rootCommand(Program{}))
	tried := 0
	for _, path := range paths {
		cmd, _, err := rootCommand(Program{}).Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(nil); err != nil { // with those of all commands
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); !strings.HasPrefix(kind, "string") || cmd.Name() == "serve" || cmd.Name() == "worker" {
				return // it has another check
			}
			root := rootCommand(Program{})
			again, _, err := root.Find(path)
			if err != nil {
				t.Fatal(err)
			}
			if err = again.ParseFlags([]string{"--" + f.Name + "="}); err == nil {
				err = root.PersistentPreRunE(again, nil)
			}
			if means := f.Name == "server" || f.Name == "db"; means == (err != nil) {
				t.Errorf("%s --%s '': %v", cmd.CommandPath(), f.Name, err)
			}
			tried++
		})
	}
	if tried < 100 {
		t.Errorf("only %d flags were tried", tried)
	}
}
