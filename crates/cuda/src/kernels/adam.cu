// Adam and AdamW, with the follower (target networks, averaged policies) in the same pass.

// Grid (numbers of an owner, owners).
KERNEL(BLOCK, adam, Adam) {
  u64 i = thread_number();
  int owner = blockIdx.y;
  if (i >= (u64)a.each || a.active[owner] == 0.0f) return;
  i += (u64)owner * a.each;
  float shrink = a.shrink ? a.shrink[owner] : 1.0f;
  float factor = a.factor ? a.factor[owner] : 1.0f;
  float gradient = flush(a.gradients[i] * factor, NEGLIGIBLE);
  float first = a.first[i], second = a.second[i];
  first = flush(fma_(a.gain1, gradient - first, first), NEGLIGIBLE);
  second = flush(fma_(a.beta2, second, a.gain2 * gradient * gradient), NEGLIGIBLE * NEGLIGIBLE);
  float weight = a.values[i] * shrink - a.rate[owner] * first / fma_(sqrtf(second), a.correction[owner], a.epsilon);
  a.first[i] = first;
  a.second[i] = second;
  a.values[i] = weight;
  if (a.follower) {
    float behind = a.follower[i];
    a.follower[i] = fma_(a.share, weight - behind, behind);
  }
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
