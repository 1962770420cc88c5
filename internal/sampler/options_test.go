package sampler

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestRefusesBadOptions(t *testing.T) {
	prompt := [][]int32{{1, 2}}
	nan, inf := math.NaN(), math.Inf(1)
	l := func(change func(*LLaDA)) sampler { o := llada(); change(&o); return o }
	d := func(change func(*Dream)) sampler { o := dream(); change(&o); return o }
	cases := []struct {
		sampler sampler
		prompts [][]int32
		want    string
	}{
		{l(func(o *LLaDA) { o.Steps = 0 }), prompt, "steps 0: want at least 1"},
		{l(func(o *LLaDA) { o.Steps = 1e6 }), prompt, "steps 1000000: want at most 1024 for 4 tokens"},
		{l(func(o *LLaDA) { o.Steps, o.GenLength, o.BlockLength = math.MaxInt, 100, 100 }), prompt, fmt.Sprintf("steps %d: want at most 1600 for 100 tokens", math.MaxInt)},
		{l(func(o *LLaDA) { o.CFGScale = 1e300 }), prompt, "cfg_scale 1e+300: want 0 to 1e+06"},
		{l(func(o *LLaDA) { o.GenLength = 0 }), prompt, "gen_length 0: want at least 1"},
		{l(func(o *LLaDA) { o.BlockLength = -2 }), prompt, "block_length -2: want at least 1"},
		{l(func(o *LLaDA) { o.BlockLength = 3 }), prompt, "gen_length 4: want a multiple of block_length 3"},
		{l(func(o *LLaDA) { o.BlockLength, o.Steps = 2, 5 }), prompt, "steps 5: want a multiple of the number of blocks, 2"},
		{l(func(o *LLaDA) { o.Temperature = -1 }), prompt, "temperature -1: want"},
		{l(func(o *LLaDA) { o.Temperature = nan }), prompt, "temperature NaN: want"},
		{l(func(o *LLaDA) { o.Temperature = inf }), prompt, "temperature +Inf: want"},
		{l(func(o *LLaDA) { o.CFGScale = -0.5 }), prompt, "cfg_scale -0.5: want"},
		{l(func(o *LLaDA) { o.CFGScale = nan }), prompt, "cfg_scale NaN: want"},
		{l(func(o *LLaDA) { o.Remasking = "high" }), prompt, `remasking "high": want "low_confidence" or "random"`},
		{l(func(o *LLaDA) { o.ConfidenceDType = "f16" }), prompt, `confidence_dtype "f16": want`},
		{l(func(o *LLaDA) { o.Threshold = 1.5 }), prompt, "threshold 1.5: want"},
		{l(func(o *LLaDA) { o.Threshold = nan }), prompt, "threshold NaN: want"},
		{l(func(o *LLaDA) { o.Factor = -1 }), prompt, "factor -1: want"},
		{l(func(o *LLaDA) { o.Threshold, o.Factor = 0.5, 1 }), prompt, "threshold 0.5 and factor 1: want one"},
		{l(func(o *LLaDA) { o.MaskID = -1 }), prompt, "mask_id -1: want at least 0"},
		{l(func(o *LLaDA) { o.LogitsEOSInf, o.EOSID = true, -3 }), prompt, "eos_id -3: want at least 0"},
		{l(func(o *LLaDA) { o.ConfidenceEOSEoTInf, o.EoTID = true, waveMask }), prompt, "eot_id 6: want an id other than mask_id"},
		{l(func(o *LLaDA) { o.LogitsEOSInf, o.EOSID = true, 7 }), prompt, "eos_id 7: want less than the 7 entries"},
		{l(func(o *LLaDA) { o.MaskID = 9 }), prompt, "mask_id 9: want less than the 7 entries"},
		{l(func(o *LLaDA) { o.Steps, o.Temperature = 0, -1 }), prompt, "steps 0: want at least 1\nsampler: temperature -1: want"},

		{d(func(o *Dream) { o.MaxNewTokens = -1 }), prompt, "max_new_tokens -1: want at least 0"},
		{d(func(o *Dream) { o.MaxNewTokens = 0 }), prompt, "max_new_tokens 0: the prompt has no mask (token 6)"},
		{d(func(o *Dream) { o.Steps = 1e6 }), prompt, "steps 1000000: want at most 1024 for 4 tokens"},
		{d(func(o *Dream) { o.Steps, o.MaxNewTokens = math.MaxInt, 100 }), prompt, fmt.Sprintf("steps %d: want at most 1600 for 100 tokens", math.MaxInt)},
		{d(func(o *Dream) { o.Steps = 0 }), prompt, "steps 0: want at least 1"},
		{d(func(o *Dream) { o.Eps = 0 }), prompt, "eps 0: want a number between 0 and 1"},
		{d(func(o *Dream) { o.Eps = 1 }), prompt, "eps 1: want"},
		{d(func(o *Dream) { o.Eps = nan }), prompt, "eps NaN: want"},
		{d(func(o *Dream) { o.Alg = "best" }), prompt, `alg "best": want "origin", "maskgit_plus", "topk_margin", "entropy" or "confidence_threshold"`},
		{d(func(o *Dream) { o.AlgTemp = -1 }), prompt, "alg_temp -1: want"},
		{d(func(o *Dream) { o.Temperature = -1 }), prompt, "temperature -1: want"},
		{d(func(o *Dream) { o.TopP = 0 }), prompt, "top_p 0: want above 0, at most 1"},
		{d(func(o *Dream) { o.TopP = 1.01 }), prompt, "top_p 1.01: want"},
		{d(func(o *Dream) { o.TopP = nan }), prompt, "top_p NaN: want"},
		{d(func(o *Dream) { o.TopK = -1 }), prompt, "top_k -1: want at least 0"},
		{d(func(o *Dream) { o.ConfidenceDType = "f8" }), prompt, `confidence_dtype "f8": want`},
		{d(func(o *Dream) { o.MaskID = -1 }), prompt, "mask_id -1: want at least 0"},
		{d(func(o *Dream) { o.MaskID = 7 }), prompt, "mask_id 7: want less than the 7 entries"},
		{d(func(o *Dream) { o.Threshold = 0.5 }), prompt, `threshold 0.5: want 0 unless alg is "confidence_threshold"`},
		{d(func(o *Dream) { o.Alg = ConfidenceThreshold }), prompt, "threshold 0: want above 0"},
		{d(func(o *Dream) { o.Alg, o.Threshold = ConfidenceThreshold, 0.5 }), prompt, "steps 3: with alg \"confidence_threshold\", want a divisor of the number of masks, 4 in row 0"},

		{d(func(o *Dream) { o.BlockLength = -1 }), prompt, "block_length -1: want at least 0 (0 is one block"},
		{d(func(o *Dream) { o.BlockLength = 3 }), prompt, "max_new_tokens 4: want a multiple of block_length 3"},
		{d(func(o *Dream) { o.BlockLength = 8 }), prompt, "max_new_tokens 4: want a multiple of block_length 8"},
		{d(func(o *Dream) { o.BlockLength = 2 }), prompt, "steps 3: want a multiple of the number of blocks, 2 (max_new_tokens 4 / block_length 2)"},
		{d(func(o *Dream) { o.BlockLength, o.Steps, o.Alg, o.Threshold = 2, 8, ConfidenceThreshold, 0.5 }), prompt, "steps 8: with alg \"confidence_threshold\", want a divisor of the number of masks, 4 in row 0"},
		{d(func(o *Dream) { o.BlockLength, o.Steps = 2, 4 }), [][]int32{{1, 2}, {1, waveMask}}, "prompt row 1, position 1: token 6 is the mask: want none in a prompt with several blocks"},
		{d(func(o *Dream) { o.Cached = true }), [][]int32{{waveMask, 2}}, "prompt row 0, position 0: token 6 is the mask: want none in a prompt with a cache"},
		{d(func(o *Dream) { o.Cached, o.MaxNewTokens = true, 0 }), prompt, "max_new_tokens 0: want at least 1 with a cache"},
		{d(func(o *Dream) { o.FirstTokenAtPrefill, o.Alg = true, Entropy }), prompt, "first_token_at_prefill true: want false without a cache"},
		{d(func(o *Dream) { o.FirstTokenAtPrefill, o.Cached = true, true }), prompt, `alg "maskgit_plus": want "entropy" or "confidence_threshold" with first_token_at_prefill`},
		{d(func(o *Dream) {
			o.FirstTokenAtPrefill, o.Cached, o.Alg, o.BlockLength, o.Steps = true, true, Entropy, 2, 2
		}), prompt, "steps 2: want at least 4, 2 a block, with first_token_at_prefill"},
		{l(func(o *LLaDA) { o.Cached = true }), [][]int32{{1, 2}, {waveMask, 2}}, "prompt row 1, position 0: token 6 is the mask: want none in a prompt with a cache"},

		{llada(), nil, "no prompts: want at least one row"},
		{llada(), [][]int32{{1, 2}, {1}}, "prompt row 1 has 1 tokens, row 0 has 2"},
		{dream(), [][]int32{{1, 2}, {1, -4}}, "prompt row 1, position 1: token id -4: want at least 0"},
		{d(func(o *Dream) { o.MaxNewTokens = 0 }), [][]int32{{}}, "a prompt of 0 tokens and 0 generated ones"},
		{l(func(o *LLaDA) { o.GenLength, o.BlockLength = math.MaxInt32, math.MaxInt32 }), prompt, "a prompt of 2 tokens and 2147483647 generated ones"},
	}
	for _, c := range cases {
		result, err := c.sampler.Generate(t.Context(), c.prompts, asForward(t, waveLogits))
		if err == nil || !strings.Contains(err.Error(), "sampler: "+c.want) {
			t.Errorf("%+v: error %v, want %q", c.sampler, err, c.want)
		}
		if result != nil && result.Steps != 0 {
			t.Errorf("%q: %d steps were done", c.want, result.Steps)
		}
	}
}
