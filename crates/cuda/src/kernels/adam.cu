// Adam and AdamW, with the follower (target networks, averaged policies) in the same pass.

struct Moments {
  float first, second;
};

// A step of one weight.
INLINE float adam_step(const Adam &a, int owner, float weight, float gradient, Moments &m) {
  gradient = flush(gradient * (a.factor ? a.factor[owner] : 1.0f), NEGLIGIBLE);
  m.first = flush(fma_(a.gain1, gradient - m.first, m.first), NEGLIGIBLE);
  m.second = flush(fma_(a.beta2, m.second, a.gain2 * gradient * gradient), NEGLIGIBLE * NEGLIGIBLE);
  float shrunk = weight * (a.shrink ? a.shrink[owner] : 1.0f);
  return shrunk - a.rate[owner] * m.first / fma_(sqrtf(m.second), a.correction[owner], a.epsilon);
}

template <int AT_ONCE> INLINE void adam_steps(const Adam &a, int owner, u64 i) {
  float weight[AT_ONCE], gradient[AT_ONCE], first[AT_ONCE], second[AT_ONCE], behind[AT_ONCE] = {};
  load(weight, a.values + i);
  load(gradient, a.gradients + i);
  load(first, a.first + i);
  load(second, a.second + i);
  if (a.follower) load(behind, a.follower + i);
#pragma unroll
  for (int j = 0; j < AT_ONCE; ++j) {
    Moments moments = {first[j], second[j]};
    weight[j] = adam_step(a, owner, weight[j], gradient[j], moments);
    first[j] = moments.first;
    second[j] = moments.second;
    behind[j] = fma_(a.share, weight[j] - behind[j], behind[j]);
  }
  store(a.values + i, weight);
  store(a.first + i, first);
  store(a.second + i, second);
  if (a.follower) store(a.follower + i, behind);
}

// A thread for four numbers. Grid (numbers of an owner, owners).
KERNEL(BLOCK, adam, Adam) {
  int i = (int)thread_number() * 4, owner = blockIdx.y;
  if (i >= a.each || a.active[owner] == 0.0f) return;
  u64 start = (u64)owner * a.each;
  if (a.each % 4 == 0) return adam_steps<4>(a, owner, start + i);
  for (int j = i; j < min(i + 4, a.each); ++j) adam_steps<1>(a, owner, start + j);
}

// The sum of an owner's numbers. A block for each owner.
KERNEL(BLOCK, sum, Sum) {
  const float *values = a.values + (u64)blockIdx.x * a.each;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < a.each; i += BLOCK) sum += values[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.sum[blockIdx.x] = sum;
}

// The factor that limits the norm of an owner's gradients. A block for each owner.
KERNEL(BLOCK, clip, Clip) {
  const float *gradients = a.gradients + (u64)blockIdx.x * a.each;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < a.each; i += BLOCK) squares = fma_(gradients[i], gradients[i], squares);
  squares = block_sum(squares);
  if (threadIdx.x == 0) {
    double norm = sqrt((double)squares);
    a.factor[blockIdx.x] = (float)(norm > a.limit ? a.limit / norm : 1.0);
  }
}

KERNEL(BLOCK, add, Add) {
  u64 i = thread_number();
  if (i < (u64)a.n) a.sum[i] += a.other[i];
}

KERNEL(BLOCK, fill, Fill) {
  u64 i = thread_number();
  if (i < (u64)a.n) a.to[i] = a.value;
}
