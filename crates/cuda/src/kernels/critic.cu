// Targets, losses and gradients of critics, and the policy's and the temperature's objectives.

// The values of a head's networks for an agent: [networks, rows].
INLINE u64 of_head(int agent, int of, int first, int rows) { return (u64)(agent * of + first) * rows; }

// The smallest of the head's values at a row, and its network: the first one if several are equal.
INLINE float smallest(const float *values, int row, int rows, int networks, int *network) {
  float least = values[row];
  *network = 0;
  for (int i = 1; i < networks; ++i) {
    float value = values[(u64)i * rows + row];
    if (least > value) {
      least = value;
      *network = i;
    }
  }
  return least;
}

KERNEL(BLOCK, critic_target, CriticTarget) {
  u64 i = thread_number();
  if (i >= (u64)a.agents * a.rows) return;
  int agent = (int)(i / a.rows), row = (int)(i % a.rows), network;
  float value = smallest(a.values + of_head(agent, a.of, a.first, a.rows), row, a.rows, a.networks, &network);
  if (a.log_prob) value -= exp_(a.log_temperature[agent]) * a.log_prob[i];
  float y = a.signal[i] + a.discount * a.not_terminal[i] * value;
  a.target[i] = a.limited ? min_(max_(y, a.low), a.high) : y;
}

// A block for each agent.
KERNEL(BLOCK, critic_loss, CriticLoss) {
  int agent = blockIdx.x;
  float scale = (float)(1.0 / (double)a.rows);
  u64 start = of_head(agent, a.of, a.first, a.rows);
  float loss = 0.0f;
  for (int network = 0; network < a.networks; ++network) {
    float sum = 0.0f;
    for (int row = threadIdx.x; row < a.rows; row += BLOCK) {
      u64 at = start + (u64)network * a.rows + row;
      float error = a.values[at] - a.target[(u64)agent * a.rows + row];
      sum += error * error;
      a.gradient[at] = 2.0f * scale * error;
    }
    loss += block_sum(sum) * scale;
  }
  if (threadIdx.x == 0) a.loss[agent] = loss;
}

// A block for each agent.
KERNEL(BLOCK, climb, Climb) {
  int agent = blockIdx.x;
  float mean = (float)(1.0 / (double)a.rows);
  const float *weights = a.weights + agent * a.heads;
  float weight = weights[a.index] * (1.0f / total_weight(weights, a.heads)) * mean;
  u64 start = of_head(agent, a.of, a.first, a.rows);
  float sum = 0.0f;
  for (int row = threadIdx.x; row < a.rows; row += BLOCK) {
    int least;
    sum += smallest(a.values + start, row, a.rows, a.networks, &least);
    for (int network = 0; network < a.networks; ++network) {
      a.gradient[start + (u64)network * a.rows + row] = network == least ? -weight : 0.0f;
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) a.value[agent] = sum * mean;
}

// A block for each agent.
KERNEL(BLOCK, temperature, Temperature) {
  int agent = blockIdx.x;
  float mean = (float)(1.0 / (double)a.rows);
  float sum = 0.0f;
  for (int row = threadIdx.x; row < a.rows; row += BLOCK) sum += a.log_prob[(u64)agent * a.rows + row];
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    a.gradient[agent] = -exp_(a.log_temperature[agent]) * (sum * mean + a.target_entropy);
    a.entropy[agent] = -(sum * mean);
  }
}
