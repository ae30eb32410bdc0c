//go:build exact

// simulate is in the runtime.
