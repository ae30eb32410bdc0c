package main

import "testing"

func TestTheCheckSeesWhatIsBroken(t *testing.T) {
	live(t, t.TempDir())
}
