//! Predictions gathered until they make a file: of one endpoint, and with the same tensors.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::EndpointId;
use falaj_inference::DataType;
use tokio::time::Instant;

use super::config::PredictionsConfig;
use super::log::{Entry, Held};
use super::prediction::{Home, Prediction};

/// How many files of one endpoint are gathered at a time. Variants with other inputs each make
/// their own; callers that leave inputs out must not make one for each mixture.
const MAX_FILES: usize = 8;

/// The tensors of a prediction, by side, name and type: the columns of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) inputs: Vec<(String, DataType)>,
    pub(super) outputs: Vec<(String, DataType)>,
}

impl Signature {
    fn of(prediction: &Prediction) -> Self {
        let side = |tensors: &[(String, falaj_inference::Tensor)]| {
            tensors.iter().map(|(name, tensor)| (name.clone(), tensor.data_type())).collect()
        };
        Self { inputs: side(&prediction.inputs), outputs: side(&prediction.outputs) }
    }

    fn fits(&self, prediction: &Prediction) -> bool {
        let same = |wanted: &[(String, DataType)], found: &[(String, falaj_inference::Tensor)]| {
            wanted.len() == found.len()
                && wanted.iter().zip(found).all(|((name, kind), (other, tensor))| {
                    name == other && *kind == tensor.data_type()
                })
        };
        same(&self.inputs, &prediction.inputs) && same(&self.outputs, &prediction.outputs)
    }
}

/// What will be one file.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) home: Arc<Home>,
    pub(super) signature: Signature,
    pub(super) predictions: Vec<Prediction>,
    held: Vec<Held>,
    bytes: usize,
    since: Instant,
}

impl Gathering {
    /// Lets go of everything that was counted as held in memory.
    pub(super) fn released(self) -> usize {
        self.held.len()
    }
}

/// All that is being gathered.
#[derive(Debug)]
pub(super) struct Gathered {
    files: Vec<Gathering>,
    rows: usize,
    bytes: usize,
    age: Duration,
    /// When more than this is gathered the largest is written early.
    pressure: usize,
}

impl Gathered {
    pub(super) fn new(config: &PredictionsConfig) -> Self {
        Self {
            files: Vec::new(),
            rows: config.file_rows.max(1),
            bytes: config.file_bytes.as_usize(),
            age: config.file_age.into(),
            pressure: config.max_memory.as_usize() / 2,
        }
    }

    /// Adds a prediction; what is ready to be written because of it.
    pub(super) fn add(&mut self, entry: Entry, now: Instant) -> Vec<Gathering> {
        let Entry { home, prediction, held } = entry;
        let endpoint = home.endpoint;
        let mut ready = Vec::new();
        let place = self
            .files
            .iter()
            .position(|file| file.home.endpoint == endpoint && file.signature.fits(&prediction));
        let place = place.unwrap_or_else(|| {
            ready.extend(self.make_room(endpoint));
            let signature = Signature::of(&prediction);
            let (predictions, held) = (Vec::new(), Vec::new());
            self.files.push(Gathering { home, signature, predictions, held, bytes: 0, since: now });
            self.files.len() - 1
        });
        let file = &mut self.files[place];
        file.bytes += held.bytes;
        file.predictions.push(prediction);
        file.held.push(held);
        if file.predictions.len() >= self.rows || file.bytes >= self.bytes {
            ready.push(self.files.swap_remove(place));
        } else if self.files.iter().map(|file| file.bytes).sum::<usize>() > self.pressure {
            ready.extend(self.take(|file, other| file.bytes > other.bytes, |_| true));
        }
        ready
    }

    /// When the next file is due by its age.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.files.iter().map(|file| file.since + self.age).min()
    }

    /// Files whose first prediction waited long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Gathering> {
        self.files.extract_if(.., |file| file.since + self.age <= now).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Gathering> {
        std::mem::take(&mut self.files)
    }

    fn make_room(&mut self, endpoint: EndpointId) -> Option<Gathering> {
        let ours = |file: &Gathering| file.home.endpoint == endpoint;
        let many = self.files.iter().filter(|file| ours(file)).count() >= MAX_FILES;
        many.then(|| self.take(|file, other| file.since < other.since, ours)).flatten()
    }

    /// Takes the one of those that count which comes before all others.
    fn take(
        &mut self,
        before: impl Fn(&Gathering, &Gathering) -> bool,
        counts: impl Fn(&Gathering) -> bool,
    ) -> Option<Gathering> {
        let mut best: Option<usize> = None;
        for place in (0..self.files.len()).filter(|place| counts(&self.files[*place])) {
            if best.is_none_or(|best| before(&self.files[place], &self.files[best])) {
                best = Some(place);
            }
        }
        best.map(|place| self.files.swap_remove(place))
    }
}

#[cfg(test)]
mod tests {
    use falaj_base::{
        ByteSize, HumanDuration, Name, ProjectId, Resource, Scope, TenantId, Timestamp,
    };
    use falaj_inference::Tensor;
    use uuid::Uuid;

    use super::super::log::Log;
    use super::*;

