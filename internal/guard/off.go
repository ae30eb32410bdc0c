//go:build mutants

package guard

import (
	"cmp"
	"os"
)

// A process of pawl refuses variables PAWL_… that are no settings.
var without = cmp.Or(os.Getenv("PAWL_WITHOUT"), os.Getenv("STORM_WITHOUT"))

// Off reports whether the guard is switched off.
func (g Guard) Off() bool { return string(g) == without }
