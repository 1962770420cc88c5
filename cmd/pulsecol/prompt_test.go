package main

import (
	"strings"
	"testing"
)

// echoModel encodes a text as its bytes.
type echoModel struct{ model }

func (echoModel) config() architecture { return architecture{Vocab: 256} }

func (echoModel) Encode(text string) ([]int32, error) {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func TestPromptForms(t *testing.T) {
	llada := &openModel{echoModel{lladaModel{}}, "dir", false}
	dream := &openModel{echoModel{dreamModel{}}, "dir", false}
	small := &openModel{echoModel{lladaModel{}}, "embedded", true}
	text, system := "Hello?", "Be brief."
	for _, c := range []struct {
		name  string
		m     *openModel
		flags promptFlags
		want  string
	}{
		{"plain", llada, promptFlags{}, "Hello?"},
		{"llada chat", llada, promptFlags{Chat: true}, "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHello?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"llada system", llada, promptFlags{Chat: true, System: &system}, "<|startoftext|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"dream chat", dream, promptFlags{Chat: true}, "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n"},
		{"dream system", dream, promptFlags{Chat: true, System: &system}, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n"},
		{"small", small, promptFlags{}, "Q: Hello?\nA:"},
		{"small raw", small, promptFlags{Raw: true}, "Hello?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.flags.Prompt = &text
			p, err := c.flags.read(c.m, strings.NewReader("not read"))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, id := range p.ids {
				got.WriteByte(byte(id))
			}
			if got.String() != c.want {
				t.Errorf("got %q, want %q", got.String(), c.want)
			}
		})
	}
}
