//! Whether to wait for callers who shared the last commit: they tend to come back together.
//!
//! Where they have more to do in between than a commit takes, waiting only keeps the processors idle. So it
//! is tried, and tried again ever more seldom where it was in vain.

/// The most commits in a row after which nobody is waited for.
const MOST_UNWAITED: u32 = 256;

/// Whether waiting for callers has paid of late.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Commits after which nobody will be waited for.
    unwaited: u32,
    /// How many it will be once waiting was in vain again.
    next: u32,
}

impl Patience {
    pub(super) fn waits(&mut self) -> bool {
        let waits = self.unwaited == 0;
        self.unwaited = self.unwaited.saturating_sub(1);
        waits
    }

    pub(super) fn learn(&mut self, all_came: bool) {
        self.next = if all_came { 1 } else { (self.next * 2).clamp(1, MOST_UNWAITED) };
        self.unwaited = if all_came { 0 } else { self.next };
    }
}
