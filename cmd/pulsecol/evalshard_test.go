package main

import (
	"strings"
	"testing"
)

// TestParseShard: the shard of a flag and of the environment of schedulers.
func TestParseShard(t *testing.T) {
	for _, c := range []struct {
		flag, env string
		want      shard
		err       string
	}{
		{"1/1", "", shard{1, 1}, ""},
		{"3/8", "ID=1 MIN=1 MAX=4 COUNT=4", shard{3, 8}, ""},
		{"8/8", "", shard{8, 8}, ""},
		{"0/8", "", shard{}, "want I/N with 1 ≤ I ≤ N"},
		{"9/8", "", shard{}, "want I/N"},
		{"1", "", shard{}, "want I/N"},
		{"/8", "", shard{}, "want I/N"},
		{"1/", "", shard{}, "want I/N"},
		{"1/8/2", "", shard{}, "want I/N"},
		{"-1/8", "", shard{}, "want I/N"},
		{"1/99999999999999999999", "", shard{}, "want I/N"},
		{"auto/0", "ID=1 MIN=1 MAX=4 COUNT=4", shard{}, "want I/N"},
		{"Auto", "ID=1 MIN=1 MAX=4 COUNT=4", shard{}, "want I/N"},

		{"auto", "ID=1 MIN=1 MAX=4 COUNT=4", shard{1, 4}, ""},
		{"auto", "ID=4 MIN=1 MAX=4 COUNT=4", shard{4, 4}, ""},
		{"auto/4", "ID=0 MIN=0 MAX=3 COUNT=4", shard{1, 4}, ""},
		{"auto", "ID=8 MIN=0 MAX=12 COUNT=4", shard{3, 4}, ""},
		{"auto", "ID=5 MIN=5 MAX=5 COUNT=1", shard{1, 1}, ""},
		{"auto/4", "ID=5 MIN=5 MAX=5 COUNT=1", shard{}, "SLURM_ARRAY_TASK_COUNT is 1; want 4, the number of shards"},
		{"auto", "ID=2 MIN=1 MAX=8 COUNT=4", shard{}, "SLURM_ARRAY_TASK_ID is 2 in an array of 4 tasks from 1 to 8, which are not evenly spaced"},
		{"auto", "ID=1 MIN=0 MAX=4 COUNT=3", shard{}, "not evenly spaced"},
		{"auto", "ID=9 MIN=0 MAX=4 COUNT=5", shard{}, "not evenly spaced"},
		{"auto", "ID=0 MIN=0 MAX=2 COUNT=9", shard{}, "not evenly spaced"},
		{"auto", "ID=0 MIN=3 MAX=2 COUNT=2", shard{}, "not evenly spaced"},
		{"auto", "ID=0 MIN=0 MAX=3 COUNT=0", shard{}, "SLURM_ARRAY_TASK_COUNT is 0; want 1 to"},
		{"auto", "ID=0 MIN=0 MAX=3 COUNT=99999999", shard{}, "SLURM_ARRAY_TASK_COUNT is 99999999"},
		{"auto", "ID=0 MIN=0 MAX=3", shard{}, "SLURM_ARRAY_TASK_COUNT is not set"},
		{"auto", "ID=x MIN=0 MAX=3 COUNT=4", shard{}, `SLURM_ARRAY_TASK_ID is "x"; want a number`},
		{"auto", "ID=-1 MIN=0 MAX=3 COUNT=4", shard{}, `SLURM_ARRAY_TASK_ID is "-1"`},

		{"auto/4", "INDEX=0", shard{1, 4}, ""},
		{"auto/4", "INDEX=3", shard{4, 4}, ""},
		{"auto/4", "INDEX=4", shard{}, "JOB_COMPLETION_INDEX is 4; want 0 to 3 for 4 shards"},
		{"auto/4", "INDEX=", shard{}, `JOB_COMPLETION_INDEX is ""; want a number`},
		{"auto", "INDEX=0", shard{}, "write auto/N with the completions of the Job"},
		{"auto/4", "INDEX=0 ID=1 MIN=1 MAX=4 COUNT=4", shard{}, "SLURM_ARRAY_TASK_ID and JOB_COMPLETION_INDEX are both set"},
		{"auto/4", "", shard{}, "neither SLURM_ARRAY_TASK_ID of a Slurm job array nor JOB_COMPLETION_INDEX"},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			if name == "INDEX" {
				env["JOB_COMPLETION_INDEX"] = value
			} else {
				env["SLURM_ARRAY_TASK_"+name] = value
			}
		}
		got, err := parseShard(c.flag, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%s with %s: %v, %v; want %v", c.flag, c.env, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s with %s: %v, %v; want the error %q", c.flag, c.env, got, err, c.err)
		}
	}
}
