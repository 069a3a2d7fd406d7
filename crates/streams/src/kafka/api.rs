//! The few questions that reading takes, and their answers. Versions are fixed: those that Kafka has
//! answered since 2.3 and still does in 4.

use bytes::Bytes;

use super::batch::Aborted;
use super::wire::{Input, Malformed, Output};

/// A question's number and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Api {
    pub(super) key: i16,
    pub(super) version: i16,
    name: &'static str,
}

pub(super) const FETCH: Api = Api { key: 1, version: 11, name: "Fetch" };
pub(super) const LIST_OFFSETS: Api = Api { key: 2, version: 2, name: "ListOffsets" };
pub(super) const METADATA: Api = Api { key: 3, version: 4, name: "Metadata" };
pub(super) const SASL_HANDSHAKE: Api = Api { key: 17, version: 1, name: "SaslHandshake" };
pub(super) const API_VERSIONS: Api = Api { key: 18, version: 0, name: "ApiVersions" };
pub(super) const SASL_AUTHENTICATE: Api = Api { key: 36, version: 0, name: "SaslAuthenticate" };

/// What a server must be able to answer.
const NEEDED: [Api; 3] = [FETCH, LIST_OFFSETS, METADATA];

/// Numbers of errors that mean something here.
pub(super) mod code {
    pub(in super::super) const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub(in super::super) const UNKNOWN_TOPIC: i16 = 3;
    pub(in super::super) const INVALID_TOPIC: i16 = 17;
    pub(in super::super) const TOPIC_FORBIDDEN: i16 = 29;
    pub(in super::super) const CLUSTER_FORBIDDEN: i16 = 31;
    pub(in super::super) const UNSUPPORTED_MECHANISM: i16 = 33;
    pub(in super::super) const AUTHENTICATION_FAILED: i16 = 58;
}

/// Only what was committed, of transactions.
const COMMITTED: i8 = 1;
/// We are no broker.
const CLIENT: i32 = -1;

/// Whether a server answers what is asked here; else what it does not.
pub(super) fn versions(mut input: Input) -> Result<Result<(), String>, Malformed> {
    let error = input.i16()?;
    if error != 0 {
        return Ok(Err(format!("it did not tell its versions (error {error})")));
    }
    let ranges = input.list(|it| Ok((it.i16()?, it.i16()?, it.i16()?)))?;
    let lacks = |api: &&Api| {
        !ranges
            .iter()
            .any(|(key, low, high)| *key == api.key && *low <= api.version && api.version <= *high)
    };
    Ok(match NEEDED.iter().find(lacks) {
        None => Ok(()),
        Some(Api { name, version, .. }) => {
            Err(format!("it does not answer {name} {version}: Kafka 2.3 or later is needed"))
        }
    })
}

pub(super) fn metadata(topic: &str) -> Output {
    let mut output = Output::default();
    // The last: a topic is not made because somebody asked for it.
    output.i32(1).text(topic).i8(0);
    output
}

/// Who has what of a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Brokers by number, and their hosts and ports as they tell them.
    pub(super) brokers: Vec<(i32, String, i32)>,
    pub(super) error: i16,
    pub(super) partitions: Vec<Partition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) index: i32,
    pub(super) leader: i32,
}

impl Metadata {
    pub(super) fn read(mut input: Input, topic: &str) -> Result<Self, Malformed> {
        input.i32()?;
        let brokers = input.list(|it| {
            let broker = (it.i32()?, it.text()?.ok_or(Malformed)?, it.i32()?);
            it.text()?;
            Ok(broker)
        })?;
        input.text()?;
        input.i32()?;
        let topics = input.list(|it| {
            let (error, name) = (it.i16()?, it.text()?);
            it.i8()?;
            let partitions = it.list(|it| {
                it.i16()?;
                let partition = Partition { index: it.i32()?, leader: it.i32()? };
                it.list(Input::i32)?;
                it.list(Input::i32)?;
                Ok(partition)
            })?;
            Ok((error, name, partitions))
        })?;
        let found = topics.into_iter().find(|(_, name, _)| name.as_deref() == Some(topic));
        let (error, _, partitions) = found.ok_or(Malformed)?;
        Ok(Self { brokers, error, partitions })
    }
}

