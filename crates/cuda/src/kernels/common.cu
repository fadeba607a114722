// What all kernels share. There are no headers: NVRTC compiles these files, joined, on a machine without the CUDA toolkit,
// and the tests compile them as C++ for the CPU (tests/emulator). The functions of numbers are those of prudence-nn's
// `Scalar` for f32, operation by operation: element-wise kernels give the CPU's bits.

typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef EMULATED
#define INLINE __device__ __forceinline__
// A kernel for blocks of up to so many threads, of which so many must fit on a multiprocessor, whose struct of arguments is
// called a.
#define KERNEL_OF(threads, blocks, name, Arguments)                                                                    \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Arguments a)
#define KERNEL(threads, name, Arguments) KERNEL_OF(threads, 1, name, Arguments)
// The shared memory whose size is given at the launch.
#define DYNAMIC_SHARED(name) float *name = dynamic_shared
extern __shared__ float dynamic_shared[];
#endif

#define WARP 32
#define EVERY_LANE 0xffffffffu
// Threads of a block, where a kernel does not need another number.
#define BLOCK 256

// Gradients smaller than this are set to 0, as on the CPU.
#define NEGLIGIBLE 1e-16f

INLINE float fma_(float a, float b, float c) { return fmaf(a, b, c); }

// NaN where the first number is NaN, so that divergence stays visible.
INLINE float max_(float a, float b) { return a < b ? b : a; }
INLINE float min_(float a, float b) { return a > b ? b : a; }

INLINE float flush(float x, float limit) { return fabsf(x) < limit ? 0.0f : x; }

INLINE float exp_(float x) {
  const float magic = 12582912.0f;
  float limited = min_(max_(x, -87.0f), 88.0f);
  float shifted = limited * 1.44269504088896340736f + magic;
  float n = shifted - magic;
  float r = fma_(n, -0.693359375f, limited);
  r = fma_(n, 2.1219444e-4f, r);
  float p = fma_(r, 1.0f / 5040.0f, 1.0f / 720.0f);
  p = fma_(p, r, 1.0f / 120.0f);
  p = fma_(p, r, 1.0f / 24.0f);
  p = fma_(p, r, 1.0f / 6.0f);
  p = fma_(p, r, 0.5f);
  p = fma_(p, r * r, r) + 1.0f;
  float scale = __uint_as_float((__float_as_uint(shifted) - __float_as_uint(magic) + 127u) << 23);
  return x != x ? x : p * scale;
}

INLINE float tanh_(float x) {
  float z = x * x;
  float p = fma_(z, -5.7049887e-3f, 2.063909e-2f);
  p = fma_(p, z, -5.373971e-2f);
  p = fma_(p, z, 1.3331442e-1f);
  p = fma_(p, z, -3.333328e-1f);
  float small = fma_(p * z, x, x);
  float e = exp_(2.0f * fabsf(x));
  float large = copysignf(1.0f - 2.0f / (e + 1.0f), x);
  return fabsf(x) < 0.625f ? small : large;
}

// ln(1 + t) for t in [0, 1].
INLINE float ln_1p_unit(float t) {
  float s = t / (2.0f + t);
  float z = s * s;
  float p = fma_(z, 1.0f / 15.0f, 1.0f / 13.0f);
  p = fma_(p, z, 1.0f / 11.0f);
  p = fma_(p, z, 1.0f / 9.0f);
  p = fma_(p, z, 1.0f / 7.0f);
  p = fma_(p, z, 1.0f / 5.0f);
  p = fma_(p, z, 1.0f / 3.0f);
  return 2.0f * fma_(p * z, s, s);
}

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }
INLINE float softplus(float x) { return max_(x, 0.0f) + ln_1p_unit(exp_(-fabsf(x))); }

INLINE bool aligned(const float *p) { return ((u64)p & 15) == 0; }

// Four numbers, whose address is a multiple of 16, at once; or one.
template <int N> INLINE void load(float (&x)[N], const float *from) {
  if constexpr (N == 4) {
    float4 four = *(const float4 *)from;
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    static_assert(N == 1, "four numbers or one");
    x[0] = *from;
  }
}
template <int N> INLINE void store(float *to, const float (&x)[N]) {
  if constexpr (N == 4) *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
  else *to = x[0];
}

// The sum over a warp, the same in every lane and in an order that never changes.
INLINE float warp_sum(float x) {
#pragma unroll
  for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(EVERY_LANE, x, offset);
  return x;
}

// N sums over a warp at once, in an order that never changes: lane l gets sum l % N.
template <int N> INLINE float warp_sums(float (&x)[N], int lane) {
#pragma unroll
  for (int bit = 1; bit < N; bit *= 2) {
#pragma unroll
    for (int i = 0; i < N / 2 / bit; ++i) {
      float kept = lane & bit ? x[2 * i + 1] : x[2 * i], given = lane & bit ? x[2 * i] : x[2 * i + 1];
      x[i] = kept + __shfl_xor_sync(EVERY_LANE, given, bit);
    }
  }
#pragma unroll
  for (int bit = N; bit < WARP; bit *= 2) x[0] += __shfl_xor_sync(EVERY_LANE, x[0], bit);
  return x[0];
}

// The sum over a block of BLOCK threads, the same in every thread and in an order that never changes.
INLINE float block_sum(float x) {
  __shared__ float sums[BLOCK / WARP];
  x = warp_sum(x);
  __syncthreads(); // the last call's numbers have been read
  if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = x;
  __syncthreads();
  float sum = sums[0];
#pragma unroll
  for (int warp = 1; warp < BLOCK / WARP; ++warp) sum += sums[warp];
  return sum;
}

// The number of this thread among all threads of the grid's first dimension.
INLINE u64 thread_number() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
