package tokenizer
import ("bufio";"encoding/hex";"fmt";"os";"strconv";"strings";"testing";"unicode")
func TestZZCps(t *testing.T) {
	f, err := os.Open("/tmp/tokwork/cps.txt"); if err != nil { t.Skip() }
	sc := bufio.NewScanner(f); sc.Buffer(make([]byte, 1<<20), 1<<20)
	digits := pretokenizer{scanDigits, scanGPT2}
	tk := map[string]pretokenizer{"llada":{scanners[patternLLaDA]},"gpt2":{scanGPT2},"qwen2":{scanners[patternQwen2]},"digits":digits}
	bad := map[string][]rune{}
	for sc.Scan() {
		fs := strings.Split(sc.Text(), "\t")
		c, _ := strconv.ParseInt(fs[0],16,32)
		s := string(rune(c))
		text := fmt.Sprintf("a%sb %s%s1%s!'%s %s", s,s,s,s,s,s)
		for _, x := range fs[1:] {
			k, v, _ := strings.Cut(x, ":")
			if k == "nfc" {
				in := "a"+s+"\u0301"+s+"e\u0323"+s
				if hex.EncodeToString([]byte(nfc(in))) != v { bad[k]=append(bad[k], rune(c)) }
				continue
			}
			var w []string
			for p := range tk[k].split(text) { var b strings.Builder; for i := range len(p) { b.WriteRune(byteRune[p[i]]) }; w = append(w, b.String()) }
			if strings.Join(w," ") != v { bad[k]=append(bad[k], rune(c)); if len(bad[k])<4 {t.Logf("%s %x: got %s want %s", k, c, strings.Join(w," "), v)} }
		}
	}
	for k, v := range bad { 
		un := 0; var rs []string; start := -1
		for i, r := range v { if !unicode.In(r, unicode.L,unicode.M,unicode.N,unicode.P,unicode.S,unicode.Z,unicode.C,unicode.Cc) {un++}; if start<0 {start=i}; if i+1==len(v)||v[i+1]!=r+1 { rs=append(rs, fmt.Sprintf("%X-%X", v[start], r)); start=-1 } }
		if len(rs)>60 {rs=rs[:60]}
		t.Errorf("%s: %d differ, %d unassigned here: %v", k, len(v), un, rs) }
}
