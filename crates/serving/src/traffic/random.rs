//! Draws from the distributions that Thompson sampling needs, out of a source that is passed in.

/// Evenly distributed bits. Whoever draws decides where they come from: the system, or a seed.
pub trait Source {
    fn bits(&mut self) -> u64;

    /// Strictly between 0 and 1.
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

impl<F: FnMut() -> u64> Source for F {
    fn bits(&mut self) -> u64 {
        self()
    }
}

/// Mean 0, variance 1 (Box and Muller).
pub(super) fn normal(source: &mut impl Source) -> f64 {
    let radius = (-2.0 * source.unit().ln()).sqrt();
    radius * (std::f64::consts::TAU * source.unit()).cos()
}

/// The logarithm of a draw from the gamma distribution of this shape and scale 1 (Marsaglia and
/// Tsang). As a logarithm, since tiny shapes give numbers too small to write.
pub(super) fn ln_gamma_draw(shape: f64, source: &mut impl Source) -> f64 {
    if shape < 1.0 {
        // A draw of the next shape, times a uniform to the power 1 / shape.
        return ln_gamma_draw(shape + 1.0, source) + source.unit().ln() / shape;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(source);
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let v = root * root * root;
        if source.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln();
        }
    }
}

/// The logarithm of the odds of a draw from the beta distribution: it grows with the draw, and two
/// draws close to one are still told apart.
pub(super) fn beta_odds(a: f64, b: f64, source: &mut impl Source) -> f64 {
    ln_gamma_draw(a, source) - ln_gamma_draw(b, source)
}

/// The same numbers in every run.
#[cfg(test)]
pub(super) fn seeded(seed: u64) -> impl Source {
    let mut random = falaj_testkit::Random::new(seed);
    move || random.number()
}

#[cfg(test)]
mod tests {
    use super::super::moments::Moments;
    use super::*;

    fn check(name: &str, wanted: (f64, f64), mut draw: impl FnMut() -> f64) {
        let drawn = Moments::of((0..40_000).map(|_| draw()));
        let variance = drawn.scatter() / drawn.weight();
        let off = ((drawn.mean() - wanted.0).abs(), (variance - wanted.1).abs());
        assert!(off.0 < 0.03 * (wanted.1.sqrt() + wanted.0.abs()), "{name}: mean {}", drawn.mean());
        assert!(off.1 < 0.08 * wanted.1, "{name}: variance {variance}");
    }

    #[test]
    fn draws_have_the_mean_and_variance_of_their_distribution() {
        let mut source = seeded(11);
        check("uniform", (0.5, 1.0 / 12.0), || source.unit());
        check("normal", (0.0, 1.0), || normal(&mut source));
        for shape in [0.3, 1.0, 2.5, 40.0] {
            check("gamma", (shape, shape), || ln_gamma_draw(shape, &mut source).exp());
        }
        for (a, b) in [(1.0, 1.0), (2.0, 5.0), (0.5, 0.5), (30.0, 3.0)] {
            let sum: f64 = a + b;
            let variance = a * b / (sum * sum * (sum + 1.0));
            let draw = || 1.0 / (1.0 + (-beta_odds(a, b, &mut source)).exp());
            check("beta", (a / sum, variance), draw);
        }
    }

    #[test]
    fn a_tiny_shape_gives_a_finite_logarithm() {
        let mut source = seeded(3);
        assert!((0..1000).all(|_| ln_gamma_draw(1e-6, &mut source).is_finite()));
    }
}
