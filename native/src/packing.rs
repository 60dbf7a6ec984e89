//! The primitives of the packed form, little-endian and without padding.

use crate::interner::Numbering;

/// Stands for a number that is missing.
pub const NOTHING: i64 = i64::MIN;
/// In place of a key: there is none.
pub const NO_KEY: u64 = 0;

pub fn put_u8(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_u32(out, text.len() as u32);
    out.extend_from_slice(text);
}

/// A number that may be missing: whether it is there, then itself.
pub fn put_optional_i64(out: &mut Vec<u8>, value: Option<i64>) {
    put_u8(out, u8::from(value.is_some()));
    if let Some(number) = value {
        put_i64(out, number);
    }
}

/// The first value, then differences: one step for all, or each in as few bytes as the largest needs.
pub fn put_ints(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = i64> + Clone) {
    let count = values.len();
    let mut rest = values;
    let Some(first) = rest.next() else { return put_u32(out, 0) };
    let differences = rest.scan(first, |before, value| {
        let difference = value.wrapping_sub(*before);
        *before = value;
        Some(difference)
    });
    let step = differences.clone().next().unwrap_or(0);
    let (mut all_equal, mut least, mut most) = (true, step, step);
    for difference in differences.clone() {
        all_equal &= difference == step;
        least = least.min(difference);
        most = most.max(difference);
    }
    if all_equal {
        return put_steps(out, count, first, step);
    }
    put_u32(out, count as u32);
    put_i64(out, first);
    let width = signed_width(least, most);
    put_u8(out, width as u8);
    for difference in differences {
        out.extend_from_slice(&difference.to_le_bytes()[..width]);
    }
}

/// Numbers of which each is a step from the one before.
pub fn put_steps(out: &mut Vec<u8>, count: usize, first: i64, step: i64) {
    put_u32(out, count as u32);
    if count > 0 {
        put_i64(out, first);
        put_u8(out, 0);
        put_i64(out, step);
    }
}

fn signed_width(least: i64, most: i64) -> usize {
    let fits = |bits: u32| least >= -(1i64 << (bits - 1)) && most < 1i64 << (bits - 1);
    match () {
        () if fits(8) => 1,
        () if fits(16) => 2,
        () if fits(32) => 4,
        () => 8,
    }
}

/// The distinct tokens in the order in which they come, then an index for each.
pub fn put_tokens(out: &mut Vec<u8>, tokens: impl ExactSizeIterator<Item = u64>, numbering: &mut Numbering) {
    put_u32(out, tokens.len() as u32);
    if tokens.len() == 0 {
        return;
    }
    numbering.clear();
    let indexes: Vec<u32> = tokens.map(|token| numbering.number(token)).collect();
    put_u32(out, numbering.values().len() as u32);
    for &token in numbering.values() {
        put_u64(out, token);
    }
    let width = match numbering.values().len() {
        0..=256 => 1,
        257..=65536 => 2,
        _ => 4,
    };
    for index in indexes {
        out.extend_from_slice(&index.to_le_bytes()[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::{put_ints, put_tokens};
    use crate::interner::Numbering;

    fn ints(values: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        put_ints(&mut out, values.iter().copied());
        out
    }

    #[test]
    fn no_ints_are_a_count_alone() {
        assert_eq!(ints(&[]), [0, 0, 0, 0]);
    }

    #[test]
    fn one_int_has_step_zero() {
        assert_eq!(ints(&[-2])[4..], [254, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn equal_differences_are_one_step() {
        assert_eq!(ints(&[5, 8, 11])[12..], [0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn differences_take_the_bytes_of_the_largest() {
        assert_eq!(ints(&[0, 127, -1])[12..], [1, 127, 128]);
        assert_eq!(ints(&[0, 128, 128])[12..], [2, 128, 0, 0, 0]);
        assert_eq!(ints(&[0, -40_000, -40_000])[12], 4);
    }

    #[test]
    fn differences_wrap() {
        assert_eq!(ints(&[i64::MIN, i64::MAX, i64::MAX])[12..], [1, 255, 0]);
    }

    #[test]
    fn tokens_are_numbered_as_they_come() {
        let mut out = Vec::new();
        put_tokens(&mut out, [7u64, 9, 7].into_iter(), &mut Numbering::new(3));
        assert_eq!(out, [3, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    }
}
