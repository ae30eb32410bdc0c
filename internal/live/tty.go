package live

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Terminal returns what a view has around it in a process with these standard files, and a function
// that releases it. Questions are asked only where both are terminals. NO_COLOR (no-color.org)
// takes the colours away.
func Terminal(in, out *os.File) (Config, func()) {
	cfg := Config{Out: out}
	if !term.IsTerminal(int(out.Fd())) {
		return cfg, func() {}
	}
	if kind := os.Getenv("TERM"); kind == "" || kind == "dumb" {
		cfg.Clean = true
		return cfg, func() {}
	}
	cfg.Color = os.Getenv("NO_COLOR") == ""
	cfg.Size = func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return max(width, 2), max(height, 2)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	cfg.Resized = resized
	release := func() { signal.Stop(resized) }
	if !term.IsTerminal(int(in.Fd())) {
		return cfg, release
	}
	// A descriptor of its own, with which a read can be given up, and which does not change that of
	// the shell.
	tty, err := os.OpenFile(filepath.Join("/proc/self/fd", strconv.Itoa(int(in.Fd()))),
		os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return cfg, release
	}
	cfg.In = typist{tty}
	return cfg, func() {
		signal.Stop(resized)
		tty.Close()
	}
}

// A typist is a terminal with somebody at it.
type typist struct{ *os.File }

// Ready implements [Input].
func (t typist) Ready() bool {
	ready := false
	raw, err := t.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP)
		// Of a terminal that does not control this process nobody says who may read it.
		if err == nil && group != unix.Getpgrp() {
			return
		}
		ready = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) == nil
	})
	return err == nil && ready
}
