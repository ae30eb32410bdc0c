package client

import "context"

// An Identity is the caller as the service knows it.
type Identity struct {
	Principal string `json:"principal"`
	Tenant    string `json:"tenant"`
}

// Whoami returns who the caller is for the service.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	return fetch[Identity](ctx, c, "/v1/whoami", nil)
}

// A Version describes the build of a service.
type Version struct {
	Version string `json:"version"` // the version of the build
	API     int    `json:"api"`     // the revision of its API; see [Revision]
}

// Version returns the version of the service.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return fetch[Version](ctx, c, "/v1/version", nil)
}
