package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// clusterCode returns the one piece of code in a language on the page about clusters.
func clusterCode(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(found) != 1 {
		t.Fatalf("%d pieces of %s", len(found), language)
	}
	return found[0][1]
}

// quickly replaces the samples of the page by two short ones a task.
func quickly(t *testing.T, code string) string {
	t.Helper()
	const flags, quick = "--task lists@600,retrieval@1024 --method full,pulsecol", "--task lists@80,retrieval@128 --method full,pulsecol"
	if !strings.Contains(code, flags) || !strings.Contains(code, "--samples 200") {
		t.Fatalf("want %s and --samples 200 in\n%s", flags, code)
	}
	return strings.NewReplacer(flags, quick, "--samples 200", "--samples 2").Replace(code)
}

// joinedEquals compares the table of results files with that of a single command.
func joinedEquals(t *testing.T, paths []string) {
	t.Helper()
	args := []string{"eval", "--task", "lists@80,retrieval@128", "--method", "full,pulsecol", "--samples", "2"}
	want, _ := command(t, args...)
	if got, _ := command(t, append(args, "--results", strings.Join(paths, ","))...); got != want {
		t.Errorf("joined\n%s\nwant\n%s", got, want)
	}
}

// runShell runs a script with variables of a scheduler in dir.
func runShell(t *testing.T, dir string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "Partial: shard ") {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
}

func needShell(t *testing.T, name string) {
	t.Helper()
	if raceEnabled || testing.Short() {
		t.Skip("starts many processes")
	}
	if _, err := exec.LookPath(name); err != nil || runtime.GOOS == "windows" {
		t.Skipf("needs %s", name)
	}
}

// TestClusterSlurm runs the script of the page for every task of its array and joins the
// results.
func TestClusterSlurm(t *testing.T) {
	needShell(t, "bash")
	dir := t.TempDir()
	script := filepath.Join(dir, "job.sh")
	code := quickly(t, clusterCode(t, "bash"))
	if err := os.WriteFile(script, []byte(code), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	array := regexp.MustCompile(`(?m)^#SBATCH --array=1-(\d+)$`).FindStringSubmatch(code)
	if array == nil || !strings.Contains(code, "--shard auto/"+array[1]+" ") {
		t.Fatalf("the array %v is not that of --shard", array)
	}
	var n int
	fmt.Sscan(array[1], &n)
	var paths []string
	for i := 1; i <= n; i++ {
		runShell(t, dir, []string{fmt.Sprint("SLURM_ARRAY_TASK_ID=", i), "SLURM_ARRAY_TASK_MIN=1", fmt.Sprint("SLURM_ARRAY_TASK_MAX=", n), fmt.Sprint("SLURM_ARRAY_TASK_COUNT=", n)}, script)
		paths = append(paths, filepath.Join(dir, "answers", fmt.Sprint(i)+".jsonl"))
	}
	joinedEquals(t, paths)
}

// TestClusterKubernetes reads the Job of the page, and runs the command of its container for
// every index.
func TestClusterKubernetes(t *testing.T) {
	needShell(t, "sh")
	root, err := parseYAML(clusterCode(t, "yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	type container struct {
		Name, Image   string
		Command, Args []string
		Env           []struct{ Name, Value string }
		Resources     struct{ Requests map[string]string }
		VolumeMounts  []struct{ Name, MountPath string }
	}
	var job struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			CompletionMode                         string
			Completions, Parallelism, BackoffLimit int `json:",string"`
			Template                               struct {
				Spec struct {
					RestartPolicy string
					Containers    []container
					Volumes       []struct {
						Name                  string
						PersistentVolumeClaim struct{ ClaimName string }
					}
				}
			}
		}
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&job); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	pod := job.Spec.Template.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || job.Spec.CompletionMode != "Indexed" || pod.RestartPolicy != "Never" || len(pod.Containers) != 1 || len(pod.Volumes) != 1 {
		t.Fatalf("job %+v", job)
	}
	c := pod.Containers[0]
	if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != pod.Volumes[0].Name || len(c.Env) != 1 || c.Env[0].Value != c.VolumeMounts[0].MountPath {
		t.Errorf("container %+v with volumes %+v", c, pod.Volumes)
	}
	if want := fmt.Sprintf("--shard auto/%d ", job.Spec.Completions); len(c.Args) != 1 || !strings.Contains(c.Args[0], want) {
		t.Fatalf("args %q, want %s", c.Args, want)
	}
	dir := t.TempDir()
	var paths []string
	for i := range job.Spec.Completions {
		env := []string{fmt.Sprint("JOB_COMPLETION_INDEX=", i), c.Env[0].Name + "=" + dir}
		runShell(t, dir, env, append(c.Command, quickly(t, c.Args[0]))...)
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)+".jsonl"))
	}
	joinedEquals(t, paths)
}

