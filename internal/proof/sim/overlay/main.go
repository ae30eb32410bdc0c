// Command overlay makes the go command build a program in whose simulated worlds nothing is left to
// chance, and nothing to the time of the machine.
//
// Of the cases of a select that are ready the runtime takes one by chance, and nothing can tell it
// which; so it goes through a map, and so it takes timers of a bubble that ring at the same moment.
// How fast the machine is counts as well: a goroutine that has run for 10 ms is interrupted, and
// one that waits for the kernel is passed by; a mutex goes over to whoever has waited for 1 ms; and
// each 61st time, counted from the start of the process, those who have yielded come first and not
// last. And where things lie in memory decides in what order a select takes up its channels, hence
// timers that ring at the same moment, and in what order a context tells its children. In a
// simulated world that is all that a seed does not decide.
//
// The command writes copies of the files of the standard library that do this into a folder, and
// beside them the file for the go command's flag -overlay, whose name it prints. The toolchain
// itself stays as it is. It goes with the build tag "exact". If a guard is named behind the folder,
// what is built can go without it (package guards).
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pawl-jobs/pawl/internal/proof/guards"
	"github.com/pawl-jobs/pawl/internal/proof/overlay"
)

func main() {
	name, err := write(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

// A change replaces text that is there once in a file of the standard library.
type change struct{ file, text, with string }

var changes = []change{
	{
		"runtime/select.go", "j := cheaprandn(uint32(norder + 1))",
		"j := uint32(simulated(uint64(norder)) >> 33 % uint64(norder+1))",
	},
	{"runtime/rand.go", "func maps_rand() uint64 {\n\treturn rand()\n}", `func maps_rand() uint64 {
	return simulated(0)
}

// simulation is the seed of the world that is simulated; 0: none is.
var simulation uint64

// simulate has what follows depend on a seed.
//
//go:linkname simulate
func simulate(seed uint64) { simulation = seed }

// simulated depends on the seed and on the time in the bubble, and not on what was drawn before.
func simulated(n uint64) uint64 {
	if b := getg().bubble; b != nil {
		n ^= uint64(b.now)
	}
	n = (n ^ simulation + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}`},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = 0"},
	{"runtime/alg.go", "hashkey[i] = uintptr(bootstrapRand())", "hashkey[i] = uintptr(i + 1)"},
	{"runtime/alg.go", "key[i] = bootstrapRand()", "key[i] = uint64(i+1) * 0x9e3779b97f4a7c15"},

	// Nobody is interrupted, and who yields comes last. The process that only starts worlds goes on
	// as ever.
	{
		"runtime/proc.go", "func retake(now int64) uint32 {\n",
		"func retake(now int64) uint32 {\n\tif simulation != 0 {\n\t\treturn 0\n\t}\n",
	},
	{
		"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {",
		"if simulation == 0 && pp.schedtick%61 == 0 && !sched.runq.empty() {",
	},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 62"},

	// A select takes up its channels in the order in which they were made: so its timers are told
	// of in that order, too.
	{
		"runtime/chan.go", "\tbubble   *synctestBubble\n",
		"\tbubble   *synctestBubble\n\tborn     uintptr // in a simulated world; 0: outside of it\n",
	},
	{
		"runtime/chan.go", "\t\tc.bubble = b\n\t}\n",
		"\t\tc.bubble = b\n\t}\n\tif simulation != 0 {\n\t\tchannels++\n\t\tc.born = channels\n\t}\n",
	},
	{
		"runtime/chan.go", "type waitq struct {",
		"var channels uintptr // that were made in a simulated world\n\ntype waitq struct {",
	},
	{
		"runtime/select.go", "\treturn uintptr(unsafe.Pointer(c))\n",
		"\tif c.born != 0 {\n\t\treturn c.born\n\t}\n\treturn uintptr(unsafe.Pointer(c))\n",
	},

	// The children of a context hear in the order in which they came.
	{"context/context.go", "\t\"errors\"\n", "\t\"cmp\"\n\t\"errors\"\n"},
	{"context/context.go", "\t\"sync\"\n", "\t\"maps\"\n\t\"slices\"\n\t\"sync\"\n"},
	{"context/context.go", "children map[canceler]struct{} //", "came int; children map[canceler]int //"},
	{"context/context.go", "p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]int)"},
	{"context/context.go", "p.children[child] = struct{}{}", "p.came++; p.children[child] = p.came"},
	{"context/context.go", "for child := range c.children {", "for _, child := range " +
		"slices.SortedFunc(maps.Keys(c.children), func(a, b canceler) int { return cmp.Compare(c.children[a], " +
		"c.children[b]) }) {"},
}

func write(args []string) (string, error) {
	if len(args) < 1 || len(args) > 2 {
		return "", errors.New("usage: overlay FOLDER [GUARD]")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	files := overlay.Files{}
	if len(args) == 2 {
		if files, err = guards.Without(".", args[1], dir); err != nil {
			return "", err
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output() // a build with -trimpath does not know it
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src")
	texts := map[string]string{}
	for _, c := range changes {
		original := filepath.Join(library, c.file)
		if texts[original] == "" {
			text, err := os.ReadFile(original)
			if err != nil {
				return "", err
			}
			texts[original] = string(text)
		}
		if strings.Count(texts[original], c.text) != 1 {
			return "", fmt.Errorf("%s is not as it was when this was written: %q is not in it once", original, c.text)
		}
		texts[original] = strings.Replace(texts[original], c.text, c.with, 1)
	}
	for name, text := range texts {
		if err := files.Add(dir, name, text); err != nil {
			return "", err
		}
	}
	name := filepath.Join(dir, "overlay.json")
	return name, files.Write(name)
}
