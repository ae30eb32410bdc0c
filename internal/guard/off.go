//go:build mutants

package guard

import "os"

var without = os.Getenv("PAWL_WITHOUT")

// Off reports whether the guard is switched off.
func (g Guard) Off() bool { return string(g) == without }
