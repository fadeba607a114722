// Banks of dense layers.
//
// Three products make up a layer: the output X W, the gradient of the input D W^T, the gradient of the weights X^T D. They
// run on the tensor cores, tile by tile: a tile is copied from global to shared memory, without passing through registers,
// while the one before is multiplied. `tf32` rounds each factor to 11 bits; `fp32` splits it into two such numbers and adds
// three of the four partial products, which is as accurate as f32. Layers with few rows or few outputs have kernels of their
// own; small networks have one for all layers (`chain`).

// Columns of k per tile, and tiles in shared memory.
#define DEPTH 32
#define STAGES 2
// Numbers from the start of a row of a tile to the next, so that the lanes of a warp read from different banks, and with
// room for `Source::shift`. A tile lies along k or across it.
#define BY_ROW (DEPTH + 4)
#define BY_DEPTH(side) ((side) + 8)
#define TILE(side) ((side) * (DEPTH + 8)) // enough for both
// Threads of a product: two by two or four warps.
#define PRODUCT_THREADS(side) ((side) == 128 ? 256 : 128)

enum Kind { OUTPUT, INPUT_GRADIENT, WEIGHT_GRADIENT };

#ifndef EMULATED
// The number rounded to tf32, in the bits of an f32.
INLINE u32 to_tf32(float x) {
  u32 rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

// The numbers of `multiply`'s a, from a tile in shared memory whose rows begin so far apart, a multiple of four.
INLINE void load_left(float (&x)[4], const float *tile, int apart, int lane) {
  u32 row = (u32)__cvta_generic_to_shared(tile + lane % 16 * apart + lane / 16 * 4), bits[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(bits[0]), "=r"(bits[1]), "=r"(bits[2]), "=r"(bits[3])
               : "r"(row)
               : "memory");
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __uint_as_float(bits[i]);
}

// c += a b for a 16 x 8 tile a and an 8 x 8 tile b, spread over the lanes of a warp.
INLINE void multiply(float c[4], const u32 a[4], const u32 b[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Starts to copy four numbers or one to shared memory; zeros, without reading, if not `inside`.
INLINE void copy_four(float *to, const float *from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0)
               : "memory");
}
INLINE void copy_one(float *to, const float *from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0)
               : "memory");
}
// Ends a group of copies.
INLINE void end_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits for this thread's copies, but for those of the last groups.
template <int LAST> INLINE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" : : "n"(LAST) : "memory"); }
#endif

// A matrix whose rows lie one after another, or two such matrices side by side.
struct Source {
  const float *first, *second;
  int first_width, second_width;
  bool in_fours; // whether four numbers can be copied at once
  int shift;     // the numbers before the matrix that are copied with it, so that `first` is aligned
};

INLINE Source source(const float *first, int first_width, const float *second, int second_width) {
  bool in_fours = first_width % 4 == 0 && second_width % 4 == 0 && aligned(first) && aligned(second);
  return {first, second, first_width, second_width, in_fours, 0};
}

// Weights begin at any address, because networks lie one after another. Copied four at a time from the aligned address
// before it, a row of a tile also gets up to three numbers from before and after the matrix's row (the bias follows the last
// one). They must not be multiplied: `spare` says that the columns of the tile beyond the matrix's are not used.
INLINE Source weights_source(const float *weights, int width, bool spare) {
  int shift = spare && width % 4 == 0 ? (int)((u64)weights / 4 % 4) : 0;
  Source s = source(weights - shift, width, 0, 0);
  s.shift = shift;
  return s;
}

// Starts to copy a tile of OUTER rows of INNER numbers, AT_ONCE at a time; 0 outside of the matrix and from `outer_end` on.
template <int OUTER, int INNER, int ROW, int THREADS, int AT_ONCE>
INLINE void copy_tile(float *tile, const Source &s, int outer, int inner, int outer_end) {
  const int PER_ROW = INNER / AT_ONCE, ROWS = THREADS / PER_ROW; // of the block's threads at once
  int o = threadIdx.x / PER_ROW, at = threadIdx.x % PER_ROW * AT_ONCE;
  tile += o * ROW + at;
  outer += o;
  inner += at;
  bool is_first = inner < s.first_width + s.shift;
  int width = is_first ? s.first_width : s.second_width;
  int left = inner < s.first_width + s.second_width + s.shift ? outer_end - outer : 0;
  const float *from = (is_first ? s.first + inner : s.second + (inner - s.first_width)) + (u64)outer * width;
#pragma unroll
  for (int i = 0; i < OUTER / ROWS; ++i) {
    bool inside = i * ROWS < left;
    if (AT_ONCE == 4) copy_four(tile + i * ROWS * ROW, from, inside);
    else copy_one(tile + i * ROWS * ROW, from, inside);
    from += ROWS * width;
  }
}

