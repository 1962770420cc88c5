// Checks of full attention, attention over a window and over columns.
#pragma once

#include "reference.cuh"

// compare holds out and lse to the reference, in relative L2 and absolute error. out may be off by allowed.
static void compare(const Inputs& in, double allowed, const uint32_t* bits, const int* start, const std::vector<int>& starts, const std::vector<float>& out,
                    const std::vector<float>& lse, const std::string& what) {
  const Shape& s = in.s;
  std::vector<i64> rows;
  for (i64 r : sample(s.queries(), s.n > 1000 ? 400 : 4000))
    if (starts.empty() || bits || r % s.n >= starts[r / s.n / s.heads]) rows.push_back(r);
  if (rows.empty()) return;
  Buffer<i64> at(rows);
  Buffer<double> p(rows.size() * s.n), o(rows.size() * s.d), l(rows.size());
  reference_rows<<<static_cast<unsigned>(rows.size()), 128>>>(s, in.q.p, in.k.p, in.v.p, bits, start, at.p, p.p, o.p, l.p);
  OK(cudaDeviceSynchronize());
  const auto ro = o.host(), rl = l.host();
  double num = 0, den = 0, worst = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    for (int c = 0; c < s.d; c++) {
      const double x = out[rows[i] * s.d + c], y = ro[i * s.d + c];
      num += (x - y) * (x - y), den += y * y;
    }
    const double x = lse[rows[i]], y = rl[i];
    worst = x == y ? worst : std::isfinite(x - y) ? std::max(worst, std::abs(x - y)) : INFINITY;
  }
  for (float x : out)
    if (std::isnan(x)) { report(false, "%.0f", what + ": NaN or unwritten output", 0, 0); return; }
  const double error = den > 0 ? std::sqrt(num / den) : num;
  worst_out = std::max(worst_out, error), worst_lse = std::max(worst_lse, worst);
  const double allowed_lse = exact ? 5e-5 : 1e-3;
  report(error <= allowed, "relative L2 error %.2e, want <= %.0e", what, error, allowed);
  report(worst <= allowed_lse, "log-sum-exp off by %.2e, want <= %.0e", what + " lse", worst, allowed_lse);
}

static std::vector<float> floats(const Buffer<uint8_t>& b, size_t n, int otype) {
  const auto raw = b.host();
  std::vector<float> f(n);
  for (size_t i = 0; i < n; i++) {
    if (otype) std::memcpy(&f[i], &raw[4 * i], 4);
    else { uint32_t x = raw[2 * i] << 16 | static_cast<uint32_t>(raw[2 * i + 1]) << 24; std::memcpy(&f[i], &x, 4); }
  }
  return f;
}

static i64 items(const Kernel& kernel, const Shape& s, bool by_group) {
  const i64 rows = kernel.launch[2];
  return static_cast<i64>(s.batch) * s.heads * (by_group ? s.groups() * ((s.group + rows - 1) / rows) : (s.n + rows - 1) / rows);
}

// Kernels for float32 take the head dimension last; the others do not look at it.
struct Attention {
  const Kernel& kernel;
  std::string kind;
  bool by_group, mapped;                         // the kernel takes tensor maps of q, k and v
  void operator()(const Inputs& in, void* out, float* lse, const uint32_t* bits, const int* start, int otype, bool bnhd = false,
                  const int* query_range = nullptr) const {
    const Shape& s = in.s;
    const i64 batch = s.batch, heads = s.heads, kv_heads = s.kv_heads, n = s.n, d = s.d, layout = bnhd;
    if (kind == "columnsparse")
      kernel.run(items(kernel, s, by_group), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, bits, s.heads * s.groups() * s.words(), s.groups() * s.words(),
                 batch, heads, kv_heads, n, static_cast<i64>(s.group), s.scale, static_cast<i64>(otype), layout, query_range, d);
    else if (kind == "window")
      kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, start, static_cast<i64>(s.reach), static_cast<i64>(s.sinks),
                 batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), layout, query_range, d);
    else if (mapped)
      kernel.run(items(kernel, s, false), boxes(in.q.p, batch * heads, n, d), boxes(in.k.p, batch * kv_heads, n, d), boxes(in.v.p, batch * kv_heads, n, d), out, lse, start,
                 batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), layout, query_range);
    else
      kernel.run(items(kernel, s, false), in.q.operand(), in.k.operand(), in.v.operand(), out, lse, start, batch, heads, kv_heads, n, s.scale, static_cast<i64>(otype), layout, query_range, d);
  }
};

