//! The sources of a simulator's random numbers: a generator, a list of uniform numbers addressed by key, or no noise.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng as _};

use crate::code::{Code, DrawSite};
use crate::distributions::Law;

/// Identifies a draw: the step, the cpf, the distribution within it, and the objects.
#[derive(Clone, Copy, Debug)]
pub struct DrawKey<'a> {
    pub(crate) code: &'a Code,
    pub(crate) site: &'a DrawSite,
    pub(crate) registers: &'a [usize],
    pub(crate) step: u64,
}

impl DrawKey<'_> {
    /// The 64-bit FNV-1a hash of the text `step|cpf|site|index`, computed without building the text.
    ///
    /// `cpf` is the name of the fluent without a prime, or `reward`; `site` counts the distributions of its expression
    /// in the order of the text; `index` is the flat row-major index over the variables in scope: the parameters of the
    /// cpf, then the variables of the enclosing aggregations, outermost first.
    pub fn hash(&self) -> u64 {
        let index = self.code.flat_index(self.site.index, self.registers) as u64;
        let name = self.code.names.get(self.site.cpf as usize).map_or("", String::as_str);
        let mut hash = Fnv::default();
        hash.number(self.step);
        hash.bytes(b"|");
        hash.bytes(name.as_bytes());
        hash.bytes(b"|");
        hash.number(self.site.number.into());
        hash.bytes(b"|");
        hash.number(index);
        hash.0
    }
}

struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Hashes the decimal digits.
    fn number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.bytes(&digits[first..]);
    }
}

/// A source of random draws. Its callers have checked the parameters.
pub trait Draws {
    /// Draws a number from a law with the parameters `a` and `b`.
    fn law(&mut self, law: Law, a: f64, b: f64, key: DrawKey<'_>) -> f64;

    /// Draws a number from the uniform distribution on `0..1`.
    fn uniform(&mut self, key: DrawKey<'_>) -> f64;

    /// Draws the index of one of the weights, each with the probability `weight / sum`.
    fn discrete(&mut self, weights: &[f64], sum: f64, key: DrawKey<'_>) -> f64 {
        let target = self.uniform(key);
        let mut reached = 0.0;
        for (place, weight) in weights.iter().enumerate() {
            reached += weight;
            if target < reached / sum {
                return place as f64;
            }
        }
        0.0 // only if rounding leaves the sum below the target; pyRDDLGym's argmax also gives 0
    }
}

/// Draws from a seeded generator.
#[derive(Clone, Debug)]
pub struct Random<R = ChaCha8Rng>(pub R);

impl Random {
    /// Creates the generator of a seed.
    pub fn seeded(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }
}

impl<R: Rng> Draws for Random<R> {
    fn law(&mut self, law: Law, a: f64, b: f64, _: DrawKey<'_>) -> f64 {
        law.sample(a, b, &mut self.0)
    }

    fn uniform(&mut self, _: DrawKey<'_>) -> f64 {
        // 53 random bits
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws through the inverse distribution function from entry `hash mod length` of a list, to compare engines.
#[derive(Clone, Debug)]
pub struct Keyed {
    uniforms: Vec<f64>,
}

impl Keyed {
    /// Takes numbers strictly between 0 and 1. `None` if there are none or one is out of range.
    pub fn new(uniforms: Vec<f64>) -> Option<Keyed> {
        let good = !uniforms.is_empty() && uniforms.iter().all(|u| *u > 0.0 && *u < 1.0);
        good.then_some(Keyed { uniforms })
    }
}

impl Draws for Keyed {
    fn law(&mut self, law: Law, a: f64, b: f64, key: DrawKey<'_>) -> f64 {
        law.quantile(self.uniform(key), a, b)
    }

    fn uniform(&mut self, key: DrawKey<'_>) -> f64 {
        self.uniforms[(key.hash() % self.uniforms.len() as u64) as usize]
    }
}

/// No noise: every Normal gives its mean. Other distributions are not allowed; see [`crate::Program::check_noiseless`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Noiseless;

impl Draws for Noiseless {
    fn law(&mut self, law: Law, a: f64, b: f64, _: DrawKey<'_>) -> f64 {
        if law == Law::Normal { a } else { law.quantile(0.5, a, b) }
    }

    fn uniform(&mut self, _: DrawKey<'_>) -> f64 {
        0.5
    }
}