// parseYAML reads the part of YAML that the page uses: mappings and sequences in blocks, flow
// sequences of quoted strings, folded text (>-) and plain scalars, which are all strings here.
// Everything else is an error.
func parseYAML(text string) (any, error) {
	p := yamlParser{lines: strings.Split(strings.TrimRight(text, "\n"), "\n")}
	v, err := p.block(0)
	if err == nil && p.at < len(p.lines) {
		err = fmt.Errorf("line %d: %q is indented otherwise than its block", p.at+1, p.lines[p.at])
	}
	return v, err
}

type yamlParser struct {
	lines []string
	at    int
}

// indent is that of the current line; -1 after the last.
func (p *yamlParser) indent() int {
	if p.at == len(p.lines) {
		return -1
	}
	return len(p.lines[p.at]) - len(strings.TrimLeft(p.lines[p.at], " "))
}

var yamlPair = regexp.MustCompile(`^([A-Za-z][\w.]*):(?: (\S.*))?$`)

// block reads a mapping or a sequence, whose lines are indented by n.
func (p *yamlParser) block(n int) (any, error) {
	mapping, sequence := map[string]any{}, []any(nil)
	for p.indent() == n {
		line := p.lines[p.at][n:]
		if item, ok := strings.CutPrefix(line, "- "); ok && len(mapping) == 0 {
			if item == ">-" {
				p.at++
				sequence = append(sequence, p.folded(n))
				continue
			}
			p.lines[p.at] = strings.Repeat(" ", n+2) + item // a mapping that begins in this line
			v, err := p.block(n + 2)
			if err != nil {
				return nil, err
			}
			sequence = append(sequence, v)
			continue
		}
		m := yamlPair.FindStringSubmatch(line)
		if m == nil || sequence != nil || mapping[m[1]] != nil {
			return nil, fmt.Errorf("line %d: %q is no new pair of a mapping", p.at+1, line)
		}
		p.at++
		v, err := p.value(m[2], n)
		if err != nil {
			return nil, err
		}
		mapping[m[1]] = v
	}
	if sequence != nil {
		return sequence, nil
	}
	return mapping, nil
}

// value reads what follows a key that is indented by n.
func (p *yamlParser) value(text string, n int) (any, error) {
	var list []string
	switch {
	case text == "" && p.indent() > n:
		return p.block(p.indent())
	case strings.HasPrefix(text, "["):
		err := json.Unmarshal([]byte(text), &list)
		return list, err
	case text == "" || strings.ContainsAny(text[:1], "\"'>|&*!%@`{#") || strings.Contains(text, ": ") || strings.Contains(text, " #"):
		return nil, fmt.Errorf("line %d: %q is no plain scalar", p.at, text)
	}
	return text, nil
}

// folded reads text whose lines are indented by more than n.
func (p *yamlParser) folded(n int) string {
	var words []string
	for p.indent() > n {
		words = append(words, strings.TrimSpace(p.lines[p.at]))
		p.at++
	}
	return strings.Join(words, " ")
}
