package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol/cudaop"
	"github.com/pulsecol/pulsecol/internal/kernel"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// build describes the program.
type build struct {
	Version  string `json:"version"`            // of the module; "(devel)" outside a release
	Revision string `json:"revision,omitempty"` // of the repository
	Time     string `json:"time,omitempty"`     // of the revision, RFC 3339
	Modified bool   `json:"modified"`           // the tree differed from the revision
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Kernels  string `json:"kernels"` // instruction set in use
	CUDA     bool   `json:"cuda"`    // compiled in
}

func thisBuild() build {
	b := build{Version: "(unknown)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Kernels: kernel.Features(), CUDA: cudaop.Compiled}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" { // else the program was built from files, or is a test
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (c *versionCmd) Run(std stdio) error {
	b := thisBuild()
	if c.JSON {
		return printJSON(std.out, b)
	}
	t := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "pulsecol\t%s\n", b.Version)
	if b.Revision != "" {
		fmt.Fprintf(t, "revision\t%s\n", b.revision())
		fmt.Fprintf(t, "of\t%s\n", b.Time)
	}
	fmt.Fprintf(t, "Go\t%s %s/%s\n", b.Go, b.OS, b.Arch)
	fmt.Fprintf(t, "kernels\t%s\n", b.Kernels)
	cuda := `not compiled in (build with "-tags cuda")`
	if b.CUDA {
		cuda = "compiled in"
	}
	fmt.Fprintf(t, "CUDA\t%s\n", cuda)
	return t.Flush()
}

func (b *build) revision() string {
	if b.Modified {
		return b.Revision + "+changes"
	}
	return b.Revision
}

// versionFlag is kong.VersionFlag, but for its leaving out that the version could not
// be printed.
type versionFlag bool

// BeforeReset prints the version, and ends the command.
func (versionFlag) BeforeReset(app *kong.Kong, vars kong.Vars) error {
	if _, err := fmt.Fprintln(app.Stdout, vars["version"]); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

// version is the line of --version.
func version() string {
	b := thisBuild()
	text := "pulsecol " + b.Version
	if b.Revision != "" {
		text += " " + b.revision()
	}
	return fmt.Sprintf("%s %s %s/%s", text, b.Go, b.OS, b.Arch)
}
