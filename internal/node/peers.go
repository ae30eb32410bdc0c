package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/auth"
	"github.com/pawl-jobs/pawl/client"
	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
	"github.com/pawl-jobs/pawl/store"
)

// askPeers lets a service ask processes of other machines. Their certificates are those of the
// authorities in a file, or else in the system. It returns what knows the tokens that they show,
// for which no key is made.
func (n *Node) askPeers(cfg *service.Config, authorities string) (*auth.Peers, error) {
	transport, err := peerTransport(authorities)
	if err != nil {
		return nil, err
	}
	n.free = append(n.free, func() error { transport.CloseIdleConnections(); return nil })
	n.key = &peerKey{store: cfg.Store}
	tokens := &auth.Peers{Machine: cfg.Machine, Key: n.key.check, Now: func() time.Time { return n.Now() }}
	asking := &http.Client{Transport: transport}
	cfg.Peer = func(a service.PeerAsk) service.Peer {
		return &client.Peer{
			Address: a.Process.Address, HTTP: asking,
			Token: func(ctx context.Context, id job.ID, deletes bool) (string, error) {
				g := auth.Grant{Principal: a.Principal, Job: id, Does: auth.PeerRead}
				if deletes {
					g.Does = auth.PeerDelete
				}
				return n.Signing().Token(ctx, a.Process.Machine, g)
			},
		}
	}
	return tokens, nil
}

// Signing makes tokens for processes of other machines.
func (n *Node) Signing() *auth.Peers {
	ours := *n.peers
	ours.Key = n.key.sign
	return &ours
}

// peerTransport is the way to processes of other machines, without a proxy between. One that does
// not answer is given up soon, because another one of its machine may; what an answer brings may
// take as long as it takes.
func peerTransport(authorities string) (*http.Transport, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		text, err := os.ReadFile(authorities)
		if err != nil {
			return nil, job.Errorf(job.Invalid, "peer.ca: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(text) {
			return nil, job.Errorf(job.Invalid,
				"peer.ca: %s holds no certificate: write there those of the authorities, as PEM", authorities)
		}
	}
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8,
		TLSClientConfig: secure, ForceAttemptHTTP2: true, DisableCompression: true,
	}, nil
}

// The document with the key from which processes make the tokens for each other. To change the key,
// it is removed: the next process that needs one makes another.
const (
	peerKeyKind = "key"
	peerKeyName = "peers"
)

// keepPeerKey is for how long a process remembers the key.
const keepPeerKey = 10 * time.Second

// A peerKey is the key of the service, which is in its database.
type peerKey struct {
	store store.Resources

	mu  sync.Mutex // not held while the database is asked: nobody waits for the call of another one
	at  time.Time  // guarded by mu: when the key was read
	key []byte     // guarded by mu; nil: never
}

type peerKeyDoc struct {
	Key []byte `json:"key"`
}

// sign is [auth.Peers.Key] of a process that makes tokens: if there is no key, it makes one.
func (k *peerKey) sign(ctx context.Context) ([]byte, error) {
	return k.known(func() (store.Resource, error) {
		r, err := k.read(ctx)
		if job.KindOf(err) == job.NotFound {
			r, err = k.make(ctx)
		}
		return r, err
	})
}

// check is [auth.Peers.Key] of a process that checks tokens: no key means that there are none.
func (k *peerKey) check(ctx context.Context) ([]byte, error) {
	key, err := k.known(func() (store.Resource, error) { return k.read(ctx) })
	if job.KindOf(err) == job.NotFound {
		return nil, job.Errorf(job.Denied,
			"the token is not one of this service, which has made none: do both processes work on one database?")
	}
	return key, err
}

// known returns the key that is remembered, or else the one that find finds in the database.
func (k *peerKey) known(find func() (store.Resource, error)) ([]byte, error) {
	now := time.Now()
	k.mu.Lock()
	key, at := k.key, k.at
	k.mu.Unlock()
	if key != nil && now.Sub(at) < keepPeerKey {
		return key, nil
	}
	r, err := find()
	if err != nil {
		return nil, err
	}
	var doc peerKeyDoc
	if err := json.Unmarshal(r.Doc, &doc); err != nil || len(doc.Key) != auth.PeerKeySize {
		return nil, job.Errorf(job.Corrupt,
			"the database does not hold the key of the service as it was written: remove the resource of kind %s "+
				"named %s", peerKeyKind, peerKeyName)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.After(k.at) { // else somebody has read it later
		k.key, k.at = doc.Key, now
	}
	return doc.Key, nil
}

// read reads the key.
func (k *peerKey) read(ctx context.Context) (store.Resource, error) {
	return store.FindResource(ctx, k.store, store.Site, peerKeyKind, peerKeyName)
}

// make makes the key, or reads the one that another process has made meanwhile.
func (k *peerKey) make(ctx context.Context) (store.Resource, error) {
	doc := peerKeyDoc{Key: make([]byte, auth.PeerKeySize)}
	rand.Read(doc.Key)
	text, err := json.Marshal(doc)
	if err != nil {
		return store.Resource{}, err
	}
	r, err := k.store.Put(ctx, store.Resource{Tenant: store.Site, Kind: peerKeyKind, Name: peerKeyName, Doc: text})
	if job.KindOf(err) == job.Conflict {
		return k.read(ctx)
	}
	return r, err
}
