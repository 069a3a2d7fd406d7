//! What a job should ask for, by what its last starts used. Pure.
//!
//! Must hold: nothing is said by fewer starts than the settings ask for, and nothing of what was not
//! measured. A hint never goes below what any of those starts used.

use falaj_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::Serialize;

use super::config::HintsConfig;
use crate::job::Definition;

/// Less than this part of what is asked for is worth a word.
const WORTH: f64 = 0.75;
/// A GPU that is less busy than this, in percent, could be shared.
const SHAREABLE: f64 = 40.0;
/// How busy GPUs may become when there are fewer of them, in percent.
const BUSY_ENOUGH: f64 = 80.0;
/// Less than this is no use of a GPU at all, in percent.
const UNUSED: f64 = 1.0;
/// Who uses this part of its cores all the time may want more.
const ALL_OF_IT: f64 = 0.95;
const MIB: f64 = 1_048_576.0;

/// What is asked for on each node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub cores: f64,
    pub memory_bytes: u64,
    /// Whole GPUs.
    pub gpus: u8,
    pub gpu_fraction: Option<f64>,
    pub time_limit_seconds: Option<f64>,
}

impl Asked {
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let resources = &definition.resources;
        Self {
            cores: resources.cpu,
            memory_bytes: resources.memory.bytes(),
            gpus: resources.gpus,
            gpu_fraction: resources.gpu_fraction,
            time_limit_seconds: definition.time_limit.map(|limit| limit.get().as_secs_f64()),
        }
    }
}

/// What one start used of each node, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    pub seconds: f64,
    pub succeeded: bool,
    pub out_of_memory: bool,
    /// What all its nodes cost by the hour.
    pub price: f64,
    pub mean_cores: Option<f64>,
    /// What 95 of 100 readings did not exceed.
    pub high_cores: Option<f64>,
    pub peak_memory_bytes: Option<u64>,
    /// How many of its GPUs were ever busy.
    pub gpus_busy: Option<usize>,
    /// Percent.
    pub gpu_mean: Option<f64>,
    pub gpu_high: Option<f64>,
    /// The part of a GPU's memory.
    pub gpu_memory_part: Option<f64>,
}

/// Something that a job could ask for instead.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Hint {
    /// The field of the definition: `resources.memory`, `resources.cpu`, `resources.gpus`,
    /// `resources.gpu_fraction` or `time_limit`.
    pub field: &'static str,
    pub asked: String,
    pub used: String,
    /// What would do; empty where the field is better left out.
    pub suggested: String,
    /// How many starts say so.
    pub starts: usize,
    /// What it would save in each hour by the price book, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_per_hour: Option<f64>,
    /// All of it, as a sentence.
    pub text: String,
}

/// What jobs like this one should ask for.
#[must_use]
pub fn hints(asked: &Asked, used: &[Used], config: &HintsConfig) -> Vec<Hint> {
    let used = &used[..used.len().min(config.starts)];
    let all = [memory, cpu, gpus, time];
    all.iter().filter_map(|hint| hint(asked, used, config)).collect()
}

/// What is put on top of what was used.
fn with_headroom(value: f64, config: &HintsConfig) -> f64 {
    value * (1.0 + config.headroom / 100.0)
}

/// The largest of what is known, and by how many starts; nothing if they are too few.
fn most(
    used: &[Used],
    config: &HintsConfig,
    read: impl Fn(&Used) -> Option<f64>,
) -> Option<(f64, usize)> {
    let known: Vec<f64> = used.iter().filter_map(read).collect();
    let most = known.iter().copied().reduce(f64::max)?;
    (known.len() >= config.least).then_some((most, known.len()))
}

/// The mean price by the hour.
#[allow(clippy::cast_precision_loss, reason = "at most a thousand starts")]
fn price(used: &[Used]) -> f64 {
    used.iter().map(|it| it.price).sum::<f64>() / used.len().max(1) as f64
}

fn saving(used: &[Used], part: f64) -> Option<f64> {
    let saved = price(used) * (1.0 - part);
    (saved > 0.0).then(|| (saved * 1e4).round() / 1e4)
}

