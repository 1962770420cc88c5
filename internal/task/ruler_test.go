package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// essayText has sentences of several lengths, an initial, and a quotation.
const essayText = `The town wakes slowly. Carts roll over the bridge, one behind the other! Mr. A. Baker opens
his shop. Who would buy bread so early? "Everyone," he says. Nobody answers. Rain falls on the roofs and on the
square, where the market will be. Then the sun comes out.
`

var rulerTasks = []string{
	"niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
	"niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2",
}

// TestRulerLengths: prompt, prefix and answer never take more than the given length, and the next
// larger text would; as the small models' tokenizer counts, and as words.
func TestRulerLengths(t *testing.T) {
	folder := write(t, map[string]string{
		"essay.txt": strings.Repeat(essayText, 3), "squad.json": squadJSON(600), "hotpotqa.json": hotpotJSON(60),
	})
	for _, name := range rulerTasks {
		for _, c := range []struct {
			counting string
			count    Count
			length   int
		}{
			{"words", countWords, 1500}, {"words", countWords, 4096},
			{"small", countSmall(t), 2500}, {"small", countSmall(t), 5000},
		} {
			t.Run(fmt.Sprintf("%s/%s-%d", name, c.counting, c.length), func(t *testing.T) {
				spec := fmt.Sprintf("ruler/%s@%d", name, c.length)
				task := newTask(t, spec, Options{Seed: 1, Count: c.count, Data: folder}).(*ruler)
				other := newTask(t, spec, Options{Seed: 2, Count: c.count, Data: folder})
				if task.GenLength()%32 != 0 || task.GenLength() == 0 {
					t.Errorf("answers of %d tokens", task.GenLength())
				}
				for i := range 2 {
					s := sample(t, task, i)
					n := c.count(s.Prompt+s.Prefix) + task.GenLength()
					if n > c.length {
						t.Errorf("sample %d: %d tokens, the limit is %d", i, n, c.length)
					}
					size, err := task.size.largest(task.length-task.genLength, func(n int) int { return task.tokens(task.made(i, n)) })
					if err != nil {
						t.Fatal(err)
					}
					next := task.made(i, size+task.size.step)
					if n := task.tokens(next) + task.GenLength(); n <= c.length {
						t.Errorf("sample %d: one step more takes %d tokens of %d", i, n, c.length)
					}
					if !slices.Equal(next.answers, s.Answers) && name != "cwe" {
						t.Errorf("answers %q depend on the size: %q", s.Answers, next.answers)
					}
					if s.Prompt == sample(t, other, i).Prompt {
						t.Errorf("sample %d is the same with another seed", i)
					}
				}
			})
		}
	}
}

// TestLargest holds the search for a size to a scan from the smallest one.
func TestLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := []int{rapid.IntRange(0, 100).Draw(t, "first")}
		for _, more := range rapid.SliceOfN(rapid.IntRange(0, 50), 0, 60).Draw(t, "more") {
			costs = append(costs, costs[len(costs)-1]+more)
		}
		step := rapid.IntRange(1, 7).Draw(t, "step")
		start := rapid.IntRange(0, 20).Draw(t, "start")
		size := textSize{start, step, start + step*(len(costs)-1) + rapid.IntRange(0, step-1).Draw(t, "rest")}
		room := rapid.IntRange(-1, 2000).Draw(t, "room")
		want := -1
		for i, c := range costs {
			if c <= room {
				want = start + i*step
			}
		}
		calls := 0
		got, err := size.largest(room, func(n int) int { calls++; return costs[(n-start)/step] })
		if err != nil {
			got = -1
		}
		if got != want || calls > len(costs) {
			t.Fatalf("size %d after %d calls, want %d", got, calls, want)
		}
	})
}

