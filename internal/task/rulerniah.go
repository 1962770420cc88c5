package task

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// niah is a needle in a haystack: "One of the special magic numbers for KEY is: VALUE." hidden in a
// text, as RULER's table of tasks varies it.
type niah struct {
	name     string
	haystack string // "repeat": one line again and again; "essay": a user's texts; "needle": other needles
	key      string // type of the keys: "words" or "uuids"
	value    string // type of the values: "numbers" or "uuids"
	keys     int    // hidden
	values   int    // for each key
	queries  int    // keys asked for
}

var niahVariants = []niah{
	{"niah_single_1", "repeat", "words", "numbers", 1, 1, 1},
	{"niah_single_2", "essay", "words", "numbers", 1, 1, 1},
	{"niah_single_3", "essay", "words", "uuids", 1, 1, 1},
	{"niah_multikey_1", "essay", "words", "numbers", 4, 1, 1},
	{"niah_multikey_2", "needle", "words", "numbers", 1, 1, 1},
	{"niah_multikey_3", "needle", "uuids", "uuids", 1, 1, 1},
	{"niah_multivalue", "essay", "words", "numbers", 1, 4, 1},
	{"niah_multiquery", "essay", "words", "numbers", 4, 1, 4},
}

// needleDepths is how many places of an essay a needle may stand at.
const needleDepths = 40

func (v niah) make(t *ruler, o Options) error {
	words, err := openWords(o.Data)
	if err != nil {
		return err
	}
	need := v.keys
	if v.haystack == "needle" {
		need += t.length // a line takes more than a token
	}
	if pairs := len(words.adjectives) * len(words.nouns); v.key == "words" && pairs < 2*need {
		return fmt.Errorf("%d pairs of the adjectives and nouns in %s; want at least %d", pairs, o.Data, 2*need)
	}
	var essay []string
	t.genLength = niahGenLength
	t.size = textSize{25, 25, t.length}
	switch {
	case v.haystack == "essay":
		if essay, err = openEssays(o.Data); err != nil {
			return err
		}
		t.size = textSize{500, 500, t.length} // words
	case t.length < 4096:
		t.size = textSize{5, 5, t.length} // lines
	}
	t.text = func(r *rand.Rand, _, n int) rulerText { return v.text(r, n, words, essay) }
	return nil
}

// text hides the needles in n words of essay or n lines.
func (v niah) text(r *rand.Rand, n int, words wordLists, essay []string) rulerText {
	used := map[string]bool{} // a key that occurs twice would have two right answers
	key := func() string {
		for {
			if k := magic(r, v.key, words); !used[k] {
				used[k] = true
				return k
			}
		}
	}
	var keys, needles []string
	values := map[string][]string{}
	for range v.keys {
		k := key()
		keys = append(keys, k)
		for range v.values {
			value := magic(r, v.value, words)
			values[k] = append(values[k], value)
			needles = append(needles, v.needle(k, value))
		}
	}
	r.Shuffle(len(needles), func(i, j int) { needles[i], needles[j] = needles[j], needles[i] })
	queried := selectDistinct(r, keys, v.queries)
	var answers []string
	for _, k := range queried {
		answers = append(answers, values[k]...)
	}

	var context string
	switch v.haystack {
	case "essay":
		context = hideInEssay(r, essay, n, needles)
	case "repeat":
		context = strings.Join(insertAt(r, slices.Repeat([]string{noise}, n), needles), "\n")
	case "needle":
		lines := make([]string, n)
		for i := range lines {
			lines[i] = v.needle(key(), magic(r, v.value, words))
		}
		context = strings.Join(insertAt(r, lines, needles), "\n")
	}

	query := queried[0]
	if last := len(queried) - 1; last > 0 {
		query = strings.Join(queried[:last], ", ") + ", and " + queried[last]
	}
	if len(answers) == 1 {
		value := strings.TrimSuffix(v.value, "s")
		return rulerText{
			prompt: fmt.Sprintf("A special magic %s is hidden within the following text. Make sure to memorize it. "+
				"I will quiz you about the %s afterwards.\n%s\nWhat is the special magic %s for %s mentioned in the provided text?",
				value, value, context, value, query),
			prefix:  fmt.Sprintf(" The special magic %s for %s mentioned in the provided text is", value, query),
			answers: answers,
		}
	}
	return rulerText{
		prompt: fmt.Sprintf("Some special magic %s are hidden within the following text. Make sure to memorize it. "+
			"I will quiz you about the %s afterwards.\n%s\nWhat are all the special magic %s for %s mentioned in the provided text?",
			v.value, v.value, context, v.value, query),
		prefix:  fmt.Sprintf(" The special magic %s for %s mentioned in the provided text are", v.value, query),
		answers: answers,
	}
}

