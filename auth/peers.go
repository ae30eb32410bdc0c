package auth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/pawl-jobs/pawl/job"
)

// peerPrefix is that of the tokens with which processes ask each other.
const peerPrefix = "pawl_peer_"

const (
	peerIssuer = "pawl"
	// peerLife is for how long such a token is good: each request has one of its own.
	peerLife = time.Minute
	// peerLeeway is by how much what two processes take for the database's time may differ.
	peerLeeway = 10 * time.Second
)

// What a [Grant] allows.
const (
	PeerRead   = "read"   // read the files and logs of a job
	PeerDelete = "delete" // delete a job
)

// A Grant is what a process may ask of a process on another machine: one thing about one job, in
// the name of the user who asked the first process.
type Grant struct {
	Principal string
	Job       job.ID
	Does      string // PeerRead or PeerDelete
}

// Peers makes and checks the tokens that processes of one service, on several machines, send each
// other. A token is pawl_peer_ and a JSON Web Token (HS256). All processes find its key in their
// database. A token is for one machine, for one minute on the database's clock, and for one
// [Grant]. Peers is safe for concurrent use.
type Peers struct {
	Machine string // the machine of this process
	Tenant  string // the tenant that this process serves
	// Key returns the key of the service; see [PeerKeySize].
	Key func(context.Context) ([]byte, error)
	// Now returns the time on the database's clock.
	Now func() time.Time
}

// PeerKeySize is the length in bytes of the key of a service.
const PeerKeySize = 32

// peerClaims is what a token says.
type peerClaims struct {
	jwt.RegisteredClaims
	Tenant string `json:"tenant"`
	Job    job.ID `json:"job"`
	Does   string `json:"does"`
}

// Token returns a token for a request to a process on a machine.
func (p *Peers) Token(ctx context.Context, machine string, g Grant) (string, error) {
	key, err := p.Key(ctx)
	if err != nil {
		return "", err
	}
	now := p.Now()
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, peerClaims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: peerIssuer, Subject: g.Principal, Audience: jwt.ClaimStrings{machine},
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(peerLife)),
		},
		Tenant: p.Tenant, Job: g.Job, Does: g.Does,
	}).SignedString(key)
	if err != nil {
		return "", job.Errorf(job.Internal, "token for machine %s: %w", machine, err)
	}
	return peerPrefix + signed, nil
}

// FromPeer reports whether a request has a token of another process.
func FromPeer(r *http.Request) bool { return strings.HasPrefix(bearer(r), peerPrefix) }

// Caller returns what a process that made a request may ask. If its token is not valid, the error
// is of kind [job.Denied] and says what is wrong. The error is of another kind if that cannot be
// found out now.
func (p *Peers) Caller(r *http.Request) (Grant, error) {
	text, ok := strings.CutPrefix(bearer(r), peerPrefix)
	if !ok {
		return Grant{}, job.Errorf(job.Denied,
			"this address is for other processes of the service: use one of a pawl serve with the role api")
	}
	var (
		claims peerClaims
		noKey  error
		right  = jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithoutClaimsValidation())
		validator = jwt.NewValidator(jwt.WithIssuer(peerIssuer), jwt.WithAudience(p.Machine),
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(), jwt.WithLeeway(peerLeeway), jwt.WithTimeFunc(p.Now))
	)
	_, err := right.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) {
		var key []byte
		key, noKey = p.Key(r.Context())
		return key, noKey
	})
	if noKey != nil {
		return Grant{}, noKey
	}
	if err != nil {
		return Grant{}, job.Errorf(job.Denied,
			"the token is not one of this service: do both processes work on one database?")
	}
	switch err := validator.Validate(&claims); {
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return Grant{}, job.Errorf(job.Denied, "this is a process of machine %s, and not of machine %s as was meant: "+
			"one of them gives an address that leads to the other; set peer.url there", p.Machine,
			strings.Join(claims.Audience, ", "))
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return Grant{}, job.Errorf(job.Denied,
			"the token has expired, or is from the future: it is good for %v, and here it is %s",
			peerLife, p.Now().UTC().Format(time.RFC3339))
	case err != nil || claims.Subject == "" || claims.Job.IsZero() || claims.Does != PeerRead &&
		claims.Does != PeerDelete:
		return Grant{}, job.Errorf(job.Denied, "the token is not whole")
	case claims.Tenant != p.Tenant:
		return Grant{}, job.Errorf(job.Denied, "the token is for jobs of tenant %s, and this process serves %s",
			claims.Tenant, p.Tenant)
	}
	return Grant{Principal: claims.Subject, Job: claims.Job, Does: claims.Does}, nil
}

// bearer returns the token that a request brings; empty: none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
