//go:build cuda

package compat

import "C" // so that removed.c is compiled
