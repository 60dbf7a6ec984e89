//! The ops that one rank issued in one order, as packed shape and own part.

use crate::columns::{Dump, NO_FRAMES};
use crate::messages::{Facts, COMPLETED};
use crate::packing::{put_i64, put_ints, put_tokens, put_u32, put_u64, put_u8, NOTHING};
use crate::tables::{Kind, Tables};
use crate::tokens::{mix, splitmix};

/// Sequence numbers per block, as a power of two.
const BLOCK_BITS: u32 = 7;
/// Ops whose times are kept: of a group's collectives, and of a channel's messages.
pub const RECENT: usize = 32;
pub const RECENT_MESSAGES: usize = 8;

/// Rows of one number: one op, or several that were coalesced into one.
#[derive(Clone, Copy)]
pub struct Slot {
    pub seq: i64,
    pub matching: u64,
    pub stack: u64,
    pub epoch: i64,
    pub created_ns: i64,
    /// Its rows, as a range in the list of rows that the slots were made from.
    pub first: u32,
    pub last: u32,
}

/// What tracks of one record share.
pub struct Tracks<'a> {
    pub dump: &'a Dump,
    pub facts: &'a Facts,
    pub tables: &'a mut Tables,
    /// Threads of ops, in the order of their first use.
    pub threads: Vec<u32>,
    payload: Vec<u8>,
}

impl<'a> Tracks<'a> {
    pub fn new(dump: &'a Dump, facts: &'a Facts, tables: &'a mut Tables) -> Self {
        Self { dump, facts, tables, threads: Vec::new(), payload: Vec::new() }
    }

    /// Writes the own part, and gives the shape's key. There is at least one slot.
    pub fn put(&mut self, out: &mut Vec<u8>, slots: &[Slot], rows: &[u32], from_start: bool, recent: usize) -> u64 {
        let (first, last) = (slots[0].seq, slots[slots.len() - 1].seq);
        let state = |slot: &Slot| self.facts.state[rows[slot.last as usize] as usize];
        let frontier = slots.iter().rposition(|slot| state(slot) == COMPLETED).map_or(0, |done| done + 1);
        let mut ops: Vec<usize> = Vec::with_capacity(3);
        let mut refer = |at: Option<usize>| match at {
            None => 0,
            Some(slot) => {
                let known = ops.iter().position(|&op| op == slot);
                1 + known.unwrap_or_else(|| {
                    ops.push(slot);
                    ops.len() - 1
                }) as u8
            }
        };
        let last_done = refer(frontier.checked_sub(1));
        let first_active = refer((frontier < slots.len()).then_some(frontier));
        let references = [last_done, first_active, refer(Some(slots.len() - 1))];

        let blocks = self.say_blocks(slots);
        let recent = &slots[slots.len().saturating_sub(recent)..];
        let mut shape = std::mem::take(&mut self.payload);
        shape.clear();
        put_u32(&mut shape, slots.len() as u32);
        put_i64(&mut shape, first);
        put_i64(&mut shape, last);
        put_u8(&mut shape, u8::from(from_start));
        put_u32(&mut shape, blocks.len() as u32);
        blocks.iter().for_each(|&key| put_u64(&mut shape, key));
        put_ints(&mut shape, recent.iter().map(|slot| slot.seq));
        shape.extend_from_slice(&references);
        put_u8(&mut shape, ops.len() as u8);
        for &op in &ops {
            self.put_op(&mut shape, &slots[op], rows);
        }
        let key = self.tables.say_by_content(Kind::Shape, &shape);
        self.payload = shape;
        for &op in &ops {
            self.put_own(out, slots, op, rows);
        }
        put_longest_pause(out, slots);
        put_ints(out, recent.iter().map(|slot| slot.created_ns));
        key
    }

    /// What an op says that other ranks may say alike.
    fn put_op(&self, out: &mut Vec<u8>, slot: &Slot, rows: &[u32]) {
        let rows = &rows[slot.first as usize..=slot.last as usize];
        let (first, last) = (&self.dump.rows[rows[0] as usize], rows[rows.len() - 1]);
        let (begun, ended) = (self.dump.call(first), self.dump.call(&self.dump.rows[last as usize]));
        put_i64(out, slot.seq);
        put_i64(out, if begun.is_p2p { first.p2p_seq } else { 0 });
        let facts = |&row: &u32| self.facts.call(&self.dump.rows[row as usize]);
        let all_are_markers = rows.iter().all(|row| facts(row).is_marker);
        let calls = rows.iter().map(facts).filter(|call| all_are_markers || !call.is_marker);
        put_u32(out, calls.clone().count() as u32);
        calls.for_each(|call| put_u64(out, self.tables.known_signature(call.signature).key));
        put_u8(out, self.facts.state[last as usize]);
        put_u8(out, u8::from(ended.retired));
        put_i64(out, ended.timeout_ms);
        put_u8(out, u8::from(begun.stack != NO_FRAMES));
        if begun.stack != NO_FRAMES {
            put_u64(out, slot.stack);
        }
    }

    fn put_own(&mut self, out: &mut Vec<u8>, slots: &[Slot], op: usize, rows: &[u32]) {
        let slot = &slots[op];
        let first = &self.dump.rows[rows[slot.first as usize] as usize];
        let last = &self.dump.rows[rows[slot.last as usize] as usize];
        put_i64(out, first.record_id);
        put_i64(out, first.created_ns);
        let before = op.checked_sub(1).map(|before| slots[before].created_ns);
        put_i64(out, before.map_or(NOTHING, |before| slot.created_ns.wrapping_sub(before)));
        put_i64(out, last.completed_ns);
        let thread = self.dump.call(first).thread;
        let index = self.threads.iter().position(|&known| known == thread).unwrap_or_else(|| {
            self.threads.push(thread);
            self.threads.len() - 1
        });
        put_u8(out, index as u8);
    }

    fn say_blocks(&mut self, slots: &[Slot]) -> Vec<u64> {
        let mut keys = Vec::with_capacity(slots.len() / 64 + 2);
        for block in slots.chunk_by(|a, b| a.seq >> BLOCK_BITS == b.seq >> BLOCK_BITS) {
            let key = block.iter().fold(0u64, |key, slot| {
                let seq = splitmix(slot.seq as u64);
                key.wrapping_add(splitmix(slot.matching ^ seq))
                    .wrapping_add(mix(slot.stack, !slot.seq as u64))
                    .wrapping_add(splitmix(slot.epoch as u64 ^ seq))
            });
            if self.tables.is_new_block(key) {
                self.say_block(key, block);
            }
            keys.push(key);
        }
        keys
    }

    fn say_block(&mut self, key: u64, block: &[Slot]) {
        let payload = &mut self.payload;
        payload.clear();
        put_ints(payload, block.iter().map(|slot| slot.seq));
        put_tokens(payload, block.iter().map(|slot| slot.matching), &mut self.tables.numbering);
        put_tokens(payload, block.iter().map(|slot| slot.stack), &mut self.tables.numbering);
        put_ints(payload, block.iter().map(|slot| slot.epoch));
        self.tables.say_block(key, payload);
    }
}

/// The op before which the rank paused longest; the first of several.
fn put_longest_pause(out: &mut Vec<u8>, slots: &[Slot]) {
    let (mut seq, mut longest) = (slots[0].seq, 0i64);
    for pair in slots.windows(2) {
        let pause = pair[1].created_ns.wrapping_sub(pair[0].created_ns);
        if pause > longest {
            (seq, longest) = (pair[1].seq, pause);
        }
    }
    put_i64(out, seq);
    put_i64(out, longest);
}
