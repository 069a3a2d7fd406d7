//! A picture of several outcomes: which part of the jobs was done after how long.

use std::fmt::Write as _;

use super::measure::Outcome;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 44.0;
const COLOURS: [&str; 8] =
    ["#8c8c8c", "#b07aa1", "#59a14f", "#f28e2b", "#edc948", "#76b7b2", "#9c755f", "#1f5fbf"];
/// Points of a curve.
const STEPS: usize = 200;

/// Completion times as curves, as an SVG document.
#[must_use]
pub fn svg(outcomes: &[Outcome]) -> String {
    let longest = outcomes.iter().filter_map(|o| o.jct_hours.last()).fold(1.0, |a, b| b.max(a));
    let (low, high) = (0.01_f64.log10(), longest.log10().max(1.0));
    let x =
        |hours: f64| LEFT + (hours.max(0.01).log10() - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let y = |part: f64| TOP + (1.0 - part) * (HEIGHT - TOP - BOTTOM);
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Jobs completed within a time</text>"
    );
    for tenth in (0..=10).step_by(2) {
        let (part, at) = (f64::from(tenth) / 10.0, y(f64::from(tenth) / 10.0));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0} %</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            part * 100.0
        );
    }
    let mut hours = 0.01;
    while hours <= longest * 1.01 {
        let at = x(hours);
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\" stroke=\"#eee\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{hours} h</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0
        );
        hours *= 10.0;
    }
    for (index, outcome) in outcomes.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let count = outcome.jct_hours.len();
        let mut points = String::new();
        for step in 0..=STEPS {
            let rank = (step * count / STEPS).min(count.saturating_sub(1));
            if let Some(hours) = outcome.jct_hours.get(rank) {
                let part = step as f64 / STEPS as f64;
                let _ = write!(points, "{:.1},{:.1} ", x(*hours), y(part));
            }
        }
        let at = TOP + 20.0 * index as f64 + 10.0;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{colour}\">{}</text>",
            points.trim_end(),
            WIDTH - RIGHT + 10.0,
            outcome.policy
        );
    }
    out.push_str("</svg>\n");
    out
}