    fn home() -> Arc<Home> {
        let (tenant, project) = (TenantId::new(), ProjectId::new());
        Arc::new(Home {
            tenant,
            project,
            zone: Name::new("local").unwrap(),
            endpoint: EndpointId::new(),
            resource: Resource::new("endpoint", "x", Scope::Project(tenant, project)),
        })
    }

    fn prediction(input: &str, elements: usize) -> Prediction {
        let tensor = Tensor::of([elements], vec![0.5_f32; elements]).unwrap();
        Prediction {
            id: Uuid::now_v7(),
            at: Timestamp::from_micros(1),
            model: "m".into(),
            version: "1".into(),
            variant: "a".into(),
            key: None,
            inputs: Arc::new(vec![(input.to_owned(), tensor)]),
            outputs: Arc::default(),
            latency: Duration::from_millis(1),
        }
    }

    fn config() -> PredictionsConfig {
        PredictionsConfig {
            file_rows: 3,
            file_bytes: ByteSize::from_bytes(100_000),
            file_age: HumanDuration::from_secs(10),
            max_memory: ByteSize::from_bytes(400_000),
            ..PredictionsConfig::default()
        }
    }

    /// What `add` gives for each of these, as numbers of predictions.
    fn sizes(config: &PredictionsConfig, all: &[(&Arc<Home>, Prediction)]) -> Vec<Vec<usize>> {
        let (log, mut taken) = Log::apart(config);
        let mut gathered = Gathered::new(config);
        let mut found = Vec::new();
        for (home, prediction) in all {
            assert!(log.offer(home, prediction.clone()));
            let ready = gathered.add(taken.entries.try_recv().unwrap(), Instant::now());
            found.push(ready.iter().map(|file| file.predictions.len()).collect());
        }
        found
    }

    #[test]
    fn a_file_is_ready_when_it_has_enough_rows_or_bytes() {
        let home = home();
        let small: Vec<_> = (0..4).map(|_| (&home, prediction("x", 1))).collect();
        assert_eq!(sizes(&config(), &small), [vec![], vec![], vec![3], vec![]]);
        let large: Vec<_> = (0..3).map(|_| (&home, prediction("x", 15_000))).collect();
        assert_eq!(sizes(&config(), &large), [vec![], vec![2], vec![]]);
    }

    #[test]
    fn endpoints_and_other_inputs_do_not_mix() {
        let (one, two) = (home(), home());
        let all = [
            (&one, prediction("x", 1)),
            (&two, prediction("x", 1)),
            (&one, prediction("y", 1)),
            (&one, prediction("x", 1)),
            (&two, prediction("x", 1)),
            (&one, prediction("x", 1)),
        ];
        let found = sizes(&config(), &all);
        assert_eq!(found, [vec![], vec![], vec![], vec![], vec![], vec![3]]);
    }

    #[test]
    fn mixtures_and_memory_are_bounded() {
        let home = home();
        let many: Vec<_> = (0..10).map(|n| (&home, prediction(&format!("x{n}"), 1))).collect();
        let found = sizes(&config(), &many);
        assert_eq!(found.iter().filter(|ready| ready.is_empty()).count(), MAX_FILES);
        // Under pressure the largest goes first.
        let others: Vec<_> = (0..4).map(|_| self::home()).collect();
        let wide: Vec<_> = others.iter().map(|home| (home, prediction("x", 14_000))).collect();
        assert_eq!(sizes(&config(), &wide), [vec![], vec![], vec![], vec![1]]);
    }

    #[test]
    fn age_makes_a_file_due() {
        let config = config();
        let (log, mut taken) = Log::apart(&config);
        let mut gathered = Gathered::new(&config);
        let now = Instant::now();
        assert_eq!(gathered.next_due(), None);
        assert!(log.offer(&home(), prediction("x", 1)));
        gathered.add(taken.entries.try_recv().unwrap(), now);
        let due = now + Duration::from_secs(10);
        assert_eq!(gathered.next_due(), Some(due));
        assert!(gathered.take_due(now + Duration::from_secs(9)).is_empty());
        let files = gathered.take_due(due);
        assert_eq!(files.len(), 1);
        assert!(log.counts().waiting_bytes > 0);
        for file in files {
            assert_eq!(file.released(), 1);
        }
        assert_eq!(log.counts().waiting_bytes, 0);
    }

    #[test]
    fn an_offer_never_waits_and_a_refusal_is_counted() {
        let few = PredictionsConfig { max_waiting: 2, ..config() };
        let (log, taken) = Log::apart(&few);
        let home = home();
        let offers: Vec<_> = (0..4).map(|_| log.offer(&home, prediction("x", 1))).collect();
        assert_eq!(offers, [true, true, false, false]);
        let counts = log.counts();
        assert_eq!((counts.taken, counts.dropped), (2, 2));
        // What was refused holds nothing.
        drop(taken);
        assert_eq!(log.counts().waiting_bytes, 0);
        assert!(!log.offer(&home, prediction("x", 1)), "nobody is there to write it");
        let (log, _taken) = Log::apart(&config());
        assert!(!log.offer(&home, prediction("x", 200_000)), "larger than the memory");
        assert_eq!(log.counts().waiting_bytes, 0);
    }
}
