//go:build !mutants

package guard

// Off reports whether the guard is switched off.
func (Guard) Off() bool { return false }
