// The squashed Gaussian head: means, then log standard deviations.

#define HALF_LN_2_PI_AND_2_LN_2 2.3052328943245633f

KERNEL(BLOCK, sample, Sample) {
  u64 row = thread_number();
  if (row >= (u64)a.rows) return;
  const float *head = a.head + row * 2 * a.width;
  const float *noise = a.noise + row * a.width;
  float sum = 0.0f;
  for (int i = 0; i < a.width; ++i) {
    float log_std = min_(max_(head[a.width + i], a.min), a.max);
    float e = noise[i];
    float u = fma_(exp_(log_std), e, head[i]);
    a.action[row * a.width + i] = tanh_(u);
    sum += 2.0f * (u + softplus(-2.0f * u)) - 0.5f * e * e - log_std - HALF_LN_2_PI_AND_2_LN_2;
  }
  a.log_prob[row] = sum;
}

KERNEL(BLOCK, mode, Mode) {
  u64 i = thread_number();
  if (i >= (u64)a.n) return;
  u64 row = i / a.width, column = i % a.width;
  a.action[i] = tanh_(a.head[row * 2 * a.width + column]);
}

INLINE float total_weight(const float *weights, int heads) {
  float total = weights[0];
  for (int head = 1; head < heads; ++head) total += weights[head];
  return total;
}

KERNEL(BLOCK, sample_backward, SampleBackward) {
  u64 i = thread_number();
  if (i >= (u64)a.n) return;
  u64 row = i / a.width, column = i % a.width;
  int agent = (int)(row / a.rows);
  float mean = (float)(1.0 / (double)a.rows);
  float d_log_prob = exp_(a.log_temperature[agent]) * mean;
  u64 at = row * 2 * a.width + column;
  float action = a.action[i], raw = a.head[at + a.width];
  float du = a.action_gradient[i] * (1.0f - action * action) + d_log_prob * 2.0f * action;
  float d = du * exp_(min_(max_(raw, a.min), a.max)) * a.noise[i] - d_log_prob;
  a.d_head[at] = du;
  a.d_head[at + a.width] = raw >= a.min && raw <= a.max ? d : 0.0f;
}
