//! How often two things about traces go together: normalised pointwise mutual information.

use falaj_base::Result;
use falaj_mlflow::Call;
use falaj_mlflow::filter::{self, TRACES};
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::Budget;
use super::scan::{Scan, Wanted};
use crate::{TRACE_READ, Traces};

/// Added to every cell so that small counts say little: Jeffreys' prior.
const PRIOR: f64 = 0.5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Correlation {
    #[serde(skip_serializing_if = "Option::is_none")]
    npmi: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    npmi_smoothed: Option<f64>,
    filter1_count: u32,
    filter2_count: u32,
    joint_count: u32,
    total_count: u32,
}

impl Traces {
    pub(crate) async fn correlate(
        &self,
        call: &Call,
        experiments: &[String],
        filters: [String; 2],
        base: Option<String>,
    ) -> Result<Correlation> {
        let read = |text: &str| filter::parse(text, &TRACES).map(Wanted::new);
        let base = read(base.as_deref().unwrap_or(""))?;
        let (one, two) = (read(&filters[0])?, read(&filters[1])?);
        let experiments = self.experiments(call, experiments, &TRACE_READ).await?;
        let spans = [&base, &one, &two].iter().any(|filter| filter.looks.spans);
        let mut budget = Budget::new(self.config(), spans);
        self.db()
            .read(move |tx| {
                let mut scan = Scan::new(&experiments, base.times(), None);
                let mut counts = Correlation::default();
                while let Some((trace, weight)) = scan.next(tx)? {
                    budget.whole(weight)?;
                    if !base.matches(tx, &trace, &mut budget)? {
                        continue;
                    }
                    let first = one.matches(tx, &trace, &mut budget)?;
                    let second = two.matches(tx, &trace, &mut budget)?;
                    counts.total_count += 1;
                    counts.filter1_count += u32::from(first);
                    counts.filter2_count += u32::from(second);
                    counts.joint_count += u32::from(first && second);
                }
                Ok(counts.judged())
            })
            .await
    }
}

impl Correlation {
    fn judged(self) -> Self {
        let [total, one, two, both] =
            [self.total_count, self.filter1_count, self.filter2_count, self.joint_count]
                .map(f64::from);
        if self.filter1_count == 0 || self.filter2_count == 0 {
            return self;
        }
        let cells = [both, one - both, two - both, total - one - two + both];
        let plain = if self.joint_count == 0 { Some(-1.0) } else { npmi(cells, 0.0) };
        Self { npmi: plain, npmi_smoothed: npmi(cells, PRIOR), ..self }
    }
}

/// From the four cells: both, only the first, only the second, neither.
fn npmi(cells: [f64; 4], prior: f64) -> Option<f64> {
    if cells[1..].iter().all(|cell| *cell == 0.0) {
        return Some(1.0);
    }
    let [both, first, second, neither] = cells.map(|cell| cell + prior);
    let all = both + first + second + neither;
    let (one, two) = (both + first, both + second);
    if both <= 0.0 || one <= 0.0 || two <= 0.0 {
        return None;
    }
    let pmi = both.ln() + all.ln() - one.ln() - two.ln();
    Some((pmi / (all.ln() - both.ln())).clamp(-1.0, 1.0)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(total: u32, one: u32, two: u32, both: u32) -> Correlation {
        Correlation {
            filter1_count: one,
            filter2_count: two,
            joint_count: both,
            total_count: total,
            ..Correlation::default()
        }
        .judged()
    }

    #[test]
    fn always_together_never_together_and_by_chance() {
        assert_eq!(judged(10, 10, 10, 10).npmi, Some(1.0));
        assert_eq!(judged(10, 4, 4, 0).npmi, Some(-1.0));
        assert!((judged(10, 5, 5, 5).npmi.unwrap() - 1.0).abs() < 1e-9);
        assert!(judged(100, 50, 50, 25).npmi.unwrap().abs() < 1e-9);
        assert!(judged(10, 5, 5, 5).npmi_smoothed.unwrap() < 1.0);
        assert_eq!(judged(10, 0, 4, 0).npmi, None);
        assert_eq!(judged(0, 0, 0, 0).npmi, None);
    }
}
