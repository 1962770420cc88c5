package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/internal/tokenizer"
)

type tokenizeCmd struct {
	Model     modelFlag `embed:""`
	Tokenizer *string   `placeholder:"FILE" help:"Use this tokenizer.json, whatever its name, instead of a model's."`
	Text      *string   `xor:"text" placeholder:"TEXT" help:"Encode TEXT instead of the standard input."`
	Decode    bool      `xor:"text" help:"Turn ids into text, special tokens included."`
}

func (tokenizeCmd) Help() string {
	return `Reads lines from the standard input and writes a line for each: a JSON string becomes a JSON array of token ids, and with --decode the other way round. Added tokens such as <|mask|> are recognised in the text.

Examples:
  pulsecol tokenize --text "Hello"
  echo '"Hello\nworld"' | pulsecol tokenize --model DIR
  echo '[1,2,3]' | pulsecol tokenize --tokenizer tokenizer.json --decode`
}

func (c *tokenizeCmd) Run(std stdio) error {
	t, err := c.open()
	if err != nil {
		return err
	}
	if c.Text != nil {
		ids, err := t.Encode(*c.Text)
		if err != nil {
			return usagef("--text: %w", err)
		}
		return printJSON(std.out, ids)
	}
	convert := encodeLine
	if c.Decode {
		convert = decodeLine
	}
	in, out := bufio.NewReader(std.in), bufio.NewWriter(std.out)
	for n := 1; ; n++ {
		line, err := infile.ReadLine(in, fmt.Sprintf("line %d", n), maxLine)
		if err == io.EOF {
			return out.Flush()
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		result, err := convert(t, line)
		if err == nil {
			err = printJSON(out, result)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("line %d: %w", n, err), out.Flush())
		}
		if in.Buffered() == 0 { // the writer of the lines may wait for the answers
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

var maxLine = infile.Limit{Bytes: maxPrompt.Bytes, What: "a line"}

func (c *tokenizeCmd) open() (*tokenizer.Tokenizer, error) {
	switch {
	case c.Tokenizer == nil:
		return c.Model.tokenizer()
	case c.Model.Model != nil || c.Model.Small != nil:
		return nil, usagef("--tokenizer can't be used together with --model or --small")
	}
	return tokenizer.OpenFile(*c.Tokenizer)
}

func encodeLine(t *tokenizer.Tokenizer, line []byte) (any, error) {
	if !utf8.Valid(line) { // package json would put U+FFFD in its place
		return nil, errors.New("not valid UTF-8")
	}
	var text *string
	if err := json.Unmarshal(line, &text); err != nil || text == nil {
		return nil, fmt.Errorf("%s: want a JSON string", shortened(line))
	}
	return t.Encode(*text)
}

func decodeLine(t *tokenizer.Tokenizer, line []byte) (any, error) {
	var given []*int32
	err := json.Unmarshal(line, &given)
	ids := make([]int32, len(given))
	for i, id := range given {
		if id == nil {
			err = errors.New("null")
			break
		}
		ids[i] = *id
	}
	if err != nil || given == nil {
		return nil, fmt.Errorf("%s: want a JSON array of token ids", shortened(line))
	}
	return t.Decode(ids, false)
}

// shortened quotes the beginning of a line.
func shortened(line []byte) string {
	const most = 60
	if len(line) > most {
		return fmt.Sprintf("%q...", line[:most])
	}
	return fmt.Sprintf("%q", line)
}
