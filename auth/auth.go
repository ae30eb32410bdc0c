// Package auth tells who makes a request: a holder of the token of a data folder, a program that a
// job runs, or another process of the service ([Peers]).
//
// A token is pawl_ (or pawl_job_), followed by lower-case letters and digits. The last seven are a
// checksum of the rest. So tools that look for secrets can find a token, and one that was cut off
// is told from a wrong one. A process keeps only the SHA-256 of the folder's token, and compares in
// constant time. The token of a program is made from its job and its launch, with a key of the
// folder. It is stored nowhere, and is worth nothing once that launch has ended.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"net/http"
	"strings"

	"github.com/pawl-jobs/pawl/job"
)

// Prefixes of tokens.
const (
	prefix    = "pawl_"
	jobPrefix = "pawl_job_"
)

// A Caller is who makes a request.
type Caller struct {
	Principal string
	Job       job.ID // set if the caller is the program of a running job
	Launch    int    // the launch of that program
}

// Keys check the tokens of one folder. They are safe for concurrent use.
type Keys struct {
	// Principal is the user in whose name the holder of the folder's token acts.
	Principal string
	// Find returns the job of a program that makes a request.
	Find func(context.Context, job.ID) (job.Job, error)

	admin  [sha256.Size]byte // of the folder's token
	launch []byte            // the key of programs' tokens
}

// Caller returns who made a request. If the request may not pass, the error is of kind [job.Denied]
// and says what to send. The error is of another kind if that cannot be found out now.
func (k *Keys) Caller(r *http.Request) (Caller, error) {
	if r.Header.Get("Authorization") == "" {
		return Caller{}, job.Errorf(job.Denied, "this address needs a token: send the header \"Authorization: "+
			"Bearer TOKEN\"; TOKEN is in the file %s of the data folder", TokenFile)
	}
	token := bearer(r)
	switch {
	case token == "":
		return Caller{}, job.Errorf(job.Denied, "the header Authorization is not of the form \"Bearer TOKEN\"")
	case !whole(token):
		return Caller{}, job.Errorf(job.Denied, "the token is not whole: copy all of it, from %s to its end", prefix)
	case strings.HasPrefix(token, jobPrefix):
		return k.program(r.Context(), token)
	}
	if sum := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(sum[:], k.admin[:]) != 1 {
		return Caller{}, job.Errorf(job.Denied,
			"the token is not that of this service: it is in the file %s of its data folder", TokenFile)
	}
	return Caller{Principal: k.Principal}, nil
}

// program tells whose program has a token.
func (k *Keys) program(ctx context.Context, token string) (Caller, error) {
	content, err := encoding.DecodeString(strings.TrimPrefix(token, jobPrefix))
	const named = len(job.ID{}) + 4
	if err != nil || len(content) != named+sha256.Size+4 ||
		!hmac.Equal(content[named:named+sha256.Size], k.sign(content[:named])) {
		return Caller{}, job.Errorf(job.Denied, "the token is not one that this service gave to a program")
	}
	c := Caller{Job: job.ID(content[:len(job.ID{})]), Launch: int(binary.BigEndian.Uint32(content[len(job.ID{}):]))}
	j, err := k.Find(ctx, c.Job)
	switch kind := job.KindOf(err); {
	case err != nil && kind != job.NotFound:
		return Caller{}, err
	case err != nil || !j.Live || j.Launch != c.Launch:
		return Caller{}, job.Errorf(job.Denied, "the token is of launch %d of job %s, which does not run any more",
			c.Launch, c.Job)
	}
	c.Principal = j.Owner
	return c, nil
}

// Program returns the token of the program of a launch.
func (k *Keys) Program(id job.ID, launch int) string {
	content := binary.BigEndian.AppendUint32(id[:], uint32(launch))
	return sealed(jobPrefix, append(content, k.sign(content)...))
}

func (k *Keys) sign(content []byte) []byte {
	h := hmac.New(sha256.New, k.launch)
	h.Write([]byte("pawl launch 1\n"))
	h.Write(content)
	return h.Sum(nil)
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newToken returns a token that nobody can guess.
func newToken() string {
	var secret [32]byte
	rand.Read(secret[:])
	return sealed(prefix, secret[:])
}

// sealed writes content as a token, with what checks it at its end.
func sealed(prefix string, content []byte) string {
	sum := crc32.ChecksumIEEE(append([]byte(prefix), content...))
	return prefix + encoding.EncodeToString(binary.BigEndian.AppendUint32(content, sum))
}

// whole reports whether all of a token is there.
func whole(token string) bool {
	for _, p := range []string{jobPrefix, prefix} {
		rest, ok := strings.CutPrefix(token, p)
		content, err := encoding.DecodeString(rest)
		if ok && err == nil && len(content) > 4 {
			return sealed(p, content[:len(content)-4:len(content)-4]) == token
		}
	}
	return false
}
