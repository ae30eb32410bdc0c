package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/pawl-jobs/pawl/job"
	"github.com/pawl-jobs/pawl/service"
)

// A Peer makes calls to a process on another machine. It implements [service.Peer]. Each request
// has its own token, and is made once.
type Peer struct {
	// Address is the URL of the process.
	Address string
	// Token returns the token for a request: to delete the job, or else to read its files and logs.
	Token func(ctx context.Context, id job.ID, deletes bool) (string, error)
	// HTTP sends the requests; see [Options].HTTP.
	HTTP *http.Client
}

// as returns a client for one request.
func (p *Peer) as(ctx context.Context, id job.ID, deletes bool) (*Client, error) {
	token, err := p.Token(ctx, id, deletes)
	if err != nil {
		return nil, err
	}
	c, err := Dial(p.Address, Options{Token: token, HTTP: p.HTTP, Tries: 1})
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "%w", err)
	}
	return c, nil
}

// Output implements [service.Peer].
func (p *Peer) Output(ctx context.Context, id job.ID) ([]service.File, error) {
	c, err := p.as(ctx, id, false)
	if err != nil {
		return nil, err
	}
	files, err := c.Output(ctx, id)
	return files, fromPeer(ctx, err)
}

// Log implements [service.Peer].
func (p *Peer) Log(ctx context.Context, id job.ID, q service.LogQuery) (io.ReadCloser, error) {
	c, err := p.as(ctx, id, false)
	if err != nil {
		return nil, err
	}
	log, err := c.Log(ctx, id, q)
	return log, fromPeer(ctx, err)
}

// Delete implements [service.Peer].
func (p *Peer) Delete(ctx context.Context, id job.ID) error {
	c, err := p.as(ctx, id, true)
	if err != nil {
		return err
	}
	return fromPeer(ctx, c.Delete(ctx, id))
}

// OpenOutput implements [service.Peer]. Modified is exact to the second. What is read from
// somewhere else in the file is asked for anew.
func (p *Peer) OpenOutput(ctx context.Context, id job.ID, name string) (service.File, io.ReadSeekCloser, error) {
	open := func(from int64) (service.File, io.ReadCloser, error) {
		c, err := p.as(ctx, id, false)
		if err != nil {
			return service.File{}, nil, err
		}
		var f service.File
		var r io.ReadCloser
		if from == 0 {
			f, r, err = c.OpenOutput(ctx, id, name)
		} else {
			f, r, err = c.OpenOutputFrom(ctx, id, name, from)
		}
		return f, r, fromPeer(ctx, err)
	}
	f, body, err := open(0)
	if err != nil {
		return f, nil, err
	}
	return f, &seeker{open: open, size: f.Size, body: body}, nil
}

// A seeker reads a file of another process from where it is told to.
type seeker struct {
	open     func(from int64) (service.File, io.ReadCloser, error)
	size, at int64
	body     io.ReadCloser // nil: of nothing
	bodyAt   int64         // where in the file it goes on
}

// Read reads what comes, and no more than the file had when it was opened.
func (s *seeker) Read(p []byte) (int, error) {
	if s.at >= s.size {
		return 0, io.EOF
	}
	if s.body != nil && s.bodyAt != s.at {
		s.body.Close()
		s.body = nil
	}
	if s.body == nil {
		f, body, err := s.open(s.at)
		if err != nil {
			return 0, err
		}
		if s.body, s.bodyAt = body, s.at; f.Size < s.size-s.at {
			return 0, io.ErrUnexpectedEOF // the file has become shorter
		}
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.size-s.at)])
	s.at += int64(n)
	s.bodyAt = s.at
	if errors.Is(err, io.EOF) && s.at < s.size {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Seek asks for nothing yet.
func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d: before the beginning of the file", offset)
	}
	s.at = offset
	return offset, nil
}

func (s *seeker) Close() error {
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}

// fromPeer sorts the errors of a peer. An error that the peer answered is passed on. Any other,
// also that it does not accept this process, says that it is not the right peer: Unavailable.
func fromPeer(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	var answered *refused
	if errors.As(err, &answered) && answered.status != http.StatusUnauthorized {
		return err
	}
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return job.Errorf(job.Unavailable,
			"%w: name the authority of its certificate in peer.ca, and in peer.url the host for which that is", err)
	}
	return job.Errorf(job.Unavailable, "%w", err)
}
