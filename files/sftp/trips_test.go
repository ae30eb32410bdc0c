package sftp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"github.com/pawl-jobs/pawl/files"
	"github.com/pawl-jobs/pawl/internal/proof/virtual"
	"github.com/pawl-jobs/pawl/job"
)

// far puts a server a round trip of virtual time away. It passes one request after another to the
// server and waits for the answer, so time passes only between the ends.
// Once it hangs, no answer comes any more.
func far(s *server, trip time.Duration, hang <-chan struct{}) (io.Reader, io.WriteCloser) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	type packet struct {
		at time.Time
		b  []byte
	}
	answers := make(chan packet, 10_000)
	go func() {
		defer close(answers)
		for {
			p, err := onePacket(fromClient)
			if err != nil {
				return
			}
			at := time.Now().Add(trip)
			if _, err := s.in.Write(p); err != nil {
				return
			}
			if p, err = onePacket(s.out); err != nil {
				return
			}
			select {
			case <-hang:
			default:
				answers <- packet{at, p}
			}
		}
	}()
	go func() {
		for p := range answers {
			time.Sleep(time.Until(p.at))
			if _, err := toClient.Write(p.b); err != nil {
				break
			}
		}
		toClient.Close()
	}()
	return fromServer, toServer
}

func onePacket(r io.Reader) ([]byte, error) {
	p := make([]byte, 4)
	if _, err := io.ReadFull(r, p); err != nil {
		return nil, err
	}
	p = append(p, make([]byte, binary.BigEndian.Uint32(p))...)
	_, err := io.ReadFull(r, p[4:])
	return p, err
}

// TestRoundTrips: on a far machine, what a call costs is how often it waits for an answer.
func TestRoundTrips(t *testing.T) {
	s, dir := serve(t, ""), own(t)
	virtual.Test(t, func(t *testing.T) {
		const trip = time.Second
		r, w := far(s, trip, nil)
		c, err := Connect(r, w)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f := &FS{Client: func(context.Context) (*sftp.Client, error) { return c, nil }}
		ctx, name, large := t.Context(), path.Join(dir, "f"), path.Join(dir, "large")
		put := func(name string, o files.PutOptions) error { return f.Put(ctx, name, strings.NewReader("short"), o) }
		stat := func(name string) error { _, err := f.Stat(ctx, name); return err }
		hundred := make([]string, 100)
		for i := range hundred {
			hundred[i] = name
		}
		for _, call := range []struct {
			what  string
			trips int
			call  func() error
		}{
			{"put, durable", 5, func() error { return put(name, files.PutOptions{}) }},
			{"put again", 5, func() error { return put(name, files.PutOptions{Mode: 0o600}) }},
			{"put for another name", 4, func() error { return put(name, files.PutOptions{Passing: true}) }},
			{"put without sync", 4, func() error { return put(name, files.PutOptions{NoSync: true}) }},
			{"put of 1 MiB", 4, func() error {
				return f.Put(ctx, large, strings.NewReader(strings.Repeat("x", 1<<20)), files.PutOptions{NoSync: true})
			}},
			{"open, read, close", 3, func() error {
				b, err := files.ReadFile(ctx, f, name, 100)
				if string(b) != "short" {
					t.Errorf("read %q, %v", b, err)
				}
				return err
			}},
			{"open, read, close of 1 MiB", 6, func() error { _, err := files.Digest(ctx, f, large); return err }},
			{"stamp of 100 files", 1, func() error { return f.Stamp(ctx, time.Unix(1e9, 0), hundred...) }},
			{"stamp and describe a file", 1, func() error { _, err := files.Stamped(ctx, f, time.Unix(1e9, 0), name); return err }},
			{"stat", 1, func() error { return stat(name) }},
			{"list", 4, func() error { _, err := f.List(ctx, dir); return err }},
			{"link", 2, func() error { return f.Link(ctx, name, path.Join(dir, "second")) }},
			{"link to a name that is there", 2, func() error {
				if err := f.Link(ctx, name, path.Join(dir, "second")); !errors.Is(err, fs.ErrExist) {
					t.Errorf("link: %v", err)
				}
				return nil
			}},
			{"rename", 3, func() error { return f.Rename(ctx, name, path.Join(dir, "g")) }},
			{"move", 2, func() error { return f.Move(ctx, path.Join(dir, "g"), name) }},
			{"mkdir", 1, func() error { return f.Mkdir(ctx, path.Join(dir, "d")) }},
			{"mkdir of what is there", 2, func() error { return f.Mkdir(ctx, path.Join(dir, "d")) }},
			{"mkdir with one above", 3, func() error { return f.Mkdir(ctx, path.Join(dir, "e", "below")) }},
			{"chmod", 2, func() error { return f.Chmod(ctx, name, 0o600) }},
			{"symlink", 2, func() error { return f.Symlink(ctx, "d", path.Join(dir, "link")) }},
			{"resolve of what is no link", 1, func() error { _, err := f.Resolve(ctx, name); return err }},
			{"resolve of a link", 3, func() error { _, err := f.Resolve(ctx, path.Join(dir, "link")); return err }},
			{"resolve of a link into itself", 82, func() error {
				if err := f.Symlink(ctx, "self/x", path.Join(dir, "self")); err != nil {
					return err
				}
				if _, err := f.Resolve(ctx, path.Join(dir, "self")); !errors.Is(err, syscall.ELOOP) {
					t.Errorf("resolve: %v", err)
				}
				return nil
			}},
			{"space", 1, func() error { _, err := f.Space(ctx, dir); return err }},
			{"remove of a file", 1, func() error { return f.Remove(ctx, name) }},
			{"remove of an empty folder", 2, func() error { return f.Remove(ctx, path.Join(dir, "d")) }},
		} {
			begin := time.Now()
			if err := call.call(); err != nil {
				t.Errorf("%s: %v", call.what, err)
			}
			got := int(time.Since(begin) / trip)
			t.Logf("%-30s %d", call.what, got)
			if got > call.trips {
				t.Errorf("%s takes %d round trips, want at most %d", call.what, got, call.trips)
			}
		}
	})
}

