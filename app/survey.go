package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// patterns are those of an archive.
type patterns struct{ include, exclude, required []Pattern }

// patternsOf reads the patterns of an archive. Its error is a [job.SpecError].
func patternsOf(a *job.Archive) (p patterns, err error) {
	var problems []job.Problem
	read := func(field string, list []string) (read []Pattern) {
		for i, text := range list {
			one, err := ParsePattern(text)
			if err != nil {
				why, _ := strings.CutPrefix(err.Error(), fmt.Sprintf("pattern %q ", text))
				what, remedy, _ := strings.Cut(why, ": ")
				problems = append(problems, job.Problem{Path: fmt.Sprintf("archive.%s[%d]", field, i), Value: text, What: what, Remedy: remedy})
			}
			read = append(read, one)
		}
		return read
	}
	p.include, p.exclude, p.required = read("include", a.Include), read("exclude", a.Exclude), read("required", a.Required)
	if problems != nil {
		return p, &job.SpecError{Problems: problems}
	}
	return p, nil
}

func fits(list []Pattern, name string) bool {
	for _, p := range list {
		if p.Match(name) {
			return true
		}
	}
	return false
}

// wants reports whether a file is to be archived.
func (p patterns) wants(name string) bool {
	return !fits(p.exclude, name) && (p.include == nil || fits(p.include, name))
}

// Leavings are what a program left in the job's folder.
type leavings struct {
	files   []files.Entry // to be archived
	bytes   int64
	skipped []string // what cannot be archived, and why
	missing []string // patterns of archive.required that nothing fits
}

// survey looks through the job's folder: everything there but inputs that are as they were staged, and the runner's own.
func (k *Kind) survey(ctx context.Context, s *sheet) (*leavings, error) {
	p, err := patternsOf(s.spec.Archive)
	if err != nil {
		return nil, err
	}
	left, inputs := &leavings{}, k.staged(ctx, s)
	met := make([]bool, len(p.required))
	top, err := files.Resolve(ctx, k.cfg.Host.Files(), s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		top, err = s.dir, nil
	}
	if err != nil {
		return nil, err
	}
	private := path.Join(top, runner.Folder) // also where a link leads there
	err = files.Tree(ctx, k.cfg.Host.Files(), top, func(e files.Entry) error {
		own := strings.HasPrefix(e.Path+"/", private+"/")
		switch {
		case own && !s.spec.Archive.LaunchFiles:
			return skip(e)
		case inputs.has(e):
			return skip(e)
		}
		for i, r := range p.required {
			met[i] = met[i] || !own && e.Err == nil && r.Match(e.Name)
		}
		if e.Err == nil && e.Info.IsDir() {
			return nil
		}
		switch wanted := p.wants(e.Name) || own && !fits(p.exclude, e.Name); {
		case !wanted:
		case e.Name == ManifestFile:
			return fmt.Errorf("%s is the name of the archive's own manifest: let the program write to another name", ManifestFile)
		case e.Err != nil:
			left.skipped = append(left.skipped, fmt.Sprintf("%s (%s)", e.Name, whyNot(e.Err)))
		case e.Info.Mode().IsRegular():
			left.files = append(left.files, e)
			left.bytes += e.Info.Size()
		default:
			left.skipped = append(left.skipped, fmt.Sprintf("%s (%s)", e.Name, typeName(e.Info.Mode())))
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // somebody removed the job's folder: there is nothing to archive
	}
	for i, m := range met {
		if !m {
			left.missing = append(left.missing, p.required[i].String())
		}
	}
	return left, err
}

// skip passes over an entry, and all that is below it.
func skip(e files.Entry) error {
	if e.Err == nil && e.Info.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// whyNot is why a link was left out, in few words.
func whyNot(err error) string {
	l, ok := errors.AsType[*files.LinkError](err)
	switch {
	case !ok:
		return err.Error()
	case l.Target == "":
		return "a link that " + l.Why
	}
	if strings.HasPrefix(l.Why, "is outside of ") {
		return "a link to " + l.Target + ", outside of the job's folder"
	}
	return "a link to " + l.Target + ", which " + l.Why
}

// upload copies what is to be archived into a folder whose name carries the epoch. What is settled will not be written again: no
// attempt follows, and the job's folder goes.
func (k *Kind) upload(ctx context.Context, s *sheet, left *leavings, settled bool) (*manifest, error) {
	m := &manifest{Staged: fmt.Sprintf("%s%d", staging(s.job.ID), s.job.Epoch), Skipped: left.skipped}
	if s.own() {
		m.Staged = path.Join(k.stagingFolder(), m.Staged)
	}
	staged := m.folder(s.to)
	if s.own() {
		k.spread(ctx, k.cfg.Files, path.Dir(staged))
	}
	if err := k.cfg.Files.Mkdir(ctx, staged); err != nil {
		return nil, err
	}
	move, done := k.track(s.job, "archiving", left.bytes)
	defer done()
	made := map[string]bool{}
	for _, e := range left.files {
		to := path.Join(staged, e.Name)
		if dir := path.Dir(to); !made[dir] {
			if err := k.cfg.Files.Mkdir(ctx, dir); err != nil {
				return nil, err
			}
			made[dir] = true
		}
		o := files.CopyOptions{Settled: settled, Progress: move}
		o.Passing = m.whole() && path.Dir(to) == staged // its name is durable with that of the manifest, which comes last
		c, err := files.Copy(ctx, k.cfg.Files, to, k.cfg.Host.Files(), e.Path, o)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, archived{named(e.Name), c.Size, c.SHA256})
		crash.At("archive.copied")
	}
	if !m.whole() {
		return m, nil
	}
	list, err := s.list(m)
	if err == nil {
		err = k.cfg.Files.Put(ctx, path.Join(staged, ManifestFile), bytes.NewReader(list), files.PutOptions{})
	}
	crash.At("archive.completed")
	return m, err
}
