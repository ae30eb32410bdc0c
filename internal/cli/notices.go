package cli

import _ "embed"

// notices are the licences of all modules that are linked into pawl. TestNotices writes them.
//
//go:embed notices.txt
var notices string
