package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A network is the proxies between processes, people and the database.
type network struct {
	api  *toxiproxy.ApiServer
	ways []*way
}

func newNetwork() *network {
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics write to a log of their own
	return &network{api: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

// A way leads from an address of its own to another one.
type way struct {
	name   string
	addr   string // where it begins; the proxy writes its own each time that it starts
	proxy  *toxiproxy.Proxy
	toxics atomic.Int64 // how many there were
}

// open opens a way to an address.
func (n *network) open(name, to string) (*way, error) {
	w := &way{name: name, proxy: toxiproxy.NewProxy(n.api, name, "127.0.0.1:0", to)}
	if err := w.proxy.Start(); err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	w.addr = w.proxy.Listen
	n.ways = append(n.ways, w)
	return w, nil
}

func (n *network) close() {
	for _, w := range n.ways {
		w.proxy.Stop()
	}
}

// A toxic is something that is wrong with a way, in one direction.
type toxic struct {
	kind, stream string
	attributes   map[string]int
}

// troubles are what can be wrong with a way.
var troubles = map[string][]toxic{
	"slow":  {{"latency", "downstream", map[string]int{"latency": 150, "jitter": 100}}, {"bandwidth", "upstream", map[string]int{"rate": 40}}},
	"reset": {{"reset_peer", "downstream", map[string]int{"timeout": 20}}},
	// What is sent is swallowed, and connections stay open.
	"deaf":       {{"timeout", "upstream", map[string]int{"timeout": 0}}},   // requests do not arrive
	"mute":       {{"timeout", "downstream", map[string]int{"timeout": 0}}}, // answers do not: what they tell of is done
	"black_hole": {{"timeout", "upstream", map[string]int{"timeout": 0}}, {"timeout", "downstream", map[string]int{"timeout": 0}}},
}

// trouble makes something wrong with a way until ctx ends.
func (w *way) trouble(ctx context.Context, what string) error {
	for _, t := range troubles[what] {
		name := fmt.Sprintf("%s %s %d", what, t.stream, w.toxics.Add(1)) // the same may come twice at once
		b, err := json.Marshal(map[string]any{"name": name, "type": t.kind, "stream": t.stream, "attributes": t.attributes})
		if err != nil {
			return err
		}
		if _, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(string(b))); err != nil {
			return fmt.Errorf("%s on the way %s: %w", what, w.name, err)
		}
		defer func() {
			undo, stop := context.WithTimeout(context.Background(), 10*time.Second)
			defer stop()
			w.proxy.Toxics.RemoveToxic(undo, name) //nolint:errcheck // it is gone with its connection
		}()
	}
	<-ctx.Done()
	return nil
}

// cut closes all connections of a way, and takes no new ones until ctx ends.
func (w *way) cut(ctx context.Context) error {
	w.proxy.Stop()
	<-ctx.Done()
	if err := w.proxy.Start(); !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) { // by another cut, which was shorter
		return err
	}
	return nil
}

// freeAddr returns an address that nobody listens at.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
