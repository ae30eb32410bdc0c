package jobfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/pawl-jobs/pawl/engine"
	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/cli/target"
	"github.com/pawl-jobs/pawl/internal/cli/term"
	"github.com/pawl-jobs/pawl/internal/live"
	"github.com/pawl-jobs/pawl/internal/node"
	"github.com/pawl-jobs/pawl/internal/phrase"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

func validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a job file, and say what it would run",
		Long: `Validate checks a job file as pawl run does before it submits anything. It also looks on this
machine whether the program is there, whether inputs can be read, and whether the folders of
archives can be made. What another job of the file archives may be missing, and all that a job may
find when its time comes which has an order, not_before or delay. It prints a line for each job, or
everything that is wrong. Nothing is submitted, made or changed.

It asks no service: queues, systems and policies are not looked at. Whether they are there, and give a
job what it asks for, is checked when it is submitted.

` + Rule + `

Exit codes: 0 all is well, 2 something is wrong.`,
		Example: `  pawl validate job.yaml
  pawl init script | pawl validate -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := Read(cmd.Context(), args[0], Use{Here: true})
			if err != nil {
				return err
			}
			dir, err := target.DataDir(cmd)
			if err != nil {
				return err
			}
			return validate(cmd.Context(), cmd.OutOrStdout(), dir, args[0], f)
		},
	}
}

// validate looks at what a job file speaks of. dir is the data folder; name is the file's, for
// messages.
func validate(ctx context.Context, out io.Writer, dir, name string, f File) error {
	// Kinds know more of a spec than its form. To ask them needs no store.
	svc := service.New(service.Config{Kinds: map[string]engine.Kind{job.KindApp: node.CheckingKind(dir)}})
	var faults Faults
	var report strings.Builder
	made := f.made()
	for i := range f.Jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := &f.Jobs[i]
		label := f.label(i)
		if err := svc.Check(&e.spec); err != nil {
			faults.Add(label, err)
		}
		notes, problems := surroundings(&e.spec, made, true)
		if problems != nil {
			faults.Add(label, &job.SpecError{Problems: problems})
		}
		fmt.Fprintf(&report, "%s would run %s\n", cmp.Or(label, live.Clean(e.spec.Name), "the job"), summary(&e.spec))
		for _, n := range notes {
			fmt.Fprintf(&report, "  note: %s\n", live.Clean(n))
		}
	}
	if faults.Lines != nil {
		return term.Usagef("job file %s:\n%w", name, &faults)
	}
	_, err := io.WriteString(out, report.String())
	return err
}

// summary says what a spec runs, in one line.
func summary(s *job.Spec) string {
	argv := append(append([]string(nil), s.Launch...), s.Command...)
	if s.Script != "" {
		first, _, _ := strings.Cut(s.Script, "\n")
		by := "/bin/sh"
		if rest, ok := strings.CutPrefix(first, "#!"); ok {
			by = strings.TrimSpace(rest)
		}
		argv = append(argv, by, "(script)")
	}
	words := make([]string, 0, len(argv))
	for _, w := range append(argv, s.Arguments...) {
		words = append(words, word(w))
	}
	const most = 100
	text := strings.Join(words, " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	var with []string
	if n := len(s.Inputs); n > 0 {
		with = append(with, phrase.Plural(n, "input"))
	}
	if n := s.RetryPolicy().MaxAttempts; n > 1 {
		with = append(with, fmt.Sprintf("up to %d attempts", n))
	}
	spec := *s
	spec.Defaults(job.ID{}, "")
	with = append(with, "at most "+live.Spent(spec.Resources.Limit()))
	if s.Archive != nil && s.Archive.To != "" {
		with = append(with, "archive to "+live.Clean(s.Archive.To))
	}
	return text + "  (" + strings.Join(with, ", ") + ")"
}

// plainArgument matches what a shell takes as it is.
var plainArgument = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%-]+$`)

// word writes an argument as it would be typed.
func word(w string) string {
	if plainArgument.MatchString(w) || w == "(script)" {
		return w
	}
	return "'" + strings.ReplaceAll(live.Clean(strings.ReplaceAll(w, "\n", `\n`)), "'", `'\''`) + "'"
}

// made returns the folders on this machine into which jobs of the file archive.
func (f *File) made() (folders []string) {
	for i := range f.Jobs {
		if a := f.Jobs[i].spec.Archive; a != nil && a.To != "" && a.On != job.ArchiveNever {
			if to, err := place(a.To); err == nil {
				folders = append(folders, to)
			}
		}
	}
	return folders
}

// label names a job of the file; empty: it is the only one.
func (f *File) label(i int) string {
	if len(f.Jobs) < 2 {
		return ""
	}
	return labelOf(i, len(f.Jobs), fieldsOf(f.Jobs[i].Given)["name"])
}

