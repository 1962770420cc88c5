package procgroup

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
)

// Place is the place of a process in its group.
type Place struct {
	Rank, Size int
	LocalRank  int    // among the processes of its host
	Address    string // host:port at which rank 0 listens
	Token      string // of the job, the same in all processes; may be empty
}

// MaxSize is the largest group.
const MaxSize = 4096

// TokenVariable is the environment variable of the job's token.
const TokenVariable = "PULSECOL_JOB_TOKEN"

// Variables of launchers.
const (
	masterAddr = "MASTER_ADDR"
	masterPort = "MASTER_PORT"
	torchRun   = "TORCHELASTIC_RUN_ID"
	torchStore = "TORCHELASTIC_USE_AGENT_STORE"
	slurmJob   = "SLURM_JOB_ID"
)

// Ports of rank 0.
const (
	defaultPort = 29500 // as torchrun has it
	firstPort   = 20000 // of those that are picked here, below those that systems give to clients
	ports       = 9000
)

// convention is how a launcher names ranks.
type convention struct {
	launcher              string
	rank, localRank, size string
}

var (
	torch   = convention{"torchrun", "RANK", "LOCAL_RANK", "WORLD_SIZE"}
	openMPI = convention{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"}
	slurm   = convention{"Slurm", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"}
)

// FromEnv reads the place that torchrun, Open MPI or Slurm gives to a process. ok is false if
// none of them has started it. Of several the innermost counts: torchrun under Slurm, Open MPI
// under Slurm. RANK that torchrun has not set itself must agree with the others.
func FromEnv(env func(string) (string, bool)) (p Place, ok bool, err error) {
	var found []convention
	for _, c := range []convention{torch, openMPI, slurm} {
		if c.in(env) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return p, false, nil
	}
	if p, err = found[0].place(env); err != nil {
		return p, true, err
	}
	if _, elastic := env(torchRun); found[0] == torch && !elastic {
		for _, c := range found[1:] {
			if err := c.agrees(env, p); err != nil {
				return p, true, err
			}
		}
	}
	p.Token, _ = env(TokenVariable)
	p.Address, err = address(found[0], env, p.Size)
	return p, true, err
}

// in says whether an environment has ranks of the convention. Size alone is also set where
// no process has a rank, and the names of torchrun are common words.
func (c convention) in(env func(string) (string, bool)) bool {
	_, rank := env(c.rank)
	_, size := env(c.size)
	return rank || size && c == torch
}

func (c convention) place(env func(string) (string, bool)) (p Place, err error) {
	if p.Size, err = c.number(env, c.size, 1, MaxSize); err != nil {
		return p, err
	}
	if p.Rank, err = c.number(env, c.rank, 0, p.Size-1); err != nil {
		return p, err
	}
	p.LocalRank, err = c.number(env, c.localRank, 0, p.Size-1)
	return p, err
}

// agrees reports a rank or size other than p's.
func (c convention) agrees(env func(string) (string, bool), p Place) error {
	other, err := c.place(env)
	switch {
	case err != nil:
		return err
	case other.Size != p.Size:
		return fmt.Errorf("%s is %d and %s is %d; unset those of the launcher that has not started this process", torch.size, p.Size, c.size, other.Size)
	case other.Rank != p.Rank:
		return fmt.Errorf("%s is %d and %s is %d; unset those of the launcher that has not started this process", torch.rank, p.Rank, c.rank, other.Rank)
	}
	return nil
}

// number reads a variable.
func (c convention) number(env func(string) (string, bool), name string, low, high int) (int, error) {
	text, ok := env(name)
	if !ok {
		return 0, fmt.Errorf("%s is not set, which %s sets together with %s, %s and %s", name, c.launcher, c.rank, c.localRank, c.size)
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < low || v > high {
		return 0, fmt.Errorf("%s is %q; want %d to %d", name, text, low, high)
	}
	return v, nil
}

// address returns where rank 0 listens.
func address(c convention, env func(string) (string, bool), size int) (string, error) {
	host, err := masterHost(c, env, size)
	if err != nil {
		return "", err
	}
	port := defaultPort
	text, ok := env(masterPort)
	switch {
	case ok:
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > math.MaxUint16 {
			return "", fmt.Errorf("%s is %q; want 1 to %d", masterPort, text, math.MaxUint16)
		}
	case c == torch && size > 1:
		return "", fmt.Errorf("%s is not set, which torchrun sets together with %s", masterPort, c.rank)
	case c == slurm: // another port for each job of a host
		if job, ok := env(slurmJob); ok {
			id, err := strconv.Atoi(job)
			if err != nil || id < 0 {
				return "", fmt.Errorf("%s is %q; want a number, or set %s", slurmJob, job, masterPort)
			}
			port = firstPort + id%ports
		}
	}
	if store, _ := env(torchStore); c == torch && store == "True" {
		port++ // torchrun itself listens at MASTER_PORT
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// masterHost returns the host of rank 0.
func masterHost(c convention, env func(string) (string, bool), size int) (string, error) {
	if host, ok := env(masterAddr); ok {
		if host == "" {
			return "", fmt.Errorf("%s is empty; want the host of rank 0", masterAddr)
		}
		return host, nil
	}
	if c == slurm {
		for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} {
			if list, ok := env(name); ok {
				host, err := firstHost(list)
				if err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				return host, err
			}
		}
	}
	local, _ := env("OMPI_COMM_WORLD_LOCAL_SIZE")
	if size == 1 || c == openMPI && local == strconv.Itoa(size) {
		return "127.0.0.1", nil
	}
	return "", fmt.Errorf("%s is not set; want the host of rank 0, since %s names none", masterAddr, c.launcher)
}

// firstHost returns the first host of a Slurm list such as rack1,node[003-007,9].
func firstHost(list string) (string, error) {
	var host strings.Builder
	bad := fmt.Errorf("%q is no list of hosts such as node[003-007,9]", list)
	rest := list
	for rest != "" && rest[0] != ',' {
		if rest[0] != '[' {
			if !hostByte(rest[0]) {
				return "", bad
			}
			host.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		numbers, after, ok := strings.Cut(rest[1:], "]")
		first := numbers
		if end := strings.IndexAny(numbers, "-,"); end >= 0 {
			first = numbers[:end]
		}
		if !ok || first == "" || strings.Trim(first, "0123456789") != "" {
			return "", bad
		}
		host.WriteString(first)
		rest = after
	}
	if host.Len() == 0 {
		return "", bad
	}
	return host.String(), nil
}

// hostByte says whether names of hosts have c.
func hostByte(c byte) bool {
	return c == '.' || c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
