// Banks of dense layers.
//
// Three products make up a layer: the output X W, the gradient of the input D W^T, the gradient of the weights X^T D. They
// run on the tensor cores, tile by tile: global memory to registers, registers to one half of the shared memory, while the
// other half is multiplied. `tf32` rounds each factor to 11 bits; `fp32` splits it into two such numbers and adds three of
// the four partial products, which is as accurate as f32. Layers with few rows or few outputs have kernels of their own.

// Columns of k per tile.
#define DEPTH 32
// Numbers from the start of a row of a tile to the next, so that the lanes of a warp read from different banks.
#define BY_ROW (DEPTH + 4)
#define BY_DEPTH(side) ((side) + 8)
#define TILE(side) ((side) * BY_ROW > DEPTH * BY_DEPTH(side) ? (side) * BY_ROW : DEPTH * BY_DEPTH(side))

enum Kind { OUTPUT, INPUT_GRADIENT, WEIGHT_GRADIENT };

#ifndef EMULATED
// The number rounded to tf32, in the bits of an f32.
INLINE u32 to_tf32(float x) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

// c += a b for a 16 x 8 tile a and an 8 x 8 tile b, spread over the lanes of a warp.
INLINE void multiply(float c[4], const u32 a[4], const u32 b[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// A matrix of `outers` rows, or two side by side.
struct Source {
  const float *first, *second;
  int first_width, second_width, outers;
  bool in_fours; // whether four numbers can be loaded at once
};

INLINE bool aligned(const float *p) { return ((u64)p & 15) == 0; }

INLINE Source source(const float *first, int first_width, const float *second, int second_width, int outers) {
  Source s = {first, second, first_width, second_width, outers, false};
  s.in_fours = first_width % 4 == 0 && second_width % 4 == 0 && aligned(first) && aligned(second);
  return s;
}

INLINE const float *place(const Source &s, int outer, int inner) {
  return inner < s.first_width ? s.first + (u64)outer * s.first_width + inner
                               : s.second + (u64)outer * s.second_width + (inner - s.first_width);
}

// Loads this thread's share of a tile of OUTER rows of INNER numbers; 0 outside of the matrix and from `end` on.
template <int OUTER, int INNER, int THREADS>
INLINE void load(float (&numbers)[OUTER * INNER / THREADS], const Source &s, int outer, int inner, int outer_end) {
  int inner_end = s.first_width + s.second_width;
  if (s.in_fours) {
#pragma unroll
    for (int i = 0; i < OUTER * INNER / THREADS / 4; ++i) {
      int number = (threadIdx.x + i * THREADS) * 4;
      int o = outer + number / INNER, at = inner + number % INNER;
      float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (o < outer_end && at < inner_end) four = *(const float4 *)place(s, o, at);
      numbers[i * 4] = four.x;
      numbers[i * 4 + 1] = four.y;
      numbers[i * 4 + 2] = four.z;
      numbers[i * 4 + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < OUTER * INNER / THREADS; ++i) {
      int number = threadIdx.x + i * THREADS;
      int o = outer + number / INNER, at = inner + number % INNER;
      numbers[i] = o < outer_end && at < inner_end ? *place(s, o, at) : 0.0f;
    }
  }
}

// Stores what `load` loaded.
template <int OUTER, int INNER, int THREADS, bool PRECISE>
INLINE void store(float *tile, const float (&numbers)[OUTER * INNER / THREADS], bool in_fours) {
  const int row = INNER == DEPTH ? BY_ROW : BY_DEPTH(INNER);
#pragma unroll
  for (int i = 0; i < OUTER * INNER / THREADS; ++i) {
    int number = in_fours ? (threadIdx.x + i / 4 * THREADS) * 4 + i % 4 : threadIdx.x + i * THREADS;
    float x = PRECISE ? numbers[i] : __uint_as_float(to_tf32(numbers[i]));
    tile[number / INNER * row + number % INNER] = x;
  }
}

// A factor of a product: in tf32 one number, in fp32 the rounded number and what is left of it.
template <bool PRECISE> struct Factor;
template <> struct Factor<false> {
  u32 big;
  __device__ __forceinline__ void set(float x) { big = __float_as_uint(x); }
};
template <> struct Factor<true> {
  u32 big, small;
  __device__ __forceinline__ void set(float x) {
    big = to_tf32(x);
    small = to_tf32(x - __uint_as_float(big));
  }
};

INLINE void multiply_add(float c[4], const Factor<false> a[4], const Factor<false> b[2]) {
  u32 big_a[4] = {a[0].big, a[1].big, a[2].big, a[3].big}, big_b[2] = {b[0].big, b[1].big};
  multiply(c, big_a, big_b);
}

INLINE void multiply_add(float c[4], const Factor<true> a[4], const Factor<true> b[2]) {
  u32 big_a[4] = {a[0].big, a[1].big, a[2].big, a[3].big}, big_b[2] = {b[0].big, b[1].big};
  u32 small_a[4] = {a[0].small, a[1].small, a[2].small, a[3].small}, small_b[2] = {b[0].small, b[1].small};
  multiply(c, small_a, big_b);
  multiply(c, big_a, small_b);
  multiply(c, big_a, big_b);
}

// Grid (tiles of m, tiles of n, groups x splits). SIDE is that of a tile of the result; each warp has ROWS x 32 of it.
template <int KIND, bool PRECISE, int SIDE, int THREADS> INLINE void product(const Product &a) {
  const int ACROSS = SIDE / 32, ROWS = SIDE / (THREADS / WARP / ACROSS);
  const bool A_BY_DEPTH = KIND == WEIGHT_GRADIENT, B_BY_DEPTH = KIND != INPUT_GRADIENT;
  const int NUMBERS = SIDE * DEPTH / THREADS;
  DYNAMIC_SHARED(shared);
  int group = blockIdx.z % a.groups, split = blockIdx.z / a.groups;
  int m0 = blockIdx.x * SIDE, n0 = blockIdx.y * SIDE;
  // A split takes whole tiles of k.
  int tiles = (a.k + DEPTH - 1) / DEPTH, per_split = (tiles + a.splits - 1) / a.splits;
  int k0 = split * per_split * DEPTH;
  int k_end = min(a.k, k0 + per_split * DEPTH);

  const float *first = a.a + (u64)(group / a.a_share) * a.a_stride;
  const float *second = a.second_width ? a.second + (u64)(group / a.second_share) * a.second_stride : 0;
  const float *right = a.b + (u64)group * a.b_stride;
  Source left_source = source(first, a.a_width, second, a.second_width, A_BY_DEPTH ? a.k : a.m);
  Source right_source = source(right, B_BY_DEPTH ? a.n : a.k, 0, 0, B_BY_DEPTH ? a.k : a.n);

  float left_numbers[NUMBERS], right_numbers[NUMBERS];
  float c[ROWS / 16][4][4] = {};
  float sum = 0.0f;
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int row = warp / ACROSS * ROWS + lane / 4, column = warp % ACROSS * 32 + lane / 4, deep = lane % 4;

  for (int k = k0, half = 0; k < k_end + DEPTH; k += DEPTH, half ^= 1) {
    // Loads tile k while tile k - DEPTH is multiplied.
    if (k < k_end) {
      if (A_BY_DEPTH) load<DEPTH, SIDE, THREADS>(left_numbers, left_source, k, m0, k_end);
      else load<SIDE, DEPTH, THREADS>(left_numbers, left_source, m0, k, a.m);
      if (B_BY_DEPTH) load<DEPTH, SIDE, THREADS>(right_numbers, right_source, k, n0, k_end);
      else load<SIDE, DEPTH, THREADS>(right_numbers, right_source, n0, k, a.n);
    }
    if (k > k0) {
      const float *left = shared + (half ^ 1) * 2 * TILE(SIDE), *right = left + TILE(SIDE);
#pragma unroll
      for (int d = 0; d < DEPTH; d += 8) {
        Factor<PRECISE> fa[ROWS / 16][4], fb[4][2];
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            int r = row + i * 16 + j % 2 * 8, at = d + deep + j / 2 * 4;
            fa[i][j].set(A_BY_DEPTH ? left[at * BY_DEPTH(SIDE) + r] : left[r * BY_ROW + at]);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            int n = column + i * 8, at = d + deep + j * 4;
            fb[i][j].set(B_BY_DEPTH ? right[at * BY_DEPTH(SIDE) + n] : right[n * BY_ROW + at]);
          }
        }
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) multiply_add(c[i][j], fa[i], fb[j]);
        }
      }
      if (KIND == WEIGHT_GRADIENT && blockIdx.x == 0 && threadIdx.x < SIDE) {
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) sum += right[d * BY_DEPTH(SIDE) + threadIdx.x];
      }
    }
    if (k < k_end) {
      float *left = shared + half * 2 * TILE(SIDE), *right = left + TILE(SIDE);
      if (A_BY_DEPTH) store<DEPTH, SIDE, THREADS, PRECISE>(left, left_numbers, left_source.in_fours);
      else store<SIDE, DEPTH, THREADS, PRECISE>(left, left_numbers, left_source.in_fours);
      if (B_BY_DEPTH) store<DEPTH, SIDE, THREADS, PRECISE>(right, right_numbers, right_source.in_fours);
      else store<SIDE, DEPTH, THREADS, PRECISE>(right, right_numbers, right_source.in_fours);
    }
    __syncthreads();
  }

  float *out = a.out + (u64)group * a.out_stride + (u64)split * a.split_stride;
  const float *bias = KIND == OUTPUT ? a.bias + (u64)group * a.b_stride : 0;
  const float *mask = KIND == INPUT_GRADIENT && a.mask ? a.mask + (u64)group * a.out_stride : 0;
