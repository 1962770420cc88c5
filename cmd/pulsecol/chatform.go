package main

import (
	"errors"
	"fmt"

	"github.com/pulsecol/pulsecol/internal/chattemplate"
	"github.com/pulsecol/pulsecol/internal/infile"
	"github.com/pulsecol/pulsecol/models"
)

// chatForm is the form of a conversation.
type chatForm struct {
	System       *string `group:"Prompt" placeholder:"TEXT" help:"System message of a conversation."`
	ChatTemplate *string `name:"chat-template" group:"Prompt" placeholder:"FILE" help:"Jinja template of a conversation. Default: the model's own, else builtin, the form of the published Instruct model."`
}

// builtinForm is the value of --chat-template for no template at all.
const builtinForm = "builtin"

// encode returns the token ids of messages, with the system message before them.
func (f *chatForm) encode(m *openModel, messages []models.Message) ([]int32, error) {
	if f.System != nil {
		messages = append([]models.Message{{Role: "system", Content: *f.System}}, messages...)
	}
	if f.ChatTemplate == nil {
		ids, err := m.EncodeChat(messages)
		if errors.Is(err, models.ErrChatTemplate) {
			err = fmt.Errorf("%w (see --chat-template)", err)
		}
		return ids, err
	}
	if *f.ChatTemplate == builtinForm {
		return m.EncodeChatTemplate("", messages)
	}
	source, err := readTemplate(*f.ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	ids, err := m.EncodeChatTemplate(source, messages)
	if err != nil {
		return nil, fmt.Errorf("--chat-template %s: %w", *f.ChatTemplate, err)
	}
	return ids, nil
}

func readTemplate(path string) (string, error) {
	data, err := infile.Read(path, chattemplate.Limit)
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("%s is empty; --chat-template %s is the form of the published models", path, builtinForm)
	}
	return string(data), err
}
