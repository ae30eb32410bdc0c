// Package overlay has the go command build with files in place of those on the disk, by its flag
// -overlay.
package overlay

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Files are files on the disk, by the absolute name of the file that each stands in for. The go
// command takes the name as well where there is no such file.
type Files map[string]string

// Add has a text stand in for a file. The text is written into a folder.
func (f Files) Add(dir, name, text string) error {
	f[name] = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(f[name]), 0o755); err != nil {
		return err
	}
	return os.WriteFile(f[name], []byte(text), 0o644)
}

// Write writes what the flag -overlay names.
func (f Files) Write(name string) error {
	text, err := json.Marshal(map[string]any{"Replace": f})
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
