//go:build cuda

package main

import "github.com/pulsecol/pulsecol/cmd/pulsecol/quiet"

func init() { quiet.End() }
