//! Is a rate above what is allowed? An answer that stays valid however often one looks.

use super::special::ln_beta;

/// Whether `events` in `trials` show, with an error probability of at most `alpha` over all looks
/// together, that the true rate is above `allowed`.
///
/// The likelihood of what was seen, averaged over all rates (Beta(½, ½)), against that of the
/// allowed rate: by Ville's inequality the quotient reaches 1 / alpha with probability alpha at
/// most. Where the observed rate is above the allowed one, every lower rate explains the data even
/// worse, so the answer covers "at most `allowed`" as a whole. Exact at any size.
#[must_use]
pub fn exceeds(events: u64, trials: u64, allowed: f64, alpha: f64) -> bool {
    let (events, trials) = (events.min(trials) as f64, trials as f64);
    if trials <= 0.0 || events / trials <= allowed {
        return false;
    }
    if allowed <= 0.0 {
        // A single event is proof.
        return true;
    }
    let others = trials - events;
    let mixed = ln_beta(events + 0.5, others + 0.5) - ln_beta(0.5, 0.5);
    // No rate above one can be allowed here: the observed one is higher and at most one.
    let plain =
        events * allowed.ln() + if others > 0.0 { others * (-allowed).ln_1p() } else { 0.0 };
    mixed - plain >= -alpha.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_certainty() {
        for (events, trials, allowed, sure) in [
            (0, 0, 0.01, false),
            (1, 1, 0.5, false),
            (5, 5, 0.25, true),
            (2, 100, 0.01, false),
            (8, 100, 0.01, true),
            (10, 1000, 0.01, false),
            (40, 1000, 0.01, true),
            (1, 1_000_000, 0.0, true),
            (50, 100, 0.9, false),
            (100, 100, 1.0, false),
        ] {
            let found = exceeds(events, trials, allowed, 0.05);
            assert_eq!(found, sure, "{events} of {trials} against {allowed}");
        }
    }

    #[test]
    fn looking_after_every_trial_errs_no_more_than_promised() {
        for (rate, allowed) in [(0.01, 0.01), (0.05, 0.05), (0.3, 0.3), (0.02, 0.05)] {
            let mut random = falaj_testkit::Random::new(5);
            let mut wrong = 0;
            for _ in 0..2_000 {
                let mut events = 0;
                for trials in 1..=500 {
                    let happened = (random.number() >> 11) as f64 / (1_u64 << 53) as f64 <= rate;
                    events += u64::from(happened);
                    // Only an event can make it sure.
                    if happened && exceeds(events, trials, allowed, 0.05) {
                        wrong += 1;
                        break;
                    }
                }
            }
            assert!(wrong <= 100, "{wrong} of 2,000 at {rate} against {allowed}");
        }
    }

    #[test]
    fn a_rate_twice_as_high_is_found() {
        let mut random = falaj_testkit::Random::new(6);
        let mut events = 0;
        let found = (1..=5_000).find(|&trials| {
            events += u64::from(random.below(100) < 10);
            exceeds(events, trials, 0.05, 0.01)
        });
        assert!(found.is_some_and(|trials| trials > 20), "{found:?}");
    }
}
