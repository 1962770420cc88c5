//go:build !unix

package kernelbench

import "time"

// cpuTime is 0: the time that processors have spent on this process is not known.
func cpuTime() time.Duration { return 0 }
