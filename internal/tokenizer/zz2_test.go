package tokenizer
import ("testing";"os";"encoding/json")
func TestZZBig(t *testing.T) {
	for _, n := range []string{"gpt2","gpt2-digits","ignore-merges","added"} {
		tok, err := OpenFile("/tmp/tokwork/big/"+n+".tokenizer.json"); if err != nil { t.Fatal(err) }
		b, _ := os.ReadFile("/tmp/tokwork/big/"+n+".oracle.json"); var cs []golden; if err := json.Unmarshal(b,&cs); err != nil {t.Fatal(err)}
		t.Log(n, len(cs)); check(t, tok, cs)
	}
}
