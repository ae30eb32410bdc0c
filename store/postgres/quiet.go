package postgres

import (
	"context"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
)

// shouldPing reports whether a connection that nobody uses may have been lost, and is worth a round
// trip to find out. One that the server closed shows it without.
func shouldPing(_ context.Context, p pgxpool.ShouldPingParams) bool {
	return !quiet(p.Conn.PgConn().Conn())
}

// quiet reports whether nothing has come in on a connection, and neither has its end. It reads
// nothing.
func quiet(c net.Conn) bool {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	// Not raw.Read, which waits for another reader: the driver may read in the background.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		nothing = err == syscall.EAGAIN
	})
	return err == nil && nothing
}
