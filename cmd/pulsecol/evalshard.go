package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// shard is a part of an evaluation's samples: part index of count, from 1.
type shard struct{ index, count int }

// maxShards is far above practical arrays of jobs.
const maxShards = 1 << 20

// note says which part of the samples was answered; "" if all were.
func (s shard) note(part, all int) string {
	if s.count == 1 {
		return ""
	}
	return fmt.Sprintf("shard %d/%d, %d of %d samples", s.index, s.count, part, all)
}

// part returns the shard of --shard, or 1/1 without the flag.
func (c *evalCmd) part() (shard, error) {
	switch {
	case c.Shard == nil:
		return shard{1, 1}, nil
	case c.Results == nil:
		return shard{}, usagef("--shard %s: needs --results FILE, which keeps the answers of the shard", *c.Shard)
	case c.joins():
		return shard{}, usagef("--shard %s: has one results file, not %d; without --shard their table is made", *c.Shard, len(c.Results))
	case c.Completions != nil || c.Plots != nil:
		return shard{}, usagef("--shard %s: the command that joins the results files has --completions and --plots", *c.Shard)
	}
	s, err := parseShard(*c.Shard, os.LookupEnv)
	if err != nil {
		return s, usagef("--shard %s: %w", *c.Shard, err)
	}
	return s, nil
}

// parseShard reads I/N, or auto or auto/N with what a scheduler sets in the environment.
func parseShard(text string, env func(string) (string, bool)) (shard, error) {
	form := fmt.Errorf("want I/N with 1 ≤ I ≤ N ≤ %d, auto or auto/N", maxShards)
	first, second, two := strings.Cut(text, "/")
	s := shard{}
	if two {
		n, err := strconv.Atoi(second)
		if err != nil || n < 1 || n > maxShards {
			return s, form
		}
		s.count = n
	}
	if first == "auto" {
		return s.scheduled(env)
	}
	i, err := strconv.Atoi(first)
	if !two || err != nil || i < 1 || i > s.count {
		return s, form
	}
	s.index = i
	return s, nil
}

// Variables of schedulers.
const (
	slurmID   = "SLURM_ARRAY_TASK_ID"
	slurmMin  = "SLURM_ARRAY_TASK_MIN"
	slurmMax  = "SLURM_ARRAY_TASK_MAX"
	slurmN    = "SLURM_ARRAY_TASK_COUNT"
	kubeIndex = "JOB_COMPLETION_INDEX"
)

// scheduled returns the shard that a scheduler gives to this process. A count other than 0 is
// that of the flag.
func (s shard) scheduled(env func(string) (string, bool)) (shard, error) {
	_, slurm := env(slurmID)
	_, kube := env(kubeIndex)
	switch {
	case slurm && kube:
		return s, fmt.Errorf("%s and %s are both set; name the shard as I/N", slurmID, kubeIndex)
	case slurm:
		return s.ofArray(env)
	case !kube:
		return s, fmt.Errorf("neither %s of a Slurm job array nor %s of a Kubernetes indexed Job is set", slurmID, kubeIndex)
	case s.count == 0:
		return s, fmt.Errorf("%s says no number of shards; write auto/N with the completions of the Job", kubeIndex)
	}
	v, err := numbers(env, kubeIndex)
	if err != nil {
		return s, err
	}
	if v[0] >= s.count {
		return s, fmt.Errorf("%s is %d; want 0 to %d for %d shards", kubeIndex, v[0], s.count-1, s.count)
	}
	s.index = v[0] + 1
	return s, nil
}

// ofArray returns the shard of a task of a Slurm job array, whose ids are evenly spaced.
func (s shard) ofArray(env func(string) (string, bool)) (shard, error) {
	v, err := numbers(env, slurmID, slurmMin, slurmMax, slurmN)
	if err != nil {
		return s, err
	}
	id, low, high, n := v[0], v[1], v[2], v[3]
	if n < 1 || n > maxShards {
		return s, fmt.Errorf("%s is %d; want 1 to %d", slurmN, n, maxShards)
	}
	if s.count != 0 && n != s.count {
		return s, fmt.Errorf("%s is %d; want %d, the number of shards", slurmN, n, s.count)
	}
	step := 1
	if n > 1 {
		step = (high - low) / (n - 1)
	}
	if step < 1 || low+step*(n-1) != high || id < low || id > high || (id-low)%step != 0 {
		return s, fmt.Errorf("%s is %d in an array of %d tasks from %d to %d, which are not evenly spaced; name the shard as I/N", slurmID, id, n, low, high)
	}
	return shard{(id-low)/step + 1, n}, nil
}

// numbers reads variables of the environment that hold whole numbers, at least 0.
func numbers(env func(string) (string, bool), names ...string) ([]int, error) {
	var values []int
	for _, name := range names {
		text, ok := env(name)
		if !ok {
			return nil, fmt.Errorf("%s is not set, which a Slurm job array has", name)
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 0 || v > 1<<31-1 {
			return nil, fmt.Errorf("%s is %q; want a number, 0 to %d", name, text, 1<<31-1)
		}
		values = append(values, v)
	}
	return values, nil
}
