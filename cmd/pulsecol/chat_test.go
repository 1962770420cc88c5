package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/internal/tinymodel"
	"golang.org/x/term"
)

// conversationModel makes a directory of the small model with a chat template and
// another context, and returns it.
func conversationModel(t *testing.T, context int) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := tinymodel.FS()
	for _, name := range []string{"config.json", "tokenizer.json"} {
		f, err := files.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		if name == "config.json" {
			var config map[string]any
			if err := json.Unmarshal(data, &config); err != nil {
				t.Fatal(err)
			}
			config["max_sequence_length"] = context
			if data, err = json.Marshal(config); err != nil {
				t.Fatal(err)
			}
		}
		write(name, data)
	}
	write("model.safetensors", tinymodel.Weights())
	write("chat_template.jinja", []byte("{% for m in messages %}{{ m.role[0] }}: {{ m.content }}|{% endfor %}a:"))
	return dir
}

// turnsOf runs chat --json on lines.
func turnsOf(t *testing.T, lines string, args ...string) (turns []turn) {
	t.Helper()
	var out, said bytes.Buffer
	if status := run(append([]string{"chat", "--json"}, args...), stdio{strings.NewReader(lines), &out, &said}); status != 0 {
		t.Fatalf("exit status %d: %s", status, said.String())
	}
	for line := range strings.Lines(out.String()) {
		var g turn
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatal(err)
		}
		turns = append(turns, g)
	}
	return turns
}

