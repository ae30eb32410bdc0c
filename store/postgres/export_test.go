package postgres

// Statements are the texts whose plans a test pins, and Settings those of the connections that run them.
var (
	Statements = map[string]string{
		"submit": insertJobs, "claim": claimHeads, "claim named": claimNamed, "apply fences": applyFences, "apply lock": applyLock,
		"apply": applyChanges, "write": writeRows, "due": dueJobs, "pay": payDebts, "expire close": expireClose, "expire": expireTake, "lines ready": linesReady,
		"renew": renew, "events": eventsOfAll, "events of one": eventsOfOne, "recount": recount, "recount look": miscounted, "note": addEvent,
		"overdue":         overdue,
		"apply specs":     applySpecs,
		"demand sessions": claimantsThere, "demand lines": readyLines,
	}
	Settings = settings
)