// TestHanging: a client whose server hangs is closed, so that the next call gets another one, and
// no goroutine is left.
func TestHanging(t *testing.T) {
	s, dir := serve(t, ""), own(t)
	virtual.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		r, w := far(s, time.Millisecond, hang)
		c, err := Connect(r, w)
		if err != nil {
			t.Fatal(err)
		}
		f := &FS{Client: func(context.Context) (*sftp.Client, error) { return c, nil }}
		close(hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Stat(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stat: %v", err)
		}
		begin := time.Now()
		c.Wait()
		if took := time.Since(begin); took != patience {
			t.Errorf("the client is closed after %s, want %s", took, patience)
		}
		if err := f.Mkdir(t.Context(), path.Join(dir, "d")); job.KindOf(err) != job.Unavailable {
			t.Errorf("mkdir: %v, want kind unavailable", err)
		}
	})
}

// FuzzGreet: a login file prints anything, and so does what answers in place of a server.
func FuzzGreet(f *testing.F) {
	version := string(pack(fxVersion, []byte("\x00\x00\x00\x03\x00\x00\x00\x12limits@openssh.com\x00\x00\x00\x011")))
	limits := func(most ...uint64) string {
		b := []byte{0, 0, 0, 0}
		for _, n := range most {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		return string(pack(fxExtendedReply, b))
	}
	for _, s := range []string{
		"", "noise", version, "noise" + version + limits(256<<10, 255<<10, 255<<10, 1000), version + limits(34000, 32<<10, 32<<10, 0),
		version + limits(0, 0, 0, 0), version + limits(1), "\x00\x00\xff\xff\x02\x00\x00\x00\x03",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, size, err := greet(bufio.NewReader(strings.NewReader(s)), io.Discard)
		switch {
		case err != nil && job.KindOf(err) != job.Unavailable:
			t.Errorf("%v", err)
		case err == nil && (!strings.Contains(s, string(got)) || size != 32<<10 && size != 128<<10):
			t.Errorf("%q, %d", got, size)
		}
	})
}

// TestPacketSize: a request carries no more than the server takes.
func TestPacketSize(t *testing.T) {
	for _, test := range []struct {
		packet, read, write uint64
		want                int
	}{
		{256 << 10, 255 << 10, 255 << 10, 128 << 10},
		{0, 0, 0, 128 << 10},
		{256 << 10, 64 << 10, 64 << 10, 32 << 10},
		{128 << 10, 128 << 10, 128 << 10, 32 << 10},
	} {
		body := []byte{0, 0, 0, 0}
		for _, n := range []uint64{test.packet, test.read, test.write, 0} {
			body = binary.BigEndian.AppendUint64(body, n)
		}
		version := pack(fxVersion, []byte("\x00\x00\x00\x03\x00\x00\x00\x12limits@openssh.com\x00\x00\x00\x011"))
		answers := bytes.NewReader(append(version, pack(fxExtendedReply, body)...))
		if _, size, err := greet(bufio.NewReader(answers), io.Discard); size != test.want || err != nil {
			t.Errorf("%+v: %d, %v", test, size, err)
		}
	}
}
