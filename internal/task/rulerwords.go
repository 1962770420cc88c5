package task

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// commonWords is the number of common words in a list of common words extraction.
const commonWords = 10

// makeCommonWords is common words extraction: a numbered list in which ten words occur more often
// than others. A solved example precedes it.
func makeCommonWords(t *ruler, o Options) error {
	lists, err := openWords(o.Data)
	if err != nil {
		return err
	}
	words := lists.all()
	exampleWords, exampleCommon, exampleOther, common, other := 40, 10, 3, 30, 3
	if t.length < 4096 {
		exampleWords, exampleCommon, exampleOther, common, other = 20, 3, 1, 6, 1
	}
	if len(words) < exampleWords {
		return fmt.Errorf("%d words in %s; want at least %d", len(words), o.Data, exampleWords)
	}
	t.genLength = cweGenLength
	t.size = textSize{commonWords, 10, len(words)}
	t.text = func(r *rand.Rand, _, n int) rulerText {
		example, solved := numberedWords(r, words, exampleWords, exampleCommon, exampleOther)
		list, answers := numberedWords(r, words, n, common, other)
		const prefix = " Answer: The top 10 words that appear most often in the list are:"
		return rulerText{
			// The example's answer follows the colon without a space, as in RULER.
			prompt:  cwePrompt(example) + prefix + numbered(solved) + "\n" + cwePrompt(list),
			prefix:  prefix,
			answers: answers,
		}
	}
	// A list that is shorter than the length allows, for lack of words, would be an easier task.
	if tokens := t.tokens(t.made(0, t.size.limit)); tokens <= t.length-t.genLength {
		return fmt.Errorf("all %d words make %d tokens of %d: want more in adjectives.txt, nouns.txt and verbs.txt of the data folder",
			len(words), tokens, t.length-t.genLength)
	}
	return nil
}

func cwePrompt(list string) string {
	return "Below is a numbered list of words. In these words, some appear more often than others. " +
		"Memorize the ones that appear most often.\n" + list + "\nQuestion: What are the 10 most common words in the above list?"
}

// numberedWords is a list of n different words, the first ten of which are repeated more often.
func numberedWords(r *rand.Rand, words []string, n, common, other int) (list string, most []string) {
	selected := selectDistinct(r, words, n)
	all := slices.Concat(slices.Repeat(selected[:commonWords], common), slices.Repeat(selected[commonWords:], other))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return numbered(all), selected[:commonWords]
}

// numbered numbers words from 1.
func numbered(words []string) string {
	var list strings.Builder
	for i, word := range words {
		if i > 0 {
			list.WriteByte(' ')
		}
		fmt.Fprintf(&list, "%d. %s", i+1, word)
	}
	return list.String()
}

const (
	codedLetters = 6
	zeta2        = 1.6449340668482264 // the sum of 1/r^2 over all ranks r
)

// makeFrequentWords is frequent words extraction: random words, the one of rank r as often as Zipf's
// law with exponent 2 says. The most frequent is dots; the next three are asked for.
func makeFrequentWords(t *ruler, _ Options) error {
	const leastWords = 53 // fewer would give ranks 4 and 5 the same count
	t.genLength = fweGenLength
	room := t.length - t.genLength
	vocabulary := t.length / 50
	t.size = textSize{room / codedLetters, max(room/32, 1), 2 * t.length}
	if t.size.start < leastWords {
		return fmt.Errorf("want at least %d tokens", leastWords*codedLetters+t.genLength)
	}
	t.text = func(r *rand.Rand, _, n int) rulerText {
		words := []string{"..."}
		used := map[string]bool{}
		for len(words) < vocabulary {
			if word := randomWord(r, 'a', codedLetters); !used[word] {
				used[word] = true
				words = append(words, word)
			}
		}
		var text []string
		for i, word := range words {
			rank := float64(i + 1)
			text = append(text, slices.Repeat([]string{word}, int(float64(n)/(rank*rank)/zeta2))...)
		}
		r.Shuffle(len(text), func(i, j int) { text[i], text[j] = text[j], text[i] })
		return rulerText{
			prompt: "Read the following coded text and track the frequency of each coded word. " +
				"Find the three most frequently appeared coded words. " + strings.Join(text, " ") +
				"\nQuestion: Do not provide any explanation. Please ignore the dots '....'. " +
				"What are the three most frequently appeared words in the above coded text?",
			prefix:  " Answer: According to the coded text above, the three most frequently appeared words are:",
			answers: words[1:4],
		}
	}
	return nil
}
