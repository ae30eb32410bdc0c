package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pawl-jobs/pawl/app/ground"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/job"
)

// Here, and nowhere else, places of the service are told from places of its users. No job takes an
// input from a place of the service or puts results there: the token, the database and the results
// of others are there. There is one exception: an input may come from the results of a job of the
// same tenant.
//
// A path is judged by where it leads. It is judged again before each use, because links change.

// A place is a path that a spec names in a field.
type place struct{ field, path string }

func inputField(i int) string { return fmt.Sprintf("inputs[%d].from", i) }

const archiveField = "archive.to"

// A border is the line around the service's own places, for one step of a job.
type border struct {
	k      *Kind
	own    []ground.Landmark   // nil: not looked up yet
	done   map[string]bool     // folders that were made
	judged map[string]bool     // folders of the archive's system that may take results
	far    map[string]*farSide // systems that have inputs or take results, by name
}

func (k *Kind) border() *border {
	return &border{k: k, done: map[string]bool{}, judged: map[string]bool{}, far: map[string]*farSide{}}
}

// places returns the service's own places. They stay the same for the whole step.
func (b *border) places(ctx context.Context) []ground.Landmark {
	if b.own == nil {
		b.own = b.k.ground.Own(ctx)
	}
	return b.own
}

// crossed says what is wrong with a real name that is at, in or above a place of the service;
// empty: nothing.
func (b *border) crossed(ctx context.Context, real string) (what string) {
	at, all := b.k.ground.Landmark(ctx, real), b.places(ctx)
	for i := range all {
		switch own := &all[i]; {
		case own.Holds(&at):
			return "lies in " + own.Real + ", which is the service's own"
		case at.Holds(own):
			return "holds " + own.Real + ", which is the service's own"
		}
	}
	return ""
}

// input returns where an input leads. The error is a [job.SpecError] if inputs may not come from
// there.
func (b *border) input(ctx context.Context, tenant string, p place) (string, error) {
	if b.k.cfg.Files == nil {
		return p.path, nil
	}
	real, err := b.real(ctx, p, "write what the program needs to a file, or let the program look there itself")
	if err != nil || b.result(ctx, tenant, real) {
		return real, err
	}
	if what := b.crossed(ctx, real); what != "" {
		return "", wrong(p, what, "copy what the program needs to a folder of yours; of the service's folders "+
			"only the results of a job can be named")
	}
	return real, nil
}

// real returns where a place leads after links are followed.
func (b *border) real(ctx context.Context, p place, remedy string) (string, error) {
	real, err := files.Real(ctx, b.k.cfg.Files, p.path)
	if err != nil {
		return "", err
	}
	shows, err := files.Shows(ctx, b.k.cfg.Files, real)
	if err == nil && shows {
		err = wrong(p, "leads through /proc, where processes are shown and no files are", remedy)
	}
	return real, err
}

// result reports whether a real name is in the results of a job of a tenant.
func (b *border) result(ctx context.Context, tenant, real string) bool {
	all := b.places(ctx)
	i := slices.IndexFunc(all, func(m ground.Landmark) bool { return m.Named == b.k.cfg.Archive })
	if i < 0 || job.CheckTenant(tenant) != nil {
		return false
	}
	rest, inside := strings.CutPrefix(real, path.Join(all[i].Real, tenant)+"/")
	id, _, _ := strings.Cut(rest, "/")
	_, err := job.ParseID(id)
	return inside && err == nil
}

// target returns an error unless results may be put into a folder. It is a [job.SpecError] if the
// folder is a place of the service.
func (b *border) target(ctx context.Context, p place) error {
	if b.k.cfg.Files == nil {
		return nil
	}
	const remedy = "name a folder of yours beside it, or leave archive.to out"
	real, err := b.real(ctx, p, remedy)
	if err != nil {
		return err
	}
	if what := b.crossed(ctx, real); what != "" {
		return wrong(p, what, remedy)
	}
	return nil
}

// mkdir makes a folder for results. In a folder of the user it checks before and after that it is
// no place of the service.
func (b *border) mkdir(ctx context.Context, s *program, dir string) error {
	if b.done[dir] {
		return nil
	}
	err := b.outside(ctx, s, dir)
	if err == nil {
		err = s.depot.Mkdir(ctx, dir)
	}
	if err == nil {
		err = b.outside(ctx, s, dir)
	}
	b.done[dir] = err == nil
	return err
}

