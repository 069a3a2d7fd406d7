//! Learning which variant earns most while earning: Thompson sampling.
//!
//! Each variant's reward has a posterior; a variant gets the traffic that equals the probability
//! of its being the best. Rewards are yes or no (Beta posterior) or numbers (normal with unknown
//! mean and variance: Normal-inverse-gamma).
//!
//! Must hold:
//! - Each variant keeps [`Config::floor`] of the traffic, so that one that was unlucky at first is
//!   found out.
//! - With a half-life, what is old counts less, and a variant that became better is noticed.
//! - What a bandit measures is not a fair test: which variant a request met depends on earlier
//!   rewards. Use [`super::sequential`] with a fixed split to prove a difference.

use falaj_base::{Error, Name, Result, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moments::Moments;
use super::random::{Source, beta_odds, ln_gamma_draw, normal};
use super::sequential::Goal;
use super::split::{MAX_VARIANTS, Weight};
use super::version::Version;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub reward: Reward,
    #[serde(default)]
    pub goal: Goal,
    /// The part of the traffic that every variant keeps.
    #[serde(default = "default_floor")]
    pub floor: f64,
    /// After so many seconds a reward counts half; none: rewards count for ever.
    #[serde(default)]
    pub half_life_seconds: Option<f64>,
}