// Absent returns an error, a [term.UsageError], that names what the jobs of the file need and this
// machine does not have, as validate finds it. Without path it does not look programs up in PATH,
// which may be another one where the jobs run.
func (f *File) Absent(ctx context.Context, path bool) error {
	var faults Faults
	f.absent(ctx, path, nil, &faults)
	if faults.Lines == nil {
		return nil
	}
	return term.Usagef("nothing was submitted:\n%w", &faults)
}

// Clashing returns an error, a [term.UsageError], that names what cannot be in a job's folder
// together, as the inputs on this machine show, of jobs that take them as they are now.
func (f *File) Clashing() error {
	var faults Faults
	for i := range f.Jobs {
		if s := &f.Jobs[i].spec; !later(s) {
			if problems := clashes(s); problems != nil {
				faults.Add(f.label(i), &job.SpecError{Problems: problems})
			}
		}
	}
	if faults.Lines == nil {
		return nil
	}
	return term.Usagef("nothing was submitted:\n%w", &faults)
}

// absent adds to faults what the jobs of the file need and this machine does not have, but for
// those that could not be read.
func (f *File) absent(ctx context.Context, path bool, unread map[int]bool, faults *Faults) {
	made := f.made()
	for i := range f.Jobs {
		if ctx.Err() != nil { // nobody waits for the answer
			return
		}
		if unread[i] {
			continue
		}
		if _, problems := surroundings(&f.Jobs[i].spec, made, path); problems != nil {
			faults.Add(f.label(i), &job.SpecError{Problems: problems})
		}
	}
}

// surroundings looks whether a spec's program and inputs are there, and its archive can be made.
// Other jobs make what is in the folders of made. Notes are what may be as it is.
func surroundings(s *job.Spec, made []string, path bool) (notes []string, problems []job.Problem) {
	local := s.System == "" || s.System == job.SystemLocal
	if local {
		problems = startable(s, path)
	}
	for i, in := range s.Inputs {
		at := fmt.Sprintf("inputs[%d].from", i)
		from, err := place(in.From)
		if err == nil {
			err = usable(from, in.InPlace)
		}
		var unknown *unknownPlace
		switch {
		case err == nil:
		case errors.As(err, &unknown):
			notes = append(notes, fmt.Sprintf("%s (%s): %v", at, in.From, unknown))
		case in.Optional && errors.Is(err, fs.ErrNotExist):
			notes = append(notes, fmt.Sprintf("%s (%s): is not there, and optional", at, in.From))
		case errors.Is(err, fs.ErrNotExist) && slices.ContainsFunc(made, func(dir string) bool { return within(dir, from) }):
			notes = append(notes, fmt.Sprintf("%s (%s): is not there yet: a job of this file archives there", at, in.From))
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, job.Problem{
				Path: at, Value: in.From, What: "is not there",
				Remedy: "put it there, correct the path, or set optional: true",
			})
		case job.Shortage(err): // of this process
		default:
			remedy := "name another file or folder"
			switch {
			case errors.Is(err, fs.ErrPermission):
				remedy = "give the right to read it, or " + remedy
			case errors.Is(err, errSpecial):
				remedy += ", or set in_place: true, and the program gets a link to it"
			}
			problems = append(problems, job.Problem{
				Path: at, Value: in.From, What: "cannot be read: " + cause(err), Remedy: remedy,
			})
		}
	}
	problems = append(problems, clashes(s)...)
	if a := s.Archive; a != nil && a.To != "" && a.On != job.ArchiveNever {
		to, err := place(a.To)
		if err == nil {
			err = makeable(to)
		}
		var unknown *unknownPlace
		switch {
		case errors.As(err, &unknown):
			notes = append(notes, fmt.Sprintf("archive.to (%s): %v", a.To, unknown))
		case err != nil && !job.Shortage(err):
			problems = append(problems, job.Problem{Path: "archive.to", Value: a.To, What: "cannot be made: " +
				cause(err), Remedy: "give another folder, or the right to write there"})
		}
	}
	if later(s) { // all that may have come by then
		for _, p := range problems {
			notes = append(notes, p.String())
		}
		problems = nil
	}
	if local {
		problems = append(problems, (&job.System{Name: job.SystemLocal}).Refuse(s.Resources)...)
	}
	return notes, problems
}

// later reports whether a job waits before it looks for what it needs.
func later(s *job.Spec) bool { return s.Order != nil || !s.NotBefore.IsZero() || s.Delay != 0 }

// clashes returns which names of the job's folder cannot be there together, as this machine shows.
// It looks only if names lie below each other: a file system may hang.
func clashes(s *job.Spec) []job.Problem {
	if s.Clashes(func(job.Input) bool { return true }) == nil {
		return nil
	}
	return s.Clashes(func(in job.Input) bool {
		from, err := place(in.From)
		info, notThere := os.Stat(from)
		return err == nil && notThere == nil && !info.IsDir()
	})
}

