//! A start on its way: launched, running, told to stop.

use falaj_base::Timestamp;
use falaj_scheduler::{JobId as Number, Placed};

use crate::job::{PlacedAt, State};
use crate::name::StartId;

/// Why a start was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Others need its nodes; it waits again.
    Preempt,
    /// It goes on at once on other nodes.
    Move,
    /// It did not use what it has; it waits for a while.
    Reclaim,
    Cancel,
    /// No rank made progress; it starts again.
    Hang,
    /// It has cost what it may.
    Budget,
    /// Its project or its tenant has spent what it may.
    Overdrawn,
    /// It can never run as things are now.
    Refuse,
}

impl Purpose {
    const ALL: [Self; 8] = [
        Self::Preempt,
        Self::Move,
        Self::Reclaim,
        Self::Cancel,
        Self::Hang,
        Self::Budget,
        Self::Overdrawn,
        Self::Refuse,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::Move => "move",
            Self::Reclaim => "reclaim",
            Self::Cancel => "cancel",
            Self::Hang => "hang",
            Self::Budget => "budget",
            Self::Overdrawn => "overdrawn",
            Self::Refuse => "refuse",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.as_str() == text)
    }
}

/// Whether the executor knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launched {
    /// Being asked, or to be asked at a time because it did not answer.
    Asking,
    AgainAt(Timestamp),
    /// It is to end and nobody knows whether it was taken; its executor was told since then to kill it.
    Withdrawn(Timestamp),
    /// Asked by somebody who was here before; its executor tells.
    Unknown,
    /// Since when.
    Yes(Timestamp),
    /// By another server, on its own machine: nobody here can tell, and it is neither lost nor started
    /// again until that server schedules, or somebody says that it is gone.
    Elsewhere,
}

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) id: StartId,
    pub(crate) number: Number,
    pub(crate) pool: usize,
    pub(crate) world: u32,
    /// What it costs by the hour, in millionths.
    pub(crate) price: u64,
    pub(crate) state: State,
    pub(crate) purpose: Option<Purpose>,
    pub(crate) nodes: Vec<PlacedAt>,
    pub(crate) launched: Launched,
    pub(crate) since: Timestamp,
    /// Until when it may save its work before it is stopped.
    pub(crate) saves_until: Option<Timestamp>,
    /// When it was asked to save its work.
    pub(crate) notified: Option<Timestamp>,
    /// Whether its executor was told to stop it.
    pub(crate) told: bool,
    /// When to tell it again, if its executor did not answer.
    pub(crate) tell_at: Option<Timestamp>,
    /// Where it goes on, for [`Purpose::Move`], and who has to leave there first.
    pub(crate) then: Option<(Vec<Placed>, Vec<StartId>)>,
    /// The stacks of its ranks, if it hung.
    pub(crate) stacks: Option<String>,
    /// How often its executor was asked and did not answer.
    pub(crate) launches: u32,
    /// Why its engine has not started it yet, in the engine's words.
    pub(crate) waits: Option<String>,
}