// check_bnhd expects the same bits of an output in BNHD layout, and nothing written before and after it.
static void check_bnhd(const Attention& run, const Inputs& in, const uint32_t* bits, const int* start, int otype,
                            const std::vector<uint8_t>& out, const std::vector<float>& lse, const std::string& what) {
  const Shape& s = in.s;
  const i64 row = s.d * (otype ? 4 : 2), guard = 4096;
  Buffer<uint8_t> moved(s.queries() * row + 2 * guard);
  Buffer<float> same(s.queries());
  moved.poison(), same.poison();
  run(in, moved.p + guard, same.p, bits, start, otype, true);
  OK(cudaDeviceSynchronize());
  const std::vector<uint8_t> got = moved.host();
  i64 wrong = 0, outside = 0;
  for (i64 i = 0; i < s.queries(); i++) {
    const i64 batch = i / s.n / s.heads, head = i / s.n % s.heads, token = i % s.n;
    wrong += std::memcmp(&got[guard + ((batch * s.n + token) * s.heads + head) * row], &out[i * row], row) != 0;
  }
  for (i64 i = 0; i < guard; i++) outside += (got[i] != 0xFF) + (got[got.size() - 1 - i] != 0xFF);
  report(wrong == 0 && outside == 0, "%.0f rows differ, %.0f bytes written outside", what, wrong, outside);
  const std::vector<float> got_lse = same.host();
  report(std::memcmp(got_lse.data(), lse.data(), 4 * lse.size()) == 0, "%.0f", what + ": another log-sum-exp", 0, 0);
}

// check_query_range expects the same bits of the queries of some ranges, and nothing written of queries so far away that
// they share no item with them.
static void check_query_range(const Attention& run, const Inputs& in, const uint32_t* bits, const int* start, int otype,
                       const std::vector<uint8_t>& out, const std::string& what) {
  const Shape& s = in.s;
  const int n = s.n, ranges[][2] = {{0, 1}, {n - 1, n}, {n / 2, n / 2 + 1}, {n / 3, n - n / 3}, {0, n}, {0, 0}, {n / 2, n / 2}};
  constexpr int kItem = 256;                     // queries of the largest item, of a cluster
  const i64 row = s.d * (otype ? 4 : 2);
  for (const auto& range : ranges) {
    Buffer<int> at(std::vector<int>{range[0], range[1]});
    Buffer<uint8_t> part(s.queries() * row);
    part.poison();
    run(in, part.p, nullptr, bits, start, otype, false, at.p);
    OK(cudaDeviceSynchronize());
    const std::vector<uint8_t> got = part.host();
    i64 wrong = 0, more = 0;
    for (i64 i = 0; i < s.queries(); i++) {
      const i64 token = i % n;
      if (token >= range[0] && token < range[1]) wrong += std::memcmp(&got[i * row], &out[i * row], row) != 0;
      else if (range[0] >= range[1] || token <= range[0] - kItem || token >= range[1] - 1 + kItem)
        more += std::count(&got[i * row], &got[(i + 1) * row], 0xFF) != row;
    }
    report(wrong == 0 && more == 0, "%.0f rows of the range differ, %.0f others are written", what + " of " + std::to_string(range[0]) + " to " + std::to_string(range[1]), wrong, more);
  }
}

static void check_one(const Attention& run, const Inputs& in, const uint32_t* bits, const std::vector<int>& starts, int otype, const std::string& what) {
  const Shape& s = in.s;
  Buffer<uint8_t> out(s.queries() * s.d * (otype ? 4 : 2));
  Buffer<float> lse(s.queries());
  Buffer<int> start(starts);
  out.poison(), lse.poison();
  if (small()) std::printf("%s\n", what.c_str()), std::fflush(stdout);
  run(in, out.p, lse.p, bits, starts.empty() ? nullptr : start.p, otype);
  const cudaError_t e = cudaDeviceSynchronize();
  if (e != cudaSuccess) { std::printf("FAIL %s: %s\n", what.c_str(), cudaGetErrorString(e)); std::exit(1); }
  compare(in, exact && otype ? 1e-5 : 3e-3, bits, starts.empty() ? nullptr : start.p, starts, floats(out, s.queries() * s.d, otype), lse.host(), what);
  check_bnhd(run, in, bits, starts.empty() ? nullptr : start.p, otype, out.host(), lse.host(), what + ", BNHD");
  check_query_range(run, in, bits, starts.empty() ? nullptr : start.p, otype, out.host(), what + ", queries");
}

