// Package ingress is what stands between the network and the API: the files of a certificate, which
// change while the service runs, and the proxies before it, which speak for others.
package ingress

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pawl-jobs/pawl/job"
)

// A Pair is a certificate with its key in two files. When they change, connections that begin from
// then on get the new one; others stay. A pair that is broken, or half replaced, leaves the one
// before in use. It is safe for concurrent use.
type Pair struct {
	cert, key string
	told      func(error)

	mu      sync.Mutex
	used    *tls.Certificate // guarded by mu
	stamps  [2]stamp         // guarded by mu: of the files as they were looked at last
	content [2]string        // guarded by mu: of the files as they were read last, or why they were not
	err     error            // guarded by mu: why they are not in use; nil: they are
}

// A stamp tells one content of a file from another, once it is older than settled.
type stamp struct {
	size     int64
	modified time.Time
	err      string
}

// settled is longer than a tick of any file system's clock: what was written twice in one tick may
// have one stamp.
const settled = 2 * time.Second

// OpenPair reads the files. told is called for each change of them: with nil when the new pair is
// in use, else with why it is not.
func OpenPair(cert, key string, told func(error)) (*Pair, error) {
	p := &Pair{cert: cert, key: key, told: told}
	p.stamps = p.look()
	if p.read(); p.err != nil {
		return nil, p.err
	}
	return p, nil
}

// Certificate is the pair in use, for [tls.Config.GetCertificate]. It looks at the files: that
// costs two calls of the system for each handshake, as long as they have not just changed, and
// nothing in between.
func (p *Pair) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	return p.used, nil
}

// Check looks at the files, and reports why they are not in use.
func (p *Pair) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	return p.err
}

// Expires returns until when the certificate in use is valid.
func (p *Pair) Expires() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used.Leaf.NotAfter
}

// refresh reads the files when they have changed. Called with mu held.
func (p *Pair) refresh() {
	old := time.Now().Add(-settled)
	now := p.look()
	if now == p.stamps && now[0].modified.Before(old) && now[1].modified.Before(old) {
		return
	}
	p.stamps = now
	if p.read() && p.told != nil {
		p.told(p.err)
	}
}

// read takes the files into use, and reports whether they are others than before. Called with mu
// held, or by who made p.
func (p *Pair) read() (changed bool) {
	cert, certErr := os.ReadFile(p.cert)
	key, keyErr := os.ReadFile(p.key)
	now := [2]string{string(cert), string(key)}
	for i, err := range []error{certErr, keyErr} {
		if err != nil {
			now[i] = err.Error()
		}
	}
	if now == p.content {
		return false
	}
	p.content = now
	c, err := tls.X509KeyPair(cert, key)
	if err = cmp.Or(certErr, keyErr, err); err != nil {
		p.err = job.Errorf(job.Invalid, "certificate %s with key %s: %w", p.cert, p.key, err)
		return true
	}
	p.used, p.err = &c, nil
	return true
}

func (p *Pair) look() (stamps [2]stamp) {
	for i, name := range []string{p.cert, p.key} {
		info, err := os.Stat(name)
		if err != nil {
			stamps[i].err = fmt.Sprint(err)
			continue
		}
		stamps[i] = stamp{size: info.Size(), modified: info.ModTime()}
	}
	return stamps
}
