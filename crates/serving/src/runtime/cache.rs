//! Answers kept for the same question, within a number of bytes; the one not asked for the longest
//! goes first.
//!
//! What must hold: an answer is found only by everything it depends on. A key names the content of
//! a model, so an answer never becomes wrong, only old.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use falaj_base::Result;
use falaj_inference::Tensor;

use super::key::ModelKey;

/// What an entry takes beside its tensors.
const OVERHEAD: usize = 256;

type Outputs = Arc<Vec<(String, Tensor)>>;

/// Names a question to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question([u8; 32]);

impl Question {
    pub(super) fn new(
        key: &ModelKey,
        inputs: &[(String, Tensor)],
        outputs: &[usize],
    ) -> Result<Self> {
        let mut context = Context::new(&SHA256);
        // Each part is preceded by its length, so that no two questions read alike.
        let number = |context: &mut Context, number: usize| {
            context.update(&(number as u64).to_le_bytes());
        };
        let text = |context: &mut Context, text: &str| {
            context.update(&(text.len() as u64).to_le_bytes());
            context.update(text.as_bytes());
        };
        text(&mut context, key.as_str());
        // Sorted, since the order in which inputs are named means nothing.
        let mut sorted: Vec<_> = inputs.iter().collect();
        sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
        number(&mut context, sorted.len());
        let mut raw = Vec::new();
        for (name, tensor) in sorted {
            text(&mut context, name);
            text(&mut context, tensor.data_type().name());
            number(&mut context, tensor.shape().len());
            for &dim in tensor.shape() {
                number(&mut context, dim);
            }
            raw.clear();
            tensor.write_raw(&mut raw)?;
            number(&mut context, raw.len());
            context.update(&raw);
        }
        number(&mut context, outputs.len());
        for &place in outputs {
            number(&mut context, place);
        }
        let mut name = [0; 32];
        name.copy_from_slice(context.finish().as_ref());
        Ok(Self(name))
    }
}

/// Answers that are kept.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<Question, Answer>,
    /// By when they were last asked for.
    order: BTreeMap<u64, Question>,
    ticks: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Answer {
    outputs: Outputs,
    bytes: usize,
    tick: u64,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    pub(super) fn find(&self, question: &Question) -> Option<Outputs> {
        let mut kept = self.kept();
        kept.ticks += 1;
        let tick = kept.ticks;
        let answer = kept.answers.get_mut(question)?;
        let outputs = Arc::clone(&answer.outputs);
        let before = std::mem::replace(&mut answer.tick, tick);
        kept.order.remove(&before);
        kept.order.insert(tick, *question);
        Some(outputs)
    }

    pub(super) fn keep(&self, question: Question, outputs: &[(String, Tensor)]) {
        let named = outputs.iter().map(|(name, tensor)| name.len() + tensor.bytes());
        let bytes = named.sum::<usize>() + OVERHEAD;
        // One answer must not push out most of the others.
        if bytes > self.limit / 8 {
            return;
        }
        let outputs = Arc::new(outputs.to_vec());
        let mut gone = Vec::new();
        let mut kept = self.kept();
        gone.extend(kept.remove(&question));
        while kept.bytes + bytes > self.limit {
            let Some((_, oldest)) = kept.order.first_key_value() else { break };
            let oldest = *oldest;
            gone.extend(kept.remove(&oldest));
        }
        kept.ticks += 1;
        let tick = kept.ticks;
        kept.bytes += bytes;
        kept.order.insert(tick, question);
        kept.answers.insert(question, Answer { outputs, bytes, tick });
        drop(kept);
        drop(gone);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn remove(&mut self, question: &Question) -> Option<Answer> {
        let answer = self.answers.remove(question)?;
        self.order.remove(&answer.tick);
        self.bytes -= answer.bytes;
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(shape: &[usize], values: &[f32]) -> Vec<(String, Tensor)> {
        vec![("x".to_owned(), Tensor::of(shape, values.to_vec()).unwrap())]
    }

    fn question(values: &[f32]) -> Question {
        Question::new(&ModelKey::new("k"), &tensors(&[values.len()], values), &[0]).unwrap()
    }

    #[test]
    fn everything_an_answer_depends_on_is_in_the_question() {
        let (one, other) = (ModelKey::new("k"), ModelKey::new("j"));
        let inputs = tensors(&[1, 2], &[1.0, 2.0]);
        let ints = vec![("x".to_owned(), Tensor::of([1, 2], vec![1_i32, 2]).unwrap())];
        let asked = Question::new(&one, &inputs, &[0]).unwrap();
        assert_eq!(asked, Question::new(&one, &inputs, &[0]).unwrap());
        let others = [
            Question::new(&other, &inputs, &[0]),
            Question::new(&one, &inputs, &[0, 1]),
            Question::new(&one, &tensors(&[2, 1], &[1.0, 2.0]), &[0]),
            Question::new(&one, &tensors(&[1, 2], &[1.0, 2.5]), &[0]),
            Question::new(&one, &ints, &[0]),
        ];
        assert!(others.into_iter().all(|other| other.unwrap() != asked));
        let y = ("y".to_owned(), inputs[0].1.clone());
        let named = [vec![inputs[0].clone(), y.clone()], vec![y, inputs[0].clone()]]
            .map(|inputs| Question::new(&one, &inputs, &[0]).unwrap());
        assert_eq!(named[0], named[1], "the order of inputs means nothing");
    }

    #[test]
    fn the_bytes_are_bounded_and_the_oldest_goes_first() {
        let cache = Cache::new(40_000);
        let outputs = tensors(&[256], &[1.0; 256]);
        for number in 0..100_u8 {
            cache.keep(question(&[f32::from(number)]), &outputs);
            assert!(cache.find(&question(&[0.0])).is_some(), "asked for again and again");
        }
        let kept = cache.kept();
        assert!(kept.bytes <= 40_000);
        assert_eq!(kept.answers.len(), kept.order.len());
        drop(kept);
        assert!(cache.find(&question(&[1.0])).is_none());
        assert!(cache.find(&question(&[99.0])).is_some());
        cache.keep(question(&[7.0]), &tensors(&[4096], &[1.0; 4096]));
        assert!(cache.find(&question(&[7.0])).is_none(), "too large to be kept");
    }
}
