package procgroup

import (
	"strings"
	"testing"
)

// envOf returns an environment of NAME=VALUE words.
func envOf(text string) func(string) (string, bool) {
	vars := map[string]string{}
	for _, v := range strings.Fields(text) {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// TestFromEnv: the conventions of launchers, and errors that name the variable.
func TestFromEnv(t *testing.T) {
	const (
		torchEnv = "RANK=2 LOCAL_RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=29400 "
		slurmEnv = "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8 SLURM_JOB_ID=1234567 SLURM_JOB_NODELIST=node[03-04,7] "
		mpiEnv   = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
	)
	for _, c := range []struct {
		env, err string
		want     Place
	}{
		{env: "HOME=/ SLURM_NTASKS=3 MASTER_ADDR=h LOCAL_RANK=0", want: Place{}},
		{env: torchEnv, want: Place{2, 4, 1, "h:29400", ""}},
		{env: torchEnv + TokenVariable + "=secret", want: Place{2, 4, 1, "h:29400", "secret"}},
		{env: torchEnv + "TORCHELASTIC_USE_AGENT_STORE=True", want: Place{2, 4, 1, "h:29401", ""}},
		{env: torchEnv + "TORCHELASTIC_USE_AGENT_STORE=False", want: Place{2, 4, 1, "h:29400", ""}},
		{env: strings.Replace(torchEnv, "=h", "=::1", 1), want: Place{2, 4, 1, "[::1]:29400", ""}},
		{env: "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1", want: Place{0, 1, 0, "127.0.0.1:29500", ""}},
		{env: slurmEnv, want: Place{5, 8, 1, "node03:21567", ""}},
		{env: slurmEnv + "SLURM_STEP_NODELIST=node7", want: Place{5, 8, 1, "node7:21567", ""}},
		{env: slurmEnv + "MASTER_ADDR=a MASTER_PORT=1", want: Place{5, 8, 1, "a:1", ""}},
		{env: mpiEnv + "OMPI_COMM_WORLD_LOCAL_SIZE=2", want: Place{1, 2, 1, "127.0.0.1:29500", ""}},
		{env: mpiEnv + "MASTER_ADDR=a MASTER_PORT=65535", want: Place{1, 2, 1, "a:65535", ""}},
		{env: mpiEnv + slurmEnv + "MASTER_ADDR=a", want: Place{1, 2, 1, "a:29500", ""}},
		{env: slurmEnv + torchEnv + "TORCHELASTIC_RUN_ID=none", want: Place{2, 4, 1, "h:29400", ""}},
		{env: torchEnv + "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_SIZE=4", want: Place{2, 4, 1, "h:29400", ""}},

		{env: slurmEnv + torchEnv, err: "WORLD_SIZE is 4 and SLURM_NTASKS is 8; unset those"},
		{env: torchEnv + "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_SIZE=4", err: "RANK is 2 and OMPI_COMM_WORLD_RANK is 3; unset those"},
		{env: "RANK=1", err: "WORLD_SIZE is not set, which torchrun sets together with RANK"},
		{env: "WORLD_SIZE=2", err: "RANK is not set, which torchrun sets"},
		{env: "RANK=1 WORLD_SIZE=2", err: "LOCAL_RANK is not set"},
		{env: "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2", err: "MASTER_ADDR is not set; want the host of rank 0, since torchrun names none"},
		{env: "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=h", err: "MASTER_PORT is not set, which torchrun sets"},
		{env: "RANK=4 LOCAL_RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1", err: `RANK is "4"; want 0 to 3`},
		{env: "RANK=-1 LOCAL_RANK=1 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1", err: `RANK is "-1"; want 0 to 3`},
		{env: "RANK=0 LOCAL_RANK=9 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1", err: `LOCAL_RANK is "9"; want 0 to 3`},
		{env: "RANK=0 LOCAL_RANK=0 WORLD_SIZE=0 MASTER_ADDR=h MASTER_PORT=1", err: `WORLD_SIZE is "0"; want 1 to 4096`},
		{env: "RANK=0 LOCAL_RANK=0 WORLD_SIZE=4097 MASTER_ADDR=h MASTER_PORT=1", err: `WORLD_SIZE is "4097"`},
		{env: "RANK=x LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", err: `RANK is "x"`},
		{env: "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=0", err: `MASTER_PORT is "0"; want 1 to 65535`},
		{env: "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR= MASTER_PORT=1", err: "MASTER_ADDR is empty"},
		{env: mpiEnv, err: "MASTER_ADDR is not set; want the host of rank 0, since Open MPI names none"},
		{env: "SLURM_PROCID=0 SLURM_LOCALID=0", err: "SLURM_NTASKS is not set, which Slurm sets"},
		{env: "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2", err: "MASTER_ADDR is not set"},
		{env: strings.Replace(slurmEnv, "[03-", "[-", 1), err: `SLURM_JOB_NODELIST: "node[-04,7]" is no list of hosts`},
		{env: strings.Replace(slurmEnv, "=1234567", "=x", 1), err: `SLURM_JOB_ID is "x"`},
	} {
		got, ok, err := FromEnv(envOf(c.env))
		switch {
		case c.err == "" && (err != nil || got != c.want || ok != (c.want != Place{})):
			t.Errorf("%s: %+v, %v, %v; want %+v", c.env, got, ok, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %+v, %v; want the error %q", c.env, got, err, c.err)
		}
	}
}

// TestFirstHost: lists as scontrol prints them.
func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "node[003-007,9]": "node003", "node[9,1]": "node9", "r[1-2]n[05-06].x": "r1n05.x", "gpu-a_1.b": "gpu-a_1.b",
		"": "", ",": "", "a[": "", "a[]": "", "a[1": "", "a[x]": "", "a b": "", "a[-1]": "", "a]": "",
	} {
		if got, err := firstHost(list); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", list, got, err, want)
		}
	}
}