func TestRulerScores(t *testing.T) {
	four := []string{"Alpha", "beta", "12345", "x y"}
	two := []string{"Paris", "paris, france"}
	for _, c := range []struct {
		score      func([]string, string) float64
		references []string
		output     string
		want       float64
	}{
		{matchAll, four, "ALPHA, Beta and 12345.", 0.75},
		{matchAll, four, "alphabet 123456 x y beta", 1}, // contained, not equal
		{matchAll, four, "x\ny", 0},
		{matchAll, four, "x\ty", 0}, // control characters are newlines
		{matchAll, four, "", 0},
		{matchAll, four, "\x00\x01", 0},
		{matchPart, two, "It is Paris.", 1},
		{matchPart, two, "PARIS, FRANCE", 1},
		{matchPart, two, "London", 0},
		{matchPart, two, "", 0},
		{matchPart, two, "Par\x00is", 0},
		{matchPart, []string{"a\nb"}, " A\x02B ", 1},
	} {
		if got := c.score(c.references, c.output); got != c.want {
			t.Errorf("%q in %q: %v, want %v", c.references, c.output, got, c.want)
		}
	}
}

// TestNiahAnswersAreInTheText reads the answers from the context, as a model would.
func TestNiahAnswersAreInTheText(t *testing.T) {
	folder := userFolder(t)
	needle := regexp.MustCompile(`One of the special magic (\w+) for (\S+) is: (\S+)\.`)
	shape := map[string]*regexp.Regexp{
		"words":   regexp.MustCompile(`^[a-z]+-[a-z]+$`),
		"numbers": regexp.MustCompile(`^[1-9][0-9]{6}$`),
		"uuids":   regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
	}
	for _, v := range niahVariants {
		t.Run(v.name, func(t *testing.T) {
			task := newTask(t, "ruler/"+v.name+"@1200", Options{Seed: 5, Count: countWords, Data: folder})
			for i := range 8 {
				s := sample(t, task, i)
				lines := strings.Split(s.Prompt, "\n")
				question := lines[len(lines)-1]
				context := strings.Join(lines[1:len(lines)-1], "\n")
				queried := 0
				var answers []string
				hidden := needle.FindAllStringSubmatch(context, -1)
				keys := map[string]bool{}
				for _, m := range hidden {
					if m[1] != v.value || !shape[v.key].MatchString(m[2]) || !shape[v.value].MatchString(m[3]) {
						t.Errorf("needle %q", m[0])
					}
					if strings.Contains(question, m[2]) {
						if !strings.Contains(s.Prefix, m[2]) {
							t.Errorf("prefix %q lacks %s", s.Prefix, m[2])
						}
						answers = append(answers, m[3])
						if !keys[m[2]] {
							queried++
						}
					}
					keys[m[2]] = true
				}
				want := slices.Sorted(slices.Values(s.Answers))
				if slices.Sort(answers); !slices.Equal(answers, want) || queried != v.queries {
					t.Errorf("%d keys with %q are asked for, want %d with %q", queried, answers, v.queries, want)
				}
				if v.haystack != "needle" && len(hidden) != v.keys*v.values || v.haystack == "needle" && len(keys) != len(hidden) {
					t.Errorf("%d needles of %d keys", len(hidden), len(keys))
				}
				if v.haystack == "repeat" && strings.Count(context, noise+"\n")+1 < len(lines)-4 {
					t.Errorf("lines other than noise and needles in %q", context)
				}
				if v.haystack == "essay" {
					rest := strings.Join(strings.Fields(needle.ReplaceAllString(context, "")), " ")
					if essay := strings.Join(strings.Fields(strings.Repeat(essayText, 30)), " "); !strings.HasPrefix(essay, rest) {
						t.Fatalf("not the essay: %q", rest[len(rest)-100:])
					}
				}
				if one := v.queries*v.values == 1; one != strings.HasPrefix(s.Prompt, "A special magic ") ||
					one != strings.HasSuffix(s.Prefix, " is") || one != strings.HasPrefix(question, "What is the ") {
					t.Errorf("singular is %v: %q ... %q %q", one, lines[0], question, s.Prefix)
				}
			}
		})
	}
}

