//go:build !unix

package main

import "os"

// notifyResize does nothing: the system has no signal for it.
func notifyResize(chan<- os.Signal) {}
