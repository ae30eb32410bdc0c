package api_test

// order is that in which operations are tried whose tries build on each other.
var order = []string{
	"apply-queue", "enable-queue", "disable-queue", "delete-queue", "apply-system", "enable-system", "disable-system", "delete-system",
	"apply-retention", "enable-retention", "disable-retention", "delete-retention",
	"apply-kind", "list-kinds", "get-kind", "enable-kind", "disable-kind", "delete-kind",
	"apply-schedule", "list-schedules", "get-schedule", "run-schedule", "next-of-schedule", "enable-schedule",
	"disable-schedule", "delete-schedule",
	"apply-policy", "get-policy", "enable-policy", "disable-policy", "delete-policy", "set-limit", "get-limit", "remove-limit", "drain-worker", "undrain-worker", "stop-worker",
}

// scheduleTries are tries of the operations on schedules.
var scheduleTries = map[string][]try{
	"list-schedules": {{status: 200}, {path: "/v1/schedules?x=1", status: 422}},
	"apply-schedule": {
		{path: "/v1/schedules/weekly", body: `{"cron":"0 9 * * MON","time_zone":"Europe/Berlin","jobs":[{"command":["true"]}]}`, status: 201},
		{path: "/v1/schedules/weekly", body: `{"every":"90s","owner":"ada","jobs":[{"command":["true"]}]}`, status: 200},
		{
			path: "/v1/schedules/weekly", body: `{"every":"90s","owner":"ada","jobs":[{"command":["true"]}]}`,
			header: []string{"Authorization", "Bearer bob-token"}, status: 403,
		},
		{path: "/v1/schedules/weekly", body: `{"every":"90s","jobs":[{"command":["true"],"owner":"bob"}]}`, status: 422},
		{path: "/v1/schedules/weekly", body: `{"cron":"61 * * * *","jobs":[{"command":["true"]}]}`, status: 422},
		{path: "/v1/schedules/weekly", body: `{"every":"90s"}`, status: 422},
	},
	"get-schedule": {{path: "/v1/schedules/weekly", status: 200}, {path: "/v1/schedules/none", status: 404}},
	"run-schedule": {
		{path: "/v1/schedules/weekly/run", header: []string{"Idempotency-Key", "k"}, status: 202},
		{path: "/v1/schedules/weekly/run", header: []string{"Idempotency-Key", "k"}, status: 202},
		{path: "/v1/schedules/none/run", status: 404},
	},
	"next-of-schedule": {
		{path: "/v1/schedules/weekly/next", status: 200},
		{path: "/v1/schedules/weekly/next?count=3", status: 200},
		{path: "/v1/schedules/weekly/next?count=101", status: 422},
		{path: "/v1/schedules/none/next", status: 404},
	},
	"enable-schedule":  {{path: "/v1/schedules/weekly/enable", status: 200}, {path: "/v1/schedules/none/enable", status: 404}},
	"disable-schedule": {{path: "/v1/schedules/weekly/disable", status: 200}, {path: "/v1/schedules/none/disable", status: 404}},
	"delete-schedule":  {{path: "/v1/schedules/weekly", status: 204}, {path: "/v1/schedules/weekly", status: 404}},
}

// kindTries are tries of the operations on kinds of task.
var kindTries = map[string][]try{
	"list-kinds": {{status: 200}, {path: "/v1/kinds?x=1", status: 422}},
	"get-kind":   {{path: "/v1/kinds/thumbnail", status: 200}, {path: "/v1/kinds/none", status: 404}},
	"apply-kind": {
		{
			path: "/v1/kinds/thumbnail", body: `{"queue":"default","unique":{"args":["image"],"until":"start"},"order":{"args":["image"],"by":"due"},` +
				`"limits":["license"],"retry":{"max_attempts":3},"timeout":"10m","stall":"1m","schema":{"type":"object","required":["image"]},` +
				`"args_version":2,"slots":4,"revision":7}`, status: 201,
		},
		{path: "/v1/kinds/thumbnail", body: `{"description":"small images","schema":true}`, status: 200},
		{path: "/v1/kinds/app", body: `{}`, status: 422},
		{path: "/v1/kinds/thumbnail", body: `{"schema":{"type":"objekt"}}`, status: 422},
		{path: "/v1/kinds/thumbnail", body: `{"order":{"by":"due"}}`, status: 422},
	},
	"enable-kind":  {{path: "/v1/kinds/thumbnail/enable", status: 200}, {path: "/v1/kinds/none/enable", status: 404}},
	"disable-kind": {{path: "/v1/kinds/thumbnail/disable", status: 200}, {path: "/v1/kinds/none/disable", status: 404}},
	"delete-kind":  {{path: "/v1/kinds/thumbnail", status: 204}, {path: "/v1/kinds/thumbnail", status: 404}},
}