// within reports whether name is a folder or below it.
func within(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// startable reports which programs of a spec are not there, as the launch would find. What has
// macros is not looked at.
func startable(s *job.Spec, path bool) (problems []job.Problem) {
	look := func(at, name string) {
		if name == "" || strings.Contains(name, "${") {
			return
		}
		p := job.Problem{Path: at, Value: name}
		switch {
		case !strings.Contains(name, "/"):
			if !path || inPath(s, name) {
				return
			}
			p.What, p.Remedy = "is in no folder of PATH", "install it, correct its name, or give its absolute path"
			if inputAt(s, name) {
				p.Remedy = "write ./" + name + " for the input of that name"
			}
		case !filepath.IsAbs(name):
			if inputAt(s, name) {
				return
			}
			p.What, p.Remedy = "is not in the job's folder, in which there are only its inputs",
				"give it as an input, or the absolute path of a program"
		default:
			info, err := os.Stat(name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				p.What, p.Remedy = "is not there", "correct the path"
			case err != nil:
				return // the launch will tell
			case info.IsDir():
				p.What, p.Remedy = "is a folder", "give the path of a program"
			case info.Mode()&0o111 == 0:
				p.What, p.Remedy = "may not be executed",
					"make it executable (chmod +x), or name its interpreter before it"
			default:
				return
			}
		}
		problems = append(problems, p)
	}
	if len(s.Launch) > 0 {
		look("launch[0]", s.Launch[0])
	}
	if len(s.Command) > 0 {
		look("command[0]", s.Command[0])
	}
	if line, ok := strings.CutPrefix(s.Script, "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		if words := strings.Fields(line); len(words) > 0 && filepath.IsAbs(words[0]) {
			look("script", words[0])
		}
	}
	return problems
}

// inPath reports whether a program is in a folder of the PATH that it is looked up in.
func inPath(s *job.Spec, name string) bool {
	folders, set := s.Env["PATH"]
	for _, v := range node.Environ() {
		if rest, ok := strings.CutPrefix(v, "PATH="); ok && !set {
			folders = rest
		}
	}
	for _, dir := range filepath.SplitList(folders) {
		if !filepath.IsAbs(dir) || strings.Contains(dir, "${") {
			return true // that depends on the job
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() &&
			info.Mode()&0o111 != 0 {
			return true
		}
	}
	return folders == "" // a shell has a PATH of its own then
}

// inputAt reports whether an input is put at a path of the job's folder, or around it.
func inputAt(s *job.Spec, name string) bool {
	spec := *s
	spec.Defaults(job.ID{}, "")
	name = filepath.Clean(name)
	for _, in := range spec.Inputs {
		to := filepath.Clean(in.To)
		if to == name || strings.HasPrefix(name, to+"/") || strings.Contains(to, "${") {
			return true
		}
	}
	return false
}

// An unknownPlace is a path that depends on the job.
type unknownPlace struct{ why string }

func (u *unknownPlace) Error() string { return u.why }

// place returns the path on this machine that a files URL of a spec names.
func place(url string) (string, error) {
	if strings.Contains(url, "${PAWL_") {
		return "", &unknownPlace{"is not looked at: it depends on the job"}
	}
	s := job.Spec{Inputs: []job.Input{{From: url}}}
	s, err := s.Expand(func(string) string { return "" }, func(name string) (value string, set bool) {
		for _, v := range node.Environ() { // not all that is set here
			if rest, ok := strings.CutPrefix(v, name+"="); ok {
				value, set = rest, true
			}
		}
		return value, set
	})
	if err != nil {
		return "", &unknownPlace{"is not looked at: a variable of it is not set for programs"}
	}
	if job.Web(s.Inputs[0].From) {
		return "", &unknownPlace{"is not looked at: it is on the web"}
	}
	if system, _, ok := job.OnSystem(s.Inputs[0].From); ok {
		return "", &unknownPlace{"is not looked at: it is on system " + system}
	}
	return files.Path(s.Inputs[0].From)
}

// errSpecial says that an input is a pipe, a socket or a device.
var errSpecial = errors.New("it is neither a file nor a folder")

// usable reports why an input cannot be had: one in place must only be there, for nothing of it is
// read, and another one must be a file or a folder that can be read.
func usable(name string, inPlace bool) error {
	info, err := os.Stat(name)
	if err != nil || inPlace {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return errSpecial
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// makeable reports why a folder cannot be made, or written to where it is there already.
func makeable(dir string) error {
	for {
		info, err := os.Stat(dir)
		up := filepath.Dir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && up != dir:
			dir = up
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no folder", dir)
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		return nil
	}
}

// cause is an error without what was being done, where that goes without saying.
func cause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
