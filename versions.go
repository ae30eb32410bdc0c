package pawl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/service"
)

// newerArgs is the error of a job whose arguments have a version that this process does not know:
// the job waits for a process that knows it.
func newerArgs(kind string, has, known int) error {
	return &job.Block{
		Code: job.ArgsUnreadable, Tester: recovery.FuncPrefix + knows(kind, has),
		Params: map[string]string{"kind": kind, "version": strconv.Itoa(has)},
		Message: fmt.Sprintf("the arguments have version %d of kind %s, and this process knows up to %d: a process of a "+
			"newer version is needed", has, kind, known),
	}
}

// unreadableArgs is the error of a job whose arguments this build cannot read: the job waits for a
// process of another build.
func unreadableArgs(kind, build string, err error) error {
	return &job.Block{
		Code: job.ArgsUnreadable, Tester: recovery.FuncPrefix + builds(kind),
		Params: map[string]string{"kind": kind, "build": build},
		Message: fmt.Sprintf("this build cannot read the arguments of kind %s: %v: a process of a build that can is needed",
			kind, err),
	}
}

// knowBuild registers the tester that says that this process is of another build than the one that
// could not read arguments of a kind.
func (s *Service) knowBuild(kind, build string) {
	s.knows[recovery.FuncPrefix+builds(kind)] = true
	service.HandleTester(s.jobs, builds(kind), func(_ context.Context, params map[string]string) error {
		if params["build"] == build {
			return errors.New("the processes that run the kind are of the build that cannot read them")
		}
		return nil
	})
}

// buildOf names a build of a program, as far as it says how arguments are read: by its source, if
// that is known, by their type and by its version.
func buildOf(args reflect.Type, version int) string {
	sum := sha256.New()
	if info, ok := debug.ReadBuildInfo(); ok {
		writeSource(sum, info)
	}
	fmt.Fprintln(sum, version)
	describe(sum, args, map[reflect.Type]bool{})
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// writeSource writes of which source a program is. Programs for other machines, or with other
// flags, are the same build: else jobs would go to and fro between them.
func writeSource(w io.Writer, info *debug.BuildInfo) {
	fmt.Fprintln(w, info.GoVersion, info.Main)
	for _, m := range info.Deps {
		fmt.Fprintln(w, *m)
	}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "vcs.") {
			fmt.Fprintln(w, s.Key, s.Value)
		}
	}
}

// describe writes what a type looks like to package encoding/json.
func describe(w io.Writer, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintln(w, t, t.Kind())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Array, reflect.Map, reflect.Pointer, reflect.Slice:
		describe(w, t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			fmt.Fprintln(w, t.Field(i).Name, t.Field(i).Tag)
			describe(w, t.Field(i).Type, seen)
		}
	}
}

// knowVersions registers the testers that say that this process knows the versions of a kind up to
// one. A process that does not know a version does not have its tester, so jobs of that version
// wait until there is one that does.
func (s *Service) knowVersions(kind string, version int) {
	for v := 2; v <= version; v++ {
		name := knows(kind, v)
		s.knows[recovery.FuncPrefix+name] = true
		service.HandleTester(s.jobs, name, func(context.Context, map[string]string) error { return nil })
	}
}

// tryVersions has the jobs tested at once that wait for a version that this process knows, or for
// another build.
func (s *Service) tryVersions(ctx context.Context) error {
	if len(s.knows) == 0 {
		return nil
	}
	blocked, err := s.jobs.Blocked(ctx)
	if err != nil {
		return err
	}
	for _, g := range blocked {
		if !s.knows[g.Tester] {
			continue
		}
		if _, err := s.jobs.ActOnGroup(ctx, groups.TryNow, g.Key); err != nil && job.KindOf(err) != job.NotFound {
			return err
		}
	}
	return nil
}

// knows is the name of the tester of a version of a kind, which is short enough for one.
func knows(kind string, version int) string { return tester(kind, strconv.Itoa(version)) }

// builds is the name of the tester of the builds of a kind.
func builds(kind string) string { return tester(kind, "build") }

func tester(kind, of string) string {
	sum := sha256.Sum256([]byte(kind))
	return "args/" + hex.EncodeToString(sum[:8]) + "/" + of
}
