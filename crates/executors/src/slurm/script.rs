//! What is given to Slurm: files for its scripts, and the words of a submission.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::Launch;
use crate::shared::{Even, LONGEST_GANG_GRACE, quoted, variables};

use super::SlurmSettings;

/// Starts the ranks, and writes down their ends.
pub(super) const BATCH: &str = include_str!("batch.sh");
/// Follows one rank.
pub(super) const RANK: &str = include_str!("rank.sh");
/// Becomes that rank.
pub(super) const CHILD: &str = include_str!("child.sh");
/// The secrets, until the job has started.
pub(super) const SECRETS: &str = "secrets";

/// Minutes beyond its own time after which Slurm ends an attempt, should its script not.
const SPARE_SECONDS: u64 = 120;

/// How ranks lie on nodes.
#[derive(Debug, PartialEq)]
pub(super) struct Shape {
    nodes: usize,
    per_node: usize,
    /// Of each rank; 0 if it sees those of its node.
    gpus: usize,
    /// Of each node.
    each: usize,
}

impl Shape {
    /// Slurm is asked for equal nodes, filled one after the other.
    pub(super) fn of(launch: &Launch) -> Result<Self, String> {
        let Even { nodes, per_node, gpus } = Even::of(launch, "Slurm")?;
        if !launch.shares_gpus {
            return Ok(Self { nodes, per_node, gpus, each: gpus * per_node });
        }
        let each = launch.ranks.first().map_or(0, |rank| launch.seen_by(rank).len());
        if launch.ranks.iter().any(|rank| launch.seen_by(rank).len() != each) {
            return Err("ranks: on Slurm, each node has equally many GPUs".to_owned());
        }
        Ok(Self { nodes, per_node, gpus: 0, each })
    }
}

/// The words for `sbatch`, the script last.
pub(super) fn submission(
    launch: &Launch,
    shape: &Shape,
    settings: &SlurmSettings,
    folder: &Path,
) -> Vec<String> {
    let here = folder.display();
    let mut words = vec![
        "--parsable".to_owned(),
        "--no-requeue".to_owned(),
        format!("--job-name={}", launch.attempt),
        format!("--comment={}", launch.name.replace(char::is_control, " ")),
        format!("--nodes={}", shape.nodes),
        format!("--ntasks={}", launch.ranks.len()),
        format!("--ntasks-per-node={}", shape.per_node),
        "--distribution=block".to_owned(),
        format!("--chdir={here}"),
        format!("--output={here}/job.log"),
        "--open-mode=append".to_owned(),
        "--export=PATH,HOME,LANG,SLURM_CONF,FALAJ_FOLDER".to_owned(),
    ];
    let limits = &launch.limits;
    if limits.cpu_millis > 0 {
        words.push(format!("--cpus-per-task={}", limits.cpu_millis.div_ceil(1000)));
    }
    if limits.memory_mib > 0 {
        let node = u64::from(limits.memory_mib) * shape.per_node as u64;
        words.push(format!("--mem={node}M"));
    }
    if shape.each > 0 {
        let kind = settings.gpu_type.as_deref().map(|kind| format!("{kind}:")).unwrap_or_default();
        words.push(format!("--gres=gpu:{kind}{}", shape.each));
    }
    if let Some(time) = limits.time {
        let seconds = time.as_secs() + launch.grace.as_secs() + SPARE_SECONDS;
        words.push(format!("--time={}", seconds.div_ceil(60)));
    }
    let named = [
        ("partition", &settings.partition),
        ("account", &settings.account),
        ("qos", &settings.qos),
    ];
    for (name, value) in named {
        words.extend(value.as_ref().map(|value| format!("--{name}={value}")));
    }
    words.push(format!("{here}/batch.sh"));
    words
}

/// `launch.sh`: what the scripts need to know. All names begin alike, so that none is a user's.
pub(super) fn launch_file(launch: &Launch, shape: &Shape, folder: &Path) -> String {
    let work = folder.join("work");
    let place = launch.folder.as_deref().unwrap_or(&work);
    let command: Vec<String> = launch.command.iter().map(|word| quoted(word)).collect();
    let time = launch.limits.time.map(|time| time.as_secs_f64().to_string()).unwrap_or_default();
    let gang_grace = launch.gang_grace.min(LONGEST_GANG_GRACE);
    let mut text = String::new();
    for (name, value) in [
        ("attempt", launch.attempt.as_str()),
        ("folder", &place.display().to_string()),
        ("ranks", &launch.ranks.len().to_string()),
        ("gpus_per_rank", &shape.gpus.to_string()),
        ("wished_host", &launch.ranks[0].node),
        ("grace_ms", &launch.grace.as_millis().to_string()),
        ("gang_grace_ms", &gang_grace.as_millis().to_string()),
        ("time_limit", &time),
        ("secrets", if launch.secrets.is_empty() { "" } else { SECRETS }),
    ] {
        let _ = writeln!(text, "falaj_{name}={}", quoted(value));
    }
    let _ = writeln!(text, "falaj_command=({})", command.join(" "));
    text
}

