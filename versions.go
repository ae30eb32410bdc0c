package pawl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

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

// tryVersions has the jobs tested at once that wait for a version that this process knows.
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
func knows(kind string, version int) string {
	sum := sha256.Sum256([]byte(kind))
	return "args/" + hex.EncodeToString(sum[:8]) + "/" + strconv.Itoa(version)
}
