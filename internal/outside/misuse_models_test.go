package outside_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pulsecol/pulsecol"
	"github.com/pulsecol/pulsecol/graph"
	"github.com/pulsecol/pulsecol/models"
	"github.com/pulsecol/pulsecol/models/dream"
	"github.com/pulsecol/pulsecol/models/llada"
	"gorgonia.org/gorgonia"
)

// aModel is what the models have in common; O are their options.
type aModel[O any] interface {
	Build(*gorgonia.ExprGraph, models.Shape, *pulsecol.Controller) (*models.Graph, error)
	BuildTrained(*gorgonia.ExprGraph, models.Shape, *pulsecol.Controller, func(int, *graph.Block) error) (*models.Graph, error)
	Close() error
	Config() models.Config
	Decode([]int32) (string, error)
	Encode(string) ([]int32, error)
	EncodeChat([]models.Message) ([]int32, error)
	EncodeChatTemplate(string, []models.Message) ([]int32, error)
	Generate(context.Context, []int32, pulsecol.Config, O) (*models.Result, error)
	GenerateBatch(context.Context, [][]int32, pulsecol.Config, O) ([]models.Result, error)
	Logits(context.Context, [][]int32, []int) ([]float32, error)
	Options(O) O
	PredictMemory(int, int, pulsecol.Config, O) (models.Memory, error)
	Steps([][]int32, pulsecol.Config, O) (int, error)
	WriteGGUF(context.Context, io.Writer, models.GGUFOptions) error
}

// architecture is a package of models.
type architecture[O any] struct {
	name, folder string
	small        O // four tokens
	bad          map[string]O
	open         func(dir string) (aModel[O], error)
	openFS       func(fsys fs.FS, weights []byte) (aModel[O], error)
	random       func(config []byte, context int, seed uint64) (aModel[O], error)
	published    func() []byte
	session      func(of aModel[O], cfg pulsecol.Config) (aSession[O], error)
}

// aSession is a session of a model.
type aSession[O any] interface {
	Generate(context.Context, []int32, O) (*models.Result, error)
	GenerateBatch(context.Context, [][]int32, O) ([]models.Result, error)
	Close() error
}

