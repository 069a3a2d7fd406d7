//! Two functions of mathematics that the standard library lacks.

/// The logarithm of the gamma function, for positive numbers; right to about 14 digits.
pub(super) fn ln_gamma(x: f64) -> f64 {
    // Stirling's series is exact enough from 10 on; smaller arguments are lifted there by
    // Γ(x) = Γ(x + 1) / x.
    let (mut lifted, mut product) = (x, 1.0);
    while lifted < 10.0 {
        product *= lifted;
        lifted += 1.0;
    }
    let inverse = 1.0 / lifted;
    let square = inverse * inverse;
    let series = inverse
        * (1.0 / 12.0
            - square
                * (1.0 / 360.0
                    - square * (1.0 / 1260.0 - square * (1.0 / 1680.0 - square / 1188.0))));
    let half_ln_tau = 0.918_938_533_204_672_7;
    (lifted - 0.5) * lifted.ln() - lifted + half_ln_tau + series - f64::ln(product)
}

/// The logarithm of the beta function.
pub(super) fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_the_gamma_function() {
        let mut factorial = 1.0_f64;
        for n in 1..20_u32 {
            let found = ln_gamma(f64::from(n));
            assert!((found - factorial.ln()).abs() < 1e-12 * factorial.ln().max(1.0), "{n}");
            factorial *= f64::from(n);
        }
        let half = std::f64::consts::PI.sqrt().ln();
        assert!((ln_gamma(0.5) - half).abs() < 1e-13);
        assert!((ln_gamma(1e6) - 12_815_504.569_147_771).abs() < 1e-6);
    }

    #[test]
    fn the_beta_function_of_small_numbers() {
        assert!((ln_beta(2.0, 3.0) - (1.0_f64 / 12.0).ln()).abs() < 1e-13);
        assert!((ln_beta(0.5, 0.5) - std::f64::consts::PI.ln()).abs() < 1e-13);
    }
}
