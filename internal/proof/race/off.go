//go:build !race

// Package race says whether the race detector is built in. Only tests ask.
package race

// Enabled is true in a build with -race.
const Enabled = false