fn default_floor() -> f64 {
    0.01
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reward {
    /// 0 to 1; mostly the one or the other.
    Binary,
    /// Any number. What one expects beforehand counts as one observation.
    Real { mean: f64, spread: f64 },
}

/// Variants and what they earned, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandit {
    version: Version<1>,
    config: Config,
    arms: Vec<Arm>,
    /// The moment that the weights of all rewards are reckoned at.
    at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arm {
    variant: Name,
    earned: Moments,
}

impl Config {
    fn check(&self, variants: usize) -> Result<()> {
        if variants == 0 || variants > MAX_VARIANTS {
            return Err(Error::invalid("variants", variants, "1 to 16 variants"));
        }
        let most = 1.0 / variants as f64;
        if !(0.0..=most).contains(&self.floor) {
            return Err(Error::invalid("floor", self.floor, format!("0 to {most:.4}")));
        }
        if let Some(seconds) = self.half_life_seconds
            && !(1.0..=1e9).contains(&seconds)
        {
            return Err(Error::invalid("half_life_seconds", seconds, "1 to 1000000000"));
        }
        if let Reward::Real { mean, spread } = self.reward {
            if mean.is_nan() || mean.abs() > 1e12 {
                return Err(Error::invalid("reward.mean", mean, "-1e12 to 1e12"));
            }
            if !(1e-12..=1e12).contains(&spread) {
                return Err(Error::invalid("reward.spread", spread, "1e-12 to 1e12"));
            }
        }
        Ok(())
    }
}

impl Bandit {
    pub fn new(config: Config, variants: Vec<Name>, now: Timestamp) -> Result<Self> {
        config.check(variants.len())?;
        let arms = variants.into_iter().map(|variant| Arm { variant, earned: Moments::default() });
        let bandit = Self { version: Version, config, arms: arms.collect(), at: now };
        for (place, arm) in bandit.arms.iter().enumerate() {
            if bandit.arms[..place].iter().any(|other| other.variant == arm.variant) {
                return Err(Error::invalid("variants", &arm.variant, "each variant once"));
            }
        }
        Ok(bandit)
    }

    /// The same bandit over other variants: those it knows keep what they earned.
    pub fn over(&self, variants: Vec<Name>) -> Result<Self> {
        let mut next = Self::new(self.config, variants, self.at)?;
        for arm in &mut next.arms {
            if let Some(known) = self.arms.iter().find(|known| known.variant == arm.variant) {
                arm.earned = known.earned;
            }
        }
        Ok(next)
    }

    /// A reward that a variant earned, counted from `now` on.
    pub fn record(&mut self, variant: &Name, reward: f64, now: Timestamp) -> Result<()> {
        if self.config.reward == Reward::Binary && !(0.0..=1.0).contains(&reward) {
            return Err(Error::invalid("reward", reward, "0 to 1"));
        }
        let place = self.arms.iter().position(|arm| &arm.variant == variant);
        let place = place.ok_or_else(|| Error::not_found("variant", variant))?;
        let share = self.left(now);
        for arm in &mut self.arms {
            arm.earned.fade(share);
        }
        self.at = self.at.max(now);
        self.arms[place].earned.record(reward)
    }

    /// A variant for one request.
    pub fn draw(&self, now: Timestamp, source: &mut impl Source) -> &Name {
        let explored = self.config.floor * self.arms.len() as f64;
        let chance = source.unit();
        if chance < explored {
            // The same number, stretched over the variants, is as evenly distributed as a new one.
            let step = explored / self.arms.len() as f64;
            let place = (0..self.arms.len()).find(|&place| chance < step * (place + 1) as f64);
            return &self.arms[place.unwrap_or(0)].variant;
        }
        &self.arms[self.best(self.left(now), source)].variant
    }

    /// Shares of the traffic for the time being, from so many draws.
    pub fn weights(&self, now: Timestamp, draws: u32, source: &mut impl Source) -> Vec<Weight> {
        let draws = draws.clamp(1, 100_000);
        let left = self.left(now);
        let mut wins = vec![0_u32; self.arms.len()];
        for _ in 0..draws {
            wins[self.best(left, source)] += 1;
        }
        let floor = self.config.floor;
        let rest = (1.0 - floor * self.arms.len() as f64).max(0.0);
        let weight = |(arm, wins): (&Arm, u32)| Weight {
            variant: arm.variant.clone(),
            weight: floor + rest * f64::from(wins) / f64::from(draws),
        };
        self.arms.iter().zip(wins).map(weight).collect()
    }

    /// The mean reward of each variant and how many rewards that rests on, as they fade.
    pub fn earned(&self) -> impl Iterator<Item = (&Name, f64, f64)> {
        self.arms.iter().map(|arm| (&arm.variant, arm.earned.mean(), arm.earned.weight()))
    }

    /// What a reward of the moment `at` still counts now.
    fn left(&self, now: Timestamp) -> f64 {
        let Some(half_life) = self.config.half_life_seconds else { return 1.0 };
        0.5_f64.powf(now.since(self.at).as_secs_f64() / half_life)
    }

    fn best(&self, left: f64, source: &mut impl Source) -> usize {
        let mut best = (f64::NEG_INFINITY, 0);
        for (place, arm) in self.arms.iter().enumerate() {
            let mut earned = arm.earned;
            earned.fade(left);
            let drawn = match self.config.reward {
                Reward::Binary => {
                    let wins = earned.weight() * earned.mean().clamp(0.0, 1.0);
                    beta_odds(1.0 + wins, 1.0 + earned.weight() - wins, source)
                }
                Reward::Real { mean, spread } => drawn_mean(&earned, mean, spread, source),
            };
            let drawn = if self.config.goal == Goal::Higher { drawn } else { -drawn };
            if drawn > best.0 {
                best = (drawn, place);
            }
        }
        best.1
    }
}

/// A mean drawn from the posterior: Normal-inverse-gamma, with a prior worth one observation.
fn drawn_mean(earned: &Moments, expected: f64, spread: f64, source: &mut impl Source) -> f64 {
    let weight = earned.weight();
    let certainty = 1.0 + weight;
    let mean = (expected + weight * earned.mean()) / certainty;
    let apart = earned.mean() - expected;
    let shape = 1.0 + weight / 2.0;
    let scale =
        spread * spread + 0.5 * earned.scatter() + 0.5 * apart * apart * (weight / certainty);
    let ln_variance = scale.ln() - ln_gamma_draw(shape, source);
    mean + normal(source) * (0.5 * (ln_variance - certainty.ln())).exp()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::random::seeded;
    use super::*;

    const START: Timestamp = Timestamp::from_micros(0);

    fn names(count: usize) -> Vec<Name> {
        (0..count).map(|n| Name::new(format!("v{n}")).unwrap()).collect()
    }

    fn config(reward: Reward) -> Config {
        Config { reward, goal: Goal::Higher, floor: 0.02, half_life_seconds: None }
    }

    #[test]
    fn traffic_goes_to_the_variant_that_earns_most() {
        for (reward, goal, best) in [
            (Reward::Binary, Goal::Higher, "v2"),
            (Reward::Binary, Goal::Lower, "v0"),
            (Reward::Real { mean: 0.0, spread: 1.0 }, Goal::Higher, "v2"),
            (Reward::Real { mean: 0.0, spread: 1.0 }, Goal::Lower, "v0"),
        ] {
            let config = Config { goal, ..config(reward) };
            let mut bandit = Bandit::new(config, names(3), START).unwrap();
            let mut source = seeded(51);
            let mut met = [0; 3];
            for _ in 0..4_000 {
                let variant = bandit.draw(START, &mut source).clone();
                let place: usize = variant.as_str()[1..].parse().unwrap();
                met[place] += 1;
                let rate = [0.2, 0.3, 0.45][place];
                let earned = match reward {
                    Reward::Binary => f64::from(u8::from(source.unit() < rate)),
                    Reward::Real { .. } => 10.0 * rate + normal(&mut source),
                };
                bandit.record(&variant, earned, START).unwrap();
            }
            let weights = bandit.weights(START, 2_000, &mut source);
            let heaviest = weights.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).unwrap();
            assert_eq!(heaviest.variant.as_str(), best, "{reward:?} {goal:?}: {weights:?}");
            assert!(heaviest.weight > 0.9, "{weights:?}");
            let place: usize = best[1..].parse().unwrap();
            assert!(met[place] > 2_500, "{met:?}");
            assert!(met.iter().all(|&met| met >= 60), "the floor is kept: {met:?}");
        }
    }

    #[test]
    fn without_rewards_all_are_equal() {
        let bandit = Bandit::new(config(Reward::Binary), names(4), START).unwrap();
        let weights = bandit.weights(START, 20_000, &mut seeded(5));
        assert!(weights.iter().all(|weight| (weight.weight - 0.25).abs() < 0.02), "{weights:?}");
        let total: f64 = weights.iter().map(|weight| weight.weight).sum();
        assert!((total - 1.0).abs() < 1e-9);
    }

    #[test]
    fn with_a_half_life_a_change_is_noticed() {
        let fading = Config { half_life_seconds: Some(100.0), ..config(Reward::Binary) };
        for (config, noticed) in [(fading, true), (config(Reward::Binary), false)] {
            let mut bandit = Bandit::new(config, names(2), START).unwrap();
            let [one, two] = [names(2)[0].clone(), names(2)[1].clone()];
            for second in 0..2_000 {
                let now = START + Duration::from_secs(second);
                // At first the one always earns, at last the other does.
                let early = f64::from(u8::from(second < 1_700));
                bandit.record(&one, early, now).unwrap();
                bandit.record(&two, 1.0 - early, now).unwrap();
            }
            let now = START + Duration::from_secs(2_000);
            let weights = bandit.weights(now, 2_000, &mut seeded(8));
            assert_eq!(weights[1].weight > 0.9, noticed, "{weights:?}");
        }
    }

    #[test]
    fn after_a_long_silence_everything_is_open_again() {
        let config = Config { half_life_seconds: Some(60.0), ..config(Reward::Binary) };
        let mut bandit = Bandit::new(config, names(2), START).unwrap();
        for _ in 0..500 {
            bandit.record(&names(1)[0], 1.0, START).unwrap();
        }
        assert!(bandit.weights(START, 1_000, &mut seeded(2))[0].weight > 0.9);
        let later = START + Duration::from_mins(20);
        let weights = bandit.weights(later, 10_000, &mut seeded(2));
        assert!((weights[0].weight - 0.5).abs() < 0.03, "{weights:?}");
    }

    #[test]
    fn variants_come_and_go_and_the_others_keep_what_they_earned() {
        let mut bandit = Bandit::new(config(Reward::Binary), names(2), START).unwrap();
        bandit.record(&names(2)[1], 1.0, START).unwrap();
        let next = bandit.over(names(3)[1..].to_vec()).unwrap();
        let earned: Vec<_> = next.earned().map(|(name, _, count)| (name.as_str(), count)).collect();
        assert_eq!(earned, [("v1", 1.0), ("v2", 0.0)]);
    }

    #[test]
    fn nonsense_is_refused() {
        let make = |config, variants| Bandit::new(config, variants, START);
        let plain = config(Reward::Binary);
        assert!(make(plain, vec![]).is_err());
        assert!(make(plain, names(17)).is_err());
        assert!(make(plain, [names(1), names(1)].concat()).is_err());
        assert!(make(Config { floor: 0.6, ..plain }, names(2)).is_err());
        assert!(make(Config { floor: f64::NAN, ..plain }, names(2)).is_err());
        assert!(make(Config { half_life_seconds: Some(0.0), ..plain }, names(2)).is_err());
        assert!(make(config(Reward::Real { mean: 0.0, spread: 0.0 }), names(2)).is_err());
        let mut bandit = make(plain, names(2)).unwrap();
        assert!(bandit.record(&names(1)[0], 2.0, START).is_err());
        assert!(bandit.record(&names(3)[2], 1.0, START).is_err());
        let mut bandit = make(config(Reward::Real { mean: 0.0, spread: 1.0 }), names(2)).unwrap();
        assert!(bandit.record(&names(1)[0], f64::NAN, START).is_err());
    }

    proptest! {
        #[test]
        fn shares_add_up_and_keep_the_floor(
            rewards in prop::collection::vec((0..4_usize, 0.0..=1.0_f64, 0..100_u64), 0..60),
            floor in 0.0..0.25_f64,
            half_life in prop::option::of(1.0..1000.0_f64),
            real: bool,
        ) {
            let reward = if real { Reward::Real { mean: 0.5, spread: 1.0 } } else { Reward::Binary };
            let config = Config { reward, goal: Goal::Higher, floor, half_life_seconds: half_life };
            let mut bandit = Bandit::new(config, names(4), START).unwrap();
            for (place, reward, second) in rewards {
                let now = START + Duration::from_secs(second);
                bandit.record(&names(4)[place], reward, now).unwrap();
            }
            let weights = bandit.weights(START, 200, &mut seeded(1));
            let total: f64 = weights.iter().map(|weight| weight.weight).sum();
            prop_assert!((total - 1.0).abs() < 1e-9);
            prop_assert!(weights.iter().all(|weight| weight.weight >= floor));
            let text = serde_json::to_string(&bandit).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bandit>(&text).unwrap(), bandit);
        }
    }
}
