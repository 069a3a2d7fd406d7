//! The states of a task and of a job, and which may follow which.

use falaj_store::db::{FromValue, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a task or a job has come.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Waits for its turn.
    Pending,
    /// Has its nodes; its executor was asked to start it.
    Starting,
    Running,
    /// Was asked to save its work before it leaves its nodes.
    Checkpointing,
    /// Was told to end.
    Stopping,
    /// Left its nodes to others, with its progress; waits for its turn.
    Preempted,
    Succeeded,
    Failed,
    Cancelled,
    /// What ran it vanished more often than is made up for.
    Lost,
}

impl State {
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Starting,
        Self::Running,
        Self::Checkpointing,
        Self::Stopping,
        Self::Preempted,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Lost,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::Checkpointing => "CHECKPOINTING",
            Self::Stopping => "STOPPING",
            Self::Preempted => "PREEMPTED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Lost => "LOST",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Lost)
    }

    /// Whether it has nodes.
    #[must_use]
    pub const fn is_placed(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Checkpointing | Self::Stopping)
    }

    /// Whether a task may go from this state to that one.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use State::{
            Cancelled, Checkpointing, Failed, Lost, Pending, Preempted, Running, Starting,
            Stopping, Succeeded,
        };
        match self {
            Pending | Preempted => matches!(next, Starting | Cancelled | Failed),
            Starting => !matches!(next, Starting),
            Running => !matches!(next, Starting | Running),
            // Told to save and to leave, it may have been done a moment before.
            Checkpointing => !matches!(next, Starting | Running | Checkpointing),
            Stopping => !matches!(next, Starting | Running | Checkpointing | Stopping),
            Succeeded | Failed | Cancelled | Lost => false,
        }
    }
}

impl From<State> for Value {
    fn from(state: State) -> Self {
        Self::Text(state.as_str().to_owned())
    }
}

impl FromValue for State {
    fn from_value(value: &Value) -> Option<Self> {
        Self::parse(&String::from_value(value)?)
    }
}

/// How many tasks of a job are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    pub count: u32,
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub lost: u32,
}

impl Tally {
    #[must_use]
    pub fn over(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled + self.lost
    }

    /// How an array ended that did not end well.
    pub(crate) fn in_words(&self) -> String {
        let Self { count, failed, lost, cancelled, .. } = self;
        let mut text = format!("{} of {count} tasks failed", failed + lost);
        if *cancelled > 0 {
            text = format!("{text}, {cancelled} were cancelled");
        }
        text
    }

    pub(crate) fn count_end(&mut self, state: State) {
        match state {
            State::Succeeded => self.succeeded += 1,
            State::Failed => self.failed += 1,
            State::Cancelled => self.cancelled += 1,
            State::Lost => self.lost += 1,
            _ => {}
        }
    }

    /// The state of the whole job, of which some task is in `latest` now. One that is no array is
    /// where its task is; an array ends as its worst task did.
    #[must_use]
    pub fn state(&self, latest: State) -> State {
        if self.count == 1 {
            return latest;
        }
        if self.over() < self.count {
            let begun = self.over() > 0 || latest.is_placed() || latest == State::Preempted;
            return if begun { State::Running } else { State::Pending };
        }
        match (self.lost, self.failed, self.cancelled) {
            (0, 0, 0) => State::Succeeded,
            (0, 0, _) => State::Cancelled,
            (0, _, _) => State::Failed,
            _ => State::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legal_steps() {
        use State::*;
        let table: [(State, &[State]); 10] = [
            (Pending, &[Starting, Cancelled, Failed]),
            (Preempted, &[Starting, Cancelled, Failed]),
            (
                Starting,
                &[
                    Pending,
                    Running,
                    Checkpointing,
                    Stopping,
                    Preempted,
                    Succeeded,
                    Failed,
                    Cancelled,
                    Lost,
                ],
            ),
            (
                Running,
                &[Pending, Checkpointing, Stopping, Preempted, Succeeded, Failed, Cancelled, Lost],
            ),
            (Checkpointing, &[Pending, Stopping, Preempted, Succeeded, Failed, Cancelled, Lost]),
            (Stopping, &[Pending, Preempted, Succeeded, Failed, Cancelled, Lost]),
            (Succeeded, &[]),
            (Failed, &[]),
            (Cancelled, &[]),
            (Lost, &[]),
        ];
        for (from, legal) in table {
            let mut expected = legal.to_vec();
            expected.sort();
            let found: Vec<_> = State::ALL.into_iter().filter(|to| from.may_become(*to)).collect();
            assert_eq!(found, expected, "{from:?}");
            assert_eq!(from.is_over(), legal.is_empty());
            assert_eq!(State::parse(from.as_str()), Some(from));
        }
    }

    #[test]
    fn an_array_is_over_with_its_last_task_and_ends_as_its_worst() {
        let tally = |succeeded, failed, cancelled, lost| Tally {
            count: 4,
            succeeded,
            failed,
            cancelled,
            lost,
        };
        for (tally, latest, expected) in [
            (tally(0, 0, 0, 0), State::Pending, State::Pending),
            (tally(0, 0, 0, 0), State::Starting, State::Running),
            (tally(3, 0, 0, 0), State::Running, State::Running),
            (tally(4, 0, 0, 0), State::Succeeded, State::Succeeded),
            (tally(3, 1, 0, 0), State::Succeeded, State::Failed),
            (tally(2, 1, 1, 0), State::Cancelled, State::Failed),
            (tally(3, 0, 1, 0), State::Succeeded, State::Cancelled),
            (tally(2, 1, 0, 1), State::Succeeded, State::Lost),
        ] {
            assert_eq!(tally.state(latest), expected, "{tally:?} {latest:?}");
        }
        let one = Tally { count: 1, ..Tally::default() };
        assert_eq!(one.state(State::Preempted), State::Preempted);
    }
}
