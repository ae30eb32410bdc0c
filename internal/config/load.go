package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/pawl-jobs/pawl/job"
)

// FileName is the configuration file in a data folder.
const FileName = "pawl.yaml"

// Sources are where a configuration comes from.
type Sources struct {
	Flags map[string]string // those that were given, by name, without --
	Env   []string          // as [os.Environ]
	File  string            // empty: none
	// Needed says that the file was asked for by name, so that it must be there.
	Needed bool
	// Read reads the file; [os.ReadFile] by default.
	Read func(name string) ([]byte, error)
}

func (s Sources) read() ([]byte, error) {
	if s.Read == nil {
		return os.ReadFile(s.File)
	}
	return s.Read(s.File)
}

// A Loaded configuration knows where each value came from.
type Loaded struct {
	Config
	File  string // that was read; empty: none
	froms map[string]string
}

// A value is what one source says, and where in it.
type value struct {
	Text string
	From string
}

// A layer is what one source says of all settings, by key.
type layer map[string]value

// Load reads all sources. Its error names everything that is wrong in them.
func Load(src Sources) (*Loaded, error) {
	l := &Loaded{froms: map[string]string{}}
	var faults []error
	file, used, err := fileLayer(src)
	if used {
		l.File = src.File
	}
	faults = append(faults, err)
	env, err := envLayer(src.Env)
	faults = append(faults, err)
	flags, err := flagLayer(src.Flags)
	faults = append(faults, err)

	merged := koanf.New(".")
	for _, l := range []layer{defaultLayer(), file, env, flags} {
		m := map[string]any{}
		for k, v := range l {
			m[k] = v
		}
		if err := merged.Load(confmap.Provider(m, "."), nil); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
	}
	for i := range Settings {
		s := &Settings[i]
		v, ok := merged.Get(s.Key).(value)
		if !ok {
			return nil, fmt.Errorf("configuration: no value of %s", s.Key) // the sources know settings only
		}
		l.froms[s.Key] = v.From
		if v.Text == "" && s.Default == "" {
			continue // set to nothing
		}
		if err := s.read(&l.Config, v.Text); err != nil {
			if s.Secret() {
				v.Text = Secret(v.Text).String()
			}
			faults = append(faults, fmt.Errorf("%s: %s is %q: %w", v.From, s.Key, v.Text, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, job.Errorf(job.Invalid, "%w", err)
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

func defaultLayer() layer {
	l := layer{}
	for i := range Settings {
		l[Settings[i].Key] = value{Settings[i].Default, "default"}
	}
	return l
}

func flagLayer(given map[string]string) (layer, error) {
	l := layer{}
	for name, text := range given {
		s := byName((*Setting).Flag, name)
		if s == nil {
			return nil, fmt.Errorf("--%s is no flag of a setting", name)
		}
		l[s.Key] = value{text, "--" + name}
	}
	return l, nil
}

const variablePrefix = "PAWL_"

// Others are the variables with Pawl's prefix that are no settings of pawl serve.
var Others = []string{
	"PAWL_CONFIG", "PAWL_DIR", // which folder and file are meant
	"PAWL_SERVER", "PAWL_TOKEN", // of clients
	"PAWL_API_URL", "PAWL_JOB_TOKEN", "PAWL_CHECKPOINT", // of programs, beside job.Macros
	"PAWL_CRASH", // of tests
}

func envLayer(environ []string) (layer, error) {
	l := layer{}
	var faults []error
	for _, v := range environ {
		name, text, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(Others, name) ||
			slices.ContainsFunc(job.Macros, func(m job.Macro) bool { return m.Name == name }) {
			continue
		}
		s := byName((*Setting).Variable, name)
		if s == nil {
			faults = append(faults, fmt.Errorf("%s in the environment is no setting%s", name,
				meant(job.Nearest(name, append(names((*Setting).Variable), Others...)...))))
			continue
		}
		l[s.Key] = value{text, name}
	}
	slices.SortFunc(faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return l, errors.Join(faults...)
}

// fileLayer reads the file. One that nobody asked for may be missing.
func fileLayer(src Sources) (l layer, used bool, err error) {
	if src.File == "" {
		return nil, false, nil
	}
	content, err := src.read()
	if errors.Is(err, fs.ErrNotExist) && !src.Needed {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("configuration file: %w", err)
	}
	l, err = parse(src.File, content)
	return l, true, err
}

func meant(near string) string {
	if near == "" {
		return "; pawl serve --print-config lists those there are"
	}
	return ": did you mean " + near + "?"
}