template <int OUTER, int INNER, int ROW, int THREADS>
INLINE void copy_tile(float *tile, const Source &s, int outer, int inner, int outer_end) {
  if (!s.in_fours) return copy_tile<OUTER, INNER, ROW, THREADS, 1>(tile, s, outer, inner, outer_end);
  copy_tile<OUTER, INNER, ROW, THREADS, 4>(tile, s, outer, inner, outer_end);
  // What the shift moved beyond the last four of a row.
  int o = threadIdx.x;
  if (s.shift && o < OUTER) {
    bool inside = outer + o < outer_end && inner + INNER < s.first_width + s.shift;
    copy_four(tile + o * ROW + INNER, s.first + (u64)(outer + o) * s.first_width + inner + INNER, inside);
  }
}

// A factor of a product: in tf32 one number, in fp32 the rounded number and what is left of it.
template <bool PRECISE> struct Factor;
template <> struct Factor<false> {
  u32 big;
  __device__ __forceinline__ void set(float x) { big = to_tf32(x); }
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

// Writes a tile of the result, whose sums lie in shared memory, AT_ONCE numbers at a time: whole rows, so that the writes of
// a warp lie together.
template <int KIND, int SIDE, int THREADS, int AT_ONCE>
INLINE void finish(const Product &a, const float *tile, float *out, const float *bias, const float *mask, int m0, int n0) {
  const int PER_ROW = SIDE / AT_ONCE, ROWS = THREADS / PER_ROW, BATCH = SIDE / ROWS < 8 ? SIDE / ROWS : 8;
  int row = threadIdx.x / PER_ROW, n = n0 + threadIdx.x % PER_ROW * AT_ONCE;
  if (n >= a.n) return;
  tile += row * BY_DEPTH(SIDE) + (n - n0);
  u64 place = (u64)(m0 + row) * a.n + n;
  out += place;
  mask += place;
  float b[AT_ONCE];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) b[i] = KIND == OUTPUT ? bias[n + i] : 0.0f;
  bool masked = KIND == INPUT_GRADIENT && a.mask;
  for (int first = 0; first < SIDE; first += BATCH * ROWS) {
    float activation[BATCH][AT_ONCE];
    if (masked) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r) {
        if (m0 + row + first + r * ROWS < a.m) load(activation[r], mask + (u64)(first + r * ROWS) * a.n);
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      if (m0 + row + first + r * ROWS >= a.m) continue;
      float x[AT_ONCE];
      load(x, tile + (first + r * ROWS) * BY_DEPTH(SIDE));
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (KIND == OUTPUT) x[i] += b[i];
        if (KIND == OUTPUT && a.relu && x[i] <= 0.0f) x[i] = 0.0f; // NaN stays
        if (masked && activation[r][i] <= 0.0f) x[i] = 0.0f;
      }
      store(out + (u64)(first + r * ROWS) * a.n, x);
    }
  }
}

