//! An entry as it was written last, and which of its bytes may differ: whether another has the same form is then a
//! comparison without branches, and its numbers lie at known places.

use crate::entry::{COUNTERS, SKIPPED};
use crate::reader::op;

const WORD: usize = 8;
/// A number with its opcode takes up to ten bytes, and one.
const WIDEST: usize = 10;

/// A number at a known place.
#[derive(Clone, Copy)]
struct Place {
    /// Behind its opcode.
    at: u32,
    /// The opcode says how many bytes the number has.
    opcode: u8,
    which: u8,
}

struct Mould {
    /// Its first word, and the first of its places.
    word: u32,
    place: u32,
    /// Of what it was made from.
    length: u32,
    words: u32,
    places: u32,
}

#[derive(Default)]
pub struct Moulds {
    moulds: Vec<Mould>,
    /// Bytes that stay, and which they are.
    bytes: Vec<u64>,
    masks: Vec<u64>,
    places: Vec<Place>,
}

impl Moulds {
    pub fn clear(&mut self) {
        self.moulds.clear();
        self.bytes.clear();
        self.masks.clear();
        self.places.clear();
    }

    /// A mould of the entry from `began` to the end of `data`, whose numbers lie at these places.
    pub fn add(&mut self, data: &[u8], began: usize, numbers: &[(usize, usize, usize)]) {
        let (word, place) = (self.bytes.len() as u32, self.places.len() as u32);
        // The entry may come again with wider numbers.
        let room = words(data.len() - began + numbers.len() * WIDEST);
        self.bytes.resize(self.bytes.len() + room, 0);
        self.masks.resize(self.masks.len() + room, 0);
        self.places.resize(self.places.len() + numbers.len(), Place { at: 0, opcode: op::NONE, which: 0 });
        self.moulds.push(Mould { word, place, length: 0, words: 0, places: numbers.len() as u32 });
        self.set(self.moulds.len() - 1, data, began, numbers);
    }

    /// Makes a mould anew from an entry whose numbers have other widths.
    pub fn set(&mut self, index: usize, data: &[u8], began: usize, numbers: &[(usize, usize, usize)]) {
        let mould = &mut self.moulds[index];
        let entry = &data[began..];
        mould.length = entry.len() as u32;
        mould.words = words(entry.len()) as u32;
        let range = mould.word as usize..(mould.word + mould.words) as usize;
        let (bytes, masks) = (&mut self.bytes[range.clone()], &mut self.masks[range]);
        let mut whole = entry.chunks_exact(WORD);
        bytes.fill(0);
        masks.fill(0);
        for ((byte, mask), raw) in bytes.iter_mut().zip(masks.iter_mut()).zip(&mut whole) {
            (*byte, *mask) = (word(raw), u64::MAX);
        }
        let rest = whole.remainder();
        for (at, &byte) in rest.iter().enumerate() {
            bytes[entry.len() / WORD] |= u64::from(byte) << (8 * at);
            masks[entry.len() / WORD] |= 0xff << (8 * at);
        }
        for (place, &(from, to, which)) in self.places[mould.place as usize..].iter_mut().zip(numbers) {
            let opcode = data[from];
            let at = from - began + if opcode == op::LONG1 { 2 } else { 1 };
            unmask(masks, at, to - began);
            *place = Place { at: at as u32, opcode, which: which as u8 };
        }
    }

