// Around the networks of safety models: inputs, members, floored sums, memories, and the loss of labelled prefixes.

KERNEL(BLOCK, see, See) {
  u64 i = thread_number();
  int width = a.s + a.m;
  if (i >= (u64)a.rows * width) return;
  u64 row = i / width, column = i % width;
  u64 unit = row / a.each * a.s + column;
  a.state[i] = column < a.s ? seen(a.observation[row * a.s + column], a.centre[unit], a.scale[unit])
                            : a.memory[row * a.m + column - a.s];
}

KERNEL(BLOCK, to_env, ToEnv) {
  u64 i = thread_number();
  if (i >= (u64)a.n) return;
  int column = (int)(i % a.a);
  a.out[i] = a.middle[column] + a.half[column] * a.action[i];
}

// Spans of episodes, [G, T, N, width]; 0 after the end of a span. Grid (numbers of a group, groups).
KERNEL(BLOCK, spans, Spans) {
  u64 i = thread_number();
  if (i >= (u64)a.steps * a.rows * a.width) return;
  int column = (int)(i % a.width), row = (int)(i / a.width % a.rows), t = (int)(i / a.width / a.rows);
  const u32 *place = a.places + ((u64)blockIdx.y * a.rows + row) * 2;
  u64 group = (u64)blockIdx.y * a.steps * a.rows * a.width;
  a.out[group + i] = t < (int)place[1] ? a.column[((u64)place[0] + t) * a.width + column] : 0.0f;
}

KERNEL(BLOCK, normalise, Normalise) {
  u64 i = thread_number();
  int width = a.s + a.a;
  if (i >= (u64)a.replicas * a.rows * width) return;
  u64 row = i / width, column = i % width, at = row / a.rows * width + column;
  float x = column < a.s ? a.observation[row * a.s + column] : a.action[row * a.a + column - a.s];
  a.out[i] = (x - a.centre[at]) * a.scale[at];
}

INLINE float certain(float logit) { return min_(logit, 46.0f); }
INLINE float log_sigmoid(float logit) { return -softplus(-certain(logit)); }

// The log P of an ensemble is that of its most doubtful member.
KERNEL(BLOCK, log_prob, LogProb) {
  u64 i = thread_number();
  if (i >= (u64)a.replicas * a.rows) return;
  const float *logits = a.logits + i / a.rows * a.members * a.rows + i % a.rows;
  float least = logits[0];
  for (int member = 1; member < a.members; ++member) least = min_(least, logits[(u64)member * a.rows]);
  a.out[i] = log_sigmoid(least);
}

// The cross-entropy of "the prefix is safe" with log P <= 0, and its derivative.
INLINE float cross_entropy(float log_prob, bool safe, float *derivative) {
  double l = log_prob;
  const double nearest = -1.1754943508222875e-38;
  if (l > nearest) l = nearest;
  if (safe) {
    *derivative = -1.0f;
    return (float)-l;
  }
  double log_unsafe = l > -0.6931471805599453 ? log(-expm1(l)) : log1p(-exp(l));
  *derivative = (float)(1.0 / expm1(-l));
  return (float)-log_unsafe;
}

// A block for each model. What takes long is computed for all steps at once; only the sums along a segment, a thread each,
// go from step to step. They read a few steps at a time, because each addition waits for the one before.
KERNEL(BLOCK, trajectory, Trajectory) {
  const int AHEAD = 8;
  int group = blockIdx.x, all = a.steps * a.rows;
  u64 start = (u64)group * all;
  const float *labels = a.labels + start, *logits = a.logits + start;
  float *gradient = a.gradient + start;
  float scale = a.scale[group], loss = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < all; i += BLOCK) gradient[i] = log_sigmoid(logits[i]);
  __syncthreads();
  for (int row = threadIdx.x; row < a.rows; row += BLOCK) {
    float sum = 0.0f;
    for (int first = 0; first < a.steps; first += AHEAD) {
      float step[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) step[i] = first + i < a.steps ? gradient[(u64)(first + i) * a.rows + row] : 0.0f;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        sum += step[i];
        if (first + i < a.steps) gradient[(u64)(first + i) * a.rows + row] = sum;
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < all; i += BLOCK) {
    float derivative = 0.0f;
    if (labels[i] != 0.0f) {
      loss += cross_entropy(gradient[i], labels[i] > 0.0f, &derivative) * scale;
      derivative = flush(derivative, NEGLIGIBLE);
    }
    gradient[i] = derivative;
  }
  __syncthreads();
  for (int row = threadIdx.x; row < a.rows; row += BLOCK) {
    // Scaled before the addition: a model that is sure and wrong makes each close to the largest f32.
    float carried = 0.0f;
    for (int last = a.steps - 1; last >= 0; last -= AHEAD) {
      float derivative[AHEAD], logit[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (last - i >= 0) {
          derivative[i] = gradient[(u64)(last - i) * a.rows + row];
          logit[i] = logits[(u64)(last - i) * a.rows + row];
        }
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (last - i < 0) continue;
        carried += derivative[i] * scale;
        gradient[(u64)(last - i) * a.rows + row] = flush(carried * sigmoid(-certain(logit[i])), NEGLIGIBLE);
      }
    }
  }
  loss = block_sum(loss);
  if (threadIdx.x == 0) a.loss[group] = loss;
}

// The running sum that never falls below the floor; its change is the step's score.
KERNEL(BLOCK, floor_sum, FloorSum) {
  u64 i = thread_number();
  if (i >= (u64)a.n || a.active[i] == 0.0f) return;
  float before = a.sum[i], after = max_(before + a.log_prob[i], a.floor);
  a.sum[i] = after;
  a.score[i] = after - before;
}

// What agents see of the past: [N, members H + 1] from [R, members, N / R, H], and the used share of the floor.
KERNEL(BLOCK, remember, Remember) {
  u64 i = thread_number();
  int width = a.members * a.h + 1;
  if (i >= (u64)a.rows * width) return;
  int row = (int)(i / width), column = (int)(i % width);
  if (column == width - 1) {
    a.memory[i] = a.sum[row] / a.floor;
    return;
  }
  int each = a.rows / a.replicas;
  u64 place = (u64)(row / each * a.members + column / a.h) * each + row % each;
  a.memory[i] = a.hidden[place * a.h + column % a.h];
}
