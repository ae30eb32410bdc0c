package connection

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// The protocol of control sockets is that of PROTOCOL.mux of OpenSSH, which has spoken version 4
// since release 5.4. A message is its length and its kind, and then numbers and texts.
const (
	muxVersion = 4

	muxHello     = 0x00000001
	muxSession   = 0x10000002
	muxAlive     = 0x10000004
	muxTerminate = 0x10000005
	muxOK        = 0x80000001
	muxDenied    = 0x80000002
	muxFailed    = 0x80000003
	muxIsAlive   = 0x80000005
	muxOpened    = 0x80000006

	muxLongest = 256 << 10 // no message is longer
)

// full is why a master opens no session if the server grants none.
const full = "Session open refused by peer"

// A control is a connection to a master. It has one session at most.
type control struct{ *net.UnixConn }

// control connects to the master. The name of a socket has 107 bytes at most and that of its folder
// may be longer, so the folder is opened.
func (m Master) control(ctx context.Context) (c control, err error) {
	dir, err := os.Open(filepath.Dir(m.Socket))
	if err != nil {
		return c, err
	}
	defer dir.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix",
		fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(m.Socket)))
	if at, ok := errors.AsType[*net.OpError](err); ok {
		err = at.Err // without that name
	}
	if err != nil {
		return c, err
	}
	c = control{conn.(*net.UnixConn)}
	kind, rest, err := c.ask(ctx, message(muxHello, muxVersion))
	if err == nil && (kind != muxHello || len(rest) < 4 || binary.BigEndian.Uint32(rest) != muxVersion) {
		err = fmt.Errorf("it does not speak version %d of the protocol: %x %x", muxVersion, kind, rest)
	}
	if err != nil {
		c.Close()
	}
	return c, err
}

// ask sends a message, with files, and returns the answer. When ctx ends the connection is closed.
func (c control) ask(ctx context.Context, text []byte, files ...*os.File) (kind uint32, rest []byte, err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	_, err = c.Write(text)
	for _, f := range files {
		if err == nil {
			_, _, err = c.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(f.Fd())), nil)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	return c.receive()
}

func (c control) receive() (kind uint32, rest []byte, err error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n < 4 || n > muxLongest {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	rest = make([]byte, n-4)
	_, err = io.ReadFull(c, rest)
	return binary.BigEndian.Uint32(head[4:]), rest, err
}

// message is a message of numbers and texts, which are of type uint32 or int, and string.
func message(parts ...any) []byte {
	text := make([]byte, 4)
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			text = binary.BigEndian.AppendUint32(text, uint32(p)) //nolint:gosec // they are small
		case uint32:
			text = binary.BigEndian.AppendUint32(text, p)
		case string:
			text = append(binary.BigEndian.AppendUint32(text, uint32(len(p))), p...) //nolint:gosec // short, too
		}
	}
	binary.BigEndian.PutUint32(text, uint32(len(text)-4)) //nolint:gosec // as above
	return text
}

// why is the reason in an answer, which stands behind the number of the request.
func why(rest []byte) string {
	if len(rest) < 8 {
		return "no reason given"
	}
	return string(rest[8:])
}
