package files

import "context"

// Digest returns the SHA-256 of a regular file's content as lower-case hex.
func Digest(ctx context.Context, f FS, name string) (string, error) {
	c, err := measure(ctx, f, name, nil)
	return c.SHA256, err
}
