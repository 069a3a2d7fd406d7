//! Sheets gathered until they make a file: of one endpoint, and with the same tensors.

use std::sync::Arc;
use std::time::Duration;

use falaj_base::EndpointId;
use tokio::time::Instant;

use super::config::PredictionsConfig;
use super::log::{Entry, Held};
use super::prediction::Home;
use super::sheet::Sheet;

/// How many files of one endpoint are gathered at a time. Variants with other inputs each make
/// their own; callers that leave inputs out must not make one for each mixture.
const MAX_FILES: usize = 8;

/// What will be one file.
#[derive(Debug)]
pub(super) struct Gathering {
    first: Entry,
    others: Vec<Entry>,
    rows: usize,
    bytes: usize,
    since: Instant,
}

impl Gathering {
    fn of(first: Entry) -> Self {
        let Sheet { bytes, since, .. } = first.sheet;
        Self { rows: first.sheet.rows(), first, others: Vec::new(), bytes, since }
    }

    fn add(&mut self, entry: Entry) {
        self.rows += entry.sheet.rows();
        self.bytes += entry.sheet.bytes;
        self.since = self.since.min(entry.sheet.since);
        self.others.push(entry);
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.first.sheet.home
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The sheets, and what is counted as held in memory until it is let go of.
    pub(super) fn into_sheets(self) -> (Vec<Sheet>, Vec<Held>) {
        let all = std::iter::once(self.first).chain(self.others);
        all.map(|entry| (entry.sheet, entry.held)).unzip()
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

    /// Adds a sheet; what is ready to be written because of it.
    pub(super) fn add(&mut self, entry: Entry) -> Vec<Gathering> {
        let mut ready = Vec::new();
        let rows = entry.sheet.rows();
        let like = |file: &Gathering| file.first.sheet.is_like(&entry.sheet);
        let place = match self.files.iter().position(like) {
            // No file has more rows than it may have.
            Some(place) if self.files[place].rows + rows > self.rows => {
                ready.push(std::mem::replace(&mut self.files[place], Gathering::of(entry)));
                place
            }
            Some(place) => {
                self.files[place].add(entry);
                place
            }
            None => {
                ready.extend(self.make_room(entry.sheet.home.endpoint));
                self.files.push(Gathering::of(entry));
                self.files.len() - 1
            }
        };
        let file = &self.files[place];
        if file.rows >= self.rows || file.bytes >= self.bytes {
            ready.push(self.files.swap_remove(place));
        } else if self.files.iter().map(|file| file.bytes).sum::<usize>() > self.pressure {
            ready.extend(self.take(|file, other| file.bytes > other.bytes, |_| true));
        }
        ready
    }

    /// When what was begun then is due by its age.
    pub(super) fn due(&self, since: Option<Instant>) -> Option<Instant> {
        let begun = self.files.iter().map(|file| file.since).chain(since).min();
        begun.map(|begun| begun + self.age)
    }

    /// Files whose first prediction waited long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Gathering> {
        self.files.extract_if(.., |file| file.since + self.age <= now).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Gathering> {
        std::mem::take(&mut self.files)
    }

    fn make_room(&mut self, endpoint: EndpointId) -> Option<Gathering> {
        let ours = |file: &Gathering| file.home().endpoint == endpoint;
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
    use super::super::log::Log;
    use super::super::testing::{Sample, config, home};
    use super::*;

    /// What `add` gives for each of these, offered one by one, as numbers of predictions.
    fn sizes(config: &PredictionsConfig, all: &[(&Arc<Home>, Sample)]) -> Vec<Vec<usize>> {
        let (log, taken) = Log::apart(config);
        let mut gathered = Gathered::new(config);
        let mut found = Vec::new();
        for (home, sample) in all {
            assert!(log.offer(home, &sample.prediction()));
            let entries = taken.shared.collect_all();
            let ready = entries.into_iter().flat_map(|entry| gathered.add(entry));
            found.push(ready.map(|file| file.rows()).collect());
        }
        found
    }

    #[test]
    fn a_file_is_ready_when_it_has_enough_rows_or_bytes() {
        let home = home();
        let small: Vec<_> = (0..4).map(|_| (&home, Sample::new("x", 1))).collect();
        assert_eq!(sizes(&config(), &small), [vec![], vec![], vec![3], vec![]]);
        let large: Vec<_> = (0..3).map(|_| (&home, Sample::new("x", 15_000))).collect();
        assert_eq!(sizes(&config(), &large), [vec![], vec![2], vec![]]);
    }

    #[test]
    fn sheets_that_would_make_it_too_long_begin_another_file() {
        let home = home();
        let config = PredictionsConfig { file_rows: 5, ..config() };
        let (log, taken) = Log::apart(&config);
        let mut gathered = Gathered::new(&config);
        let mut add = |rows: usize| -> Vec<usize> {
            for _ in 0..rows {
                assert!(log.offer(&home, &Sample::new("x", 1).prediction()));
            }
            let entries = taken.shared.collect_all();
            let ready = entries.into_iter().flat_map(|entry| gathered.add(entry));
            ready.map(|file| file.rows()).collect()
        };
        assert_eq!([add(3), add(3), add(2), add(1)], [vec![], vec![3], vec![5], vec![]]);
    }

    #[test]
    fn endpoints_and_other_inputs_do_not_mix() {
        let (one, two) = (home(), home());
        let all = [
            (&one, Sample::new("x", 1)),
            (&two, Sample::new("x", 1)),
            (&one, Sample::new("y", 1)),
            (&one, Sample::new("x", 1)),
            (&two, Sample::new("x", 1)),
            (&one, Sample::new("x", 1)),
        ];
        let found = sizes(&config(), &all);
        assert_eq!(found, [vec![], vec![], vec![], vec![], vec![], vec![3]]);
    }

    #[test]
    fn mixtures_and_memory_are_bounded() {
        let home = home();
        let many: Vec<_> = (0..10).map(|n| (&home, Sample::new(&format!("x{n}"), 1))).collect();
        let found = sizes(&config(), &many);
        assert_eq!(found.iter().filter(|ready| ready.is_empty()).count(), MAX_FILES);
        // Under pressure the largest goes first.
        let others: Vec<_> = (0..4).map(|_| super::super::testing::home()).collect();
        let wide: Vec<_> = others.iter().map(|home| (home, Sample::new("x", 14_000))).collect();
        assert_eq!(sizes(&config(), &wide), [vec![], vec![], vec![], vec![1]]);
    }

    #[test]
    fn age_makes_a_file_due() {
        let config = config();
        let (log, taken) = Log::apart(&config);
        let mut gathered = Gathered::new(&config);
        assert_eq!(gathered.due(taken.shared.oldest()), None);
        let before = Instant::now();
        assert!(log.offer(&home(), &Sample::new("x", 1).prediction()));
        let due = gathered.due(taken.shared.oldest()).unwrap();
        let age = Duration::from_secs(10);
        assert!(due >= before + age && due <= Instant::now() + age);
        for entry in taken.shared.collect_all() {
            assert!(gathered.add(entry).is_empty());
        }
        assert_eq!(gathered.due(taken.shared.oldest()), Some(due), "however it is held");
        assert!(gathered.take_due(due - Duration::from_micros(1)).is_empty());
        let files = gathered.take_due(due);
        assert_eq!(files.len(), 1);
        assert!(log.counts().waiting_bytes > 0);
        for file in files {
            assert_eq!(file.into_sheets().0.len(), 1);
        }
        assert_eq!(log.counts().waiting_bytes, 0);
    }
}
