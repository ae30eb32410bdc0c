package job

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// OnSystem splits a location on a system, such as system://lab/data/in.txt, into the name of the
// system and a clean path there; false: location is something else. The path is taken as it is
// written, without %-escapes.
func OnSystem(location string) (system, name string, ok bool) {
	scheme, rest, ok := strings.Cut(location, "://")
	if !ok || !strings.EqualFold(scheme, "system") {
		return "", "", false
	}
	system, name, _ = strings.Cut(rest, "/")
	return system, path.Clean("/" + name), true
}

// Opens says what is wrong with a path that a job names on the system, and what to change. Both are
// empty if the path is in a folder of Files.
func (s *System) Opens(name string) (what, remedy string) {
	edit := fmt.Sprintf("in the document of the system (pawl get system %s -o yaml >%[1]s.yaml, then pawl "+
		"apply -f %[1]s.yaml)", s.Name)
	switch {
	case s.Host.Kind != HostSSH:
		return "is on the machine of the service", "give the path alone: " + short(name)
	case len(s.Files) == 0:
		return "is on system " + s.Name + ", where jobs can name no files", "add its folder to files " + edit
	}
	for _, root := range s.Files {
		if name == root || strings.HasPrefix(name, strings.TrimSuffix(root, "/")+"/") {
			return "", ""
		}
	}
	const most = 5
	roots := strings.Join(s.Files[:min(len(s.Files), most)], ", ")
	if len(s.Files) > most {
		roots += ", …"
	}
	return "is in no folder of system " + s.Name + " that jobs can name",
		"give a path in " + roots + ", or add its folder to files " + edit
}

// RefuseLocations returns a problem for each location on a system that a spec names and cannot take
// inputs from or put results in. The job belongs to a machine of the service; empty: to any.
// Locations with macros are left to the moment when the job is prepared.
func (s *Spec) RefuseLocations(systems map[string]System, machine string) (problems []Problem) {
	look := func(at, location string) {
		system, name, ok := OnSystem(location)
		if !ok || strings.Contains(location, "${") {
			return
		}
		sys, known := systems[system]
		what, remedy := "is on a system that is unknown", "give one that pawl get systems lists, or make it"
		if known {
			what, remedy = sys.Opens(name)
		}
		if from := sys.Host.From; what == "" && from != "" && from != machine {
			what = "is on system " + system + ", which machine " + from + " alone reaches, and the job is not of that machine"
			remedy = "run the job on a system of that machine, or give host.keys: everywhere in the document of system " +
				system + " if each machine has the keys"
		}
		if what != "" {
			problems = append(problems, Problem{at, short(location), what, remedy})
		}
	}
	for i, in := range s.Inputs {
		look(fmt.Sprintf("inputs[%d].from", i), in.From)
	}
	if s.Archive != nil && s.Archive.On != ArchiveNever {
		look("archive.to", s.Archive.To)
	}
	return problems
}

// FilesHere reports whether a job has files on the machine of the service: an input that is a path
// there, or results in its archive.
func (s *Spec) FilesHere() bool {
	here := func(location string) bool {
		scheme, _, elsewhere := strings.Cut(location, "://")
		return !elsewhere || strings.EqualFold(scheme, "file")
	}
	return s.Archive == nil || s.Archive.On != ArchiveNever && here(s.Archive.To) ||
		slices.ContainsFunc(s.Inputs, func(in Input) bool { return !in.InPlace && here(in.From) })
}

// Folder returns where the jobs of a system have their folders, on a machine whose account has
// these variables. It resolves ~ at the beginning, and variables anywhere.
func (s *System) Folder(env []string) (string, error) {
	name := s.Work
	if strings.HasPrefix(name, "~") {
		name = "$HOME" + name[1:]
	}
	var err error
	name = variableRE.ReplaceAllStringFunc(name, func(v string) string {
		v = strings.Trim(v, "${}")
		i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, v+"=") })
		switch {
		case err != nil:
		case i < 0:
			err = Errorf(Invalid, "work: the account there has no variable %s", v)
		case env[i] == v+"=": // the rest may be a folder of others
			err = Errorf(Invalid, "work: the variable %s of the account there is empty", v)
		default:
			return env[i][len(v)+1:]
		}
		return ""
	})
	switch {
	case err != nil:
		return "", err
	case !path.IsAbs(name):
		return "", Errorf(Invalid, "work: %s is no absolute path there", name)
	}
	return path.Clean(name), nil
}