/// With the saving at the end of the sentence.
fn sentence(text: String, saves: Option<f64>) -> String {
    saves.map_or_else(|| text.clone(), |saves| format!("{text}, and save {saves} an hour"))
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of memory are far below 2^52"
)]
fn memory(asked: &Asked, used: &[Used], config: &HintsConfig) -> Option<Hint> {
    let has = asked.memory_bytes as f64;
    let killed = used.iter().filter(|it| it.out_of_memory).count();
    let shown = ByteSize::from_bytes(asked.memory_bytes).to_string();
    if killed > 0 {
        let suggested = nice_size(has * 1.5);
        return Some(Hint {
            field: "resources.memory",
            used: "all of it".to_owned(),
            suggested: suggested.to_string(),
            starts: killed,
            saves_per_hour: None,
            text: format!(
                "asked {shown}, and {killed} of {} starts ended for want of it: try {suggested}",
                used.len()
            ),
            asked: shown,
        });
    }
    let (peak, starts) = most(used, config, |it| it.peak_memory_bytes.map(|bytes| bytes as f64))?;
    let suggested = nice_size(with_headroom(peak, config));
    if peak <= 0.0 || suggested.bytes() as f64 > has * WORTH {
        return None;
    }
    let peak = in_words(peak);
    let text = format!("asked {shown}, peak {peak} over {starts} starts: {suggested} would do");
    Some(Hint {
        field: "resources.memory",
        asked: shown,
        used: peak,
        suggested: suggested.to_string(),
        starts,
        // Memory has no price of its own.
        saves_per_hour: None,
        text,
    })
}

/// Rounded up to what people write: quarters of a GiB below four, whole ones above.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of memory are far below 2^52"
)]
fn nice_size(bytes: f64) -> ByteSize {
    let mib = bytes / MIB;
    let step = match mib {
        ..256.0 => 64.0,
        ..4096.0 => 256.0,
        _ => 1024.0,
    };
    ByteSize::mib(((mib / step).ceil() * step).max(step) as u64)
}

