package sftp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/job"
)

// The packets of SFTP version 3 (draft-ietf-secsh-filexfer-02) that are made or read here.
const (
	fxInit          = 1
	fxVersion       = 2
	fxOpen          = 3
	fxMkdir         = 14
	fxExtended      = 200
	fxExtendedReply = 201

	fxVersion3   = 3
	fxfCreate    = 8 // a flag of fxOpen
	fxAttributes = 4 // the flag of permissions

	maxNoise    = 64 << 10 // bytes that a login file may print
	maxGreeting = 64 << 10 // bytes of an answer to the greeting
)

// Connect makes a client of what a session's SFTP server writes and reads. It skips what a login
// file printed before the first packet. Closing w must end the session, and r with it.
func Connect(r io.Reader, w io.WriteCloser) (*sftp.Client, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	version, size, err := greet(buffered, w)
	if err != nil {
		w.Close()
		return nil, err
	}
	return sftp.NewClientPipe(io.MultiReader(bytes.NewReader(version), buffered), &wire{WriteCloser: w},
		sftp.UseConcurrentWrites(true), sftp.MaxConcurrentRequestsPerFile(128), sftp.MaxPacketUnchecked(size))
}

// greet greets the server. It returns the server's answer, which pkg/sftp reads once more, and how
// many bytes a request may carry.
func greet(r *bufio.Reader, w io.Writer) (version []byte, size int, err error) {
	const usual, large = 32 << 10, len(packet{})
	_, gone := w.Write(pack(fxInit, binary.BigEndian.AppendUint32(nil, fxVersion3)))
	if err := skipNoise(r); err != nil { // which says more than that nobody read
		return nil, 0, err
	}
	if gone != nil {
		return nil, 0, job.Errorf(job.Unavailable, "greet the SFTP server: %w", gone)
	}
	if version, err = answer(r); err != nil {
		return nil, 0, err
	}
	// Servers without limits@openssh.com, such as OpenSSH before 8.5, may cut what is large.
	const limits = "limits@openssh.com"
	if !bytes.Contains(version, []byte(limits)) {
		return version, usual, nil
	}
	id := binary.BigEndian.AppendUint32(nil, 0) // pkg/sftp begins with 1
	name := append(binary.BigEndian.AppendUint32(nil, uint32(len(limits))), limits...)
	if _, err := w.Write(pack(fxExtended, append(id, name...))); err != nil {
		return nil, 0, job.Errorf(job.Unavailable, "greet the SFTP server: %w", err)
	}
	limited, err := answer(r)
	if err != nil {
		return nil, 0, err
	}
	const head = 4 + 1 + 4 // length, type, id; then the most bytes of a packet, a read and a write
	if len(limited) < head+3*8 || limited[4] != fxExtendedReply {
		return version, usual, nil
	}
	for i := range 3 {
		if most := binary.BigEndian.Uint64(limited[head+8*i:]); most > 0 && most < uint64(large+1<<10) {
			return version, usual, nil
		}
	}
	return version, large, nil
}

// pack makes a packet.
func pack(kind byte, body []byte) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(1+len(body))) //nolint:gosec // a short one
	return append(append(p, kind), body...)
}

// skipNoise reads up to the packet that tells the server's version.
func skipNoise(r *bufio.Reader) error {
	var noise []byte
	for len(noise) < maxNoise {
		begin, err := r.Peek(9)
		if err != nil {
			noise = append(noise, begin...)
			return job.Errorf(job.Unavailable, "the SFTP server does not answer%s: %w", said(noise), err)
		}
		if begin[0] == 0 && begin[1] == 0 && begin[4] == fxVersion && binary.BigEndian.Uint32(begin[5:]) == fxVersion3 {
			return nil
		}
		noise = append(noise, begin[0])
		r.Discard(1) //nolint:errcheck // it has been seen
	}
	return job.Errorf(job.Unavailable, "the SFTP server does not answer%s, and more: "+
		"let the account's login files print only in a terminal", said(noise))
}

// said quotes the beginning of what came in place of an answer.
func said(noise []byte) string {
	text := strings.TrimSpace(string(noise[:min(len(noise), 200)]))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(", but %q came", text)
}

// answer reads one packet.
func answer(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, job.Errorf(job.Unavailable, "greet the SFTP server: %w", err)
	}
	n := binary.BigEndian.Uint32(head)
	if n > maxGreeting {
		return nil, job.Errorf(job.Unavailable, "greet the SFTP server: its answer has %d bytes, more than %d", n,
			maxGreeting)
	}
	p := make([]byte, 4+n)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, job.Errorf(job.Unavailable, "greet the SFTP server: %w", err)
	}
	return p, nil
}

// A wire is what pkg/sftp writes to. It adds what pkg/sftp cannot say: a file is made with mode
// 0600, so that nobody else opens it before it has its own, and a folder with 0755. Each of these
// requests comes in one Write, and ends with a word of flags that is zero.
type wire struct {
	io.WriteCloser
	greeted bool
	rest    int // bytes of a request that are still to come
}

func (w *wire) Write(p []byte) (int, error) {
	if !w.greeted { // greet has done it
		w.greeted = true
		return len(p), nil
	}
	q := p
	if w.rest == 0 { // a request begins
		w.rest = 4 + int(binary.BigEndian.Uint32(p))
		switch whole := w.rest == len(p); {
		case whole && p[4] == fxMkdir:
			q = withMode(p, 0o755)
		case whole && p[4] == fxOpen && binary.BigEndian.Uint32(p[len(p)-8:])&fxfCreate != 0:
			q = withMode(p, 0o600)
		}
	}
	w.rest -= len(p)
	// io.EOF would be taken for the end of a file.
	if _, err := w.WriteCloser.Write(q); err != nil {
		return 0, fmt.Errorf("%w: %s", sftp.ErrSSHFxConnectionLost, err) //nolint:errorlint // for that reason
	}
	return len(p), nil
}

// withMode is a request with the permissions that are still missing in it.
func withMode(p []byte, mode uint32) []byte {
	q := binary.BigEndian.AppendUint32(bytes.Clone(p[:len(p)-4]), fxAttributes)
	q = binary.BigEndian.AppendUint32(q, mode)
	binary.BigEndian.PutUint32(q, uint32(len(q)-4)) //nolint:gosec // the length of a name and a little
	return q
}
