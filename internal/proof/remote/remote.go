// Package remote has tests of programs on machines that SSH reaches: whole jobs, through a service
// as pawl puts it together, over a real SSH server and a network that is bad on purpose.
package remote