// idsOf returns what tokenize gives for a text.
func idsOf(t *testing.T, dir, text string) (ids []int32) {
	t.Helper()
	out, _ := command(t, "tokenize", "--model", dir, "--text", text)
	if err := json.Unmarshal([]byte(out), &ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestChatKeepsTheConversation: each turn's prompt is the conversation so far, in the form
// of the model's template.
func TestChatKeepsTheConversation(t *testing.T) {
	dir := conversationModel(t, 512)
	args := []string{"--model", dir, "--gen-length", "8"}
	turns := turnsOf(t, "one two\n\n/help\nthree\\\n", append(args, "--system", "Be brief.")...)
	if len(turns) != 3 {
		t.Fatalf("%d turns, want 3: %+v", len(turns), turns)
	}
	said := "s: Be brief.|"
	for i, user := range []string{"one two", "/help", `three\`} {
		said += "u: " + user + "|"
		if got, want := turns[i].PromptIDs, idsOf(t, dir, said+"a:"); !slices.Equal(got, want) {
			t.Errorf("turn %d: prompt %v, want %v", i+1, got, want)
		}
		if turns[i].Turn != i+1 || turns[i].User != user || turns[i].Dropped != 0 || turns[i].Interrupted {
			t.Errorf("turn %+v", turns[i])
		}
		said += "a: " + strings.TrimSpace(turns[i].Text) + "|"
	}

	alone := generated(t, append(args, "--chat", "--system", "Be brief.", "--prompt", "one two")...)
	if !slices.Equal(alone.OutputIDs[:len(turns[0].OutputIDs)], turns[0].OutputIDs) {
		t.Errorf("the first turn's tokens are %v, generate --chat gives %v", turns[0].OutputIDs, alone.OutputIDs)
	}
}

// TestChatLongerThanTheContext: a conversation that is too long is an error that names the
// remedies, or loses its oldest turns.
func TestChatLongerThanTheContext(t *testing.T) {
	dir := conversationModel(t, 48)
	lines := "one two\nthree four\nfive six\nseven eight\n"
	args := []string{"--model", dir, "--gen-length", "8"}
	var out, said bytes.Buffer
	status := run(append([]string{"chat"}, args...), stdio{strings.NewReader(lines), &out, &said})
	if status != exitFailure || !strings.Contains(said.String(), "--drop-oldest leaves out the oldest turns") {
		t.Errorf("exit status %d, said %q", status, said.String())
	}
	if finished := strings.Count(out.String(), "\n"); finished < 1 || finished > 3 {
		t.Errorf("%d answers", finished)
	}

	turns := turnsOf(t, lines, append(args, "--drop-oldest")...)
	dropped := 0
	for i, g := range turns {
		if len(g.PromptIDs)+8 > 48 {
			t.Errorf("turn %d has a prompt of %d tokens", i+1, len(g.PromptIDs))
		}
		dropped += g.Dropped
	}
	if len(turns) != 4 || dropped == 0 {
		t.Errorf("%d turns, %d dropped", len(turns), dropped)
	}

	said.Reset()
	status = run(append([]string{"chat", "--drop-oldest"}, args...), stdio{strings.NewReader(strings.Repeat("word ", 60)), &out, &said})
	if status != exitFailure || !strings.Contains(said.String(), "message 1: a prompt of") {
		t.Errorf("exit status %d, said %q", status, said.String())
	}
}

// TestChatCommands: commands typed at a terminal.
func TestChatCommands(t *testing.T) {
	dir := conversationModel(t, 512)
	var out, said bytes.Buffer
	std := stdio{nil, &out, &said}
	parser := testParser(t)
	line, err := parser.Parse([]string{"chat", "--model", dir, "--gen-length", "4"})
	if err != nil {
		t.Fatal(err)
	}
	c := line.Selected().Target.Addr().Interface().(*chatCmd)
	m, err := c.Open.open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	talk, err := c.newTalk(m, line, std)
	if err != nil {
		t.Fatal(err)
	}
	typed := "one\\\ntwo\n/nonsense\n\xff\nthree\n/clear\n/help\n /four\n/exit\nfive\n"
	if err := talk.run(&plainReader{in: bufio.NewReader(strings.NewReader(typed)), out: &said}, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no token <|eot_id|>", "> . ", `no command "/nonsense"`, "not valid UTF-8", "A new conversation.", "/exit    end", "4 steps in"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is missing in %q", want, said.String())
		}
	}
	if len(talk.messages) != 2 || talk.messages[0].Content != " /four" || strings.Count(out.String(), "\n") < 3 {
		t.Errorf("messages %q, answers %q", talk.messages, out.String())
	}
	talk.messages = nil
	if err := talk.run(&plainReader{in: bufio.NewReader(strings.NewReader("one\\\ntwo\n")), out: &said}, true); err != nil || talk.messages[0].Content != "one\ntwo" {
		t.Errorf("messages %q, error %v", talk.messages, err)
	}
}

// TestEditedLines: continued and pasted lines, editing keys, the end of the input.
func TestEditedLines(t *testing.T) {
	restored := 0
	for typed, want := range map[string][]string{
		"abc\rdef\r":                   {"abc", "def"},
		"ab\\\rcd\r":                   {"ab\ncd"},
		"\x1b[200~a\rb\x1b[201~c\rd\r": {"a\nbc", "d"},
		"abd\x7fc\x1b[D\x1b[Dx\r":      {"axbc"},
		"one\r\x1b[A\r":                {"one", "one"},
		"abc\x03":                      nil,
		"\x04":                         nil,
		"日本\r":                         {"日本"},
	} {
		var shown bytes.Buffer
		editor := term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(typed), &shown}, "")
		in := &editedReader{editor, func() (func(), error) { return func() { restored++ }, nil }}
		before := restored
		var got []string
		for {
			text, err := in.next()
			if err != nil {
				if err != io.EOF {
					t.Errorf("%q: %v", typed, err)
				}
				break
			}
			got = append(got, text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
		if restored-before != len(want)+1 {
			t.Errorf("%q: the terminal was restored %d times", typed, restored-before)
		}
	}
}

// TestChatKeepsItsSession: the turns of a conversation have one session.
func TestChatKeepsItsSession(t *testing.T) {
	line, err := testParser(t).Parse([]string{"chat", "--model", conversationModel(t, 512), "--gen-length", "4", "--cache", "dual"})
	if err != nil {
		t.Fatal(err)
	}
	c := line.Selected().Target.Addr().Interface().(*chatCmd)
	m, err := c.Open.open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out, said bytes.Buffer
	talk, err := c.newTalk(m, line, stdio{nil, &out, &said})
	if err != nil {
		t.Fatal(err)
	}
	var first session
	for _, text := range []string{"one", "two three"} {
		if err := talk.say(text); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = talk.kept.open
		}
	}
	if first == nil || talk.kept.open != first {
		t.Error("a turn in another session")
	}
	if n := strings.Count(said.String(), "dual cache with 1 prefill and 3 block steps"); n != 2 {
		t.Errorf("said %q", said.String())
	}
}

func TestChatUsage(t *testing.T) {
	for line, want := range map[string]string{
		"chat --system a":                    "the small model has no chat form",
		"chat --small dream --infill":        "--infill does not apply to chat",
		"chat --cache dual --method sparsed": "--cache dual does not apply to --method sparsed",
		"chat --gen-length 0":                "--gen-length 0: want",
		"chat --small dream --gen-length 8":  "does not apply to a Dream model",
	} {
		var out, said bytes.Buffer
		status := run(strings.Fields(line), stdio{strings.NewReader("a\n"), &out, &said})
		if status != exitUsage || !strings.Contains(said.String(), want) || out.Len() > 0 {
			t.Errorf("%s: exit status %d, said %q", line, status, said.String())
		}
	}
}
