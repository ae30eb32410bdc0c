package postgres

import "context"

// Statements are the texts whose plans a test pins, and Settings those of the connections that run them.
var (
	Statements = map[string]string{
		"submit": insertJobs, "claim": claimHeads, "claim named": claimNamed, "apply fences": applyFences, "apply lock": applyLock,
		"apply": applyChanges, "write": writeRows, "due": dueJobs, "pay": payDebts, "expire close": expireClose, "expire": expireTake, "lines ready": linesReady,
		"renew": renew, "events": eventsOfAll, "events of one": eventsOfOne, "recount": recount, "recount look": miscounted, "note": addEvent,
		"overdue": overdue, "lock needs": lockNeeds, "tie needs": tieNeeds,
		"apply specs":     applySpecs,
		"forget keys":     forgetKeys,
		"demand sessions": claimantsThere, "demand lines": readyLines, "unwatched": unwatched,
	}
	Settings = settings
)

// LockTimeout is for how long the next step of a migrator waits for a lock.
func (m *Migrator) LockTimeout(ctx context.Context) (set string, err error) {
	err = m.db.QueryRowContext(ctx, "SHOW lock_timeout").Scan(&set)
	return set, err
}
