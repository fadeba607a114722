// Replay tables: sampled and written.

// An observation in the networks' units, clipped like SEEN in prudence-nn.
INLINE float seen(float x, float centre, float scale) { return min_(max_((x - centre) * scale, -10.0f), 10.0f); }

// A row that an agent sampled: in the table that all share, or in its own ring.
INLINE bool is_shared(const Replay &r, u32 row) { return row < (u32)r.shared_capacity; }
INLINE u64 ring_row(const Replay &r, int agent, u32 row) {
  return (u64)agent * r.ring + (row - (u32)r.shared_capacity) % (u32)r.ring;
}

INLINE const float *observation(const Replay &r, int agent, u32 row) {
  return is_shared(r, row) ? r.shared_observation + (u64)row * r.s : r.own_observation + ring_row(r, agent, row) * r.s;
}
INLINE const float *memory(const Replay &r, int agent, u32 row) {
  return is_shared(r, row) ? r.shared_memory + (u64)row * r.m : r.own_memory + ring_row(r, agent, row) * r.m;
}

// Writes the state at a row, one lane per number.
INLINE void state(const Replay &r, int agent, const float *observation, const float *memory, float *out, int lane) {
  const float *centre = r.centre + (u64)agent * r.s, *scale = r.scale + (u64)agent * r.s;
  for (int i = lane; i < r.s; i += WARP) out[i] = seen(observation[i], centre[i], scale[i]);
  if (r.history) {
    for (int i = lane; i < r.m; i += WARP) out[r.s + i] = memory[i];
  }
}

// A warp for each transition.
KERNEL(BLOCK, gather, Gather) {
  const Replay &r = a.replay;
  int i = blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  if (i >= a.n) return;
  int agent = i / a.size;
  u32 row = a.rows[i];
  bool shared = is_shared(r, row);
  // In the shared table the next row follows; the ring begins again.
  const float *next_observation = shared ? r.shared_observation + (u64)(row + 1) * r.s : observation(r, agent, row + 1);
  const float *next_memory = shared ? r.shared_memory + (u64)(row + 1) * r.m : memory(r, agent, row + 1);
  int width = r.s + (r.history ? r.m : 0);
  state(r, agent, observation(r, agent, row), memory(r, agent, row), a.state + (u64)i * width, lane);
  state(r, agent, next_observation, next_memory, a.next_state + (u64)i * width, lane);
  u64 at = shared ? row : ring_row(r, agent, row);
  const float *action = (shared ? a.shared_action : a.own_action) + at * a.a;
  for (int j = lane; j < a.a; j += WARP) {
    float unit = (action[j] - a.action_middle[j]) / a.action_half[j];
    a.action[(u64)i * a.a + j] = min_(max_(unit, -1.0f), 1.0f);
  }
  if (lane == 0) {
    a.reward[i] = ((shared ? a.shared_reward : a.own_reward)[at] - a.reward_centre[agent]) * a.reward_scale[agent];
    a.score[i] = (shared ? a.shared_score : a.own_score)[at];
    a.not_terminal[i] = (shared ? a.shared_not_terminal : a.own_not_terminal)[at];
  }
}

// A block for each agent.
KERNEL(BLOCK, append, Append) {
  int agent = blockIdx.x;
  u32 row = a.rows[agent * 2], next = a.rows[agent * 2 + 1];
  if (row != 0xffffffffu) {
    for (int i = threadIdx.x; i < a.a; i += BLOCK) a.action[(u64)row * a.a + i] = a.new_action[agent * a.a + i];
    if (threadIdx.x == 0) {
      a.reward[row] = a.new_reward[agent];
      a.not_terminal[row] = a.new_not_terminal[agent];
      if (a.new_score) a.score[row] = a.new_score[agent];
    }
  }
  if (next != 0xffffffffu) {
    for (int i = threadIdx.x; i < a.s; i += BLOCK) {
      a.observation[(u64)next * a.s + i] = a.next_observation[agent * a.s + i];
    }
    for (int i = threadIdx.x; i < a.m; i += BLOCK) a.memory[(u64)next * a.m + i] = a.new_memory[agent * a.m + i];
  }
}
