// Command overlay makes the go command build a runtime that plays no dice of its own: select, and the order of maps, draw
// from a seed, and no goroutine is interrupted.
//
// Of the cases of a select that are ready the runtime takes one by chance, and nothing can tell it which; so it goes
// through a map, and so it takes timers of a bubble that ring at the same moment; and it interrupts a goroutine that has run for 10 ms of the machine's time. In a simulated world that is all that a seed does not decide. The command writes copies of some files of
// the runtime in which it does into a folder, and beside them the file for the go command's flag -overlay, whose name it
// prints. The toolchain itself stays as it is. It goes with the build tag "exact".
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	name, err := write(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
	fmt.Println(name)
}

// A change replaces text that is there once in a file of the runtime.
type change struct{ file, text, with string }

var changes = []change{
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := uint32(simulated(uint64(norder)) >> 33 % uint64(norder+1))"},
	{"rand.go", "func maps_rand() uint64 {\n\treturn rand()\n}", `func maps_rand() uint64 {
	return simulated(0)
}

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
	{"time.go", "t.rand = cheaprand()", "t.rand = 0"},
	{"proc.go", "const forcePreemptNS = 10 * 1000 * 1000 // 10ms", "const forcePreemptNS = 3600 * 1000 * 1000 * 1000"},
	{"alg.go", "hashkey[i] = uintptr(bootstrapRand())", "hashkey[i] = uintptr(i + 1)"},
	{"alg.go", "key[i] = bootstrapRand()", "key[i] = uint64(i+1) * 0x9e3779b97f4a7c15"},
}

func write(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: overlay FOLDER")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	texts, replace := map[string]string{}, map[string]string{}
	for _, c := range changes {
		original := filepath.Join(runtime.GOROOT(), "src", "runtime", c.file) //nolint:staticcheck // it is run by go run
		if texts[c.file] == "" {
			text, err := os.ReadFile(original)
			if err != nil {
				return "", err
			}
			texts[c.file], replace[original] = string(text), filepath.Join(dir, c.file)
		}
		if strings.Count(texts[c.file], c.text) != 1 {
			return "", fmt.Errorf("%s is not as it was when this was written: %q is not in it once", original, c.text)
		}
		texts[c.file] = strings.Replace(texts[c.file], c.text, c.with, 1)
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	doc, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, doc, 0o644)
}