/// `env`, and `rank-N.env`: variables of all ranks and of one, for the process that becomes it.
pub(super) fn env_file(env: &BTreeMap<String, String>) -> Vec<u8> {
    variables(env.iter().map(|(name, value)| (name, value.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttemptId, Limits, RankPlace};
    use falaj_base::Secret;
    use std::time::Duration;

    fn launch(nodes: &[(&str, usize)]) -> Launch {
        let rank = |(node, gpus): &(&str, usize)| RankPlace {
            node: (*node).to_owned(),
            gpus: (0..u8::try_from(*gpus).unwrap()).collect(),
            env: BTreeMap::from([("RANK".to_owned(), "it's".to_owned())]),
        };
        Launch {
            attempt: AttemptId::new("job-1").unwrap(),
            name: "a\nname".to_owned(),
            command: vec!["echo".to_owned(), "a b".to_owned()],
            image: None,
            slice: None,
            folder: None,
            env: BTreeMap::from([("RANK".to_owned(), "weaker".to_owned())]),
            secrets: BTreeMap::from([("TOKEN".to_owned(), Secret::new("hidden"))]),
            ranks: nodes.iter().map(rank).collect(),
            shares_gpus: false,
            limits: Limits {
                cpu_millis: 1500,
                memory_mib: 100,
                time: Some(Duration::from_millis(1500)),
            },
            grace: Duration::from_secs(30),
            gang_grace: Duration::from_secs(5),
        }
    }

    #[test]
    fn nodes_must_be_alike() {
        let shape = |nodes: &[(&str, usize)]| Shape::of(&launch(nodes));
        let even = shape(&[("a", 1), ("a", 1), ("b", 1), ("b", 1)]);
        assert_eq!(even, Ok(Shape { nodes: 2, per_node: 2, gpus: 1, each: 2 }));
        assert!(shape(&[("a", 0), ("a", 0), ("b", 0)]).unwrap_err().contains("equally many"));
        assert!(shape(&[("a", 1), ("b", 2)]).unwrap_err().contains("GPUs"));
        // Those of a node see the same ones, which are asked for once.
        let mut shared = launch(&[("a", 2), ("a", 2), ("b", 2), ("b", 2)]);
        shared.shares_gpus = true;
        let shape = Shape::of(&shared).unwrap();
        assert_eq!(shape, Shape { nodes: 2, per_node: 2, gpus: 0, each: 2 });
        let text = launch_file(&shared, &shape, Path::new("/shared/job-1"));
        assert!(text.contains("falaj_gpus_per_rank='0'\n"), "{text}");
    }

    #[test]
    fn a_submission_says_everything_but_secrets() {
        let launch = launch(&[("a", 2), ("a", 2), ("b", 2), ("b", 2)]);
        let settings = SlurmSettings {
            gpu_type: Some("a100".to_owned()),
            partition: Some("low".to_owned()),
            ..SlurmSettings::default()
        };
        let shape = Shape::of(&launch).unwrap();
        let words = submission(&launch, &shape, &settings, Path::new("/shared/job-1"));
        for wanted in [
            "--job-name=job-1",
            "--comment=a name",
            "--nodes=2",
            "--ntasks=4",
            "--cpus-per-task=2",
            "--mem=200M",
            "--gres=gpu:a100:4",
            "--time=3",
            "--partition=low",
            "--export=PATH,HOME,LANG,SLURM_CONF,FALAJ_FOLDER",
        ] {
            assert!(words.iter().any(|word| word == wanted), "{wanted} is not in {words:?}");
        }
        let all = words.join(" ") + &launch_file(&launch, &shape, Path::new("/shared/job-1"));
        assert!(!all.contains("hidden") && !all.contains("TOKEN"));
        assert!(all.contains("falaj_command=('echo' 'a b')"));
        assert_eq!(env_file(&launch.ranks[0].env), b"RANK=it's\0");
    }
}
