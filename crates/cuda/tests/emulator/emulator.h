// CUDA's model of execution on one CPU thread: the threads of a block are fibers that take turns at barriers.
#define EMULATED

#include <cmath>
#include <csetjmp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <ucontext.h>

#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local
#define INLINE static inline
#define DYNAMIC_SHARED(name) float *name = emulator::block.dynamic.data()
#define KERNEL(threads, name, Arguments)                                                                               \
  static void name(const Arguments &a);                                                                                \
  static const emulator::Register<Arguments> register_##name(#name, threads, name);                                    \
  static void name(const Arguments &a)

#define KERNEL_OF(threads, blocks, name, Arguments) KERNEL(threads, name, Arguments)

struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
struct float4 { float x, y, z, w; };
struct float2 { float x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
using std::exp; using std::expm1; using std::log; using std::log1p; using std::sqrt;
static inline int min(int a, int b) { return a < b ? a : b; }

template <class To, class From> static inline To bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "a conversion of bits");
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return bits<float>(x); }

namespace emulator {

const int WARP_LANES = 32;
const size_t STACK = 64 << 10;

// Threads that wait for one another: a barrier opens when all that are still running have arrived.
struct Barrier {
  int running = 0, arrived = 0, generation = 0;
  void open_if_complete() {
    if (arrived > 0 && arrived == running) {
      arrived = 0;
      ++generation;
    }
  }
};

struct Fiber {
  std::vector<char> stack;
  jmp_buf here;
  bool started, done;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Barrier> warps;
  Barrier all;
  std::vector<float> dynamic;
  // What lanes show one another, twice, so that one barrier per exchange is enough.
  std::vector<float> shown[2];
  std::vector<int> exchanges;
  jmp_buf scheduler;
  int current;
  void (*call)(const void *kernel, const void *arguments);
  const void *kernel, *arguments;
};
static thread_local Block block;

static void yield() {
  if (_setjmp(block.fibers[block.current].here) == 0) _longjmp(block.scheduler, 1);
}

static void wait(Barrier &barrier) {
  int generation = barrier.generation;
  ++barrier.arrived;
  barrier.open_if_complete();
  while (barrier.generation == generation) yield();
}

static void body() {
  block.call(block.kernel, block.arguments);
  int warp = block.current / WARP_LANES;
  block.fibers[block.current].done = true;
  --block.all.running;
  --block.warps[warp].running;
  block.all.open_if_complete();
  block.warps[warp].open_if_complete();
  _longjmp(block.scheduler, 1);
}

static void resume(int thread) {
  Fiber &fiber = block.fibers[thread];
  block.current = thread;
  threadIdx = {(unsigned)thread, 0, 0};
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.here, 1);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.data();
  context.uc_stack.ss_size = fiber.stack.size();
  context.uc_link = nullptr;
  makecontext(&context, body, 0);
  setcontext(&context);
}

// False if all running threads wait for each other.
static bool run_block(int threads, size_t shared) {
  if (block.fibers.size() < (size_t)threads) block.fibers.resize(threads);
  int warps = (threads + WARP_LANES - 1) / WARP_LANES;
  block.warps.assign(warps, Barrier());
  block.all = Barrier();
  block.all.running = threads;
  block.exchanges.assign(threads, 0);
  for (auto &shown : block.shown) shown.assign(threads * 8, NAN);
  // Numbers that nobody wrote must not be used.
  block.dynamic.assign(shared / sizeof(float), NAN);
  for (int i = 0; i < threads; ++i) {
    Fiber &fiber = block.fibers[i];
    if (fiber.stack.empty()) fiber.stack.resize(STACK);
    fiber.started = fiber.done = false;
    ++block.warps[i / WARP_LANES].running;
  }
  while (block.all.running > 0) {
    for (int i = 0; i < threads; ++i) {
      if (!block.fibers[i].done) resume(i);
    }
  }
  return true;
}

struct Kernel {
  size_t size;
  int threads;
  void (*call)(const void *kernel, const void *arguments);
  const void *kernel;
};
static std::map<std::string, Kernel> &kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

