package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/crash"
	"github.com/pawl-jobs/pawl/job"
)

// stageJob puts the script and the folders of the logs beside the inputs. If a program cannot be
// started and that can be seen, it says so before the launch.
func (k *Kind) stageJob(ctx context.Context, s *program, _ recorder) engine.Outcome {
	fsys := s.sys.Host.Files()
	for field, name := range map[string]string{"stdout": s.spec.Stdout, "stderr": s.spec.Stderr} {
		full, err := s.inside(field, name)
		if err == nil {
			err = k.staysInside(ctx, s, field, path.Dir(full))
		}
		if job.KindOf(err) == job.Invalid {
			return engine.Fail(job.Entry{Code: job.InvalidDefinition, Message: err.Error()})
		}
		if err == nil && path.Dir(full) != s.dir {
			err = fsys.Mkdir(ctx, path.Dir(full))
		}
		if err != nil {
			return k.trouble(ctx, s, job.StagingFailed, "make the folder of "+name, k.full(ctx, k.workRoom(s, 0), err))
		}
	}
	if s.spec.Script != "" {
		if err := s.putSmall(ctx, path.Join(s.dir, scriptFile), s.spec.Script, 0o700); err != nil {
			return k.trouble(ctx, s, job.StagingFailed, "write the script",
				k.full(ctx, k.workRoom(s, int64(len(s.spec.Script))), err))
		}
		crash.At("stage.script")
	}
	if err := k.startable(ctx, s); err != nil {
		return k.faulty(ctx, s, job.LaunchFailed, err)
	}
	return engine.Next(job.SubmittingJob)
}

// startable returns why the program cannot be started. A name without a slash is left to the shell
// of the system, which looks it up in PATH.
func (k *Kind) startable(ctx context.Context, s *program) error {
	name, shown := path.Join(s.dir, scriptFile), "script"
	if s.spec.Script == "" {
		name, shown = s.spec.Command[0], s.spec.Command[0]
		if !strings.Contains(name, "/") {
			return nil
		}
		if !path.IsAbs(name) {
			name = path.Join(s.dir, name)
		}
	} else if !strings.HasPrefix(s.spec.Script, "#!") {
		return nil
	}
	fsys := s.sys.Host.Files()
	if below(name, s.dir) {
		fsys = files.Load(ctx, fsys, s.dir)
	}
	reportAt(ctx, name)
	info, err := fsys.Stat(ctx, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !path.IsAbs(shown):
		return fmt.Errorf("command: there is no %s in the job's folder: give it as an input, or the absolute "+
			"path of a program of the system", shown)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("command: there is no %s: correct the path", shown)
	case err != nil:
		return nil //nolint:nilerr // the launch will tell
	case info.IsDir():
		return fmt.Errorf("command: %s is a folder: give the path of a program", shown)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("command: %s may not be executed: make it executable (chmod +x), or name its "+
			"interpreter before it, such as [python3, %s]", shown, shown)
	}
	interpreter, ok := files.Interpreter(ctx, fsys, name)
	if !ok {
		return nil
	}
	if !path.IsAbs(interpreter) {
		return fmt.Errorf("%s: its first line asks for the interpreter %q, which is no absolute path: write one "+
			"such as #!/bin/sh or #!/usr/bin/env python3", shown, interpreter)
	}
	if _, err := fsys.Stat(ctx, strings.TrimSuffix(interpreter, "\r")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: its first line asks for the interpreter %q, which is not there: correct the line",
			shown, interpreter)
	}
	if strings.HasSuffix(interpreter, "\r") {
		return fmt.Errorf("%s: its first line ends in a carriage return, so the interpreter %q is not found: "+
			"save it with the line ends of Unix", shown, interpreter)
	}
	return nil
}
