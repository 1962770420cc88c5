// Package chaos holds the command to its promises where things go wrong: writers that
// share a file, processes that are killed, full disks, files that are cut while they
// are read, devices in place of files, and bad input of every kind. It has tests
// alone, which run the command that they build.
//
// A short part of them runs with the other tests. This is all of it:
//
//	PULSECOL_CHAOS=1 go test ./internal/chaos -v -timeout 60m
//
// It ends with a line for every kind of trial and how many there were. A failure
// prints the command line and, where chance was at work, its seed: with -seed N the
// trials that have seeds run with that one alone.
package chaos
