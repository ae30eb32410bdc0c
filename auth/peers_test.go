package auth

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/pawl-jobs/pawl/job"
)

// machines are processes of several machines with one key and one clock.
type machines struct {
	now time.Time
	key []byte
}

func (m *machines) on(machine string) *Peers {
	return &Peers{
		Machine: machine, Tenant: "default",
		Key: func(context.Context) ([]byte, error) { return m.key, nil }, Now: func() time.Time { return m.now },
	}
}

func newMachines() *machines {
	return &machines{now: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC), key: []byte(strings.Repeat("k", PeerKeySize))}
}

func TestPeerToken(t *testing.T) {
	m := newMachines()
	a, b := m.on("a"), m.on("b")
	grant := Grant{Principal: "ada", Job: job.NewID(), Does: PeerRead}
	token, err := b.Token(t.Context(), "a", grant)
	if err != nil || !strings.HasPrefix(token, "pawl_peer_ey") {
		t.Fatalf("%q, %v", token, err)
	}
	r := request("Bearer " + token)
	if !FromPeer(r) {
		t.Error("it counts as no token of a process")
	}
	if g, err := a.Caller(r); err != nil || g != grant {
		t.Fatalf("%+v, %v; want %+v", g, err, grant)
	}
	denied := func(t *testing.T, p *Peers, token, want string) {
		t.Helper()
		_, err := p.Caller(request("Bearer " + token))
		if job.KindOf(err) != job.Denied || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if err != nil && len(token) > 40 && strings.Contains(err.Error(), token[len(token)-40:]) {
			t.Errorf("the error tells the token: %v", err)
		}
	}
	t.Run("it is for one machine", func(t *testing.T) {
		denied(t, m.on("c"), token, "this is a process of machine c, and not of machine a")
	})
	t.Run("it is for one tenant", func(t *testing.T) {
		other := m.on("a")
		other.Tenant = "acme"
		denied(t, other, token, "the token is for jobs of tenant default")
	})
	t.Run("it is good for a minute by clocks that differ a little", func(t *testing.T) {
		for _, tt := range []struct {
			after time.Duration
			good  bool
		}{
			{-11 * time.Second, false},
			{-9 * time.Second, true},
			{69 * time.Second, true},
			{71 * time.Second, false},
		} {
			later := m.on("a")
			later.Now = func() time.Time { return m.now.Add(tt.after) }
			if _, err := later.Caller(r); tt.good && err != nil {
				t.Errorf("after %v: %v", tt.after, err)
			} else if !tt.good {
				denied(t, later, token, "the token has expired, or is from the future")
			}
		}
	})
	t.Run("it has another key in another database", func(t *testing.T) {
		other := newMachines()
		other.key = []byte(strings.Repeat("x", PeerKeySize))
		denied(t, other.on("a"), token, "work on one database?")
	})
	t.Run("it is changed", func(t *testing.T) {
		head, rest, _ := strings.Cut(token, ".")
		claims, sum, _ := strings.Cut(rest, ".")
		forged, err := b.Token(t.Context(), "a", Grant{Principal: "root", Job: grant.Job, Does: PeerDelete})
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ = strings.Cut(forged, ".")
		others, _, _ := strings.Cut(rest, ".")
		for _, token := range []string{head + "." + others + "." + sum, head + "." + claims + ".", head + "." + claims, peerPrefix, peerPrefix + "x"} {
			denied(t, a, token, "not one of this service")
		}
	})
	t.Run("it is signed in another way", func(t *testing.T) {
		claims := peerClaims{RegisteredClaims: jwt.RegisteredClaims{
			Issuer: peerIssuer, Subject: "ada", Audience: jwt.ClaimStrings{"a"}, ExpiresAt: jwt.NewNumericDate(m.now.Add(time.Minute)),
		}, Tenant: "default", Job: grant.Job, Does: PeerRead}
		none, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
		if err != nil {
			t.Fatal(err)
		}
		denied(t, a, peerPrefix+none, "not one of this service")
		longer, err := jwt.NewWithClaims(jwt.SigningMethodHS512, claims).SignedString(m.key)
		if err != nil {
			t.Fatal(err)
		}
		denied(t, a, peerPrefix+longer, "not one of this service")
	})
	t.Run("something of it is missing", func(t *testing.T) {
		whole := peerClaims{RegisteredClaims: jwt.RegisteredClaims{
			Issuer: peerIssuer, Subject: "ada", Audience: jwt.ClaimStrings{"a"}, ExpiresAt: jwt.NewNumericDate(m.now.Add(time.Minute)),
		}, Tenant: "default", Job: grant.Job, Does: PeerRead}
		for name, remove := range map[string]func(*peerClaims){
			"who asks":       func(c *peerClaims) { c.Subject = "" },
			"which job":      func(c *peerClaims) { c.Job = job.ID{} },
			"what":           func(c *peerClaims) { c.Does = "" },
			"until when":     func(c *peerClaims) { c.ExpiresAt = nil },
			"who made it":    func(c *peerClaims) { c.Issuer = "" },
			"nothing at all": nil,
		} {
			c := whole
			if remove != nil {
				remove(&c)
			}
			text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(m.key)
			if err != nil {
				t.Fatal(err)
			}
			if remove == nil {
				if _, err := a.Caller(request("Bearer " + peerPrefix + text)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			denied(t, a, peerPrefix+text, "not whole")
		}
	})
	t.Run("it is that of somebody else", func(t *testing.T) {
		_, folders := open(t, t.TempDir())
		denied(t, a, folders, "is for other processes of the service")
		denied(t, a, "", "is for other processes of the service")
	})
	t.Run("the key cannot be read now", func(t *testing.T) {
		deaf := m.on("a")
		deaf.Key = func(context.Context) ([]byte, error) { return nil, job.Errorf(job.Unavailable, "busy") }
		if _, err := deaf.Caller(r); job.KindOf(err) != job.Unavailable {
			t.Error(err)
		}
		if _, err := deaf.Token(t.Context(), "a", grant); job.KindOf(err) != job.Unavailable {
			t.Error(err)
		}
	})
	t.Run("it is none of a folder", func(t *testing.T) {
		k, _ := open(t, t.TempDir())
		if _, err := k.Caller(r); job.KindOf(err) != job.Denied {
			t.Error(err)
		}
	})
}