// Grid (tiles of m, tiles of n, groups x splits). SIDE is that of a tile of the result.
template <int KIND, bool PRECISE, int SIDE> INLINE void product(const Product &a) {
  const int THREADS = PRODUCT_THREADS(SIDE), ACROSS = THREADS / WARP / 2;
  const int ROWS = SIDE / 2, COLUMNS = SIDE / ACROSS; // of a warp
  const bool A_BY_DEPTH = KIND == WEIGHT_GRADIENT, B_BY_DEPTH = KIND != INPUT_GRADIENT;
  DYNAMIC_SHARED(shared);
  int group = blockIdx.z % a.groups, split = blockIdx.z / a.groups;
  int m0 = blockIdx.x * SIDE, n0 = blockIdx.y * SIDE;
  // A split takes whole tiles of k.
  int all_tiles = (a.k + DEPTH - 1) / DEPTH, per_split = (all_tiles + a.splits - 1) / a.splits;
  int k0 = split * per_split * DEPTH;
  int k_end = min(a.k, k0 + per_split * DEPTH);
  int tiles = (k_end - k0 + DEPTH - 1) / DEPTH;

  const float *first = a.a + (u64)(group / a.a_share) * a.a_stride;
  const float *second = a.second_width ? a.second + (u64)(group / a.second_share) * a.second_stride : 0;
  const float *b = a.b + (u64)group * a.b_stride;
  Source left_source = source(first, a.a_width, second, a.second_width);
  Source right_source = KIND == OUTPUT           ? weights_source(b, a.n, true)
                        : KIND == INPUT_GRADIENT ? weights_source(b, a.k, a.k % DEPTH == 0)
                                                 : source(b, a.n, 0, 0);
  auto copy = [&](int tile) {
    if (tile < tiles) {
      float *left = shared + tile % STAGES * 2 * TILE(SIDE), *right = left + TILE(SIDE);
      int k = k0 + tile * DEPTH;
      if (A_BY_DEPTH) copy_tile<DEPTH, SIDE, BY_DEPTH(SIDE), THREADS>(left, left_source, k, m0, k_end);
      else copy_tile<SIDE, DEPTH, BY_ROW, THREADS>(left, left_source, m0, k, a.m);
      if (B_BY_DEPTH) copy_tile<DEPTH, SIDE, BY_DEPTH(SIDE), THREADS>(right, right_source, k, n0, k_end);
      else copy_tile<SIDE, DEPTH, BY_ROW, THREADS>(right, right_source, n0, k, a.n);
    }
    end_copies();
  };

  float c[ROWS / 16][COLUMNS / 8][4] = {};
  float sum = 0.0f;
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, deep = lane % 4;
  int row = warp / ACROSS * ROWS, column = warp % ACROSS * COLUMNS;
  for (int tile = 0; tile < STAGES - 1; ++tile) copy(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies<STAGES - 2>();
    __syncthreads(); // everyone's copies are there, and the tile before has been used
    copy(tile + STAGES - 1);
    const float *left = shared + tile % STAGES * 2 * TILE(SIDE), *right = left + TILE(SIDE) + right_source.shift;
#pragma unroll
    for (int d = 0; d < DEPTH; d += 8) {
      Factor<PRECISE> fa[ROWS / 16][4];
#pragma unroll
      for (int i = 0; i < ROWS / 16; ++i) {
        float x[4];
        if (A_BY_DEPTH) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            x[j] = left[(d + deep + j / 2 * 4) * BY_DEPTH(SIDE) + row + i * 16 + lane / 4 + j % 2 * 8];
          }
        } else {
          load_left(x, left + (row + i * 16) * BY_ROW + d, BY_ROW, lane);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) fa[i][j].set(x[j]);
      }
#pragma unroll
      for (int j = 0; j < COLUMNS / 8; ++j) {
        Factor<PRECISE> fb[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int n = column + j * 8 + lane / 4, at = d + deep + half * 4;
          fb[half].set(B_BY_DEPTH ? right[at * BY_DEPTH(SIDE) + n] : right[n * BY_ROW + at]);
        }
#pragma unroll
        for (int i = 0; i < ROWS / 16; ++i) multiply_add(c[i][j], fa[i], fb);
      }
    }
    if (KIND == WEIGHT_GRADIENT && blockIdx.x == 0 && threadIdx.x < SIDE) {
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) sum += right[d * BY_DEPTH(SIDE) + threadIdx.x];
    }
  }
  wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < ROWS / 16; ++i) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      float *at = shared + (row + i * 16 + lane / 4) * BY_DEPTH(SIDE) + column + j * 8 + deep * 2;
      *(float2 *)at = make_float2(c[i][j][0], c[i][j][1]);
      *(float2 *)(at + 8 * BY_DEPTH(SIDE)) = make_float2(c[i][j][2], c[i][j][3]);
    }
  }
  __syncthreads();
  float *out = a.out + (u64)group * a.out_stride + (u64)split * a.split_stride;
  const float *bias = a.bias + (u64)group * a.b_stride;
  const float *mask = a.mask ? a.mask + (u64)group * a.out_stride : 0;
  if (a.n % 4 == 0 && aligned(out) && aligned(mask)) finish<KIND, SIDE, THREADS, 4>(a, shared, out, bias, mask, m0, n0);
  else finish<KIND, SIDE, THREADS, 1>(a, shared, out, bias, mask, m0, n0);
  if (KIND == WEIGHT_GRADIENT && blockIdx.x == 0 && threadIdx.x < SIDE && n0 + threadIdx.x < a.n) {
    a.sums[(u64)group * a.out_stride + (u64)split * a.split_stride + n0 + threadIdx.x] = sum;
  }
}

