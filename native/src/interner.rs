//! Byte strings and tokens, found again by content.
//!
//! A file chooses what is hashed, so the hash has a secret seed: nobody can write values that all collide.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;
/// Steps side by side in a long string.
const LANES: usize = 8;
/// Bytes from which on a string is long.
const LONG: usize = 512;
/// Long strings that are looked for by their length before they are hashed.
const LENGTHS: usize = 64;
const FREE: u32 = u32::MAX;

/// A number that no file can know.
pub fn secret_seed() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn word(raw: &[u8]) -> u64 {
    let mut bytes = [0u8; 8];
    bytes[..raw.len()].copy_from_slice(raw);
    u64::from_le_bytes(bytes)
}

#[inline(always)]
fn whole_word(raw: &[u8]) -> u64 {
    u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7]])
}

/// One step: 16 bytes into a state that no file can know.
#[inline(always)]
fn absorb(state: u64, pair: &[u8]) -> u64 {
    fold(whole_word(pair) ^ K0 ^ state.rotate_left(32), whole_word(&pair[8..]) ^ state)
}

pub fn hash(seed: u64, data: &[u8]) -> u64 {
    let mut state = seed ^ fold(data.len() as u64 ^ K0, K1);
    let mut rest = data;
    if data.len() >= LONG {
        (state, rest) = absorb_in_lanes(state, data);
    }
    let mut pairs = rest.chunks_exact(16);
    for pair in &mut pairs {
        state = absorb(state, pair);
    }
    let rest = pairs.remainder();
    let (low, high) = rest.split_at(rest.len().min(8));
    state = fold(word(low) ^ K1 ^ state.rotate_left(32), word(high) ^ state);
    fold(state ^ seed, K1)
}

/// Most of a long string, and what is left of it. A step waits for the one before it, so several go on side by side.
#[inline(never)]
fn absorb_in_lanes(state: u64, data: &[u8]) -> (u64, &[u8]) {
    let mut lanes = [0u64; LANES];
    for (lane, number) in lanes.iter_mut().zip(1..) {
        *lane = fold(state ^ K1, K0.wrapping_mul(number));
    }
    let mut strides = data.chunks_exact(16 * LANES);
    for stride in &mut strides {
        for (lane, pair) in lanes.iter_mut().zip(stride.chunks_exact(16)) {
            *lane = absorb(*lane, pair);
        }
    }
    // One after another, so that it matters which lane had which bytes.
    let state = lanes.iter().fold(state, |state, lane| fold(lane ^ K0 ^ state.rotate_left(32), lane ^ state));
    (state, strides.remainder())
}

/// For maps whose keys are made by `hash`.
#[derive(Clone, Copy, Default)]
pub struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, raw: &[u8]) {
        self.0 = hash(self.0, raw);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Each distinct byte string once, numbered in the order in which they come.
pub struct Interner {
    seed: u64,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
    slots: Vec<u32>,
    /// The long strings that came last, by length: the list of all ranks stands in every dump.
    long: [u32; LENGTHS],
}

impl Interner {
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            bytes: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            slots: vec![FREE; 64],
            long: [FREE; LENGTHS],
        }
    }

    pub fn get(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// The string's number and whether it is new. `admit` may refuse a new one.
    pub fn intern<E>(&mut self, data: &[u8], admit: impl FnOnce() -> Result<(), E>) -> Result<(u32, bool), E> {
        if data.len() < LONG {
            return self.look_up(data, admit);
        }
        // Comparing with one candidate takes less time than hashing, and no file can make it more than one.
        let place = data.len() % LENGTHS;
        if self.long[place] != FREE && self.get(self.long[place]) == data {
            return Ok((self.long[place], false));
        }
        let found = self.look_up(data, admit)?;
        self.long[place] = found.0;
        Ok(found)
    }

    fn look_up<E>(&mut self, data: &[u8], admit: impl FnOnce() -> Result<(), E>) -> Result<(u32, bool), E> {
        let hash = hash(self.seed, data);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != FREE {
            let index = self.slots[at];
            if self.hashes[index as usize] == hash && self.get(index) == data {
                return Ok((index, false));
            }
            at = (at + 1) & mask;
        }
        admit()?;
        let index = self.ends.len() as u32;
        self.slots[at] = index;
        self.bytes.extend_from_slice(data);
        self.ends.push(self.bytes.len());
        self.hashes.push(hash);
        if self.ends.len() * 2 > self.slots.len() {
            self.grow();
        }
        Ok((index, true))
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![FREE; mask + 1];
        for (index, &hash) in self.hashes.iter().enumerate() {
            let mut at = hash as usize & mask;
            while slots[at] != FREE {
                at = (at + 1) & mask;
            }
            slots[at] = index as u32;
        }
        self.slots = slots;
    }
}

