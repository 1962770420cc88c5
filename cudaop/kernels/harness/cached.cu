// Checks and times attention over cached keys on a GPU, without Go.
//
//   cached check FOLDER      against float64; FOLDER has the cubins of ../cachedattn_*.cu, ../scorecollect_{sm80,f32}.cu,
//                            ../columnlists.cu and ../cacherows.cu
//   cached time FOLDER       a layer of an 8B model with 32 key heads, and of a 7B model with 4, in CUDA graphs of many layers
//
// SMALL=1 checks a few tiny cases, for compute-sanitizer. check exits with 1 if anything is wrong.
#include "cachedtiming.cuh"

static std::vector<float> wide(const std::vector<uint8_t>& raw, int otype) {
  std::vector<float> f(raw.size() / (otype ? 4 : 2));
  for (size_t i = 0; i < f.size(); i++) {
    uint32_t x = 0;
    if (otype) std::memcpy(&x, &raw[4 * i], 4); else x = raw[2 * i] << 16 | static_cast<uint32_t>(raw[2 * i + 1]) << 24;
    std::memcpy(&f[i], &x, 4);
  }
  return f;
}

// check_rows compares sampled rows with the reference, and expects that no other rows are written.
static void check_rows(const Layer& l, const uint32_t* bits, const Buffer<uint8_t>& out, int otype, bool bnhd, const float* lse, const std::string& what) {
  const Case& c = l.c;
  const std::vector<uint8_t> raw = out.host();
  const std::vector<float> got = wide(raw, otype);
  const auto at_row = [&](i64 r) {
    const i64 b = r / c.rows / c.heads, h = r / c.rows % c.heads, i = r % c.rows;
    return (bnhd ? (b * c.rows + i) * c.heads + h : r) * c.d;
  };
  i64 outside = 0;
  std::vector<i64> rows;
  const size_t row_bytes = c.d * (otype ? 4 : 2);
  for (i64 r = 0; r < c.queries(); r++) {
    if (r % c.rows >= c.from && r % c.rows < c.to) rows.push_back(r);
    else outside += std::count(&raw[at_row(r) * (otype ? 4 : 2)], &raw[at_row(r) * (otype ? 4 : 2)] + row_bytes, 0xFF) != static_cast<i64>(row_bytes);
  }
  report(outside == 0, "%.0f other rows are written", what, outside, 0);
  std::vector<i64> some;
  for (i64 i : sample(rows.size(), c.n > 1000 ? 300 : 1500)) some.push_back(rows[i]);
  Buffer<i64> at(some);
  Buffer<double> p(some.size() * c.n), o(some.size() * c.d), e(some.size());
  cached_reference<<<static_cast<unsigned>(some.size()), 128>>>(c, l.q.p, l.k.p, l.v.p, bits, at.p, p.p, o.p, e.p);
  OK(cudaDeviceSynchronize());
  const auto ro = o.host(), re = e.host();
  double num = 0, den = 0, worst = 0;
  for (size_t i = 0; i < some.size(); i++) {
    for (int d = 0; d < c.d; d++) {
      const double x = got[at_row(some[i]) + d], y = ro[i * c.d + d];
      num += (x - y) * (x - y), den += y * y;
    }
    if (lse && re[i] != lse[some[i]]) worst = std::max(worst, std::isfinite(re[i] - lse[some[i]]) ? std::abs(re[i] - lse[some[i]]) : INFINITY);
  }
  const double error = std::isnan(num) ? INFINITY : den > 0 ? std::sqrt(num / den) : num, allowed = exact && otype ? 1e-5 : 3e-3;
  worst_out = std::max(worst_out, error), worst_lse = std::max(worst_lse, worst);
  report(error <= allowed, "relative L2 error %.2e, want <= %.0e", what, error, allowed);
  report(worst <= (exact ? 5e-5 : 1e-3), "log-sum-exp off by %.2e", what, worst, 0);
}