fn in_words(bytes: f64) -> String {
    let mib = bytes / MIB;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

fn cpu(asked: &Asked, used: &[Used], config: &HintsConfig) -> Option<Hint> {
    let (high, starts) = most(used, config, |it| it.high_cores.or(it.mean_cores))?;
    let shown = number(asked.cores);
    let what = if shown == "1" { "core" } else { "cores" };
    let busy = |it: &Used| it.mean_cores.is_some_and(|mean| mean >= asked.cores * ALL_OF_IT);
    if used.iter().filter(|it| it.mean_cores.is_some()).all(busy) {
        let text = format!("asked {shown} {what} and used all of it over {starts} starts");
        return Some(Hint {
            field: "resources.cpu",
            asked: shown.clone(),
            used: shown,
            suggested: number(asked.cores * 2.0),
            starts,
            saves_per_hour: None,
            text: format!("{text}: more may let it end sooner"),
        });
    }
    let step = if high < 4.0 { 0.5 } else { 1.0 };
    let suggested = ((with_headroom(high, config) / step).ceil() * step).max(0.5);
    if suggested > asked.cores * WORTH {
        return None;
    }
    // Whoever has GPUs pays for those.
    let pays = asked.gpus == 0 && asked.gpu_fraction.is_none();
    let saves = if pays { saving(used, suggested / asked.cores) } else { None };
    let suggested = number(suggested);
    let text =
        format!("asked {shown} {what}, used {high:.1} over {starts} starts: {suggested} would do");
    Some(Hint {
        field: "resources.cpu",
        asked: shown,
        used: format!("{high:.1}"),
        suggested,
        starts,
        saves_per_hour: saves,
        text: sentence(text, saves),
    })
}

fn number(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded}") }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "at most 16 GPUs"
)]
fn gpus(asked: &Asked, used: &[Used], config: &HintsConfig) -> Option<Hint> {
    let has = if asked.gpus > 0 { f64::from(asked.gpus) } else { asked.gpu_fraction? };
    let (mean, starts) = most(used, config, |it| it.gpu_mean)?;
    let (high, _) = most(used, config, |it| it.gpu_high.or(it.gpu_mean))?;
    let (memory, _) = most(used, config, |it| it.gpu_memory_part)?;
    let busy = used.iter().filter_map(|it| it.gpus_busy).max().unwrap_or(usize::from(asked.gpus));
    let shown = number(has);
    let make = |field, suggested: f64, text: String| {
        let saves = saving(used, suggested / has);
        Some(Hint {
            field,
            asked: shown.clone(),
            used: format!("{mean:.0} % of their time, {:.0} % of their memory", memory * 100.0),
            suggested: if suggested > 0.0 { number(suggested) } else { String::new() },
            starts,
            saves_per_hour: saves,
            text: sentence(text, saves),
        })
    };
    let what = if asked.gpus == 1 { "GPU" } else { "GPUs" };
    let seen = format!("asked {shown} {what}, busy {mean:.0} % of the time over {starts} starts");
    if high < UNUSED && busy == 0 {
        return make("resources.gpus", 0.0, format!("{seen}: none would do"));
    }
    if asked.gpus > 1 {
        let by_time = (has * high / BUSY_ENOUGH).ceil();
        // What lies in the memory of all of them lies in fewer only if it fits there.
        let by_memory = (has * with_headroom(memory, config)).ceil();
        let enough = by_time.max(by_memory).max(1.0).min((busy as f64).max(1.0));
        if enough <= has * WORTH {
            let idle = usize::from(asked.gpus) - busy.min(usize::from(asked.gpus));
            let more = if idle > 0 { format!(", {idle} of them never") } else { String::new() };
            return make("resources.gpus", enough, format!("{seen}{more}: {enough} would do"));
        }
        return None;
    }
    if asked.gpus == 1 && high < SHAREABLE {
        let part = with_headroom(high / 100.0, config).max(with_headroom(memory, config));
        let part = (part * 10.0).ceil().max(1.0) / 10.0;
        if part <= 0.5 {
            let text = format!(
                "{seen} with {:.0} % of its memory: gpu_fraction = {part}, shared with others, or a \
                 smaller type would do",
                memory * 100.0
            );
            return make("resources.gpu_fraction", part, text);
        }
    }
    None
}