/// Distinct 64-bit values, numbered in the order in which they come; cleared and used again.
pub struct Numbering {
    seed: u64,
    values: Vec<u64>,
    slots: Vec<u32>,
    shift: u32,
}

impl Numbering {
    pub fn new(seed: u64) -> Self {
        Self { seed: seed | 1, values: Vec::new(), slots: vec![FREE; 64], shift: 58 }
    }

    pub fn clear(&mut self) {
        self.values.clear();
        self.slots.fill(FREE);
    }

    pub fn values(&self) -> &[u64] {
        &self.values
    }

    pub fn number(&mut self, value: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = self.place(value);
        while self.slots[at] != FREE {
            let index = self.slots[at];
            if self.values[index as usize] == value {
                return index;
            }
            at = (at + 1) & mask;
        }
        let index = self.values.len() as u32;
        self.slots[at] = index;
        self.values.push(value);
        if self.values.len() * 2 > self.slots.len() {
            self.grow();
        }
        index
    }

    fn place(&self, value: u64) -> usize {
        (fold(value ^ self.seed, K0) >> self.shift) as usize
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        self.shift -= 1;
        self.slots = vec![FREE; size];
        for index in 0..self.values.len() {
            let mut at = self.place(self.values[index]);
            while self.slots[at] != FREE {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = index as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{hash, Interner, Numbering, LONG};

    #[test]
    fn equal_strings_have_one_number() {
        let mut interner = Interner::new(5);
        for round in 0..2 {
            for i in 0..1000u32 {
                let text = "x".repeat(i as usize % 40) + &i.to_string();
                assert_eq!(interner.intern(text.as_bytes(), || Ok::<(), ()>(())), Ok((i, round == 0)));
                assert_eq!(interner.get(i), text.as_bytes());
            }
        }
    }

    #[test]
    fn long_strings_that_differ_anywhere_have_numbers_of_their_own() {
        for length in [LONG, LONG + 1, 5 * LONG - 1] {
            let mut interner = Interner::new(5);
            let mut known = Vec::new();
            for at in 0..length {
                let mut text = vec![b'x'; length];
                text[at] = b'y';
                known.push(hash(5, &text));
                assert_eq!(interner.intern(&text, || Ok::<(), ()>(())), Ok((at as u32, true)));
                assert_eq!(interner.intern(&text, || Ok::<(), ()>(())), Ok((at as u32, false)));
            }
            known.sort_unstable();
            known.dedup();
            assert_eq!(known.len(), length);
        }
    }

    #[test]
    fn bytes_that_change_places_change_the_hash() {
        let text: Vec<u8> = (0..LONG).map(|at| (at / 16) as u8).collect();
        let mut hashes: Vec<u64> =
            (16..LONG).step_by(16).map(|at| [&text[at..], &text[..at]].concat()).map(|text| hash(5, &text)).collect();
        hashes.push(hash(5, &text));
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn what_is_refused_is_not_kept() {
        let mut interner = Interner::new(5);
        assert_eq!(interner.intern(b"a", || Err(())), Err(()));
        assert_eq!(interner.intern(b"a", || Ok::<(), ()>(())), Ok((0, true)));
    }

    #[test]
    fn equal_values_have_one_number() {
        let mut numbering = Numbering::new(5);
        for _ in 0..2 {
            for i in 0..1000u64 {
                assert_eq!(u64::from(numbering.number(i << 40)), i);
            }
        }
        numbering.clear();
        assert_eq!(numbering.number(77), 0);
    }
}