    /// The length of the entry at the start of `data` if it is of this form; then `counters` are its numbers.
    #[inline]
    pub fn fit(&self, index: usize, data: &[u8], counters: &mut [i64; COUNTERS]) -> Option<usize> {
        let mould = &self.moulds[index];
        let now = data.get(..mould.words as usize * WORD)?;
        let range = mould.word as usize..(mould.word + mould.words) as usize;
        let (bytes, masks) = (&self.bytes[range.clone()], &self.masks[range]);
        let mut differs = 0u64;
        for ((now, &then), &mask) in now.chunks_exact(WORD).zip(bytes).zip(masks) {
            differs |= (word(now) ^ then) & mask;
        }
        if differs != 0 {
            return None;
        }
        *counters = [0; COUNTERS];
        let places = mould.place as usize..(mould.place + mould.places) as usize;
        for place in &self.places[places] {
            if usize::from(place.which) == SKIPPED {
                continue;
            }
            let raw = word(now.get(place.at as usize..place.at as usize + WORD)?);
            counters[usize::from(place.which)] = match place.opcode {
                op::BININT1 => i64::from(raw as u8),
                op::BININT2 => i64::from(raw as u16),
                op::BININT => i64::from(raw as i32),
                op::LONG1 => raw as i64,
                _ => 0,
            };
        }
        Some(mould.length as usize)
    }
}

/// How many words are compared: enough that eight bytes can be read at every number.
fn words(length: usize) -> usize {
    length.div_ceil(WORD) + 1
}

#[inline]
fn word(raw: &[u8]) -> u64 {
    u64::from_le_bytes([raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7]])
}

/// The bytes from `at` to `end`, at most eight, may differ.
fn unmask(masks: &mut [u64], at: usize, end: usize) {
    if at == end {
        return;
    }
    let bits = u128::from(u64::MAX >> (64 - 8 * (end - at))) << (8 * (at % WORD));
    masks[at / WORD] &= !(bits as u64);
    masks[at / WORD + 1] &= !((bits >> 64) as u64);
}

#[cfg(test)]
mod tests {
    use super::Moulds;
    use crate::entry::{COUNTERS, CREATED_NS, RECORD_ID};

    /// `}(` key, a number, key, a number, `u`: the first in `width` bytes, the second in eight.
    fn entry(first: &[u8], second: i64) -> (Vec<u8>, Vec<(usize, usize, usize)>) {
        let mut data = b"}(h\x05".to_vec();
        let mut numbers = vec![(data.len(), data.len() + first.len(), RECORD_ID)];
        data.extend_from_slice(first);
        data.extend_from_slice(b"h\x06\x8a\x08");
        numbers.push((data.len() - 2, data.len() + 8, CREATED_NS));
        data.extend_from_slice(&second.to_le_bytes());
        data.push(b'u');
        (data, numbers)
    }

    fn fit(moulds: &Moulds, data: &[u8]) -> Option<(i64, i64)> {
        let mut counters = [7; COUNTERS];
        let padded = [data, &[b'}'; 32]].concat();
        let length = moulds.fit(0, &padded, &mut counters)?;
        assert_eq!(length, data.len());
        Some((counters[RECORD_ID], counters[CREATED_NS]))
    }

    #[test]
    fn an_entry_fits_that_differs_in_its_numbers_alone() {
        let mut moulds = Moulds::default();
        let (data, numbers) = entry(b"M\x01\x02", 5);
        moulds.add(&data, 0, &numbers);

        assert_eq!(fit(&moulds, &entry(b"M\xff\xff", -9).0), Some((65535, -9)));
        assert_eq!(fit(&moulds, &entry(b"K\xff", -9).0), None);
        for at in [0, 1, 2, 3, 4, 7, 8, 9, 10, data.len() - 1] {
            let mut other = data.clone();
            other[at] ^= 1;
            assert_eq!(fit(&moulds, &other), None, "byte {at}");
        }
    }

    #[test]
    fn numbers_may_become_wider() {
        let mut moulds = Moulds::default();
        let (data, numbers) = entry(b"N", 5);
        moulds.add(&data, 0, &numbers);
        assert_eq!(fit(&moulds, &data), Some((0, 5)));

        let (wider, numbers) = entry(b"J\xfe\xff\xff\xff", 6);
        moulds.set(0, &wider, 0, &numbers);
        assert_eq!(fit(&moulds, &wider), Some((-2, 6)));
    }
}