// check_lists compares lists with those that the host makes of the same bits.
static void check_lists(const Layer& l, const std::vector<uint32_t>& bits, const std::string& what) {
  const Case& c = l.c;
  const auto keys = l.keys.host(), members = l.members.host();
  const auto counts = l.counts.host();
  const int tiles = (c.groups() + c.width() - 1) / c.width();
  i64 wrong = counts[0] != 0;
  for (i64 list = 0; list < c.lists(); list++) {
    const i64 unit = list / tiles;
    const int first = static_cast<int>(list % tiles) * c.width(), here = std::min(c.width(), c.groups() - first);
    std::vector<uint32_t> k, m;
    for (int j = 0; j < c.n; j++) {
      uint32_t of = 0;
      for (int h = 0; h < c.share; h++)
        for (int g = 0; g < here; g++)
          if ((bits[((unit * c.share + h) * c.groups() + first + g) * c.words() + j / 32] >> (j % 32) & 1) || (j >= c.first + c.from && j < c.end)) of |= 1u << (h * c.width() + g);
      if (of) k.push_back(j), m.push_back(of);
    }
    do k.push_back(~0u), m.push_back(0); while (k.size() % 64);
    if (k[k.size() - 64] == ~0u && k.size() > 64) k.resize(k.size() - 64), m.resize(m.size() - 64);
    wrong += counts[list + 1] - counts[list] != static_cast<int>(k.size() / 64);
    wrong += !std::equal(k.begin(), k.end(), keys.begin() + list * l.capacity) || !std::equal(m.begin(), m.end(), members.begin() + list * l.capacity);
  }
  report(wrong == 0, "%.0f lists are wrong", what, wrong, 0);
}

static void check_scores(const Layer& l, const Kernels& k8, const float* lse, const std::string& what) {
  const Case& c = l.c;
  for (int stype : {0, 1}) {
    const i64 pitch = (c.n + 7) / 8 * 8;
    Buffer<uint8_t> out(c.bit_rows() * pitch * (stype ? 4 : 2));
    l.scores(k8, lse, out.p, pitch, stype);
    OK(cudaDeviceSynchronize());
    const auto raw = out.host();
    double worst = 0;
    for (i64 r : sample(c.bit_rows(), 16)) {
      const i64 bh = r / c.groups();
      const int b = static_cast<int>(bh / c.heads), u = static_cast<int>(r % c.groups());
      std::vector<i64> rows;
      for (int i = std::max(c.from + u * c.group, c.start(b) - c.first); i < std::min(c.from + (u + 1) * c.group, c.to); i++) rows.push_back(bh * c.rows + i);
      std::vector<double> mean(c.n);
      if (!rows.empty()) {
        Buffer<i64> at(rows);
        Buffer<double> p(rows.size() * c.n), o(rows.size() * c.d), e(rows.size());
        cached_reference<<<static_cast<unsigned>(rows.size()), 128>>>(c, l.q.p, l.k.p, l.v.p, nullptr, at.p, p.p, o.p, e.p);
        const auto h = p.host();
        for (size_t i = 0; i < rows.size(); i++)
          for (int j = 0; j < c.n; j++) mean[j] += h[i * c.n + j] / rows.size();
      }
      for (int j = 0; j < c.n; j++) {
        float x;
        if (stype) std::memcpy(&x, &raw[(r * pitch + j) * 4], 4);
        else { uint16_t code; std::memcpy(&code, &raw[(r * pitch + j) * 2], 2); x = code ? std::exp2((code - 31743.) / 512) : 0; }
        if (mean[j] == 0 ? x != 0 : mean[j] > 1e-18) worst = std::max(worst, std::isnan(x) || mean[j] == 0 ? INFINITY : std::abs(x / mean[j] - 1));
      }
    }
    worst_score = std::max(worst_score, worst);
    report(worst <= (exact && stype ? 2e-4 : 1.5e-3), "a score is off by a factor of 1 ± %.2e", what + " scores", worst, 0);
  }
}