// makeFolder makes a folder for results with a mode. This account can write there until it is
// sealed.
func (b *border) makeFolder(ctx context.Context, s *program, dir string, mode fs.FileMode) error {
	if err := b.mkdir(ctx, s, dir); err != nil {
		return err
	}
	return files.Mkdir(ctx, s.depot, dir, mode)
}

// seal gives a folder its mode, once everything is in it.
func (b *border) seal(ctx context.Context, s *program, dir string, mode fs.FileMode) error {
	if err := b.outside(ctx, s, dir); err != nil {
		return err
	}
	return files.Seal(ctx, s.depot, dir, mode)
}

// outside returns an error if a folder for results that a user named is a place of the service.
func (b *border) outside(ctx context.Context, s *program, dir string) error {
	switch {
	case s.own():
		return nil
	case s.at != "":
		return b.targetThere(ctx, s, dir)
	}
	return b.target(ctx, place{archiveField, dir})
}

// staysInside returns an error unless a folder in the job's folder is still there after links are
// followed. An input in place is a link to another place, and the program of an earlier attempt may
// have left links.
func (k *Kind) staysInside(ctx context.Context, s *program, field, folder string) error {
	if folder == s.dir {
		return nil
	}
	dir, err := k.realDir(ctx, s)
	if err != nil {
		return err
	}
	real, err := files.Real(ctx, s.sys.Host.Files(), folder)
	if err == nil && !below(real, dir) {
		return wrong(place{field, strings.TrimPrefix(folder, s.dir+"/")}, "leads out of the job's folder, to "+real,
			"give a path beside the input in place, not in it")
	}
	return err
}

// realDir returns the real path of a job's folder, which is no link itself.
func (k *Kind) realDir(ctx context.Context, s *program) (string, error) {
	above, err := files.Real(ctx, s.sys.Host.Files(), path.Dir(s.dir))
	return path.Join(above, path.Base(s.dir)), err
}

// wrong returns the error about a place.
func wrong(p place, what, remedy string) error {
	return &job.SpecError{Problems: []job.Problem{{Path: p.field, Value: p.path, What: what, Remedy: remedy}}}
}

// below reports whether a name is a folder or is in it.
func below(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// maxCheck is how long a submission waits for the file systems of the paths that it names.
const maxCheck = 2 * time.Second

// orInTime returns the answer of f. A file system that hangs does not hold up submissions: while
// one hangs, the answer is otherwise, and the question is asked again when the job is prepared.
func orInTime[T any](k *Kind, otherwise T, f func(context.Context) T) T {
	if k.hanging.Load() > 0 {
		return otherwise
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxCheck)
	defer cancel()
	found := make(chan T, 1)
	go func() { found <- f(ctx) }()
	select {
	case v := <-found:
		return v
	case <-ctx.Done():
		k.hanging.Add(1)
		go func() {
			<-found
			k.hanging.Add(-1)
		}()
		return otherwise
	}
}

// trespasses reports the named places that are the service's own.
func (k *Kind) trespasses(tenant string, named []place) []job.Problem {
	if len(named) == 0 || k.cfg.Files == nil {
		return nil
	}
	return orInTime(k, nil, func(ctx context.Context) []job.Problem {
		return k.border().trespasses(ctx, tenant, named)
	})
}

// realPath returns where a name leads, if that can be seen.
func (k *Kind) realPath(name string) string {
	if k.cfg.Files == nil {
		return name
	}
	return orInTime(k, name, func(ctx context.Context) string {
		if real, err := files.Real(ctx, k.cfg.Files, name); err == nil {
			return real
		}
		return name
	})
}

func (b *border) trespasses(ctx context.Context, tenant string, named []place) (problems []job.Problem) {
	for _, p := range named {
		var err error
		if p.field == archiveField {
			err = b.target(ctx, p)
		} else {
			_, err = b.input(ctx, tenant, p)
		}
		var wrong *job.SpecError
		if errors.As(err, &wrong) {
			problems = append(problems, wrong.Problems...)
		}
	}
	return problems
}
