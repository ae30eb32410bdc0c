//go:build race

package main

// SQLite in Go is a machine translation: under the race detector it would be ten times as slow and find nothing.
var buildFlags = []string{"-race", "-gcflags=modernc.org/...=-race=false"}