static void check_case(const Case& c, const Kernels& k8, int keep, float sharp) {
  const Layer l(c, k8, c.n + c.rows + keep, sharp, keep);
  const size_t values = c.queries() * c.d;
  if (small()) std::printf("%s\n", name(c, exact ? "f32" : "bf16").c_str()), std::fflush(stdout);
  for (i64 items : {i64(1), i64(3), i64(1) << 20}) {
    for (int otype : {0, 1}) {
      const bool bnhd = (items + otype) % 2;
      Buffer<uint8_t> out(values * (otype ? 4 : 2));
      Buffer<float> lse(c.queries()), again(c.queries());
      out.poison(), lse.poison(), again.poison();
      l.dense(k8, out.p, lse.p, otype, bnhd, items);
      l.dense(k8, nullptr, again.p, otype, bnhd, items);
      OK(cudaDeviceSynchronize());
      const auto e = lse.host(), e2 = again.host();
      check_rows(l, nullptr, out, otype, bnhd, e.data(), name(c, "by position"));
      report(std::memcmp(e.data(), e2.data(), 4 * e.size()) == 0, "%.0f", name(c, "log-sum-exp alone differs"), 0, 0);
      if (items == 1 && otype && c.reach < 0 && c.n < 3000) check_scores(l, k8, lse.p, name(c, ""));
    }
  }
  if (c.reach < 0) {
    Buffer<uint32_t> bits(c.bit_rows() * c.words());
    fill_bits<<<static_cast<unsigned>(c.bit_rows()), 128>>>(bits.p, c.bit_rows(), c.groups(), c.n, std::min(keep, c.n), 1, 0, keep);
    l.lists(k8, bits.p);
    OK(cudaDeviceSynchronize());
    if (c.n < 3000) check_lists(l, bits.host(), name(c, "lists"));
    for (i64 items : {i64(1), i64(5), i64(1) << 20}) {
      const int otype = items == 5;
      Buffer<uint8_t> out(values * (otype ? 4 : 2));
      out.poison();
      l.columns(k8, out.p, otype, items != 1, items);
      OK(cudaDeviceSynchronize());
      check_rows(l, bits.p, out, otype, items != 1, nullptr, name(c, "columns"));
    }
    if (!small() && c.n >= 1000) repeat(values / 2, name(c, "columns"), [&](uint32_t* out) { l.columns(k8, out, 0, true); });
  }
  if (!small() && c.n >= 1000) repeat(values / 2, name(c, "by position"), [&](uint32_t* out) { l.dense(k8, out, nullptr, 0, true); });
  i64 left = 0;
  for (uint32_t x : l.arrived.host()) left += x != 0;
  report(left == 0, "%.0f counters are left", name(c, ""), left, 0);
}

static void check(const std::string& folder, bool f32, int d) {
  exact = f32;
  const Kernels k8(folder, f32, d);
  std::vector<Case> cases = {
      // batch, heads, key heads, n, d, rows, first, from, to, end, group, share, reach, sinks, padded
      {1, 2, 2, 40, d, 8, 20, 0, 8, 28, 8, 1},
      {2, 7, 1, 301, d, 33, 100, 0, 33, 133, 32, 7, -1, 0, true},
      {2, 7, 1, 301, d, 33, 100, 0, 33, 133, 32, 1, -1, 0, true},
      {1, 4, 2, 131, d, 64, 60, 32, 64, 124, 16, 2},
      {2, 4, 2, 257, d, 20, 200, 3, 19, 219, 5, 2, 30, 17, true},
      {1, 8, 1, 129, d, 1, 128, 0, 1, 129, 32, 8},
  };
  if (!small()) {
    const std::vector<Case> more = {
        {1, 2, 1, 64, d, 64, 0, 0, 64, 64, 7, 2},
        {1, 4, 4, 1000, d, 300, 700, 0, 300, 732, 16, 1},
        {1, 4, 2, 1000, d, 300, 700, 0, 300, 732, 3, 2, -1, 0, true},
        {3, 6, 2, 2050, d, 32, 1000, 0, 32, 1032, 8, 3, -1, 0, true},
        {1, 4, 4, 2050, d, 64, 900, 32, 64, 964, 32, 1, 100, 205},
        {2, 4, 4, 700, d, 40, 300, 0, 40, 340, 32, 1, 20, 500, true},
        {1, 4, 4, 700, d, 40, 0, 0, 40, 40, 32, 1, 0, 0},
        {16, 2, 2, 1100, d, 16, 1000, 0, 16, 1016, 16, 1, -1, 0, true},
        {1, 28, 4, 9000, d, 33, 7000, 0, 33, 7033, 32, 7},
        {1, 3, 3, 20000, d, 32, 19000, 0, 32, 19032, 32, 1},
    };
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const Case& c : cases)
    for (int keep : small() ? std::vector<int>{9} : std::vector<int>{1, c.n / 5, c.n}) check_case(c, k8, std::max(keep, 1), keep == 1 ? 6 : 1);
  std::printf("%s d %d: %d checks, %d failures; worst error: output %.2e, lse %.1e, score %.2e\n", f32 ? "f32" : "bf16", d, checks, failures, worst_out, worst_lse, worst_score);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 3) { std::printf("usage: see cached.cu\n"); return 2; }
  if (std::string(argv[1]) == "time") return time_cached(argv[2]), 0;
  check(argv[2], false, 128);
  check(argv[2], false, 64);
  check(argv[2], true, 128);
  check(argv[2], true, 80);
  if (!small()) check(argv[2], true, 256), check(argv[2], true, 10);
  std::printf("%s\n", failures ? "FAIL" : "ok");
  return failures > 0;
}
