package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/runner"
)

// processInputs resolves the spec, sees that every input is there and readable, and makes the job's folder.
func (k *Kind) processInputs(ctx context.Context, s *sheet) engine.Outcome {
	for _, in := range s.spec.Inputs {
		from, err := Path(in.From)
		if err != nil {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: "input " + err.Error()})
		}
		info, err := k.cfg.Files.Stat(ctx, from)
		if err != nil {
			return inputTrouble(ctx, in, err)
		}
		if info.IsDir() {
			_, err = k.cfg.Files.List(ctx, from)
		} else {
			err = k.readable(ctx, from)
		}
		if err != nil {
			return inputTrouble(ctx, in, err)
		}
	}
	if err := k.cfg.Host.Files().Mkdir(ctx, path.Join(s.dir, runner.Folder)); err != nil {
		return trouble(ctx, job.StagingFailed, fmt.Errorf("make the job's folder: %w", err))
	}
	crash.At("stage.folder")
	s.spec.System = job.SystemLocal + "@" + k.cfg.Host.ID()
	resolved, err := json.Marshal(Resolved{s.spec, s.dir, s.to})
	if err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	return engine.Next(job.StagingInputs).Set(job.Patch{Resolved: resolved})
}

func (k *Kind) readable(ctx context.Context, name string) error {
	f, err := k.cfg.Files.Open(ctx, name)
	if err != nil {
		return err
	}
	return f.Close()
}

// A stock tells what was staged, by the names of files in the job's folder: as they were before the program could
// change them.
type stock map[string]stamp

type stamp struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// has reports whether a file is as it was staged.
func (s stock) has(name string, f fs.FileInfo) bool {
	was, ok := s[name]
	return ok && f.Mode().IsRegular() && was == stamp{f.Size(), f.ModTime().UTC()}
}

// stockFile is where the stock is kept, in the job's folder.
const stockFile = runner.Folder + "/staged.json"

// staged reads the stock. Where it is gone everything counts as made by the program.
func (k *Kind) staged(ctx context.Context, s *sheet) stock {
	b, err := files.ReadFile(ctx, k.cfg.Host.Files(), path.Join(s.dir, stockFile))
	var list stock
	if err != nil || json.Unmarshal(b, &list) != nil {
		return nil
	}
	return list
}

// stageInputs copies the inputs into the job's folder. Each file appears whole; done again, it is copied again.
func (k *Kind) stageInputs(ctx context.Context, s *sheet) engine.Outcome {
	list := stock{}
	for _, in := range s.spec.Inputs {
		from, err := Path(in.From)
		if err != nil {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: "input " + err.Error()})
		}
		if err := k.stage(ctx, from, s.dir, path.Clean(in.To), list); err != nil {
			return inputTrouble(ctx, in, err)
		}
		crash.At("stage.copied")
	}
	b, err := json.Marshal(list)
	if err != nil {
		return engine.Fail(job.Entry{Code: job.InternalError, Message: err.Error()})
	}
	if err := k.cfg.Host.Files().Put(ctx, path.Join(s.dir, stockFile), bytes.NewReader(b), files.PutOptions{NoSync: true}); err != nil {
		return trouble(ctx, job.StagingFailed, fmt.Errorf("write the list of what was staged: %w", err))
	}
	crash.At("stage.listed")
	return engine.Next(job.StagingJob)
}

// stage copies a file, or a folder with everything below it, to a name in dir, and notes the files in list.
func (k *Kind) stage(ctx context.Context, from, dir, name string, list stock) error {
	info, err := k.cfg.Files.Stat(ctx, from)
	if err != nil {
		return err
	}
	dst, to := k.cfg.Host.Files(), path.Join(dir, name)
	if !info.IsDir() {
		if err := dst.Mkdir(ctx, path.Dir(to)); err != nil {
			return err
		}
		if _, err := files.Copy(ctx, dst, to, k.cfg.Files, from, files.CopyOptions{}); err != nil {
			return err
		}
		made, err := dst.Stat(ctx, to)
		if err == nil {
			list[name] = stamp{made.Size(), made.ModTime().UTC()}
		}
		return err
	}
	if err := dst.Mkdir(ctx, to); err != nil {
		return err
	}
	inside, err := k.cfg.Files.List(ctx, from)
	if err != nil {
		return err
	}
	for _, f := range inside {
		if m := f.Mode(); m&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) != 0 {
			continue // there is nothing to copy
		}
		if err := k.stage(ctx, path.Join(from, f.Name()), dir, path.Join(name, f.Name()), list); err != nil {
			return err
		}
	}
	return nil
}

// stageJob puts beside the inputs what the launch needs: the folders of the logs, and the resolved spec for people
// who look into the folder.
func (k *Kind) stageJob(ctx context.Context, s *sheet) engine.Outcome {
	fsys := k.cfg.Host.Files()
	for _, name := range []string{s.spec.Stdout, s.spec.Stderr} {
		if err := fsys.Mkdir(ctx, path.Dir(path.Join(s.dir, name))); err != nil {
			return trouble(ctx, job.StagingFailed, fmt.Errorf("make the folder of %s: %w", name, err))
		}
	}
	err := fsys.Put(ctx, path.Join(s.dir, runner.Folder, "job.json"), bytes.NewReader(s.job.Resolved), files.PutOptions{NoSync: true})
	if err != nil {
		return trouble(ctx, job.StagingFailed, fmt.Errorf("write the job's description: %w", err))
	}
	crash.At("stage.described")
	return engine.Next(job.SubmittingJob)
}
