package egress

import (
	"net/http"
	"strconv"
	"time"
)

// longest is the longest time after which a server may ask to come back.
const longest = time.Hour

// RetryAfter returns for how long a server asks to stay away, up to an hour; 0: it does not.
func RetryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	after := time.Duration(0)
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		after = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		now, err := http.ParseTime(h.Get("Date")) // by its own clock, where it tells that
		if err != nil {
			now = time.Now()
		}
		after = at.Sub(now).Round(time.Second)
	}
	return max(0, min(after, longest))
}
