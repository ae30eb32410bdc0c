package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Macro stands in a spec as ${NAME}. Its value is known only when the job is prepared.
type Macro struct {
	Name    string
	Meaning string
}

// Macros are all macros besides ${ENV:NAME}, which stands for a variable of the system's own
// environment. $${ stands for a literal ${, and any other $ for itself. The program finds the
// values of Macros in its environment, too.
var Macros = []Macro{
	{"PAWL_JOB_ID", "the job's id"},
	{"PAWL_JOB_NAME", "the job's name"},
	{"PAWL_JOB_DIR", "the job's folder on the system, absolute"},
	{"PAWL_TENANT", "the tenant"},
	{"PAWL_OWNER", "the user to whom the job belongs"},
	{"PAWL_ATTEMPT", "the attempt, from 1"},
	{"PAWL_SYSTEM", "the system's name"},
	{"PAWL_APP", "the app's name; empty without an app"},
	{"PAWL_APP_VERSION", "the app's version; empty without an app"},
	{"PAWL_NODES", "resources.nodes"},
	{"PAWL_TASKS", "resources.tasks"},
	{"PAWL_CORES", "resources.cores"},
	{"PAWL_MEMORY_MB", "resources.memory in MiB, rounded up; 0 if none was asked for"},
	{"PAWL_GPUS", "resources.gpus"},
	{"PAWL_MINUTES", "resources.minutes"},
	{"PAWL_ACCOUNT", "resources.account"},
	{"PAWL_PARTITION", "resources.partition"},
	{"PAWL_ARCHIVE", "the folder of the job's archive"},
	{"PAWL_CREATED", "when the job was submitted, as 2006-01-02T15:04:05Z"},
}

// macroEnv begins the names of the macros that stand for variables of the system.
const macroEnv = "ENV:"

var macroNames = func() map[string]bool {
	names := map[string]bool{}
	for _, m := range Macros {
		names[m.Name] = true
	}
	return names
}()

// expand replaces the macros of text by the answers of value. Its errors continue a sentence that
// names the path of text.
func expand(text string, value func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			b.WriteString(text)
			return b.String(), nil
		}
		if literal, ok := strings.CutSuffix(before, "$"); ok {
			b.WriteString(literal + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("has ${ without }")
		}
		v, err := value(name)
		if err != nil {
			return "", err
		}
		b.WriteString(before + v)
		text = after
	}
}

// Expand returns s with its macros replaced. value answers the names of [Macros], environ the
// variables of the system's environment. The error is a [SpecError].
func (s *Spec) Expand(value func(name string) string, environ func(name string) (string, bool)) (Spec, error) {
	var v validation
	out := s.eachText(func(at, text string) string {
		done, err := expand(text, func(name string) (string, error) {
			variable, ok := strings.CutPrefix(name, macroEnv)
			if !ok {
				return value(name), nil
			}
			val, ok := environ(variable)
			if !ok {
				return "", fmt.Errorf("needs the variable %s, which is not set on the system", variable)
			}
			return val, nil
		})
		if err != nil {
			v.add(at, text, err.Error(), "write what it should stand for")
		}
		return done
	})
	if err := v.err(); err != nil {
		return Spec{}, err
	}
	return out, nil
}

// Variables returns the names of the system's variables that macros of s use, sorted.
func (s *Spec) Variables() []string {
	names := map[string]bool{}
	s.eachText(func(_, text string) string {
		expand(text, func(name string) (string, error) { //nolint:errcheck // Validate tells
			if variable, ok := strings.CutPrefix(name, macroEnv); ok {
				names[variable] = true
			}
			return "", nil
		})
		return text
	})
	return slices.Sorted(maps.Keys(names))
}

// macros reports the macros of s that do not exist.
func (v *validation) macros(s *Spec) {
	s.eachText(func(at, text string) string {
		shown := text
		if strings.HasPrefix(at, "env.") {
			shown = "" // it may be secret
		}
		_, err := expand(text, func(name string) (string, error) {
			variable, isEnv := strings.CutPrefix(name, macroEnv)
			switch {
			case isEnv && !envRE.MatchString(variable):
				v.add(at, shown, "has ${"+short(name)+"}, which names no variable", "write ${ENV:NAME}")
			case isEnv:
			case !macroNames[name]:
				remedy := "write $${ for a literal ${, or ${ENV:NAME} for a variable of the system"
				if n := nearest(name, macroNames); n != "" {
					remedy = "did you mean ${" + n + "}?"
				}
				v.add(at, shown, "has the unknown macro ${"+short(name)+"}", remedy)
			case at == "archive.to" && (name == "PAWL_ATTEMPT" || name == "PAWL_ARCHIVE" || name == "PAWL_JOB_DIR"):
				v.add(at, shown, "has ${"+name+"}, which the archive's folder cannot depend on", "remove it")
			}
			return "", nil
		})
		if err != nil {
			v.add(at, shown, err.Error(), "close it, or write $${ for a literal ${")
		}
		return text
	})
}

// eachText returns a copy of s in which f has been applied to each text that takes macros.
func (s *Spec) eachText(f func(at, text string) string) Spec {
	out := *s
	list := func(at string, l []string) []string {
		l = slices.Clone(l)
		for i := range l {
			l[i] = f(fmt.Sprintf("%s[%d]", at, i), l[i])
		}
		return l
	}
	out.Command, out.Arguments, out.Launch = list("command", s.Command), list("arguments", s.Arguments),
		list("launch", s.Launch)
	out.Env = maps.Clone(s.Env)
	for _, k := range sortedKeys(out.Env) {
		out.Env[k] = f(member("env", k), out.Env[k])
	}
	out.Inputs = slices.Clone(s.Inputs)
	for i := range out.Inputs {
		in, at := &out.Inputs[i], fmt.Sprintf("inputs[%d]", i)
		in.From, in.To = f(at+".from", in.From), f(at+".to", in.To)
	}
	out.Stdout, out.Stderr = f("stdout", s.Stdout), f("stderr", s.Stderr)
	if s.Archive != nil {
		a := *s.Archive
		a.To = f("archive.to", a.To)
		a.Include, a.Exclude, a.Required = list("archive.include", a.Include), list("archive.exclude", a.Exclude),
			list("archive.required", a.Required)
		out.Archive = &a
	}
	return out
}
