// Thin wrappers of Hopper's instructions (sm_90a): warpgroup matrix products, TMA, barriers, registers.
#pragma once

#include "common.cuh"

// --- Barriers in shared memory -------------------------------------------------------------------------------------

DEVICE void barrier_init(uint32_t b, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count) : "memory"); }

DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void barrier_arrive(uint32_t b) { asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
DEVICE void barrier_arrive(uint32_t b, int count) { asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(count) : "memory"); }

// barrier_arrive_copies arrives when all copies that this thread has started are complete.
DEVICE void barrier_arrive_copies(uint32_t b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(b) : "memory"); }

DEVICE void barrier_wait(uint32_t b, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again%=;\n"
      "}" ::"r"(b), "r"(parity) : "memory");
}

// copies_visible makes rows that threads have copied, and that a barrier has reported, visible to the Tensor Cores.
DEVICE void copies_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- Clusters and TMA ----------------------------------------------------------------------------------------------

DEVICE int cluster_rank() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

DEVICE int cluster_size() {
  int n;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}

DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }

// barrier_arrive_at arrives at the same barrier of another block of the cluster.
DEVICE void barrier_arrive_at(uint32_t b, int rank, int count) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there], %2;\n}" ::"r"(b),
               "r"(rank), "r"(count) : "memory");
}

// load_shared4_at reads the shared memory of another block of the cluster, at the same address.
DEVICE void load_shared4_at(uint32_t address, int rank, float (&x)[4]) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(address), "r"(rank) : "memory");
}

// barrier_expect arrives and makes the barrier wait for so many bytes too.
DEVICE void barrier_expect(uint32_t b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}

// TensorMap is CUtensorMap: it describes to TMA a batch of matrices, of which boxes of 64 rows and 64 columns are copied.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

// copy_box makes TMA copy a box, swizzled, to the same address in all blocks of the mask, where the barrier counts its
// bytes. Rows outside the matrix become 0.
DEVICE void copy_box(uint32_t to, const TensorMap& map, int column, int row, int matrix, uint32_t b, int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(b), "h"(static_cast<uint16_t>(blocks)) : "memory");
}

// The same for one block, of what is read once, or of what other blocks read too.
DEVICE void copy_box(uint32_t to, const TensorMap& map, int column, int row, int matrix, uint32_t b, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(b), "l"(policy) : "memory");
}

DEVICE void copy_box(uint32_t to, const TensorMap& map, int column, int row, int matrix, uint32_t b) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
               "l"(&map), "r"(column), "r"(row), "r"(matrix), "r"(b) : "memory");
}

// policy_evict_first is a policy for data that is not read again.
DEVICE uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// --- Stages --------------------------------------------------------------------------------------------------------

// Stage is a position in a ring of COUNT buffers, and the parity of the round.
template <int COUNT>
struct Stage {
  int index = 0;
  uint32_t parity = 0;
  DEVICE void next() {
    if (++index == COUNT) index = 0, parity ^= 1;
  }
};

// --- Registers -----------------------------------------------------------------------------------------------------

template <int R> DEVICE void registers_raise() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R)); }
template <int R> DEVICE void registers_lower() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R)); }

// --- Matrix products -----------------------------------------------------------------------------------------------

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

// descriptor is the matrix descriptor of a tile in shared memory: swizzled rows of 128 bytes, 8 rows every 1024 bytes. slab
// is the distance between the tiles of the first and the last 64 columns, used for a transposed operand (V).
DEVICE uint64_t descriptor(uint32_t address, uint32_t slab) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | static_cast<uint64_t>(slab >> 4) << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}

// advanced is the descriptor of the address + bytes. The upper word stays, which saves registers.
DEVICE uint64_t advanced(uint64_t d, uint32_t bytes) { return (d & ~0xFFFFFFFFull) | (static_cast<uint32_t>(d) + (bytes >> 4)); }

#define REGS4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define REGS16(d, i) REGS4(d, i), REGS4(d, i + 4), REGS4(d, i + 8), REGS4(d, i + 12)
#define REGS32(d) REGS16(d, 0), REGS16(d, 16)
#define REGS64(d) REGS16(d, 0), REGS16(d, 16), REGS16(d, 32), REGS16(d, 48)

#define NAMES32                                                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31}"
#define NAMES64                                                                                                     \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"    \
  "%57,%58,%59,%60,%61,%62,%63}"

// wgmma<TRANSPOSED>(d, a, b, add): d = a·b, plus d if add, for 64 rows and 16 values of the inner dimension. a is this
// thread's part of the left operand. b is a descriptor; with TRANSPOSED the inner dimension is that of its rows.
template <int TRANSPOSED>
DEVICE void wgmma(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " NAMES32 ", {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
      : REGS32(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(TRANSPOSED));
}

template <int TRANSPOSED>
DEVICE void wgmma(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES64 ", {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n}"
      : REGS64(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(TRANSPOSED));
}

// The same with the left operand in shared memory, for 16, 32 and 128 columns.
DEVICE void wgmma(float (&d)[8], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0;\n}"
      : REGS4(d, 0), REGS4(d, 4) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

DEVICE void wgmma(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
      "%16, %17, p, 1, 1, 0, 0;\n}"
      : REGS16(d, 0) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

DEVICE void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES64 ", %64, %65, p, 1, 1, 0, 0;\n}"
      : REGS64(d) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
