// Banks of GRUs: the whole sequence in one kernel. The gates' input sides, W x + b for all steps, are computed before by a
// product. A thread has one unit of one sequence, with its recurrent weights in registers; a memory of H = 16 shares a warp
// with another sequence. A memory wider than 64 reads its weights from memory at every step.

// Threads that work on the same sequences: a warp needs no barrier of the block.
template <int WIDTH> INLINE void together() {
  if (WIDTH <= WARP) __syncwarp();
  else __syncthreads();
}

// W h for the three gates of a unit: weights[k * 3H + gate * H + unit], from registers if WIDTH > 0.
template <int WIDTH>
INLINE void recur(float (&sum)[3], const float (&kept)[3][WIDTH ? WIDTH : 1], const float *weights, const float *memory, int h,
                  int unit) {
  if (WIDTH) {
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      float x = memory[k];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) sum[gate] = fma_(x, kept[gate][k], sum[gate]);
    }
  } else {
    for (int k = 0; k < h; ++k) {
      float x = memory[k];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) sum[gate] = fma_(x, weights[(u64)(k * 3 + gate) * h + unit], sum[gate]);
    }
  }
}

// Grid (sequences of a block, groups). Shared: two memories per sequence.
template <int WIDTH> INLINE void gru_forward(const GruScan &a) {
  DYNAMIC_SHARED(shared);
  const int width = WIDTH ? WIDTH : blockDim.x;
  int h = a.h, unit = threadIdx.x % width, side = threadIdx.x / width, group = blockIdx.y;
  int row = blockIdx.x * (blockDim.x / width) + side;
  bool working = unit < h && row < a.rows;
  const float *weights = a.weights + (u64)group * a.stride;
  float kept[3][WIDTH ? WIDTH : 1] = {};
  float bias[3] = {};
  if (unit < h) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      bias[gate] = a.bias[(u64)group * a.stride + gate * h + unit];
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        if (k < h) kept[gate][k] = weights[(k * 3 + gate) * h + unit];
      }
    }
  }
  float *memories = shared + side * 2 * width;
  memories[unit] = 0.0f;
  memories[width + unit] = 0.0f;
  float *hidden = a.hidden + ((u64)group * (a.steps + 1) * a.rows + row) * h + unit;
  float *gates = a.gates + ((u64)group * a.steps * a.rows + row) * 3 * h + unit;
  float *candidates = a.candidate + ((u64)group * a.steps * a.rows + row) * h + unit;
  u64 next_row = (u64)a.rows * h;
  float past = 0.0f, coming[3] = {};
  if (working) {
    hidden[0] = 0.0f;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) coming[gate] = a.steps ? gates[gate * h] : 0.0f;
  }
  together<WIDTH ? WIDTH : 64>();
  for (int t = 0; t < a.steps; ++t) {
    float input[3] = {coming[0], coming[1], coming[2]};
    if (working && t + 1 < a.steps) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) coming[gate] = gates[next_row * 3 + gate * h];
    }
    float sum[3] = {bias[0], bias[1], bias[2]};
    if (unit < h) recur<WIDTH>(sum, kept, weights, memories + (t % 2) * width, h, unit);
    float r = sigmoid(input[0] + sum[0]), z = sigmoid(input[1] + sum[1]);
    float n = tanh_(fma_(r, sum[2], input[2]));
    past = fma_(z, past - n, n);
    hidden += next_row;
    if (working) {
      gates[0] = r;
      gates[h] = z;
      gates[2 * h] = n;
      candidates[0] = sum[2];
      hidden[0] = past;
      memories[(1 - t % 2) * width + unit] = past;
    }
    gates += next_row * 3;
    candidates += next_row;
    together<WIDTH ? WIDTH : 64>();
  }
}

