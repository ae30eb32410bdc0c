package crash

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// effects are the names of methods that change something outside the process. The operations of the
// store have points of their own, held by package crashstore.
var effects = []string{
	"Put", "Link", "Rename", "Move", "Mkdir", "Remove", "Write", "Copy", "CopyMany", "Symlink", // files
	"Fill", "RemoveAll", "QuickLink", // many files at once
	"Start", "Signal", "Run", // the host
	"Launch", "Kill", "Clean", "Suspend", "Resume", "Acknowledge", // the runner
	"Remember", "upload", "publish", "clean", "tidy", "give", // steps that consist of others
}

// unpointed lists the effects that no point follows, and why none needs to.
var unpointed = map[string]string{
	"Watch Run":            "a pipe that is made again without harm",
	"launchByFiles Put":    "a file of a random name that nobody else reads",
	"expectShell Put":      "a file of its launch, which is not armed yet",
	"note Write":           "the same words, written again by the next launch",
	"force QuickLink":      "an order that the next kill gives again",
	"Renew Put":            "an empty file of a name that nobody else reads",
	"Renew Remove":         "an empty file of a name that nobody else reads",
	"settle Write":         "a file of a random name that nobody else reads",
	"try Remove":           "the sweep does it as well",
	"publish Put":          "in a folder that goes as a whole, before the manifest has its name",
	"publish Remove":       "what is taken back is found again by its digest where it is left",
	"publishWhole Mkdir":   "a folder that is made again without harm",
	"give Rename":          "archive.linked or archive.listed follows in the caller",
	"give Link":            "archive.linked or archive.listed follows in the caller",
	"give Move":            "archive.linked or archive.listed follows in the caller",
	"give QuickLink":       "archive.linked or archive.listed follows in the caller",
	"input Mkdir":          "a folder that is made again without harm",
	"input Symlink":        "stage.copied follows in the caller",
	"file Copy":            "stage.copied follows in the caller",
	"many CopyMany":        "stage.copied follows in the caller",
	"record Remove":        "the wrong content is found again when it is staged again",
	"takeBack Remove":      "what is left is copied again when the job goes on",
	"leaveNothing tidy":    "the sweep does it as well",
	"remove RemoveAll":     "the job has ended, and its rows are still there: whoever deletes it does it again",
	"Remove RemoveAll":     "as remove RemoveAll",
	"Remove Mkdir":         "a folder that is made again without harm",
	"Remove Put":           "as remove RemoveAll",
	"removeLate Remove":    "it is removed again by the next sweep",
	"Make Mkdir":           "the spool: it is made again without harm",
	"clean RemoveAll":      "archive.cleaned follows in the caller",
	"tidy Remove":          "archive.published follows in the caller",
	"RemoveLeftovers tidy": "it is done again at the next look",
	"launched Kill":        "the job keeps its live launch: the next run finds that nothing of it is alive",
	"signal Signal":        "it is sent again by the next watcher",
	"unmake Remove":        "archive.forgotten follows in the caller",
	"Remember Put":         "archive.marked follows in the caller",
	"rename Move":          "archive.marked follows in the caller",
	"rename QuickLink":     "archive.marked follows in the caller",
	"keep Mkdir":           "a folder that is made again without harm",
	"keep Put":             "archive.marked follows in the caller",
	"Forget Remove":        "it is done again at the next sweep",
	"remove tidy":          "the job has ended, and its rows are still there: whoever deletes it does it again",
	"remove Clean":         "the job has ended, and its rows are still there: whoever deletes it does it again",
	"EndUnknown Kill":      "a person does it, and does it again",
	"EndUnknown Clean":     "a person does it, and does it again",
	"EndUnknown Remove":    "a person does it, and does it again",

	"EndUnknown Acknowledge":   "a person does it, and does it again",
	"EndUnknown tidy":          "a person does it, and does it again",
	"Write Put":                "the point follows in the caller",
	"beCautious Mkdir":         "a note of the watch, which the next one reads, and makes anew",
	"look Mkdir":               "a note of the watch, which the next one reads, and makes anew",
	"look Remove":              "the next watch is cautious without need",
	"relax Remove":             "the next watch is cautious without need",
	"stray Remove":             "it is removed again by the next watch",
	"Acknowledge RemoveAll":    "watch.discarded follows in the caller",
	"mkdir Mkdir":              "a folder that is made again without harm",
	"makeFolder Mkdir":         "a folder that is made again without harm",
	"link Symlink":             "stage.copied follows in the caller",
	"end Signal":               "a signal to what is dead does nothing",
	"removeCopies Remove":      "archive.published follows in the caller",
	"fill Fill":                "stage.filled follows in the caller",
	"putSmall Fill":            "stage.script follows in the caller",
	"putSmall Put":             "stage.script follows in the caller",
	"carryOut Run":             "launch.started follows in the caller",
	"launchByFiles Start":      "launch.started follows in the caller",
	"unknown Run":              "it only looks",
	"Peek Run":                 "it only looks",
	"begin Remove":             "it is told again by the next watch, which does no harm",
	"outrun Remove":            "it is removed again by the next watch",
	"Sh Run":                   "the point of sbatch follows in the caller; the others are repeated, or only look",
	"prepare Put":              "slurm.armfile follows in arm: nobody reads the script before",
	"arm Link":                 "slurm.armed follows in the caller, for all that are submitted together",
	"Sh Start":                 "the point of sbatch follows in the caller; the others are repeated, or only look",
	"Sh RemoveAll":             "what a command printed, under a hidden name",
	"kill Put":                 "the next kill makes it again",
	"force Put":                "the next kill makes it again",
	"tell Put":                 "the next kill makes it again, or a look finds the launch lost",
	"LinkOnce Write":           "a file of a random name that nobody else reads",
	"LinkOnce Link":            "a point follows in the caller, or the next settler finds it",
	"QuickLinkOnce Write":      "a file of a random name that nobody else reads",
	"QuickLinkOnce QuickLink":  "whoever settles finds it, or asks Slurm",
	"forgetLaunches RemoveAll": "archive.forgotten follows in the caller",
	"forgetLaunches Remove":    "archive.cleaned follows in the caller",
}

