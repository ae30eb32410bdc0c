package store

import (
	"net"
	"net/url"
	"os"
)

// LeadsNowhere reports that the address of a process can be seen not to lead to it.
func (p *Process) LeadsNowhere() bool {
	u, err := url.Parse(p.Address)
	if err != nil {
		return false
	}
	here, err := os.Hostname()
	return err == nil && p.Host != here && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}
