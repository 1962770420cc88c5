package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pulsecol/pulsecol/models"
)

// echoModel encodes a text as its bytes, and messages as roles and contents.
type echoModel struct{ model }

func (echoModel) config() architecture { return architecture{Vocab: 256} }

func (echoModel) Encode(text string) ([]int32, error) {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids, nil
}

func (m echoModel) EncodeChat(messages []models.Message) ([]int32, error) {
	return m.Encode(fmt.Sprint(messages))
}

func TestPromptForms(t *testing.T) {
	large := &openModel{echoModel{lladaModel{}}, "dir", false}
	small := &openModel{echoModel{lladaModel{}}, "embedded", true}
	text, system := "Hello?", "Be brief."
	for _, c := range []struct {
		name  string
		m     *openModel
		flags promptFlags
		want  string
	}{
		{"plain", large, promptFlags{}, "Hello?"},
		{"chat", large, promptFlags{Chat: true}, "[{user Hello?}]"},
		{"system", large, promptFlags{Chat: true, Form: chatForm{System: &system}}, "[{system Be brief.} {user Hello?}]"},
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
