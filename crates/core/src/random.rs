//! Named random streams: the only source of randomness in prudence.
//!
//! A stream is Philox4x32-10 (Salmon et al., SC 2011) keyed by (seed, purpose) and counted by (index, element). Element i
//! needs no other element, so a device can draw any part of a stream on its own, and what one part of the program draws
//! never shifts what another part sees. A resumed run needs no saved generator. Normals come from the inverse distribution
//! function of one word each, by additions, multiplications and one square root in f32: the same bits everywhere.
#![allow(clippy::needless_range_loop, reason = "lanes are numbered: that is what becomes vector code")]

use std::convert::Infallible;

use rand_core::TryRng;

/// The stream for `(seed, purpose, index)`, from its beginning.
///
/// ```
/// use prudence_core::random::stream;
/// use rand::RngExt as _;
///
/// let mut wind = stream(0, "wind", 7); // of seed 0, the stream for episode 7
/// let gust: f64 = wind.random_range(-1.0..1.0);
/// assert_eq!(stream(0, "wind", 7).random_range(-1.0..1.0), gust);
/// assert_ne!(stream(0, "wind", 8).random_range(-1.0..1.0), gust);
/// ```
pub fn stream(seed: u64, purpose: &str, index: u64) -> Stream {
    Stream::new(StreamId::new(seed, purpose, index))
}

/// A seed for something that keeps its own streams, such as an environment's episode.
pub fn subseed(seed: u64, purpose: &str, index: u64) -> u64 {
    let [a, b, ..] = StreamId::new(seed, purpose, index).block(0);
    u64::from(a) | u64::from(b) << 32
}

/// Which stream: all that a device needs to draw from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId {
    key: [u32; 2],
    index: [u32; 2],
}

/// Words in a block.
const BLOCK: usize = 4;

/// The number of blocks that hold this number of elements.
pub fn blocks(elements: usize) -> u64 {
    elements.div_ceil(BLOCK) as u64
}

impl StreamId {
    /// The stream for `(seed, purpose, index)`.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        // A seed's neighbours and equal sums of seed and purpose must not meet: both are mixed before they are joined.
        let key = mix(mix(seed) ^ fnv1a(purpose.as_bytes()));
        Self { key: halves(key), index: halves(index) }
    }

    /// Key and index as four words.
    pub fn words(self) -> [u32; 4] {
        [self.key[0], self.key[1], self.index[0], self.index[1]]
    }

    /// Where a device begins to draw: the stream, and the number of a block of four elements.
    pub fn address(self, block: u64) -> [u32; 6] {
        let [low, high] = halves(block);
        [self.key[0], self.key[1], self.index[0], self.index[1], low, high]
    }

    /// The stream and the block of an address.
    pub fn from_address([a, b, c, d, low, high]: [u32; 6]) -> (Self, u64) {
        (Self::from_words([a, b, c, d]), u64::from(low) | u64::from(high) << 32)
    }

    /// From the words of [`StreamId::words`].
    pub fn from_words([a, b, c, d]: [u32; 4]) -> Self {
        Self { key: [a, b], index: [c, d] }
    }

    /// The elements `4 number .. 4 number + 4`.
    #[inline(always)]
    fn block(self, number: u64) -> [u32; BLOCK] {
        let [low, high] = halves(number);
        philox([low, high, self.index[0], self.index[1]], self.key)
    }

    /// The elements `4 block ..` of the stream, each of them turned into something.
    #[inline(always)]
    fn fill<T: Copy>(self, block: u64, out: &mut [T], from: impl Fn(u32) -> T) {
        // Several blocks at a time, word by word side by side: that is how a compiler makes vectors of them.
        const SIDE: usize = 16;
        let mut number = block;
        let mut chunks = out.chunks_exact_mut(SIDE * BLOCK);
        for chunk in &mut chunks {
            let mut words = [[0u32; SIDE]; BLOCK];
            for i in 0..SIDE {
                let counter = number.wrapping_add(i as u64);
                words[0][i] = counter as u32;
                words[1][i] = (counter >> 32) as u32;
                words[2][i] = self.index[0];
                words[3][i] = self.index[1];
            }
            rounds(&mut words, self.key);
            for i in 0..SIDE {
                for (w, words) in words.iter().enumerate() {
                    chunk[i * BLOCK + w] = from(words[i]);
                }
            }
            number = number.wrapping_add(SIDE as u64);
        }
        for chunk in chunks.into_remainder().chunks_mut(BLOCK) {
            let words = self.block(number);
            chunk.iter_mut().zip(words).for_each(|(out, word)| *out = from(word));
            number = number.wrapping_add(1);
        }
    }

    /// Standard normal numbers: the elements from `4 block` on.
    #[inline(always)]
    pub fn normals(self, block: u64, out: &mut [f32]) {
        self.fill(block, out, normal);
    }

    /// Whole numbers below `n`, uniform but for a bias of at most `n / 2^32`: the elements from `4 block` on.
    #[inline(always)]
    pub fn below(self, block: u64, n: u32, out: &mut [u32]) {
        self.fill(block, out, |word| ((u64::from(word) * u64::from(n)) >> 32) as u32);
    }
}

fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// SplitMix64's finaliser: every bit depends on every bit.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// FNV-1a, 64 bits: purposes are few and short, and the hash must stay the same for ever.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Philox4x32-10.
#[inline(always)]
fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut words = counter.map(|word| [word]);
    rounds(&mut words, key);
    words.map(|[word]| word)
}