#pragma unroll
  for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int m = m0 + row + i * 16 + e / 2 * 8, n = n0 + warp % ACROSS * 32 + j * 8 + deep * 2 + e % 2;
        if (m >= a.m || n >= a.n) continue;
        u64 at = (u64)m * a.n + n;
        float x = c[i][j][e];
        if (KIND == OUTPUT) {
          x += bias[n];
          if (a.relu && x <= 0.0f) x = 0.0f; // NaN stays
        }
        if (KIND == INPUT_GRADIENT && mask && mask[at] <= 0.0f) x = 0.0f;
        out[at] = x;
      }
    }
  }
  if (KIND == WEIGHT_GRADIENT && blockIdx.x == 0 && threadIdx.x < SIDE && n0 + threadIdx.x < a.n) {
    a.sums[(u64)group * a.out_stride + (u64)split * a.split_stride + n0 + threadIdx.x] = sum;
  }
}

#define PRODUCT(name, kind)                                                                                            \
  KERNEL(128, name##_tf32_64, Product) { product<kind, false, 64, 128>(a); }                                          \
  KERNEL(256, name##_tf32_128, Product) { product<kind, false, 128, 256>(a); }                                        \
  KERNEL(128, name##_fp32_64, Product) { product<kind, true, 64, 128>(a); }                                           \
  KERNEL(256, name##_fp32_128, Product) { product<kind, true, 128, 256>(a); }

PRODUCT(output, OUTPUT)
PRODUCT(input_gradient, INPUT_GRADIENT)
PRODUCT(weight_gradient, WEIGHT_GRADIENT)

// Adds the splits of a product of weights, in order. Grid (weights and bias of a layer, groups).
KERNEL(BLOCK, add_splits, AddSplits) {
  u64 i = thread_number();
  u64 weights = (u64)a.m * a.n, each = weights + a.n;
  if (i >= each) return;
  const float *part = a.parts + blockIdx.y * each + i;
  float sum = 0.0f;
  for (int split = 0; split < a.splits; ++split) sum += part[(u64)split * a.groups * each];
  u64 group = (u64)blockIdx.y * a.stride;
  if (i < weights) a.out[group + i] = sum;
  else a.sums[group + i - weights] = sum;
}

// Layers of at most 8 rows: each warp takes every eighth input, each lane an output.
// Grid (32 outputs, groups).
#define THIN_ROWS 8
KERNEL(BLOCK, thin, Thin) {
  __shared__ float sums[BLOCK / WARP][THIN_ROWS][WARP];
  int group = blockIdx.y, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int n = blockIdx.x * WARP + lane;
  const float *first = a.a + (u64)(group / a.a_share) * a.a_stride;
  const float *second = a.second_width ? a.second + (u64)(group / a.second_share) * a.second_stride : 0;
  const float *weights = a.weights + (u64)group * a.stride;
  int k = a.a_width + a.second_width;
  float sum[THIN_ROWS] = {};
  if (n < a.n) {
    for (int i = warp; i < k; i += BLOCK / WARP) {
      float w = weights[(u64)i * a.n + n];
#pragma unroll
      for (int row = 0; row < THIN_ROWS; ++row) {
        if (row < a.rows) {
          float x = i < a.a_width ? first[row * a.a_width + i] : second[row * a.second_width + i - a.a_width];
          sum[row] = fma_(x, w, sum[row]);
        }
      }
    }
  }
#pragma unroll
  for (int row = 0; row < THIN_ROWS; ++row) sums[warp][row][lane] = sum[row];
  __syncthreads();
  // Now each warp finishes a row.
  if (warp < a.rows && n < a.n) {
    float x = weights[(u64)k * a.n + n];
    for (int i = 0; i < BLOCK / WARP; ++i) x += sums[i][warp][lane];
    if (a.relu && x <= 0.0f) x = 0.0f;
    a.out[((u64)group * a.rows + warp) * a.n + n] = x;
  }
}

// Layers of few outputs, such as the last. A warp for each row. Grid (8 rows, groups).
KERNEL(BLOCK, narrow, Narrow) {
  int row = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= a.rows) return;
  u64 at = (u64)blockIdx.y * a.rows + row;
  const float *x = a.x + at * a.k;
  const float *weights = a.weights + (u64)blockIdx.y * a.stride;
  for (int n = 0; n < a.n; ++n) {
    float sum = 0.0f;
    for (int k = lane; k < a.k; k += WARP) sum = fma_(x[k], weights[k * a.n + n], sum);
    sum = warp_sum(sum);
    if (lane == n) {
      float y = sum + weights[(u64)a.k * a.n + n];
      a.out[at * a.n + n] = a.relu && y <= 0.0f ? 0.0f : y;
    }
  }
}

// The gradient of their input. Grid (numbers of the input, groups).
KERNEL(BLOCK, narrow_input, Narrow) {
  u64 i = thread_number();
  if (i >= (u64)a.rows * a.k) return;
  int row = (int)(i / a.k), k = (int)(i % a.k);
  i += (u64)blockIdx.y * a.rows * a.k;
  const float *gradient = a.out + ((u64)blockIdx.y * a.rows + row) * a.n;
  const float *weights = a.weights + (u64)blockIdx.y * a.stride + (u64)k * a.n;
  float sum = 0.0f;
  for (int n = 0; n < a.n; ++n) sum = fma_(gradient[n], weights[n], sum);
  a.d_x[i] = a.x[i] <= 0.0f ? 0.0f : sum;
}

// The gradient of their weights and, as row k, of their bias. Each warp takes a slice of the rows, each lane a row of the
// weights. Grid (32 rows of weights, 4 outputs, groups x splits).
#define NARROW_OUTPUTS 4
KERNEL(BLOCK, narrow_weights, Narrow) {
  __shared__ float sums[BLOCK / WARP][NARROW_OUTPUTS][WARP];
  int group = blockIdx.z % a.groups, split = blockIdx.z / a.groups;
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int k = blockIdx.x * WARP + lane, n = blockIdx.y * NARROW_OUTPUTS;
  int per_split = (a.rows + a.splits - 1) / a.splits;
  int end = min(a.rows, (split + 1) * per_split);
  const float *x = a.x + (u64)group * a.rows * a.k, *gradient = a.out + (u64)group * a.rows * a.n;
  float sum[NARROW_OUTPUTS] = {};
  if (k <= a.k) {
#pragma unroll 4
    for (int row = split * per_split + warp; row < end; row += BLOCK / WARP) {
      float one = k < a.k ? x[(u64)row * a.k + k] : 1.0f;
#pragma unroll
      for (int i = 0; i < NARROW_OUTPUTS; ++i) {
        if (n + i < a.n) sum[i] = fma_(one, gradient[(u64)row * a.n + n + i], sum[i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < NARROW_OUTPUTS; ++i) sums[warp][i][lane] = sum[i];
  __syncthreads();
  if (warp < NARROW_OUTPUTS && n + warp < a.n && k <= a.k) {
    float total = 0.0f;
    for (int i = 0; i < BLOCK / WARP; ++i) total += sums[i][warp][lane];
    a.d_weights[(u64)group * a.d_stride + (u64)split * a.split_stride + (u64)k * a.n + n + warp] = total;
  }
}

// The gradient of an action: the first layer's, at the columns of the action, summed over an agent's networks.
// A warp for each row. Grid (8 rows, agents).
KERNEL(BLOCK, by_columns, ByColumns) {
  int row = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (row >= a.rows) return;
  for (int column = 0; column < a.columns; ++column) {
    float total = 0.0f;
    for (int i = 0; i < a.share; ++i) {
      u64 network = (u64)blockIdx.y * a.share + i;
      const float *gradient = a.gradient + (network * a.rows + row) * a.n;
      const float *weights = a.weights + network * a.stride + (u64)column * a.n;
      float sum = 0.0f;
      for (int n = lane; n < a.n; n += WARP) sum = fma_(gradient[n], weights[n], sum);
      total += warp_sum(sum);
    }
    if (lane == column % WARP) a.out[((u64)blockIdx.y * a.rows + row) * a.columns + column] = total;
  }
}
