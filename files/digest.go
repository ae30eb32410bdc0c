package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// Digest returns the SHA-256 of a regular file's content as lower-case hex.
func Digest(ctx context.Context, f FS, name string) (string, error) {
	r, err := f.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, ContextReader(ctx, r)); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