/// Asks for an offset by time; -2 is the first, -1 the end.
pub(super) fn list_offsets(topic: &str, partition: i32, time: i64) -> Output {
    let mut output = Output::default();
    output.i32(CLIENT).i8(COMMITTED).i32(1).text(topic).i32(1).i32(partition).i64(time);
    output
}

/// The error, and the offset: -1 if there is none.
pub(super) fn offset(mut input: Input) -> Result<(i16, i64), Malformed> {
    input.i32()?;
    let topics = input.list(|it| {
        it.text()?;
        it.list(|it| {
            it.i32()?;
            let error = it.i16()?;
            it.i64()?;
            Ok((error, it.i64()?))
        })
    })?;
    topics.into_iter().flatten().next().ok_or(Malformed)
}

/// What is asked of a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) from: i64,
    pub(super) wait_ms: i32,
    pub(super) bytes: i32,
}

pub(super) fn fetch(wanted: Wanted<'_>) -> Output {
    let mut output = Output::default();
    // Without a session: each fetch says all of what it wants.
    output.i32(CLIENT).i32(wanted.wait_ms).i32(1).i32(wanted.bytes).i8(COMMITTED).i32(0).i32(-1);
    output.i32(1).text(wanted.topic).i32(1).i32(wanted.partition).i32(-1).i64(wanted.from);
    output.i64(-1).i32(wanted.bytes).i32(0).text("");
    output
}

#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) error: i16,
    /// The end of what counts: of transactions only what was committed.
    pub(super) end: i64,
    pub(super) aborted: Vec<Aborted>,
    pub(super) records: Bytes,
}

impl Fetched {
    pub(super) fn read(mut input: Input) -> Result<Self, Malformed> {
        input.i32()?;
        let error = input.i16()?;
        input.i32()?;
        if error != 0 {
            return Ok(Self { error, end: 0, aborted: Vec::new(), records: Bytes::new() });
        }
        let topics = input.list(|it| {
            it.text()?;
            it.list(|it| {
                it.i32()?;
                let error = it.i16()?;
                let (high, stable) = (it.i64()?, it.i64()?);
                it.i64()?;
                let aborted =
                    it.list(|it| Ok(Aborted { producer: it.i64()?, first: it.i64()? }))?;
                it.i32()?;
                let records = it.bytes_there()?;
                let end = if stable >= 0 { stable } else { high };
                Ok(Self { error, end, aborted, records })
            })
        })?;
        topics.into_iter().flatten().next().ok_or(Malformed)
    }
}

pub(super) fn handshake(mechanism: &str) -> Output {
    let mut output = Output::default();
    output.text(mechanism);
    output
}

/// The error, and what the server would take.
pub(super) fn mechanisms(mut input: Input) -> Result<(i16, Vec<String>), Malformed> {
    Ok((input.i16()?, input.list(|it| it.text()?.ok_or(Malformed))?))
}

pub(super) fn authenticate(said: &[u8]) -> Output {
    let mut output = Output::default();
    output.bytes(said);
    output
}

/// What the server says to that; else why it refuses.
pub(super) fn authenticated(mut input: Input) -> Result<Result<Bytes, String>, Malformed> {
    let (error, why) = (input.i16()?, input.text()?);
    let said = input.bytes()?.unwrap_or_default();
    Ok(if error == 0 { Ok(said) } else { Err(why.unwrap_or_else(|| format!("error {error}"))) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told() {
        let answer = |fetch: i16| {
            let mut output = Output::default();
            output.i16(0).i32(3).i16(1).i16(0).i16(fetch).i16(2).i16(0).i16(7);
            output.i16(3).i16(0).i16(12);
            Input(output.0.freeze())
        };
        assert_eq!(versions(answer(11)).unwrap(), Ok(()));
        assert!(versions(answer(10)).unwrap().unwrap_err().contains("Fetch 11"));
    }

    proptest! {
        #[test]
        fn answers_are_read_or_refused(bytes: Vec<u8>) {
            let input = Input(bytes.into());
            drop(versions(input.clone()));
            drop(Metadata::read(input.clone(), "t"));
            let _ = offset(input.clone());
            drop(Fetched::read(input.clone()));
            drop(mechanisms(input.clone()));
            drop(authenticated(input));
        }
    }
}