func (v niah) needle(key, value string) string {
	return fmt.Sprintf("One of the special magic %s for %s is: %s.", v.value, key, value)
}

// magic is a random key or value.
func magic(r *rand.Rand, kind string, words wordLists) string {
	switch kind {
	case "numbers":
		return fmt.Sprint(1_000_000 + r.IntN(9_000_000))
	case "uuids": // version 4 of RFC 9562
		a, b := r.Uint64()&^0xf000|0x4000, r.Uint64()&^(3<<62)|1<<63
		return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&(1<<48-1))
	}
	return randomElement(r, words.adjectives) + "-" + randomElement(r, words.nouns)
}

// openEssays returns the words of RULER's PaulGrahamEssays.json ({"text": ...}), or of all files
// *.txt of the folder but the word lists.
func openEssays(data string) ([]string, error) {
	const published = "PaulGrahamEssays.json"
	if data == "" {
		return nil, fmt.Errorf("needs data: want a folder with %s or text files, or the file itself", published)
	}
	paths := []string{data}
	if !isFile(data) {
		if paths = []string{filepath.Join(data, published)}; !isFile(paths[0]) {
			entries, err := os.ReadDir(data)
			if err != nil {
				return nil, err
			}
			paths = nil
			for _, e := range entries {
				if !e.IsDir() && filepath.Ext(e.Name()) == ".txt" && !slices.Contains(wordFiles, e.Name()) {
					paths = append(paths, filepath.Join(data, e.Name()))
				}
			}
		}
	}
	var words []string
	for _, path := range paths {
		file, err := openSource(path)
		if err != nil {
			return nil, err
		}
		text := string(file.text)
		if filepath.Ext(path) == ".json" {
			var essays struct {
				Text string `json:"text"`
			}
			if err := file.decode(0, len(file.text), &essays); err != nil {
				return nil, err
			}
			text = essays.Text
		}
		words = append(words, strings.Fields(text)...)
	}
	if len(words) == 0 {
		return nil, errors.New(data + ": no text of essays")
	}
	return words, nil
}

// hideInEssay puts needles, in order, between the sentences of n words of essay, at different
// depths. The essay begins again where it ends.
func hideInEssay(r *rand.Rand, essay []string, n int, needles []string) string {
	words := make([]string, n)
	for i := range words {
		words[i] = essay[i%len(essay)]
	}
	ends := sentenceEnds(words)
	depths := r.Perm(needleDepths)[:len(needles)]
	slices.Sort(depths)
	var parts []string
	from := 0
	for i, depth := range depths {
		to := 0
		// Depths are whole percents, from 0 to 100.
		percent := (200*depth + needleDepths - 1) / (2 * (needleDepths - 1))
		if sentence := len(ends) * percent / 100; sentence > 0 {
			to = ends[sentence-1]
		}
		parts = append(append(parts, words[from:to]...), needles[i])
		from = to
	}
	return strings.Join(append(parts, words[from:]...), " ")
}

// sentenceEnds returns the number of words up to the end of each sentence. A sentence ends at a word
// with . ! or ?, unless that looks like an initial or an abbreviation.
func sentenceEnds(words []string) []int {
	var ends []int
	for i, word := range words {
		bare := strings.TrimRight(word, `"'”’)]`)
		stop := strings.HasSuffix(bare, "!") || strings.HasSuffix(bare, "?")
		if name, ok := strings.CutSuffix(bare, "."); ok {
			short := len([]rune(name)) == 1 && unicode.IsUpper([]rune(name)[0])
			stop = !short && !slices.Contains([]string{"Mr", "Mrs", "Ms", "Dr", "St", "vs", "e.g", "i.e", "cf"}, name)
		}
		if stop || i == len(words)-1 {
			ends = append(ends, i+1)
		}
	}
	return ends
}