template <class Arguments> struct Register {
  Register(const char *name, int threads, void (*kernel)(const Arguments &)) {
    kernels()[name] = {sizeof(Arguments), threads,
                       [](const void *kernel, const void *arguments) {
                         ((void (*)(const Arguments &))kernel)(*(const Arguments *)arguments);
                       },
                       (const void *)kernel};
  }
};

// Shows `n` numbers to the lanes of the warp; returns those of lane 0, 8 numbers before those of the next.
static float *exchange(const float *numbers, int n) {
  int thread = block.current, parity = block.exchanges[thread]++ % 2;
  float *shown = block.shown[parity].data();
  memcpy(shown + thread * 8, numbers, n * sizeof(float));
  wait(block.warps[thread / WARP_LANES]);
  return shown + thread / WARP_LANES * WARP_LANES * 8;
}

} // namespace emulator

static inline void __syncthreads() { emulator::wait(emulator::block.all); }
static inline void __syncwarp() { emulator::wait(emulator::block.warps[emulator::block.current / 32]); }
static inline float __shfl_xor_sync(unsigned, float x, int mask) {
  int lane = emulator::block.current % 32;
  return emulator::exchange(&x, 1)[(lane ^ mask) * 8];
}

// Rounds to 11 bits, halves away from zero.
static inline unsigned to_tf32(float x) {
  if (!std::isfinite(x)) return __float_as_uint(x);
  return (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
}

// The tensor core's m16n8k8: lane / 4 and lane % 4 say which numbers of a, b and c a lane has.
static inline void multiply(float c[4], const unsigned a[4], const unsigned b[2]) {
  float mine[6];
  for (int i = 0; i < 4; ++i) mine[i] = __uint_as_float(a[i]);
  for (int i = 0; i < 2; ++i) mine[4 + i] = __uint_as_float(b[i]);
  const float *lanes = emulator::exchange(mine, 6);
  int lane = emulator::block.current % 32;
  for (int e = 0; e < 4; ++e) {
    int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    double sum = c[e];
    for (int k = 0; k < 8; ++k) {
      float left = lanes[((row % 8) * 4 + k % 4) * 8 + row / 8 + k / 4 * 2];
      float right = lanes[(column * 4 + k % 4) * 8 + 4 + k / 4];
      sum += (double)left * right;
    }
    c[e] = (float)sum;
  }
}

static inline void load_left(float (&x)[4], const float *tile, int apart, int lane) {
  for (int i = 0; i < 4; ++i) x[i] = tile[(lane / 4 + i % 2 * 8) * apart + lane % 4 + i / 2 * 4];
}

// Copies that run beside the kernel: here they are complete at once.
static inline void copy_some(float *to, const float *from, int n, bool inside) {
  for (int i = 0; i < n; ++i) to[i] = inside ? from[i] : 0.0f;
}
static inline void copy_four(float *to, const float *from, bool inside) { copy_some(to, from, 4, inside); }
static inline void copy_one(float *to, const float *from, bool inside) { copy_some(to, from, 1, inside); }
static inline void end_copies() {}
template <int LAST> static inline void wait_for_copies() {}

// 0; 1: no such kernel; 2: arguments of another size; 3: more threads than the kernel is made for.
extern "C" int emulate(const char *name, const unsigned grid[3], unsigned threads, unsigned shared, const void *arguments,
                       size_t size) {
  auto found = emulator::kernels().find(name);
  if (found == emulator::kernels().end()) return 1;
  const emulator::Kernel &kernel = found->second;
  if (kernel.size != size) return 2;
  if (threads > (unsigned)kernel.threads) return 3;
  emulator::block.call = kernel.call;
  emulator::block.kernel = kernel.kernel;
  emulator::block.arguments = arguments;
  blockDim = {threads, 1, 1};
  gridDim = {grid[0], grid[1], grid[2]};
  for (unsigned z = 0; z < grid[2]; ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx = {x, y, z};
        emulator::run_block(threads, shared);
      }
    }
  }
  return 0;
}
