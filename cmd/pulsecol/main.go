// Command pulsecol generates text with diffusion language models (LLaDA and
// Dream) under PulseCol's column-sparse attention, and looks into such models.
// "pulsecol COMMAND --help" describes its commands.
//
// Results go to the standard output, everything else to the standard error. On a
// terminal control characters in them are replaced; pipes and files get every byte.
// The exit status is 0 on success, 1 on a failure (a missing file, a broken
// checkpoint, a prompt too long for the model, too little memory, an error of the
// program itself), 2 on wrong usage (an unknown flag, a value out of range) and 130
// after an interrupt. The environment variable PULSECOL_DEBUG, if not empty, adds the
// stack to an error of the program itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/internal/task"
	"github.com/pulsecol/pulsecol/models"
)

type cli struct {
	Generate generateCmd `cmd:"" help:"Answer a prompt."`
	Chat     chatCmd     `cmd:"" help:"Have a conversation."`
	Logits   logitsCmd   `cmd:"" help:"Write the model's output for a sequence of tokens to a file."`
	Eval     evalCmd     `cmd:"" help:"Measure how well methods of attention answer the samples of tasks."`
	Tokenize tokenizeCmd `cmd:"" help:"Turn text into token ids, or back."`
	Convert  convertCmd  `cmd:"" help:"Write a model as a GGUF file, with weights of fewer bits if asked for."`
	Info     infoCmd     `cmd:"" help:"Describe a model, this machine, and the memory that a run takes."`
	Inspect  inspectCmd  `cmd:"" help:"Show attention, and how much of it each method keeps."`
	Bench    struct {
		Step   benchStepCmd   `cmd:"" help:"Measure the seconds of a denoising step in each mode."`
		E2E    benchE2ECmd    `cmd:"" name:"e2e" help:"Measure denoising steps and generations at several lengths, and the GPU memory they take."`
		Kernel benchKernelCmd `cmd:"" help:"Measure the speed of the kernels and the machine's peak."`
		Plot   benchPlotCmd   `cmd:"" help:"Draw what the other commands measured."`
	} `cmd:"" help:"Measure speed."`
	Help       helpCmd       `cmd:"" help:"Describe the commands, or one of them."`
	Version    versionCmd    `cmd:"" help:"Print the version, and what was compiled in."`
	Completion completionCmd `cmd:"" help:"Print a script that completes command lines in a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`

	VersionFlag versionFlag `name:"version" help:"Print the version and exit."`
}

const description = `Text from diffusion language models, with periodically refreshed column-sparse attention.

Without --model, commands use a small model that is part of the program; "pulsecol generate" asks it a question.

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.`

func main() {
	os.Exit(run(os.Args[1:], stdio{os.Stdin, forTerminal(os.Stdout), forTerminal(os.Stderr)}))
}

// stdio are the standard streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// Exit statuses other than 0.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a death by SIGINT
)

// run executes a command line and returns the exit status.
func run(args []string, std stdio) (status int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exited:
			status = int(r)
		default:
			status = exitFailure
			reportPanic(std.err, r)
		}
	}()
	err := execute(args, std)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errNoCommand):
		return exitUsage // execute has printed the usage
	}
	status = exitFailure
	var usage usageError
	switch {
	case errors.Is(err, context.Canceled):
		status, err = exitInterrupted, errors.New("interrupted")
	case errors.As(err, &usage), errors.Is(err, pulsecol.ErrConfig), errors.Is(err, models.ErrRequest):
		status = exitUsage
	}
	report(std.err, err)
	return status
}

// report prints an error in one line.
func report(w io.Writer, err error) {
	text := strings.TrimPrefix(err.Error(), "pulsecol: ")
	fmt.Fprintf(w, "pulsecol: %s\n", strings.ReplaceAll(text, "\n", "; "))
}

// exited is the value with which the parser panics after --help or --version.
type exited int

func execute(args []string, std stdio) error {
	parser, err := kong.New(&cli{},
		kong.Name("pulsecol"), kong.Description(description), flagVars(),
		kong.Writers(std.out, std.err), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Bind(std), kong.Exit(func(status int) { panic(exited(status)) }))
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.Join(errNoCommand, printUsage(std.err, parser.Model))
	}
	line, err := parser.Parse(joinNegative(args))
	var write *fs.PathError
	if errors.As(err, &write) { // of --help or --version, not of what is asked for
		return err
	}
	if err != nil {
		return usagef("%w (see pulsecol --help)", err)
	}
	if err := checkLists(line); err != nil {
		return err
	}
	return line.Run()
}

// flagVars are what the flags' descriptions refer to.
func flagVars() kong.Vars {
	return kong.Vars{"version": version(), "methods": methods, "tasks": strings.Join(task.Names(), ", "), "gguf": strings.Join(models.GGUFTypes(), ",")}
}

// background is the parent of the commands' contexts. Only tests of flags cancel it.
var background = context.Background()

// untilInterrupted returns a context that ends with the first interrupt, so that a command
// can print its results so far. A second one ends the process at once, as the first does in
// commands that wait for input.
func untilInterrupted() (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(background, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// errNoCommand is the error of an empty command line.
var errNoCommand = errors.New("no command")

// usageError marks an error as one of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// joinNegative turns "--flag -1" into "--flag=-1": the parser would read the number as a
// flag, and its error would not name the range.
func joinNegative(args []string) []string {
	var out []string
	for i, a := range args {
		if a == "--" { // what follows is no flag
			return append(out, args[i:]...)
		}
		last := len(out) - 1
		negative := len(a) > 1 && a[0] == '-' && (a[1] == '.' || a[1] >= '0' && a[1] <= '9')
		if negative && last >= 0 && strings.HasPrefix(out[last], "--") && !strings.Contains(out[last], "=") {
			out[last] += "=" + a
			continue
		}
		out = append(out, a)
	}
	return out
}
