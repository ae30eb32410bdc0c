package ssh

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/files/sftp"
	"github.com/pawl-jobs/pawl/host/ssh/connection"
	"github.com/pawl-jobs/pawl/job"
)

// remote is the session of SFTP that all callers share.
type remote struct {
	files  *allFiles
	turn   chan struct{} // whoever has put its token in may change what follows
	client *sftp.Client
	input  *input
}

// An input is what a client writes to. The client closes it when the session hangs.
type input struct {
	*connection.Session
	once   sync.Once
	closed chan struct{}
	asked  *atomic.Int64 // counts the requests
	rest   int           // bytes of a request that are still to come
}

// closing is the type of SSH_FXP_CLOSE.
const closing = 4

// Write sends requests, each of which begins with its length and a Write of its own.
func (i *input) Write(p []byte) (int, error) {
	if i.rest == 0 && len(p) >= 4 {
		if len(p) == 4 || p[4] != closing {
			i.asked.Add(1)
		}
		i.rest = 4 + int(binary.BigEndian.Uint32(p))
	}
	i.rest = max(0, i.rest-len(p))
	return i.Session.Write(p)
}

func (i *input) Close() error {
	i.once.Do(func() {
		close(i.closed)
		_ = i.Session.Close()
	})
	return nil
}

// Files returns the machine's file system, over SFTP.
func (h *Host) Files() files.FS { return h.remote.files }

// sftp returns the client of the session of SFTP, a new one if there is none that works.
func (h *Host) sftp(ctx context.Context) (*sftp.Client, error) {
	return await(ctx, h, func() (*sftp.Client, error) {
		r := &h.remote
		if err := h.take(h.ctx, r.turn); err != nil {
			return nil, err
		}
		defer func() { <-r.turn }()
		if r.client != nil {
			select {
			case <-r.input.closed:
			case <-r.input.Gone():
			default:
				return r.client, nil
			}
		}
		s, err := h.pool.OpenSFTP()
		if err != nil {
			return nil, err
		}
		in := &input{Session: s, closed: make(chan struct{}), asked: &h.asked}
		late := s.Expire(h.cfg.Answer)
		defer late.Stop()
		client, err := sftp.Connect(s, in)
		if err != nil {
			_ = in.Close()
			return nil, s.Lost(job.ChannelRefused, fmt.Errorf("%s serves no SFTP: %w", h.cfg.Address, err))
		}
		r.client, r.input = client, in
		h.goes(func() {
			_ = client.Wait() // its error is that of every request
			_ = in.Close()
		})
		return client, nil
	}, func(*sftp.Client) {})
}
