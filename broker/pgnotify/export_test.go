package pgnotify

import "time"

// Part sets for how long Close lets the sender tell what it has not told yet.
func (b *Broker) Part(d time.Duration) { b.parting = d }
