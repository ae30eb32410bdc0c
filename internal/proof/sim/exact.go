//go:build exact

package sim

import _ "unsafe" // for the name of simulate

// exact says that select draws from the seed, too: see command overlay.
const exact = true

//go:linkname simulate runtime.simulate
func simulate(seed uint64)