// TestNeedlesStandBetweenSentences: an essay is never broken within a sentence.
func TestNeedlesStandBetweenSentences(t *testing.T) {
	words := strings.Fields(essayText)
	var sentences []string
	from := 0
	for _, to := range sentenceEnds(words) {
		sentences = append(sentences, strings.Join(words[from:to], " "))
		from = to
	}
	want := []string{
		"The town wakes slowly.", "Carts roll over the bridge, one behind the other!", "Mr. A. Baker opens his shop.",
		"Who would buy bread so early?", `"Everyone," he says.`, "Nobody answers.",
		"Rain falls on the roofs and on the square, where the market will be.", "Then the sun comes out.",
	}
	if !slices.Equal(sentences, want) {
		t.Errorf("sentences %q", sentences)
	}
	depths := map[int]bool{} // sentences before the needle
	for seed := range uint64(400) {
		text := hideInEssay(stream(seed, "essay", 0), words, len(words), []string{"NEEDLE"})
		before, after, _ := strings.Cut(text, "NEEDLE")
		before, after = strings.TrimSpace(before), strings.TrimSpace(after)
		n := 0
		for n < len(want) && strings.Join(want[:n], " ") != before {
			n++
		}
		if strings.Join(want[:n], " ") != before || strings.Join(want[n:], " ") != after {
			t.Fatalf("needle within a sentence: %q", text)
		}
		depths[n] = true
	}
	if len(depths) != len(want)+1 {
		t.Errorf("needles at depths %v of %d", depths, len(want))
	}
}

func TestVariableTrackingChain(t *testing.T) {
	count := func(text string) int { return len(text) / 5 }
	task := newTask(t, "ruler/vt@4096", Options{Count: count})
	assignment := regexp.MustCompile(`VAR ([A-Z]{5}) = (?:VAR )?(\w+)`)
	for i := range 5 {
		s := sample(t, task, i)
		example, text, _ := strings.Cut(s.Prompt, "\n\nMemorize")
		if n := count(example) + task.GenLength(); n > vtExampleLength || n < vtExampleLength-6*count(noise) {
			t.Errorf("the example takes %d tokens", n)
		}
		if got := regexp.MustCompile(`they are:  ([A-Z]{3} ){4}[A-Z]{3}$`).FindString(example); got == "" {
			t.Errorf("example ends in %q", example[len(example)-80:])
		}
		var names []string
		value := regexp.MustCompile(`assigned the value (\d{5}) in the text above\.$`).FindStringSubmatch(text)
		if value == nil {
			t.Fatalf("no question in %q", text)
		}
		last := value[1]
		for _, m := range assignment.FindAllStringSubmatch(text, -1) {
			if m[2] != last {
				t.Errorf("%q does not follow %s", m[0], last)
			}
			names, last = append(names, m[1]), m[1]
		}
		if !slices.Equal(names, s.Answers) || len(names) != 5 {
			t.Errorf("chain %q, answers %q", names, s.Answers)
		}
		if want := " Answer: According to the chain(s) of variable assignment in the text above, 5 variables are assgined the value " + value[1] + ", they are: "; s.Prefix != want {
			t.Errorf("prefix %q, want %q", s.Prefix, want)
		}
	}
}

// TestCommonWords counts the words of the lists: the answers are the most frequent ones.
func TestCommonWords(t *testing.T) {
	for _, c := range []struct {
		length                               int
		example, exampleOther, common, other int
	}{{3000, 3, 1, 6, 1}, {6000, 10, 3, 30, 3}} {
		s := sample(t, newTask(t, fmt.Sprintf("ruler/cwe@%d", c.length), Options{Count: countSmall(t)}), 0)
		example, text, _ := strings.Cut(s.Prompt, "\nBelow")
		for _, list := range []struct {
			text          string
			common, other int
		}{{example, c.example, c.exampleOther}, {text, c.common, c.other}} {
			numbered := regexp.MustCompile(`(\d+)\. (\S+)`).FindAllStringSubmatch(strings.Split(list.text, "\n")[1], -1)
			var words []string
			for i, m := range numbered {
				if m[1] != fmt.Sprint(i+1) {
					t.Fatalf("word %d has the number %s", i+1, m[1])
				}
				words = append(words, m[2])
			}
			common := 0
			for word, n := range frequencies(words) {
				if n == list.common {
					common++
					if list.text == text && !slices.Contains(s.Answers, word) {
						t.Errorf("%s occurs %d times and is no answer", word, n)
					}
				} else if n != list.other {
					t.Errorf("%s occurs %d times", word, n)
				}
			}
			if common != 10 {
				t.Errorf("%d common words", common)
			}
		}
		if !strings.Contains(example, "in the list are:1. ") || len(s.Answers) != 10 {
			t.Errorf("example %q, answers %q", example, s.Answers)
		}
	}
}

