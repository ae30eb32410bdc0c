package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// request writes a request with which nothing has to be done but to send it.
func request(method, target, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: pawl\r\n", method, target)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// A conn is a connection that stays open. It costs the cores that it shares with the service as
// little as can be.
type conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte
}

func (s *site) dial(ctx context.Context) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReader(c)}, nil
}

// ask sends a request and reads the answer. The body is valid until the next call.
func (c *conn) ask(req []byte) (status int, body []byte, err error) {
	if _, err := c.Write(req); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if resp.ContentLength < 0 {
		c.body, err = io.ReadAll(resp.Body)
		return resp.StatusCode, c.body, err
	}
	if n := int(resp.ContentLength); cap(c.body) < n {
		c.body = make([]byte, n)
	}
	c.body = c.body[:resp.ContentLength]
	_, err = io.ReadFull(resp.Body, c.body)
	return resp.StatusCode, c.body, err
}

// follow reads server-sent events. ready is called when the stream has begun; take is called with
// the data of each event, and says whether more are wanted.
func (s *site) follow(ctx context.Context, target string, ready func(), take func(data []byte) (bool, error)) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(request("GET", target, "")); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer func() {
		c.Close() // or else the body is read to its end
		resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the service answers %s", resp.Status)
	}
	lines := bufio.NewReader(resp.Body)
	begun := false
	for {
		line, err := lines.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if more, err := take([]byte(data)); err != nil || !more {
				return err
			}
		}
		if !begun && line == "\n" {
			begun = true
			ready()
		}
	}
}