/// The ten rounds, for N counters side by side.
#[inline(always)]
fn rounds<const N: usize>(words: &mut [[u32; N]; 4], key: [u32; 2]) {
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        for i in 0..N {
            let a = u64::from(words[0][i]) * 0xd251_1f53;
            let b = u64::from(words[2][i]) * 0xcd9e_8d57;
            let (x1, x3) = (words[1][i], words[3][i]);
            words[0][i] = (b >> 32) as u32 ^ x1 ^ k0;
            words[1][i] = b as u32;
            words[2][i] = (a >> 32) as u32 ^ x3 ^ k1;
            words[3][i] = a as u32;
        }
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
}

/// The standard normal number whose distribution function is the word's place among all words.
///
/// The inverse error function by Giles ("Approximating the erfinv function", 2010), in f32.
#[inline(always)]
pub fn normal(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / 2_147_483_648.0;
    // The distance from the nearer end; the highest bit says which one that is.
    let near = ((word ^ ((word as i32) >> 31) as u32) & 0x7fff_ffff) as i32;
    let tail = (near as f32 + 0.5) * UNIT; // 1 - x, exact where it is small
    let x = ((i32::MAX - near) as f32 + 0.5) * UNIT; // exact where x is small
    let w = -ln(tail * (1.0 + x)); // 1 - x^2
    let centre = w - 2.5;
    let mut p = 2.810_226_4e-8f32;
    for c in [
        3.432_739_4e-7,
        -3.523_387_7e-6,
        -4.391_506_5e-6,
        2.185_808_7e-4,
        -1.253_725e-3,
        -4.177_681_6e-3,
        2.466_407_3e-1,
        1.501_409_4,
    ] {
        p = p.mul_add(centre, c);
    }
    let far = w.sqrt() - 3.0;
    let mut q = -2.002_142_6e-4f32;
    for c in [
        1.009_505_6e-4,
        1.349_343_2e-3,
        -3.673_428_4e-3,
        5.739_507_7e-3,
        -7.622_461_3e-3,
        9.438_870_5e-3,
        1.001_674,
        2.832_976_8,
    ] {
        q = q.mul_add(far, c);
    }
    let size = std::f32::consts::SQRT_2 * x * if w < 5.0 { p } else { q };
    if word >> 31 == 0 { -size } else { size }
}

/// The natural logarithm of a positive normal number, to a few units in the last place.
#[inline(always)]
fn ln(x: f32) -> f32 {
    // x = 2^e m with m in [sqrt(1/2), sqrt(2))
    let bits = x.to_bits() as i32 - 0x3f35_04f3;
    let e = (bits >> 23) as f32;
    let f = f32::from_bits(((bits & 0x007f_ffff) + 0x3f35_04f3) as u32) - 1.0;
    let z = f * f;
    let mut p = 7.037_683_6e-2f32;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p.mul_add(f, c);
    }
    let p = (p * f).mul_add(z, -0.5 * z) + f;
    e.mul_add(-2.121_944_4e-4, p) + e * 0.693_359_4
}

/// A stream read in order, as a generator for everything that is drawn once or in unknown numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    id: StreamId,
    /// The block after the group in `words`.
    next_block: u64,
    /// A few blocks, made together.
    words: [u32; GROUP],
    /// The next word of the group; GROUP where a new group is due.
    at: usize,
}

/// Words made at a time.
const GROUP: usize = 4 * BLOCK;

impl Stream {
    /// From the stream's beginning.
    pub fn new(id: StreamId) -> Self {
        Self { id, next_block: 0, words: [0; GROUP], at: GROUP }
    }

    /// Which stream it is.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The number of words that have been drawn.
    pub fn position(&self) -> u64 {
        (self.next_block * BLOCK as u64 + self.at as u64) - GROUP as u64
    }

    /// The stream after `position` words have been drawn from it.
    pub fn at(id: StreamId, position: u64) -> Self {
        let (group, at) = (position / GROUP as u64, (position % GROUP as u64) as usize);
        let mut stream = Self { id, next_block: group * blocks(GROUP), words: [0; GROUP], at: GROUP };
        if at > 0 {
            stream.refill();
            stream.at = at;
        }
        stream
    }

    #[inline(never)]
    fn refill(&mut self) {
        const BLOCKS: usize = GROUP / BLOCK;
        let mut words = [[0u32; BLOCKS]; BLOCK];
        for i in 0..BLOCKS {
            let [low, high] = halves(self.next_block.wrapping_add(i as u64));
            words[0][i] = low;
            words[1][i] = high;
            words[2][i] = self.id.index[0];
            words[3][i] = self.id.index[1];
        }
        rounds(&mut words, self.id.key);
        for i in 0..BLOCKS {
            for w in 0..BLOCK {
                self.words[i * BLOCK + w] = words[w][i];
            }
        }
        self.next_block = self.next_block.wrapping_add(BLOCKS as u64);
        self.at = 0;
    }

    #[inline(always)]
    fn next(&mut self) -> u32 {
        if self.at >= GROUP {
            self.refill();
        }
        let word = self.words[self.at];
        self.at += 1;
        word
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    #[inline(always)]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next())
    }

    #[inline(always)]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        if let Some([low, high, ..]) = self.words.get(self.at..) {
            self.at += 2;
            return Ok(u64::from(*low) | u64::from(*high) << 32);
        }
        let low = self.next();
        Ok(u64::from(low) | u64::from(self.next()) << 32)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(4) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of the Random123 library.
    #[test]
    fn philox_gives_the_published_answers() {
        for (counter, key, answer) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            assert_eq!(philox(counter, key), answer);
        }
    }

    #[test]
    fn the_logarithm_is_accurate_to_a_few_units_in_the_last_place() {
        for i in 1..2_000_000u32 {
            let x = i as f32 * 1.7e-6;
            let exact = f64::from(x).ln();
            assert!((f64::from(ln(x)) - exact).abs() < 3e-7 * exact.abs().max(0.5), "ln({x}) = {}", ln(x));
        }
    }
}
