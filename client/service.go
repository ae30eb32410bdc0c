package client

import "context"

// An Identity is who a caller is to the service.
type Identity struct {
	Principal string `json:"principal"`
	Tenant    string `json:"tenant"`
}

// Whoami returns as whom the service knows the caller.
func (c *Client) Whoami(ctx context.Context) (Identity, error) {
	return fetch[Identity](ctx, c, "/v1/whoami", nil)
}

// A Version is what a service is.
type Version struct {
	Version string `json:"version"` // of its build
	API     int    `json:"api"`     // see [Revision]
}

// Version returns the version of the service.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return fetch[Version](ctx, c, "/v1/version", nil)
}