// Backwards through time. Grid (sequences of a block, groups). Shared: the gradients of three gates, twice per sequence.
template <int WIDTH> INLINE void gru_backward(const GruScan &a) {
  DYNAMIC_SHARED(shared);
  const int width = WIDTH ? WIDTH : blockDim.x;
  int h = a.h, unit = threadIdx.x % width, side = threadIdx.x / width, group = blockIdx.y;
  int row = blockIdx.x * (blockDim.x / width) + side;
  bool working = unit < h && row < a.rows;
  // The unit's row of the weights: what its memory does to every gate.
  const float *weights = a.weights + (u64)group * a.stride + (u64)unit * 3 * h;
  float kept[3][WIDTH ? WIDTH : 1] = {};
  if (unit < h) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) {
        if (k < h) kept[gate][k] = weights[gate * h + k];
      }
    }
  }
  float *both = shared + side * 6 * width;
  for (int i = 0; i < 6; ++i) both[i * width + unit] = 0.0f;
  u64 step = (u64)a.rows * h;
  u64 last = a.steps ? a.steps - 1 : 0;
  const float *hidden = a.hidden + ((u64)group * (a.steps + 1) * a.rows + row) * h + unit + last * step;
  const float *d_hidden = a.d_hidden + ((u64)group * (a.steps + 1) * a.rows + row) * h + unit + last * step;
  u64 at = ((u64)group * a.steps * a.rows + row) * h + unit + last * step;
  u64 wide = ((u64)group * a.steps * a.rows + row) * 3 * h + unit + last * step * 3;
  float carry = working ? d_hidden[a.steps ? step : 0] : 0.0f;
  float coming[6] = {}; // r, z, n, the candidate, the memory before the step, its gradient from the decoder
  if (working && a.steps) {
    for (int gate = 0; gate < 3; ++gate) coming[gate] = a.gates[wide + gate * h];
    coming[3] = a.candidate[at];
    coming[4] = hidden[0];
    coming[5] = d_hidden[0];
  }
  together<WIDTH ? WIDTH : 64>();
  for (int t = a.steps - 1; t >= 0; --t) {
    float r = coming[0], z = coming[1], n = coming[2], candidate = coming[3], past = coming[4], decoder = coming[5];
    if (working && t > 0) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) coming[gate] = a.gates[wide - step * 3 + gate * h];
      coming[3] = a.candidate[at - step];
      coming[4] = *(hidden - step);
      coming[5] = *(d_hidden - step);
    }
    float d = flush(carry, NEGLIGIBLE);
    float dz = flush(d * (past - n) * z * (1.0f - z), NEGLIGIBLE);
    float dn = flush(d * (1.0f - z) * (1.0f - n * n), NEGLIGIBLE);
    float dr = flush(dn * candidate * r * (1.0f - r), NEGLIGIBLE);
    float memory_n = flush(dn * r, NEGLIGIBLE);
    float *memory_side = both + (t % 2) * 3 * width;
    if (working) {
      a.input_side[wide] = dr;
      a.input_side[wide + h] = dz;
      a.input_side[wide + 2 * h] = dn;
      a.memory_side[wide] = dr;
      a.memory_side[wide + h] = dz;
      a.memory_side[wide + 2 * h] = memory_n;
      memory_side[unit] = dr;
      memory_side[width + unit] = dz;
      memory_side[2 * width + unit] = memory_n;
    }
    together<WIDTH ? WIDTH : 64>();
    carry = fma_(d, z, decoder);
    if (unit < h) {
      if (WIDTH) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
#pragma unroll
          for (int gate = 0; gate < 3; ++gate) carry = fma_(memory_side[gate * width + k], kept[gate][k], carry);
        }
      } else {
        for (int gate = 0; gate < 3; ++gate) {
          for (int k = 0; k < h; ++k) carry = fma_(memory_side[gate * width + k], weights[gate * h + k], carry);
        }
      }
    }
    hidden -= step;
    d_hidden -= step;
    at -= step;
    wide -= step * 3;
  }
}

#define GRU(width, threads)                                                                                            \
  KERNEL(threads, gru_forward_##width, GruScan) { gru_forward<width>(a); }                                            \
  KERNEL(threads, gru_backward_##width, GruScan) { gru_backward<width>(a); }

GRU(16, 32)
GRU(32, 32)
GRU(64, 64)
GRU(0, 1024)

// One step of all sequences. Grid (sequences, groups), a thread for each unit. Shared: the input and the memory.
KERNEL(1024, gru_step, GruStep) {
  DYNAMIC_SHARED(shared);
  int h = a.h, unit = threadIdx.x, group = blockIdx.y;
  const float *input = a.input + (u64)(group / a.share) * a.input_stride + (u64)blockIdx.x * a.inputs;
  float *hidden = a.hidden + ((u64)group * a.rows + blockIdx.x) * h;
  const float *weights = a.weights + (u64)group * a.stride; // W_ih, W_hh, b_ih, b_hh
  for (int i = unit; i < a.inputs + h; i += blockDim.x) shared[i] = i < a.inputs ? input[i] : hidden[i - a.inputs];
  __syncthreads();
  if (unit >= h) return;
  const float *of_memory = weights + (u64)a.inputs * 3 * h;
  const float *bias = of_memory + (u64)h * 3 * h;
  float x[3], m[3];
#pragma unroll
  for (int gate = 0; gate < 3; ++gate) {
    x[gate] = bias[gate * h + unit];
    m[gate] = bias[(3 + gate) * h + unit];
  }
#pragma unroll 4
  for (int k = 0; k < a.inputs; ++k) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) x[gate] = fma_(shared[k], weights[(u64)(k * 3 + gate) * h + unit], x[gate]);
  }
#pragma unroll 4
  for (int k = 0; k < h; ++k) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) m[gate] = fma_(shared[a.inputs + k], of_memory[(u64)(k * 3 + gate) * h + unit], m[gate]);
  }
  float r = sigmoid(x[0] + m[0]), z = sigmoid(x[1] + m[1]);
  float n = tanh_(fma_(r, m[2], x[2]));
  hidden[unit] = fma_(z, shared[a.inputs + unit] - n, n);
}