// TestFrequentWords: the answers are the three most frequent words after the dots.
func TestFrequentWords(t *testing.T) {
	check := func(name string, text rulerText) {
		_, words, _ := strings.Cut(text.prompt, "coded words. ")
		words, _, _ = strings.Cut(words, "\nQuestion")
		n := frequencies(strings.Fields(words))
		order := slices.SortedFunc(maps.Keys(n), func(a, b string) int { return n[b] - n[a] })
		if order[0] != "..." || !slices.Equal(order[1:4], text.answers) || len(order) > 4 && n[order[3]] <= n[order[4]] {
			t.Errorf("%s: %v, answers %q", name, n, text.answers)
		}
	}
	for _, length := range []int{700, 4096, 16384} {
		s := sample(t, newTask(t, fmt.Sprintf("ruler/fwe@%d", length), Options{Count: countSmall(t)}), 0)
		check(fmt.Sprint(length, " tokens"), rulerText{prompt: s.Prompt, answers: s.Answers})
	}
	shortest := newTask(t, "ruler/fwe@382", Options{Count: countWords}).(*ruler)
	for n := shortest.size.start; n < 300; n++ {
		check(fmt.Sprint(n, " words"), shortest.made(0, n))
	}
}

func frequencies(words []string) map[string]int {
	n := map[string]int{}
	for _, w := range words {
		n[w]++
	}
	return n
}

// TestUserWords: a user's lists replace the built-in ones, and essays may be in RULER's format.
func TestUserWords(t *testing.T) {
	essay, err := json.Marshal(map[string]string{"text": essayText})
	if err != nil {
		t.Fatal(err)
	}
	folder := write(t, map[string]string{"adjectives.txt": "mossy\r\nteal\n", "nouns.txt": "yeti\n", "PaulGrahamEssays.json": string(essay), "other.txt": "not read"})
	s := sample(t, newTask(t, "ruler/niah_single_2@900", Options{Count: countWords, Data: folder}), 0)
	if !regexp.MustCompile(`for (mossy|teal)-yeti is: `).MatchString(s.Prompt) || strings.Contains(s.Prompt, "not read") {
		t.Errorf("%q", s.Prompt)
	}
	// Keys differ, even where there are few: four of eight.
	few := newTask(t, "ruler/niah_multiquery@900", Options{Count: countWords, Data: write(t, map[string]string{
		"adjectives.txt": "mossy\nteal", "nouns.txt": "yeti elf\nimp elf gnome", "essay.txt": essayText,
	})})
	for i := range 10 {
		keys := regexp.MustCompile(`(mossy|teal)-[a-z]+`).FindAllString(sample(t, few, i).Prefix, -1)
		if slices.Sort(keys); len(slices.Compact(keys)) != 4 {
			t.Errorf("keys %q", keys)
		}
	}
	if _, err := New("ruler/niah_multiquery@900", Options{Count: countWords, Data: write(t, map[string]string{
		"adjectives.txt": "mossy\nteal", "nouns.txt": "yeti elf\nimp elf", "essay.txt": essayText,
	})}); err == nil || !strings.Contains(err.Error(), "6 pairs") {
		t.Errorf("error %v, want one about 6 pairs", err)
	}
}