fn time(asked: &Asked, used: &[Used], config: &HintsConfig) -> Option<Hint> {
    let ended = |it: &Used| it.succeeded.then_some(it.seconds);
    let (longest, starts) = most(used, config, ended)?;
    let suggested = nice_time(longest * 1.5 + 60.0);
    let shown = asked.time_limit_seconds.map(seconds);
    let text = match asked.time_limit_seconds {
        Some(limit) if suggested.get().as_secs_f64() > limit * WORTH => return None,
        Some(limit) => {
            let limit = seconds(limit);
            format!(
                "limited to {limit}, and ended within {} over {starts} starts",
                seconds(longest)
            )
        }
        None => {
            format!("has no time limit, and ended within {} over {starts} starts", seconds(longest))
        }
    };
    Some(Hint {
        field: "time_limit",
        asked: shown.map_or_else(String::new, |shown| shown.to_string()),
        used: seconds(longest).to_string(),
        suggested: suggested.to_string(),
        starts,
        saves_per_hour: None,
        text: format!("{text}: with {suggested} it may start earlier, in gaps before others"),
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of jobs are far below 2^52 seconds"
)]
fn seconds(value: f64) -> HumanDuration {
    HumanDuration::from_secs(value.ceil().max(0.0) as u64)
}

/// Rounded up: minutes below an hour, quarters of an hour above.
fn nice_time(value: f64) -> HumanDuration {
    let step = if value < 3600.0 { 60.0 } else { 900.0 };
    seconds((value / step).ceil() * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn asked() -> Asked {
        Asked {
            cores: 8.0,
            memory_bytes: 16 * GIB,
            time_limit_seconds: Some(600.0),
            ..Asked::default()
        }
    }

    fn used() -> Used {
        Used {
            seconds: 500.0,
            succeeded: true,
            price: 8.0,
            mean_cores: Some(6.0),
            high_cores: Some(7.0),
            peak_memory_bytes: Some(14 * GIB),
            ..Used::default()
        }
    }

    fn on_gpu(mean: f64, memory: f64, busy: usize) -> Used {
        Used {
            gpu_mean: Some(mean),
            gpu_high: Some(mean),
            gpu_memory_part: Some(memory),
            gpus_busy: Some(busy),
            ..used()
        }
    }

    #[test]
    fn what_would_do() {
        let few = |it: Used| vec![it; 3];
        let gpus = |count| Asked { gpus: count, ..asked() };
        for (asked, used, expected) in [
            (asked(), few(used()), vec![]),
            (
                asked(),
                vec![Used { peak_memory_bytes: Some(3_328_599_654), ..used() }; 12],
                vec![("resources.memory", "3840MiB", None)],
            ),
            // Two say nothing.
            (asked(), vec![Used { peak_memory_bytes: Some(GIB), ..used() }; 2], vec![]),
            // The largest counts, not the usual.
            (
                asked(),
                [few(Used { peak_memory_bytes: Some(GIB), ..used() }), few(used())].concat(),
                vec![],
            ),
            (
                asked(),
                [few(used()), vec![Used { out_of_memory: true, ..used() }]].concat(),
                vec![("resources.memory", "24GiB", None)],
            ),
            (
                asked(),
                few(Used { high_cores: Some(1.2), mean_cores: Some(0.9), ..used() }),
                vec![("resources.cpu", "1.5", Some(6.5))],
            ),
            (
                asked(),
                few(Used { high_cores: Some(8.0), mean_cores: Some(7.9), ..used() }),
                vec![("resources.cpu", "16", None)],
            ),
            (gpus(1), few(on_gpu(90.0, 0.2, 1)), vec![]),
            (
                gpus(1),
                few(on_gpu(20.0, 0.15, 1)),
                vec![("resources.gpu_fraction", "0.3", Some(5.6))],
            ),
            // Its memory would not fit a part.
            (gpus(1), few(on_gpu(20.0, 0.7, 1)), vec![]),
            (gpus(1), few(on_gpu(0.0, 0.0, 0)), vec![("resources.gpus", "", Some(8.0))]),
            (gpus(8), few(on_gpu(12.0, 0.1, 1)), vec![("resources.gpus", "1", Some(7.0))]),
            (gpus(8), few(on_gpu(35.0, 0.3, 8)), vec![("resources.gpus", "4", Some(4.0))]),
            (gpus(8), few(on_gpu(35.0, 0.9, 8)), vec![]),
            (asked(), few(Used { seconds: 100.0, ..used() }), vec![("time_limit", "4m", None)]),
            (
                Asked { time_limit_seconds: None, ..asked() },
                few(used()),
                vec![("time_limit", "14m", None)],
            ),
            (
                Asked { time_limit_seconds: None, ..asked() },
                few(Used { succeeded: false, ..used() }),
                vec![],
            ),
        ] {
            let found = hints(&asked, &used, &HintsConfig::default());
            let found: Vec<_> = found
                .iter()
                .map(|hint| (hint.field, hint.suggested.as_str(), hint.saves_per_hour))
                .collect();
            assert_eq!(found, expected, "{asked:?} {:?}", used.first());
        }
    }

    #[test]
    fn a_hint_is_a_sentence() {
        let used = vec![Used { peak_memory_bytes: Some(3_328_599_654), ..used() }; 12];
        let found = hints(&asked(), &used, &HintsConfig::default());
        let text = "asked 16GiB, peak 3.1 GiB over 12 starts: 3840MiB would do";
        assert_eq!(found[0].text, text);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let nothing = Used { seconds: 1.0, ..Used::default() };
        let asked = Asked { gpus: 2, ..asked() };
        assert_eq!(hints(&asked, &vec![nothing; 20], &HintsConfig::default()), []);
        assert_eq!(hints(&asked, &[], &HintsConfig::default()), []);
    }
}
