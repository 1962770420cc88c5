// Lists of the keys that a tile of groups keeps, from bitmaps: made once a block, read by attention in each of its steps.
#include "common.cuh"

constexpr int kThreads = 1024, kWarps = 32;
constexpr int kKeys = 64;                        // lists are filled up to a multiple of it, a tile of cached.cuh
constexpr uint32_t kNone = ~0u;

// first_of returns the sum of x of the threads before this one, and in all that of the block.
DEVICE int first_of(int x, uint32_t* scratch, int& all) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int upto = x;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int y = __shfl_up_sync(~0u, upto, d);
    if (lane >= d) upto += y;
  }
  __syncthreads();                               // scratch has been read
  if (lane == 31) scratch[warp] = upto;
  __syncthreads();
  const int mine = scratch[lane];
  all = __reduce_add_sync(~0u, mine);
  return upto - x + __reduce_add_sync(~0u, lane < warp ? mine : 0);
}

// columnlists: list (b, unit, tile) has, in ascending order, the keys that bits [B, H, groups, ceil(N/32)] keep for one of
// `share` heads from unit*share on and one of `width` groups from tile*width on, and the keys from .. to-1. Bit
// head*width + group of a key's members, both counted within the list, says that this head and group keep it: share*width is
// at most 32. counts[1 + list] becomes the number of tiles of 64 keys, at least 1. The last tile is filled up with kNone
// without members. The distance between lists is `capacity`, in keys. One block a list.
LAUNCH(columnlists, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads)
    columnlists(const uint32_t* bits, uint32_t* keys, uint32_t* members, int* counts, long long B, long long H, long long groups,
                long long N, long long share, long long width, long long from, long long to, long long capacity) {
  __shared__ uint32_t scratch[kWarps];
  const int words = static_cast<int>((N + 31) / 32), tiles = static_cast<int>(ceil_div(groups, width)), list = blockIdx.x;
  const int tile = list % tiles, here = min(static_cast<int>(width), static_cast<int>(groups - tile * width));
  const uint32_t* rows = bits + ((list / tiles) * share * groups + tile * width) * words;  // of the first head
  keys += list * capacity, members += list * capacity;
  int have = 0;
  for (int base = 0; base < words; base += kThreads) {
    const int w = base + threadIdx.x;
    uint32_t always = 0, any = 0;                // keys from .. to-1 among the 32 of the word
    if (w < words) {
      const long long low = max(from - 32ll * w, 0ll), high = min(to - 32ll * w, 32ll);
      if (low < high) always = (~0u >> (32 - (high - low))) << low;
      any = always;
      for (int h = 0; h < share; h++)
        for (int g = 0; g < here; g++) any |= __ldg(rows + (h * groups + g) * words + w);
    }
    int all;
    int at = have + first_of(__popc(any), scratch, all);
    have += all;
    if (!any) continue;
    uint32_t of[32] = {};                        // members of the word's keys
    for (int h = 0; h < share; h++) {
      for (int g = 0; g < here; g++) {
        const uint32_t x = __ldg(rows + (h * groups + g) * words + w) | always;
#pragma unroll
        for (int i = 0; i < 32; i++) of[i] |= (x >> i & 1) << (h * width + g);
      }
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
      if (!(any >> i & 1)) continue;
      if (at < capacity) keys[at] = 32 * w + i, members[at] = of[i];
      at++;
    }
  }
  const int filled = max((have + kKeys - 1) / kKeys, 1);
  for (int at = have + threadIdx.x; at < filled * kKeys; at += kThreads)
    if (at < capacity) keys[at] = kNone, members[at] = 0;
  if (threadIdx.x == 0) counts[1 + list] = filled;
}

// columnlists_tiles adds up counts [lists + 1] of columnlists: entry i becomes the number of tiles before list i. One block.
LAUNCH(columnlists_tiles, kThreads, 0, 1, 0)
extern "C" __global__ void __launch_bounds__(kThreads) columnlists_tiles(int* counts, long long lists) {
  __shared__ uint32_t scratch[kWarps];
  int before = 0;
  for (long long base = 0; base < lists; base += kThreads) {
    const long long i = base + threadIdx.x;
    const int x = i < lists ? counts[1 + i] : 0;
    int all;
    const int upto = before + x + first_of(x, scratch, all);
    if (i < lists) counts[1 + i] = upto;
    before += all;
  }
  if (threadIdx.x == 0) counts[0] = 0;
}
