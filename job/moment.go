package job

import "time"

// MaxSlotWait is how far off a moment may be for which a job waits in its slot. A job with a moment
// farther off waits in custody gate, and asks for it again when it is near.
const MaxSlotWait = time.Second

// NextFree returns the first moment that is free at the time now, under the rate l. next is the
// moment after those that were given; zero: none was given.
//
// changed says that the rate was set anew since they were given. Then moments that are farther off
// than MaxSlotWait are given anew, for the jobs that have them must ask again. Those that are near
// may still be used, and the next one keeps its distance from them.
func (l *Limit) NextFree(next, now time.Time, changed bool) time.Time {
	if last := now.Add(MaxSlotWait + l.Every()); changed && next.After(last) {
		next = last
	}
	if next.Before(now) {
		next = now
	}
	return next
}

// Holds reports whether the moment m of a key can still be used at the time now: rate is the rate
// under which moments of the key are given now.
func (m *Moment) Holds(key string, rate ID, now time.Time) bool {
	return m.Key == key && m.Rate == rate && !rate.IsZero() &&
		!now.After(m.At.Add(Lateness+time.Duration(m.Late)))
}
