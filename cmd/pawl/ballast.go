//go:build !race

package main

import "runtime"

// ballast is never touched, so it is in no memory. The garbage collector counts it as in use, and so begins later: what a
// process that is busy keeps is a few MB, and would be gone through many times a second. The race detector would touch it.
var ballast = make([]byte, 32<<20)

func init() { runtime.KeepAlive(ballast) }
