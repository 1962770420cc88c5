package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command to describe; without it all are listed."`
}

// Run prints what "pulsecol COMMAND --help" prints.
func (c *helpCmd) Run(line *kong.Context) error {
	described, err := kong.Trace(line.Kong, c.Command)
	if err != nil {
		return err
	}
	if described.Error != nil {
		return usagef("help %s: %w", strings.Join(c.Command, " "), described.Error)
	}
	return described.PrintUsage(false)
}

// printUsage writes the output of the command without arguments.
func printUsage(w io.Writer, app *kong.Application) error {
	fmt.Fprintf(w, "usage: %s COMMAND [flags]\n\n", app.Name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range app.Children {
		if !c.Hidden {
			fmt.Fprintf(t, "  %s\t%s\n", c.Name, c.Help)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n\"%[1]s help COMMAND\" describes one of them. \"%[1]s generate\" is a first try.\n", app.Name)
	return err
}
