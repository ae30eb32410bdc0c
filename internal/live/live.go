// Package live shows jobs while they run: in place on a terminal, or line by line where there is
// none.
//
// A [Board] is what is known of the jobs and how it looks: data and pure rendering. A [View] takes
// in what happens to them and shows the board. It also asks what to do with them when somebody
// wants to stop.
//
// Names, messages and log lines come from outside. Nothing of them reaches a terminal before
// [Clean] has taken out what a terminal obeys.
package live
