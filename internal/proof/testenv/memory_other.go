//go:build !linux

package testenv

// inMemory knows of no such folder on this system.
func inMemory() (dir string, roomy bool) { return "", false }
