package admin

import (
	"maps"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-jobs/pawl/internal/config"
	"github.com/pawl-jobs/pawl/internal/folder"
)

// A settingFlag is the flag of a setting. It keeps what was given; package config reads it.
type settingFlag struct {
	text, unit string
}

func (f *settingFlag) String() string { return f.text }

func (f *settingFlag) Set(s string) error { f.text = s; return nil }

func (f *settingFlag) Type() string { return f.unit }

// configFlags gives a command a flag for each setting that it wants, and --config.
func configFlags(cmd *cobra.Command, wants func(*config.Setting) bool) {
	cmd.Flags().String("config", "", "configuration file (default: $PAWL_CONFIG or "+config.FileName+
		" in the data folder)")
	for i := range config.Settings {
		s := &config.Settings[i]
		if !wants(s) {
			continue
		}
		f := cmd.Flags().VarPF(&settingFlag{s.Default, s.Unit()}, s.Flag(), "", s.Doc)
		if s.Switch() {
			f.NoOptDefVal = "true"
		}
	}
}

// loadConfig reads the configuration for a data folder. It can be called again, to read the file
// anew. fixed are flags that the command gives itself.
func loadConfig(cmd *cobra.Command, dir string, fixed map[string]string) (*config.Loaded, error) {
	src := config.Sources{Env: os.Environ(), Flags: map[string]string{}, Read: folder.ReadOwn}
	maps.Copy(src.Flags, fixed)
	var err error
	if src.File, err = cmd.Flags().GetString("config"); err != nil {
		return nil, err
	}
	if src.File == "" {
		src.File = os.Getenv("PAWL_CONFIG")
	}
	if src.Needed = src.File != ""; !src.Needed {
		src.File = filepath.Join(dir, config.FileName)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*settingFlag); ok {
			src.Flags[f.Name] = v.text
		}
	})
	return config.Load(src)
}