// opened is a function that opens a model, without the type of its result.
func opened[M aModel[O], O any](m M, err error) (aModel[O], error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// model opens the small model.
func (a *architecture[O]) model(t testing.TB) aModel[O] {
	m := must(a.open(filepath.Join("..", "tinymodel", a.folder)))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// file reads a file of the small model.
func (a *architecture[O]) file(t testing.TB, name string) []byte {
	return must(os.ReadFile(filepath.Join("..", "tinymodel", a.folder, name)))(t)
}

// badIDs are sequences that no vocabulary has, or no context holds.
func badIDs(c models.Config) map[string][]int32 {
	return map[string][]int32{
		"negative": {1, -1}, "smallest": {math.MinInt32}, "past the vocabulary": {int32(c.Vocab)}, "largest": {math.MaxInt32},
		"past the context": make([]int32, c.Context+1),
	}
}

// badModelConfigs are those configs of attention that a model refuses.
func badModelConfigs() map[string]pulsecol.Config {
	bad := badConfigs()
	bad["a table of another model"] = pulsecol.Config{Pattern: pulsecol.Fixed{Tables: []*pulsecol.ColumnTable{table(3, 3, 9, 2)}}}
	return bad
}

func (a *architecture[O]) misuses() map[string]func(*misuse) {
	closed := func(m *misuse) aModel[O] {
		of := a.model(m)
		m.works("close", of.Close)
		return of
	}
	cases := map[string]func(*misuse){
		"Open": func(m *misuse) {
			file := filepath.Join(m.TempDir(), "file")
			m.works("a file", func() error { return os.WriteFile(file, nil, 0o600) })
			for _, dir := range []string{"", ".", file, m.TempDir(), "no such folder", "no/such", "no/such@revision", "\x00", "../..", strings.Repeat("x", 100)} {
				m.fails(fmt.Sprintf("%.20q", dir), func() error { return second(a.open(dir)) })
			}
		},
		"OpenFS": func(m *misuse) {
			weights := a.file(m, "model.safetensors")
			config := fstest.MapFS{"config.json": {Data: a.file(m, "config.json")}}
			m.fails("nil", func() error { return second(a.openFS(nil, nil)) })
			m.fails("no config", func() error { return second(a.openFS(fstest.MapFS{}, weights)) })
			for name, text := range map[string]string{"empty": "", "null": "null", "no object": "[]", "an object": "{}", "broken": `{"d_model":`, "zeros": "\x00\x00"} {
				m.fails(name+" config", func() error {
					return second(a.openFS(fstest.MapFS{"config.json": {Data: []byte(text)}}, weights))
				}, models.ErrConfig)
			}
			header := bytes.Clone(weights)
			header[0] ^= 0x55
			for name, w := range map[string][]byte{"no": nil, "empty": {}, "short": weights[:len(weights)/2], "eight bytes of": weights[:8], "other": bytes.Repeat([]byte{0xff}, 100), "broken": header} {
				m.fails(name+" weights", func() error { return second(a.openFS(config, w)) })
			}
			m.works("without a tokenizer", func() error {
				of, err := a.openFS(config, weights)
				if err != nil {
					return err
				}
				m.fails("encode", func() error { return second(of.Encode("text")) }, models.ErrNoTokenizer)
				m.fails("decode", func() error { return second(of.Decode([]int32{1})) }, models.ErrNoTokenizer)
				return of.Close()
			})
		},
		"Random": func(m *misuse) {
			for name, config := range map[string][]byte{"nil": nil, "null": []byte("null"), "empty": []byte("{}"), "zeros": make([]byte, 9)} {
				m.fails(name, func() error { return second(a.random(config, 0, 0)) }, models.ErrConfig)
			}
			for _, n := range []int{-1, math.MinInt} {
				m.fails(fmt.Sprint("a context of ", n), func() error { return second(a.random(a.file(m, "config.json"), n, 0)) }, models.ErrRequest)
			}
			m.works("a huge context", func() error {
				of, err := a.random(a.file(m, "config.json"), math.MaxInt, 0)
				if err != nil {
					return err
				}
				return of.Close()
			})
		},
		"Published": func(m *misuse) {
			m.does("written to", func() { clear(a.published()) })
			m.is("a copy", func() any { return len(a.published()) > 0 && a.published()[0] == '{' }, true)
		},
		"Model.BuildTrained": func(m *misuse) {
			of := a.model(m)
			right, g := models.Shape{Batch: 1, Len: 4, Rows: 1}, gorgonia.NewGraph()
			ctl := must(pulsecol.NewController(sparse()))(m)
			fail := errors.New("of the caller")
			adapt := func(i int, b *graph.Block) error { return second(b.Adapt(g, 1, 1, uint64(i))) }
			m.fails("no function", func() error { return second(of.BuildTrained(g, right, ctl, nil)) }, models.ErrRequest)
			m.fails("no graph", func() error { return second(of.BuildTrained(nil, right, ctl, adapt)) }, models.ErrRequest)
			m.fails("an error", func() error {
				return second(of.BuildTrained(g, right, ctl, func(int, *graph.Block) error { return fail }))
			}, fail)
			m.fails("an empty block", func() error {
				return second(of.BuildTrained(g, right, ctl, func(_ int, b *graph.Block) error { *b = graph.Block{}; return nil }))
			})
			m.works("right", func() error { return second(of.BuildTrained(g, right, ctl, adapt)) })
			m.works("the model is as before", func() error {
				plain := gorgonia.NewGraph()
				_, err := of.Build(plain, right, must(pulsecol.NewController(sparse()))(m))
				for _, n := range plain.AllNodes() {
					if strings.Contains(n.Name(), ".adapter.") {
						return fmt.Errorf("it has %v", n)
					}
				}
				return err
			})
			m.works("close", of.Close)
			m.fails("closed", func() error { return second(of.BuildTrained(g, right, ctl, adapt)) }, models.ErrClosed)
		},
		"Model.Build": func(m *misuse) {
			of := a.model(m)
			ctl := func() *pulsecol.Controller { return must(pulsecol.NewController(sparse()))(m) }
			right := models.Shape{Batch: 1, Len: 4, Rows: 1}
			m.fails("no graph", func() error { return second(of.Build(nil, right, ctl())) })
			m.fails("no controller", func() error { return second(of.Build(gorgonia.NewGraph(), right, nil)) })
			m.fails("a zero shape", func() error { return second(of.Build(gorgonia.NewGraph(), models.Shape{}, ctl())) })
			for _, n := range []int{0, -1, math.MinInt} {
				for i := range 3 {
					s := right
					*[]*int{&s.Batch, &s.Len, &s.Rows}[i] = n
					m.fails(fmt.Sprintf("%+v", s), func() error { return second(of.Build(gorgonia.NewGraph(), s, ctl())) }, models.ErrRequest)
				}
			}
			m.fails("past the context", func() error {
				return second(of.Build(gorgonia.NewGraph(), models.Shape{Batch: 1, Len: of.Config().Context + 1, Rows: 1}, ctl()))
			}, models.ErrRequest)
			m.fails("a huge batch", func() error {
				return second(of.Build(gorgonia.NewGraph(), models.Shape{Batch: math.MaxInt, Len: 4, Rows: 1}, ctl()))
			}, models.ErrRequest)
			c, g := ctl(), gorgonia.NewGraph()
			m.works("right", func() error { return second(of.Build(g, right, c)) })
			m.works("another graph", func() error { return second(of.Build(gorgonia.NewGraph(), right, c)) })
			m.fails("layers in use", func() error { return second(of.Build(g, right, c)) })
			for _, n := range []int{3, -1, math.MinInt} {
				s := right
				s.Cached = n
				m.fails(fmt.Sprintf("%+v", s), func() error { return second(of.Build(gorgonia.NewGraph(), s, ctl())) }, models.ErrRequest)
			}
			m.fails("closed", func() error { return second(closed(m).Build(gorgonia.NewGraph(), right, ctl())) }, models.ErrClosed)
		},
		"Model.Close": func(m *misuse) {
			of := a.model(m)
			m.works("close", of.Close)
			m.does("twice", func() { of.Close() })
			m.fails("logits", func() error { return second(of.Logits(m.Context(), [][]int32{{1}}, nil)) }, models.ErrClosed)
		},
		"Model.Config": func(m *misuse) {
			m.is("closed", func() any { return closed(m).Config().Layers }, a.model(m).Config().Layers)
		},
		"Model.Decode": func(m *misuse) {
			of := a.model(m)
			m.is("nothing", func() any { s, err := of.Decode(nil); return fmt.Sprint(s, err) }, "<nil>")
			for name, ids := range badIDs(of.Config()) {
				m.does(name, func() { of.Decode(ids) })
			}
			m.does("closed", func() { closed(m).Decode([]int32{1}) })
		},
		"Model.Encode": func(m *misuse) {
			of := a.model(m)
			for _, s := range []string{"", "\x00", "\xff\xfe", "a\xffb", strings.Repeat("a", 1<<16), strings.Repeat("<|", 1000), "\u0301\u0301"} {
				m.does(fmt.Sprintf("%.10q", s), func() { of.Encode(s) })
			}
			m.does("closed", func() { closed(m).Encode("text") })
		},
		"Model.EncodeChat": func(m *misuse) {
			of := a.model(m)
			for name, messages := range map[string][]models.Message{
				"nil": nil, "zero": {{}}, "role": {{Role: "nobody", Content: "x"}}, "not UTF-8": {{Role: "user", Content: "\xff"}},
				"role not UTF-8": {{Role: "\xff", Content: "x"}}, "two systems": {{Role: "system"}, {Role: "system"}}, "long": {{Role: "user", Content: strings.Repeat("x ", 1<<14)}},
			} {
				err := m.call(name, func() error { return second(of.EncodeChat(messages)) })
				if err != nil && len(err.Error()) >= longest {
					m.Errorf("%s: %v", name, err)
				}
			}
			m.does("closed", func() { closed(m).EncodeChat([]models.Message{{Role: "user", Content: "x"}}) })
		},
		"Model.EncodeChatTemplate": func(m *misuse) {
			of := a.model(m)
			one := []models.Message{{Role: "user", Content: "x"}}
			for _, source := range []string{"{{", "{% for %}", "{{ nothing.at.all }}", "{% for x in range(10 ** 12) %}{% endfor %}", "{{ messages[99].content }}",
				"{{ 1 // 0 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'x' * 10 ** 12 }}", strings.Repeat("{{", 1<<12), "{% include 'x' %}", "\xff"} {
				err := m.call(fmt.Sprintf("%.40q", source), func() error { return second(of.EncodeChatTemplate(source, one)) })
				if err != nil && (len(err.Error()) >= longest || !errors.Is(err, models.ErrChatTemplate)) {
					m.Errorf("%.40q: %v", source, err)
				}
			}
			m.does("nil messages", func() { of.EncodeChatTemplate("", nil) })
		},
		"Model.WriteGGUF": func(m *misuse) {
			of := a.model(m)
			write := func(of aModel[O], ctx context.Context, w io.Writer, o models.GGUFOptions) func() error {
				return func() error { return of.WriteGGUF(ctx, w, o) }
			}
			right := models.GGUFOptions{Type: "BF16"}
			for _, name := range []string{"", "bf16", "Q4_K", "F32 ", "\xff", strings.Repeat("x", 1<<16)} {
				m.fails(fmt.Sprintf("type %.10q", name), write(of, m.Context(), io.Discard, models.GGUFOptions{Type: name}), models.ErrRequest)
			}
			for _, n := range []int{-1, math.MinInt} {
				m.fails(fmt.Sprint("threads ", n), write(of, m.Context(), io.Discard, models.GGUFOptions{Type: "BF16", Threads: n}), models.ErrRequest)
			}
			m.works("many threads", write(of, m.Context(), io.Discard, models.GGUFOptions{Type: "BF16", Threads: math.MaxInt, Name: "\xff\x00"}))
			m.fails("a nil context", write(of, nil, io.Discard, right), models.ErrRequest)
			m.fails("a nil writer", write(of, m.Context(), nil, right), models.ErrRequest)
			ended, cancel := context.WithCancel(m.Context())
			cancel()
			m.fails("an ended context", write(of, ended, io.Discard, right), context.Canceled)
			r, w := io.Pipe()
			m.works("close", r.Close)
			m.fails("a closed pipe", write(of, m.Context(), w, right), io.ErrClosedPipe)
			m.fails("closed", write(closed(m), m.Context(), io.Discard, right), models.ErrClosed)
		},
		"Model.Options": func(m *misuse) {
			of := a.model(m)
			for name, o := range a.bad {
				m.does(name, func() { of.Options(of.Options(o)) })
			}
			m.does("closed", func() { closed(m).Options(a.small) })
		},
	}
	a.generations(cases, closed)
	named := map[string]func(*misuse){}
	for name, f := range cases {
		named[a.name+"."+name] = f
	}
	return named
}

var _ = misuses((&architecture[llada.GenerateOptions]{
	name: "llada", folder: "llada", small: llada.GenerateOptions{GenLength: 4, BlockLength: 4, Steps: 2},
	bad: badLLaDA(), published: llada.Published,
	open:   func(dir string) (aModel[llada.GenerateOptions], error) { return opened(llada.Open(dir)) },
	openFS: func(f fs.FS, w []byte) (aModel[llada.GenerateOptions], error) { return opened(llada.OpenFS(f, w)) },
	random: func(c []byte, n int, seed uint64) (aModel[llada.GenerateOptions], error) {
		return opened(llada.Random(c, n, seed))
	},
	session: func(of aModel[llada.GenerateOptions], cfg pulsecol.Config) (aSession[llada.GenerateOptions], error) {
		return of.(*llada.Model).NewSession(cfg)
	},
}).misuses()) && misuses((&architecture[dream.GenerateOptions]{
	name: "dream", folder: "dream", small: dream.GenerateOptions{MaxNewTokens: 4, Steps: 2},
	bad: badDream(), published: dream.Published,
	open:   func(dir string) (aModel[dream.GenerateOptions], error) { return opened(dream.Open(dir)) },
	openFS: func(f fs.FS, w []byte) (aModel[dream.GenerateOptions], error) { return opened(dream.OpenFS(f, w)) },
	random: func(c []byte, n int, seed uint64) (aModel[dream.GenerateOptions], error) {
		return opened(dream.Random(c, n, seed))
	},
	session: func(of aModel[dream.GenerateOptions], cfg pulsecol.Config) (aSession[dream.GenerateOptions], error) {
		return of.(*dream.Model).NewSession(cfg)
	},
}).misuses())