#define PRODUCT(name, kind)                                                                                            \
  KERNEL_OF(128, 8, name##_tf32_32, Product) { product<kind, false, 32>(a); }                                         \
  KERNEL_OF(128, 5, name##_tf32_64, Product) { product<kind, false, 64>(a); }                                         \
  KERNEL_OF(256, 2, name##_tf32_128, Product) { product<kind, false, 128>(a); }                                       \
  KERNEL_OF(128, 8, name##_fp32_32, Product) { product<kind, true, 32>(a); }                                          \
  KERNEL_OF(128, 5, name##_fp32_64, Product) { product<kind, true, 64>(a); }                                          \
  KERNEL_OF(256, 1, name##_fp32_128, Product) { product<kind, true, 128>(a); }

PRODUCT(output, OUTPUT)
PRODUCT(input_gradient, INPUT_GRADIENT)
PRODUCT(weight_gradient, WEIGHT_GRADIENT)

#define NARROW_ROWS 8
#define NARROW_OUTPUTS 4

// What a warp does of a layer of few outputs: up to 8 rows, which begin so far apart, and the outputs n0 .. n0 + 4.
INLINE void narrow_rows(const float *x, int apart, int rows, const float *weights, int k_end, int n_end, int n0, int relu,
                        float *out) {
  int lane = threadIdx.x % WARP, outputs = min(NARROW_OUTPUTS, n_end - n0);
  const float *w0 = weights + n0;
  float sum[NARROW_OUTPUTS][NARROW_ROWS] = {};
#pragma unroll 4
  for (int k = lane; k < k_end; k += WARP) {
    float w[NARROW_OUTPUTS], one[NARROW_ROWS];
#pragma unroll
    for (int i = 0; i < NARROW_ROWS; ++i) one[i] = i < rows ? x[(u64)i * apart + k] : 0.0f;
#pragma unroll
    for (int n = 0; n < NARROW_OUTPUTS; ++n) w[n] = n < outputs ? w0[(u64)k * n_end + n] : 0.0f;
#pragma unroll
    for (int n = 0; n < NARROW_OUTPUTS; ++n) {
#pragma unroll
      for (int i = 0; i < NARROW_ROWS; ++i) sum[n][i] = fma_(one[i], w[n], sum[n][i]);
    }
  }
#pragma unroll
  for (int n = 0; n < NARROW_OUTPUTS; ++n) {
    if (n >= outputs) break;
    float y = warp_sums(sum[n], lane) + w0[(u64)k_end * n_end + n];
    if (lane < rows) out[lane * n_end + n0 + n] = relu && y <= 0.0f ? 0.0f : y;
  }
}

// Writes rows of shared memory, AT_ONCE numbers at a time.
template <int BY_X, int WIDTH, int THREADS, int AT_ONCE>
INLINE void write_rows(float *out, const float *x, int rows, int width) {
  const int PER_ROW = WIDTH / AT_ONCE;
  int n = threadIdx.x % PER_ROW * AT_ONCE;
  if (n >= width) return;
#pragma unroll 4
  for (int row = threadIdx.x / PER_ROW; row < rows; row += THREADS / PER_ROW) {
    float numbers[AT_ONCE];
    load(numbers, x + row * BY_X + n);
    store(out + (u64)row * width + n, numbers);
  }
}

// All layers of a small network in one kernel: a block takes 64 rows from layer to layer in shared memory, while the weights
// stream by. (Wider networks gain nothing: their layers are bound by the products.) A warp has 32 x 32 numbers of a layer's
// output. Every output is also written, for the backward pass. A last layer of few outputs is computed in f32.
// Grid (64 rows, groups).
#define CHAIN_INPUTS 128
#define CHAIN_WIDTH 64
template <bool PRECISE> INLINE void chain(const Chain &a) {
  const int ROWS = 64, WIDTH = CHAIN_WIDTH, COLUMNS = 32, ACROSS = WIDTH / COLUMNS, WARPS = ROWS / 32 * ACROSS;
  const int THREADS = WARPS * WARP, BY_X = CHAIN_INPUTS + 4, BY_W = WIDTH + 8;
  DYNAMIC_SHARED(x); // [ROWS, CHAIN_INPUTS]: the input of a layer, then its output
  float *stages = x + ROWS * BY_X; // [STAGES, DEPTH, WIDTH]: weights
  int group = blockIdx.y, m0 = blockIdx.x * ROWS, rows = min(ROWS, a.rows - m0);
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, deep = lane % 4;
  int row = warp / ACROSS * 32, column = warp % ACROSS * COLUMNS;
  const float *weights = a.weights + (u64)group * a.stride;
  auto inputs = [&](int layer) { return layer == 0 ? a.a_width + a.second_width : layer == 1 ? a.width0 : a.width1; };
  auto outputs = [&](int layer) { return layer == 0 ? a.width0 : layer == 1 ? a.width1 : a.width2; };

  // The next tile of weights, whatever layer it belongs to.
  const float *coming = weights;
  int coming_layer = 0, coming_k = 0, tiles_begun = 0;
  auto copy = [&]() {
    if (coming_layer < a.products) {
      int k = inputs(coming_layer), n = outputs(coming_layer);
      float *stage = stages + tiles_begun++ % STAGES * DEPTH * BY_W;
      copy_tile<DEPTH, WIDTH, BY_W, THREADS>(stage, weights_source(coming, n, true), coming_k, 0, k);
      coming_k += DEPTH;
      if (coming_k >= k) {
        coming += (u64)(k + 1) * n;
        coming_k = 0;
        ++coming_layer;
      }
    }
    end_copies();
  };

  const float *first = a.a + (u64)(group / a.a_share) * a.a_stride;
  const float *second = a.second_width ? a.second + (u64)(group / a.second_share) * a.second_stride : 0;
  Source input = source(first, a.a_width, second, a.second_width);
  for (int k = 0; k < inputs(0); k += DEPTH) {
    copy_tile<ROWS, DEPTH, BY_X, THREADS>(x + k, input, m0, k, a.rows);
  }
  for (int i = 0; i < STAGES - 1; ++i) copy();
  int tile = 0;
  for (int layer = 0; layer < a.products; ++layer) {
    int k_end = inputs(layer), n_end = outputs(layer);
    float c[2][COLUMNS / 8][4] = {};
    int shift = weights_source(weights, n_end, true).shift;
    for (int k = 0; k < k_end; k += DEPTH, ++tile) {
      wait_for_copies<STAGES - 2>();
      __syncthreads(); // everyone's copies are there, and the tile before has been used
      copy();
      const float *w = stages + tile % STAGES * DEPTH * BY_W + shift;
#pragma unroll
      for (int d = 0; d < DEPTH; d += 8) {
        Factor<PRECISE> fa[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float four[4];
          load_left(four, x + (row + i * 16) * BY_X + k + d, BY_X, lane);
#pragma unroll
          for (int j = 0; j < 4; ++j) fa[i][j].set(four[j]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; ++j) {
          Factor<PRECISE> fb[2];
          fb[0].set(w[(d + deep) * BY_W + column + j * 8 + lane / 4]);
          fb[1].set(w[(d + deep + 4) * BY_W + column + j * 8 + lane / 4]);
          multiply_add(c[0][j], fa[0], fb);
          multiply_add(c[1][j], fa[1], fb);
        }
      }
    }
    weights += (u64)k_end * n_end;
    __syncthreads(); // the layer's input has been used
    bool relu = layer + 1 < a.layers;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; ++j) {
      int n = column + j * 8 + deep * 2;
      bool inside[2] = {n < n_end, n + 1 < n_end};
      float b[2] = {inside[0] ? weights[n] : 0.0f, inside[1] ? weights[n + 1] : 0.0f};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float y[2];
        y[0] = inside[0] ? c[i / 2][j][i % 2 * 2] + b[0] : 0.0f;
        y[1] = inside[1] ? c[i / 2][j][i % 2 * 2 + 1] + b[1] : 0.0f;
        if (relu && y[0] <= 0.0f) y[0] = 0.0f; // NaN stays
        if (relu && y[1] <= 0.0f) y[1] = 0.0f;
        *(float2 *)(x + (row + i * 8 + lane / 4) * BY_X + n) = make_float2(y[0], y[1]);
      }
    }
    weights += n_end;
    __syncthreads();
    float *out = (layer == 0 ? a.out0 : layer == 1 ? a.out1 : a.out2) + ((u64)group * a.rows + m0) * n_end;
    if (n_end % 4 == 0 && aligned(out)) write_rows<BY_X, WIDTH, THREADS, 4>(out, x, rows, n_end);
    else write_rows<BY_X, WIDTH, THREADS, 1>(out, x, rows, n_end);
  }
  wait_for_copies<0>();
  if (a.products == a.layers) return;
  int k_end = inputs(a.products), n_end = outputs(a.products);
  float *out = (a.products == 1 ? a.out1 : a.out2) + ((u64)group * a.rows + m0) * n_end;
  for (int r = warp * NARROW_ROWS; r < rows; r += WARPS * NARROW_ROWS) {
    for (int n = 0; n < n_end; n += NARROW_OUTPUTS) {
      narrow_rows(x + r * BY_X, BY_X, min(NARROW_ROWS, rows - r), weights, k_end, n_end, n, 0, out + (u64)r * n_end);
    }
  }
}

KERNEL_OF(128, 4, chain_tf32, Chain) { chain<false>(a); }
KERNEL_OF(128, 4, chain_fp32, Chain) { chain<true>(a); }

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

// Layers of few outputs, such as the last. A warp takes 8 rows and 4 outputs; its lanes share k.
// Grid (64 rows, groups, 4 outputs).
KERNEL(BLOCK, narrow, Narrow) {
  int row0 = (blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP) * NARROW_ROWS, n0 = blockIdx.z * NARROW_OUTPUTS;
  if (row0 >= a.rows) return;
  u64 at = (u64)blockIdx.y * a.rows + row0;
  const float *weights = a.weights + (u64)blockIdx.y * a.stride;
  narrow_rows(a.x + at * a.k, a.k, min(NARROW_ROWS, a.rows - row0), weights, a.k, a.n, n0, a.relu, a.out + at * a.n);
}

// The gradient of their input. A warp takes 8 rows, a lane one k. Grid (64 rows, groups, 32 k).
KERNEL(BLOCK, narrow_input, Narrow) {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int row0 = (blockIdx.x * (BLOCK / WARP) + warp) * NARROW_ROWS, k = blockIdx.z * WARP + lane;
  int rows = min(NARROW_ROWS, a.rows - row0);
  if (rows <= 0 || k >= a.k) return;
  u64 at = (u64)blockIdx.y * a.rows + row0;
  const float *x = a.x + at * a.k + k, *gradient = a.out + at * a.n;
  const float *weights = a.weights + (u64)blockIdx.y * a.stride + (u64)k * a.n;
  float *d_x = a.d_x + at * a.k + k;
  float activation[NARROW_ROWS], sum[NARROW_ROWS] = {};
#pragma unroll
  for (int i = 0; i < NARROW_ROWS; ++i) activation[i] = i < rows ? x[(u64)i * a.k] : 0.0f;
  for (int n = 0; n < a.n; ++n) {
    float w = weights[n];
#pragma unroll
    for (int i = 0; i < NARROW_ROWS; ++i) sum[i] = i < rows ? fma_(gradient[i * a.n + n], w, sum[i]) : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < NARROW_ROWS; ++i) {
    if (i < rows) d_x[(u64)i * a.k] = activation[i] <= 0.0f ? 0.0f : sum[i];
  }
}

// Up to four numbers; those after them are 0.
INLINE void load_up_to_four(float (&x)[4], const float *from, int count) {
  if (count >= 4 && aligned(from)) return load(x, from);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = i < count ? from[i] : 0.0f;
}

// The gradient of their weights and, as row k, of their bias; and of their input, if it is wanted. Each warp takes every
// eighth batch of 8 rows, each lane a row of the weights. Grid (32 rows of weights, groups x splits).
template <int MOST> INLINE void narrow_backward(const Narrow &a) {
  __shared__ float sums[BLOCK / WARP][MOST][WARP];
  int group = blockIdx.y % a.groups, split = blockIdx.y / a.groups;
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int k = blockIdx.x * WARP + lane;
  int per_split = (a.rows + a.splits - 1) / a.splits;
  int end = min(a.rows, (split + 1) * per_split);
  u64 place = (u64)group * a.rows;
  const float *x = a.x + place * a.k + k, *gradient = a.out + place * a.n;
  float *d_x = a.d_x && k < a.k ? a.d_x + place * a.k + k : 0;
  float w[MOST], sum[MOST] = {};
#pragma unroll
  for (int n = 0; n < MOST; ++n) w[n] = d_x && n < a.n ? a.weights[(u64)group * a.stride + (u64)k * a.n + n] : 0.0f;
  if (k <= a.k) {
    for (int row = split * per_split + warp * NARROW_ROWS; row < end; row += BLOCK / WARP * NARROW_ROWS) {
      float one[NARROW_ROWS], below[NARROW_ROWS] = {};
#pragma unroll
      for (int i = 0; i < NARROW_ROWS; ++i) one[i] = k == a.k ? 1.0f : row + i < end ? x[(u64)(row + i) * a.k] : 0.0f;
#pragma unroll
      for (int n = 0; n < MOST; n += NARROW_OUTPUTS) {
        if (n >= a.n) break;
        float d[NARROW_ROWS][NARROW_OUTPUTS];
#pragma unroll
        for (int i = 0; i < NARROW_ROWS; ++i) {
          load_up_to_four(d[i], gradient + (u64)(row + i) * a.n + n, row + i < end ? a.n - n : 0);
        }
#pragma unroll
        for (int i = 0; i < NARROW_ROWS; ++i) {
#pragma unroll
          for (int j = 0; j < NARROW_OUTPUTS; ++j) {
            sum[n + j] = fma_(one[i], d[i][j], sum[n + j]);
            below[i] = fma_(d[i][j], w[n + j], below[i]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < NARROW_ROWS; ++i) {
        if (d_x && row + i < end) d_x[(u64)(row + i) * a.k] = one[i] <= 0.0f ? 0.0f : below[i];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < MOST; ++n) sums[warp][n][lane] = sum[n];
  __syncthreads();
  for (int n = warp; n < a.n && k <= a.k; n += BLOCK / WARP) {
    float total = 0.0f;
    for (int i = 0; i < BLOCK / WARP; ++i) total += sums[i][n][lane];
    a.d_weights[(u64)group * a.d_stride + (u64)split * a.split_stride + (u64)k * a.n + n] = total;
  }
}

KERNEL(BLOCK, narrow_backward_4, Narrow) { narrow_backward<4>(a); }
KERNEL(BLOCK, narrow_backward_16, Narrow) { narrow_backward<16>(a); }

// The gradient of an action: the first layer's, at the columns of the action, summed over an agent's networks.
// A warp takes 4 rows and 8 columns; its lanes share the units. Grid (32 rows, agents, 8 columns).
#define ROWS_AT_ONCE 4
#define COLUMNS_AT_ONCE 8
KERNEL(BLOCK, by_columns, ByColumns) {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int row0 = (blockIdx.x * (BLOCK / WARP) + warp) * ROWS_AT_ONCE, column0 = blockIdx.z * COLUMNS_AT_ONCE;
  int rows = min(ROWS_AT_ONCE, a.rows - row0), columns = min(COLUMNS_AT_ONCE, a.columns - column0);
  if (rows <= 0) return;
  float sum[COLUMNS_AT_ONCE][ROWS_AT_ONCE] = {};
  for (int network = blockIdx.y * a.share; network < (int)(blockIdx.y + 1) * a.share; ++network) {
    const float *gradient = a.gradient + ((u64)network * a.rows + row0) * a.n;
    const float *weights = a.weights + (u64)network * a.stride + (u64)column0 * a.n;
#pragma unroll 4
    for (int n = lane; n < a.n; n += WARP) {
      float one[ROWS_AT_ONCE], w[COLUMNS_AT_ONCE];
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) one[i] = i < rows ? gradient[(u64)i * a.n + n] : 0.0f;
#pragma unroll
      for (int c = 0; c < COLUMNS_AT_ONCE; ++c) w[c] = c < columns ? weights[(u64)c * a.n + n] : 0.0f;
#pragma unroll
      for (int c = 0; c < COLUMNS_AT_ONCE; ++c) {
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; ++i) sum[c][i] = fma_(one[i], w[c], sum[c][i]);
      }
    }
  }
  float *out = a.out + ((u64)blockIdx.y * a.rows + row0) * a.columns + column0;
#pragma unroll
  for (int c = 0; c < COLUMNS_AT_ONCE; ++c) {
    if (c >= columns) break;
    float total = warp_sums(sum[c], lane);
    if (lane < rows) out[lane * a.columns + c] = total;
  }
}
