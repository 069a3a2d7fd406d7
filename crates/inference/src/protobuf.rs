//! Protobuf's encoding, walked in place: for counting what a message holds before it is decoded.
//!
//! What is wrong with the bytes is told as a phrase, which callers put into their own sentences.

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A number of any width, passed over.
    Number,
    /// A message, a text, or packed numbers.
    Bytes(&'a [u8]),
}

/// Takes the number and the kind of the next field.
pub fn key(rest: &mut &[u8]) -> Result<(u64, u64), &'static str> {
    varint(rest).map(|key| (key >> 3, key & 7))
}

/// Takes what a field of this kind holds; `unknown` is said of kinds that there are not.
pub fn content<'a>(
    rest: &mut &'a [u8],
    kind: u64,
    unknown: &'static str,
) -> Result<Content<'a>, &'static str> {
    match kind {
        0 => varint(rest).map(|_| Content::Number),
        1 => take(rest, 8).map(|_| Content::Number),
        5 => take(rest, 4).map(|_| Content::Number),
        2 => {
            let length = varint(rest)?;
            take(rest, length).map(Content::Bytes)
        }
        _ => Err(unknown),
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let Some((&byte, tail)) = rest.split_first() else {
            return Err("it ends within a number");
        };
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number is longer than ten bytes")
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], &'static str> {
    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (content, tail) = split.ok_or("a part is longer than what holds it")?;
    *rest = tail;
    Ok(content)
}
