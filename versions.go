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
	"time"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/job/groups"
	"github.com/pawl-jobs/pawl/recovery"
	"github.com/pawl-jobs/pawl/store"
)

// unread is the tester that finds out whether a process can read arguments. All processes that
// handle tasks have it.
const unread = "pawl/args"

// newerArgs is the error of a job whose arguments have a version that this process does not know:
// the job waits for a process that knows it.
func newerArgs(j *job.Job, has, known int) error {
	return blockUnread(j, map[string]string{"version": strconv.Itoa(has)}, fmt.Sprintf(
		"the arguments have version %d of kind %s, and this process knows up to %d: a process of a newer version is needed",
		has, j.Kind, known))
}

// unreadableArgs is the error of a job whose arguments this build cannot read: the job waits for a
// process of another build.
func unreadableArgs(j *job.Job, has int, build string, err error) error {
	return blockUnread(j, map[string]string{"version": strconv.Itoa(has), "build": build}, fmt.Sprintf(
		"this build cannot read the arguments of kind %s: %v: a process of a build that can is needed", j.Kind, err))
}

// blockUnread lets a job wait for a process that can read its arguments. One that cannot may be
// quicker to claim it again, and so may the next, so it waits longer each time: a job may be
// interrupted [job.MaxRecoveries] times.
func blockUnread(j *job.Job, params map[string]string, message string) error {
	params["kind"] = j.Kind
	return &job.Block{
		Code: job.ArgsUnreadable, Tester: recovery.FuncPrefix + unread, Params: params, Message: message,
		After: job.Duration(min(time.Second<<min(j.Recoveries, 6), time.Minute)),
	}
}

// leaveTime is for how long a process leaves the jobs of a kind to those that can read them all.
const leaveTime = 10 * time.Second

// leave is called with what kept the arguments of j from being read. If there is a process that can
// read them, the jobs of this kind are left to that one for some time: else this process might
// claim j again and again.
func (s *Service) leave(ctx context.Context, j *job.Job, why error) {
	b, ok := errors.AsType[*job.Block](why)
	if !ok {
		return
	}
	if a, err := (reader{s}).Test(ctx, recovery.Question{Tenant: j.Tenant, Params: b.Params}); err == nil && a.Clear {
		s.left.Store(j.Kind, time.Now().Add(leaveTime))
	}
}

// leaves reports whether the jobs of a kind are left to other processes now.
func (s *Service) leaves(kind string) bool {
	until, left := s.left.Load(kind)
	return left && time.Now().Before(until.(time.Time))
}

// A reader is the tester unread.
type reader struct{ s *Service }

// Private implements [recovery.Private]: a process may run the jobs of some tenants only.
func (reader) Private() {}

// Test implements [recovery.Tester].
func (r reader) Test(ctx context.Context, q recovery.Question) (recovery.Answer, error) {
	version, err := strconv.Atoi(q.Params["version"])
	if err != nil {
		return recovery.Answer{}, err
	}
	all, err := r.s.db.Store.Sessions(ctx)
	if err != nil {
		return recovery.Answer{}, err
	}
	for i := range all {
		p := &all[i].Process
		if !all[i].Live || all[i].Mode != store.Work || !p.ServesTenant(q.Tenant) {
			continue
		}
		if reads, ok := p.Reads[q.Params["kind"]]; ok && reads.Version >= version && reads.Build != q.Params["build"] {
			return recovery.Answer{Clear: true, Says: p.String() + " can read them"}, nil
		}
	}
	return recovery.Answer{Says: "no process that runs the kind can read them"}, nil
}

// tryUnread has the jobs tested at once that wait for a process that can read their arguments, as
// this one may.
func (s *Service) tryUnread(ctx context.Context) {
	blocked, err := s.jobs.Blocked(ctx)
	for _, g := range blocked {
		if _, handled := s.reads[g.Params["kind"]]; g.Tester != recovery.FuncPrefix+unread || !handled {
			continue
		}
		if _, e := s.jobs.ActOnGroup(ctx, groups.TryNow, g.Key); job.KindOf(e) != job.NotFound {
			err = errors.Join(err, e)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("jobs whose arguments nobody could read are tried again within a minute, not at once", "error", err)
	}
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
