//! Zipf's law in constant time.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Draws ranks 1 to `ranks` with probabilities in proportion to `rank^-power`, by
/// rejection-inversion (Hörmann and Derflinger, "Rejection-Inversion to Generate Variates from
/// Monotone Discrete Distributions", 1996). It inverts the integral of the density `h(x) =
/// x^-power` and rejects where the histogram's column is lower than the integral over its width:
/// fewer than three draws in ten, whatever the number of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    ranks: f64,
    power: f64,
    /// The integral's value where inversion begins and ends.
    begin: f64,
    end: f64,
    /// Whatever lies no farther below its rank than this is accepted without computing the density.
    near: f64,
}

impl Zipf {
    /// # Panics
    /// If `power` is not a finite number greater than 0.
    pub(super) fn new(ranks: u64, power: f64) -> Self {
        assert!(
            power.is_finite() && power > 0.0,
            "the power of Zipf's law is {power}; it must be finite and greater than 0"
        );
        let mut zipf = Self { ranks: ranks.max(1) as f64, power, begin: 0.0, end: 0.0, near: 0.0 };
        // The first column is wholly under its own density, from 1.5 back by its height of 1.
        zipf.begin = zipf.integral(1.5) - 1.0;
        zipf.end = zipf.integral(zipf.ranks + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    #[inline]
    pub(super) fn sample(&self, random: &mut ChaCha8Rng) -> u64 {
        loop {
            let at = self.end + random.random::<f64>() * (self.begin - self.end);
            let x = self.inverse(at);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            if rank - x <= self.near || at >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.power * x.ln()).exp()
    }

    /// `(x^(1 - power) - 1) / (1 - power)`, which is `ln x` if the power is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        log * expm1_over(log * (1.0 - self.power))
    }

    fn inverse(&self, y: f64) -> f64 {
        // Rounding may carry the argument just below the logarithm's domain.
        let t = (y * (1.0 - self.power)).max(-1.0);
        (y * ln1p_over(t)).exp()
    }
}

/// `(e^x - 1) / x`, near 0 by its series.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

/// `ln(1 + x) / x`, near 0 by its series.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x / 3.0) }
}
