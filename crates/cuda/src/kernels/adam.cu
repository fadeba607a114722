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

// A thread for four numbers. Grid (numbers of an owner, owners).
KERNEL(BLOCK, adam, Adam) {
  u64 i = thread_number() * 4;
  int owner = blockIdx.y;
  if (i >= (u64)a.each || a.active[owner] == 0.0f) return;
  int count = min(4, a.each - (int)i);
  i += (u64)owner * a.each;
  float weight[4], gradient[4], first[4], second[4], behind[4] = {};
  load_four(weight, a.values + i, count);
  load_four(gradient, a.gradients + i, count);
  load_four(first, a.first + i, count);
  load_four(second, a.second + i, count);
  if (a.follower) load_four(behind, a.follower + i, count);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    Moments moments = {first[j], second[j]};
    weight[j] = adam_step(a, owner, weight[j], gradient[j], moments);
    first[j] = moments.first;
    second[j] = moments.second;
    behind[j] = fma_(a.share, weight[j] - behind[j], behind[j]);
  }
  store_four(a.values + i, weight, count);
  store_four(a.first + i, first, count);
  store_four(a.second + i, second, count);
  if (a.follower) store_four(a.follower + i, behind, count);
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
