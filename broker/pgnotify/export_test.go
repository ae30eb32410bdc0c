package pgnotify

import "time"

// StayAlive sets keep-alive on a connection.
var StayAlive = stayAlive

// Part sets for how long Close lets the sender tell what it has not told yet.
func (b *Broker) Part(d time.Duration) { b.parting = d }
