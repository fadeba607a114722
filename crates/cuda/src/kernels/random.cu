// Philox4x32-10 and standard normal numbers: prudence-core's `random`, addressed by element.

INLINE void philox(u32 words[4], u32 k0, u32 k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    u64 a = (u64)words[0] * 0xd2511f53u;
    u64 b = (u64)words[2] * 0xcd9e8d57u;
    u32 x1 = words[1], x3 = words[3];
    words[0] = (u32)(b >> 32) ^ x1 ^ k0;
    words[1] = (u32)b;
    words[2] = (u32)(a >> 32) ^ x3 ^ k1;
    words[3] = (u32)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
}

// The natural logarithm of a positive normal number.
INLINE float ln_(float x) {
  int bits = (int)__float_as_uint(x) - 0x3f3504f3;
  float e = (float)(bits >> 23);
  float f = __uint_as_float((u32)((bits & 0x007fffff) + 0x3f3504f3)) - 1.0f;
  float z = f * f;
  float p = 7.0376836e-2f;
  p = fma_(p, f, -1.151461e-1f);
  p = fma_(p, f, 1.1676999e-1f);
  p = fma_(p, f, -1.2420141e-1f);
  p = fma_(p, f, 1.4249323e-1f);
  p = fma_(p, f, -1.6668058e-1f);
  p = fma_(p, f, 2.0000715e-1f);
  p = fma_(p, f, -2.4999994e-1f);
  p = fma_(p, f, 3.333333e-1f);
  p = fma_(p * f, z, -0.5f * z) + f;
  return fma_(e, -2.1219444e-4f, p) + e * 0.6933594f;
}

INLINE float normal(u32 word) {
  const float unit = 1.0f / 2147483648.0f;
  int near = (int)((word ^ (u32)((int)word >> 31)) & 0x7fffffffu);
  float tail = ((float)near + 0.5f) * unit;
  float x = ((float)(0x7fffffff - near) + 0.5f) * unit;
  float w = -ln_(tail * (1.0f + x));
  float c = w - 2.5f;
  float p = 2.8102264e-8f;
  p = fma_(p, c, 3.4327394e-7f);
  p = fma_(p, c, -3.5233877e-6f);
  p = fma_(p, c, -4.3915065e-6f);
  p = fma_(p, c, 2.1858087e-4f);
  p = fma_(p, c, -1.253725e-3f);
  p = fma_(p, c, -4.1776816e-3f);
  p = fma_(p, c, 2.4664073e-1f);
  p = fma_(p, c, 1.5014094f);
  float far = sqrtf(w) - 3.0f;
  float q = -2.0021426e-4f;
  q = fma_(q, far, 1.0095056e-4f);
  q = fma_(q, far, 1.3493432e-3f);
  q = fma_(q, far, -3.6734284e-3f);
  q = fma_(q, far, 5.7395077e-3f);
  q = fma_(q, far, -7.6224613e-3f);
  q = fma_(q, far, 9.4388707e-3f);
  q = fma_(q, far, 1.001674f);
  q = fma_(q, far, 2.8329768f);
  float size = 1.41421356237309504880f * x * (w < 5.0f ? p : q);
  return (word >> 31) == 0 ? -size : size;
}

// Grid (blocks of four numbers, owners).
KERNEL(BLOCK, normals, Normals) {
  u64 block = thread_number();
  if (block * 4 >= (u64)a.each) return;
  const u32 *address = a.addresses + blockIdx.y * 6;
  u64 number = ((u64)address[4] | (u64)address[5] << 32) + block;
  u32 words[4] = {(u32)number, (u32)(number >> 32), address[2], address[3]};
  philox(words, address[0], address[1]);
  float *out = a.out + (u64)blockIdx.y * a.each + block * 4;
  int left = a.each - (int)(block * 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < left) out[i] = normal(words[i]);
  }
}
