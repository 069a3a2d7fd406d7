//! Ending a run from another thread.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use falaj_base::{Error, Result, code};

/// A wish to end one run, made by whoever asked for it. Cheap to clone: all clones are one wish.
///
/// What must hold: a wish reaches the run that was begun with it and no other, whenever it comes.
/// Before the run, the run does not begin; after it, nothing happens.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Wish>);

#[derive(Default)]
struct Wish {
    made: AtomicBool,
    /// How to interrupt what runs, while it runs.
    interrupt: Mutex<Option<Interrupt>>,
}

type Interrupt = Box<dyn Fn() + Send>;

impl Cancel {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to end. Returns at once; the run ends soon, with `deadline-exceeded`.
    pub fn cancel(&self) {
        let interrupt = self.interrupt();
        self.0.made.store(true, Ordering::Relaxed);
        if let Some(interrupt) = &*interrupt {
            interrupt();
        }
    }

    /// Whether somebody has asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Refuses to go on once somebody has asked.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() { Err(given_up()) } else { Ok(()) }
    }

    /// Runs something that knows how to be interrupted; not at all if somebody has asked already.
    /// Once this has returned, nobody interrupts any more.
    pub(crate) fn watch<T>(
        &self,
        interrupt: impl Fn() + Send + 'static,
        run: impl FnOnce() -> T,
    ) -> Result<T> {
        {
            let mut place = self.interrupt();
            self.check()?;
            *place = Some(Box::new(interrupt));
        }
        let over = Over(self);
        let result = run();
        drop(over);
        Ok(result)
    }

    fn interrupt(&self) -> MutexGuard<'_, Option<Interrupt>> {
        self.0.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the interruption away, also if the run panics.
struct Over<'a>(&'a Cancel);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *self.0.interrupt() = None;
    }
}

pub(crate) fn given_up() -> Error {
    Error::new(&code::DEADLINE_EXCEEDED, "the run was given up before it was done")
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_asked()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counter() -> (Arc<AtomicUsize>, impl Fn() + Send + Clone + 'static) {
        let count = Arc::new(AtomicUsize::new(0));
        let same = Arc::clone(&count);
        (count, move || {
            same.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[test]
    fn a_wish_before_the_run_keeps_it_from_beginning() {
        let (interrupted, interrupt) = counter();
        let cancel = Cancel::new();
        cancel.cancel();
        let error = cancel.watch(interrupt, || panic!("it began")).unwrap_err();
        assert_eq!(error.code().id, "deadline-exceeded");
        assert_eq!(interrupted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_wish_during_the_run_interrupts_it() {
        let (interrupted, interrupt) = counter();
        let cancel = Cancel::new();
        let same = cancel.clone();
        let seen = interrupted.clone();
        let run = move || {
            std::thread::spawn(move || same.cancel()).join().unwrap();
            seen.load(Ordering::Relaxed)
        };
        assert_eq!(cancel.watch(interrupt, run).unwrap(), 1);
    }

    #[test]
    fn a_wish_after_the_run_reaches_nobody() {
        let (interrupted, interrupt) = counter();
        let cancel = Cancel::new();
        cancel.watch(interrupt, || ()).unwrap();
        cancel.cancel();
        assert_eq!(interrupted.load(Ordering::Relaxed), 0);
        assert!(cancel.check().is_err());
    }
}