static void check_denseattn(const Attention& run, int d) {
  for (int n : lengths()) {
    for (int ratio : kRatios) {
      const Inputs in(shape(2, ratio == 1 ? 2 : ratio, ratio == 1 ? 2 : 1, n, d, 128), n, ratio == 7 ? 6 : 1);
      check_one(run, in, nullptr, {}, ratio == 7, name(in.s, "denseattn"));
      check_one(run, in, nullptr, {n / 3, 0}, ratio == 1, name(in.s, "denseattn, padded"));
    }
  }
  Inputs rising(shape(1, 2, 1, small() ? 300 : 2000, d, 128), 6, 4);
  rising.raise();
  check_one(run, rising, nullptr, {}, 1, name(rising.s, "denseattn, rising"));
  if (small()) return;
  const Inputs in(shape(1, 8, 2, 2000, d, 128), 5);
  repeat(in.s.queries() * d / 2, "denseattn", [&](uint32_t* out) { run(in, out, nullptr, nullptr, nullptr, 0); });
}

static Shape window(Shape s, int reach, int sinks) {
  s.reach = reach, s.sinks = sinks;
  return s;
}

static void check_window(const Attention& run, int d) {
  for (int n : lengths()) {
    const int windows[][2] = {{0, 0}, {1, 5}, {20, n / 3}, {100, 70}, {n, 0}, {3, n}};
    int turn = 0;
    for (const auto& w : windows) {
      const bool gqa = ++turn % 2;
      const Inputs in(window(shape(2, gqa ? 7 : 2, gqa ? 1 : 2, n, d, 128), w[0], w[1]), n + turn, gqa ? 1 : 6);
      char more[60];
      std::snprintf(more, sizeof more, "window reach=%d sinks=%d", w[0], w[1]);
      check_one(run, in, nullptr, {}, gqa, name(in.s, more));
      check_one(run, in, nullptr, {n / 3, 0}, !gqa, name(in.s, more) + ", padded");
    }
  }
  if (small()) return;
  const Inputs in(window(shape(1, 8, 2, 2000, d, 128), 128, 200), 5);
  repeat(in.s.queries() * d / 2, "window", [&](uint32_t* out) { run(in, out, nullptr, nullptr, nullptr, 0); });
}

static void check_columnsparse(const Attention& run, int d, int group) {
  for (int n : lengths()) {
    int turn = 0;
    for (int k : keep(n)) {
      if (k > n || k < 1 || (small() && k != 7 && k != n / 5)) continue;
      const bool gqa = ++turn % 2;
      const Inputs in(shape(gqa ? 1 : 2, gqa ? 7 : 2, gqa ? 1 : 2, n, d, group), n + k, gqa ? 1 : 6);
      const Shape& s = in.s;
      for (float share : {0.f, .7f}) {
        Buffer<uint32_t> bits(s.rows() * s.words());
        fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), n, k, std::max(1, 128 / group), share, k);
        OK(cudaDeviceSynchronize());
        char more[60];
        std::snprintf(more, sizeof more, "k=%d share=%.1f", k, share);
        check_one(run, in, bits.p, {}, turn % 3 == 0, name(s, more));
      }
    }
  }
  // Groups that differ in how much they keep, among them nothing.
  for (int n : small() ? std::vector<int>{300} : std::vector<int>{100, 700, 3000}) {
    const Inputs in(shape(2, 3, 1, n, d, group), n);
    const Shape& s = in.s;
    std::vector<uint32_t> bits(s.rows() * s.words());
    for (i64 r = 0; r < s.rows(); r++) {
      const uint32_t density = hash(r) % 5;
      for (int j = 0; j < n; j++)
        if (hash(r << 20 | j) % 5 < density && !(density == 2 && j > n / 2)) bits[r * s.words() + j / 32] |= 1u << j % 32;
    }
    Buffer<uint32_t> device(bits);
    check_one(run, in, device.p, {}, 0, name(s, "uneven"));
  }
  for (float share : {0.f, .7f}) {
    Inputs in(shape(1, 2, 1, small() ? 300 : 2000, d, group), 6, 4);
    in.raise();
    const Shape& s = in.s;
    Buffer<uint32_t> bits(s.rows() * s.words());
    fill_bits<<<static_cast<unsigned>(s.rows()), 128>>>(bits.p, s.rows(), static_cast<int>(s.groups()), s.n, s.n / 2, std::max(1, 128 / group), share, 9);
    OK(cudaDeviceSynchronize());
    check_one(run, in, bits.p, {}, 1, name(s, "rising"));
  }
  if (small()) return;
  const Inputs in(shape(1, 8, 2, 2000, d, group), 5);
  Buffer<uint32_t> bits(in.s.rows() * in.s.words());
  fill_bits<<<static_cast<unsigned>(in.s.rows()), 128>>>(bits.p, in.s.rows(), static_cast<int>(in.s.groups()), 2000, 400, std::max(1, 128 / group), .5f, 3);
  repeat(in.s.queries() * d / 2, "columnsparse", [&](uint32_t* out) { run(in, out, nullptr, bits.p, nullptr, 0); });
}
