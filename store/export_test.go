package store

// Constants are the names that [SQL] knows.
var Constants = constants