// TestEveryStepHasAPoint looks in the source for effects that are not followed by a point before
// the next effect.
func TestEveryStepHasAPoint(t *testing.T) {
	used := map[string]bool{}
	for _, pattern := range []string{"../../app/*.go", "../../runner/internal/spool/*.go", "../../runner/process/*.go", "../../runner/slurm/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v %v", pattern, names, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				for _, e := range bare(f) {
					key := f.Name.Name + " " + e.name
					used[key] = true
					if unpointed[key] == "" {
						t.Errorf("%s: no crash.At between %s in %s and the next step: add a point, or say in unpointed why none is needed",
							fset.Position(e.pos), e.name, f.Name.Name)
					}
				}
			}
		}
	}
	for key := range unpointed {
		if !used[key] {
			t.Errorf("unpointed: %q is not there any more", key)
		}
	}
}

type effect struct {
	name string
	pos  token.Pos
}

// bare returns the effects in a function that no point follows before the next one, in the order of
// the source.
func bare(f *ast.FuncDecl) (list []effect) {
	var open *effect
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		switch {
		case !ok:
		case s.Sel.Name == "At" && fmt.Sprint(s.X) == "crash":
			open = nil
		case slices.Contains(effects, s.Sel.Name) && !slices.Contains([]string{"path", "syscall"}, fmt.Sprint(s.X)): // path.Clean, syscall.Signal
			if open != nil {
				list = append(list, *open)
			}
			open = &effect{s.Sel.Name, s.Pos()}
		}
		return true
	})
	if open != nil {
		list = append(list, *open)
	}
	return list
}

// TestEveryPointIsPassedSomewhere finds the one place of each point in the source.
func TestEveryPointIsPassedSomewhere(t *testing.T) {
	places := map[string]int{}
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		src, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(src), "crash.At(") {
			return err
		}
		for _, part := range strings.Split(string(src), "crash.At(")[1:] {
			point, _, _ := strings.Cut(part, ")")
			if name, err := strconv.Unquote(point); err == nil {
				places[name]++
			} else if filepath.Base(filepath.Dir(file)) != "crashstore" {
				t.Errorf("%s: crash.At(%s): write the name of the point, so that it can be found", file, point)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		if strings.HasPrefix(p, "store.") {
			continue // see package crashstore
		}
		if places[p] != 1 {
			t.Errorf("%s is at %s places", p, strconv.Itoa(places[p]))
		}
		delete(places, p)
	}
	for p := range places {
		t.Errorf("%s is not in the table of points", p)
	}
}
