//! Which rows of a dump belong to messages, and how far each op really came.
//!
//! The rules of `channels.py` and `states.py`; the reasons stand there.

use crate::columns::{Dump, Row, NO_FRAMES};
use crate::tables::Tables;
use crate::tokens::NO_STACK;
use crate::{NotMine, Taken};

pub const SCHEDULED: u8 = 0;
pub const COMPLETED: u8 = 2;
const ENTERING: u8 = 3;
const ABORTED: u8 = 4;
const NS_PER_MS: i64 = 1_000_000;

/// What a summary asks about a call, looked up once per dump.
#[derive(Clone, Copy)]
pub struct CallFacts {
    pub group: u32,
    pub signature: u32,
    pub matching: u64,
    pub stack: u64,
    pub is_message: bool,
    pub is_p2p: bool,
    pub is_marker: bool,
    pub is_all_to_all: bool,
    is_gloo: bool,
    state: u8,
    retired: bool,
    has_timeout: bool,
    timeout_ns: i64,
}

/// One dump on its way through a summary. Kept between dumps for its memory.
#[derive(Default)]
pub struct Facts {
    pub calls: Vec<CallFacts>,
    /// Per row, an index into Python's `tuple(OpState)`.
    pub state: Vec<u8>,
    /// Rows that belong to P2P traffic: sends, receives and the markers that close a batch of them.
    pub of_p2p: Vec<bool>,
    /// All rows, group by group; `ends` says where each group's rows end.
    pub by_group: Vec<u32>,
    pub ends: Vec<u32>,
    pub first_ns: i64,
    pub last_ns: i64,
    pub has_holes: bool,
    pub has_messages: bool,
    pub has_done: bool,
    pub has_stacks: bool,
    pub is_timed: bool,
}

/// The row before, in the same group.
#[derive(Clone, Copy)]
struct Before {
    of_p2p: bool,
    p2p_seq: i64,
    /// Of the collective before it.
    collective_seq: i64,
}

impl Facts {
    /// Looks at all rows. Collectives that a group did not number in their order are for the Python reader, and so are messages of a
    /// selection of entries, whose markers may be left out.
    pub fn look_at(&mut self, dump: &Dump, tables: &Tables) -> Taken<()> {
        self.look_up_calls(dump, tables);
        self.look_at_rows(dump)?;
        if self.has_holes && self.has_messages {
            return Err(NotMine);
        }
        for group in 0..dump.groups.len() {
            self.mark_entering(dump, group);
        }
        if self.has_messages {
            for group in 0..dump.groups.len() {
                self.give_batches_their_state(dump, group);
            }
        }
        self.has_done = self.state.contains(&COMPLETED);
        Ok(())
    }

    pub fn rows_of(&self, group: usize) -> &[u32] {
        let start = if group == 0 { 0 } else { self.ends[group - 1] };
        &self.by_group[start as usize..self.ends[group] as usize]
    }

    pub fn call(&self, row: &Row) -> &CallFacts {
        &self.calls[row.call as usize]
    }

    fn look_up_calls(&mut self, dump: &Dump, tables: &Tables) {
        self.calls.clear();
        self.calls.extend(dump.calls.iter().map(|call| {
            let signature = tables.known_signature(call.signature);
            let gloo_state = if call.retired { COMPLETED } else { SCHEDULED };
            CallFacts {
                group: call.group,
                signature: call.signature,
                matching: signature.matching,
                stack: if call.stack == NO_FRAMES { NO_STACK } else { tables.known_stack(call.stack).token },
                is_message: signature.peers.is_some(),
                is_p2p: call.is_p2p,
                is_marker: signature.is_marker,
                is_all_to_all: signature.is_all_to_all,
                is_gloo: signature.is_gloo,
                state: if signature.is_gloo { gloo_state } else { call.state },
                retired: call.retired,
                has_timeout: call.timeout_ms > 0,
                timeout_ns: call.timeout_ms.wrapping_mul(NS_PER_MS),
            }
        }));
    }

    fn look_at_rows(&mut self, dump: &Dump) -> Taken<()> {
        let rows = &dump.rows;
        let mut before = vec![Before { of_p2p: false, p2p_seq: 0, collective_seq: i64::MIN }; dump.groups.len()];
        let mut counts = vec![0u32; dump.groups.len()];
        self.state.clear();
        self.of_p2p.clear();
        (self.first_ns, self.last_ns) = (i64::MAX, 0);
        (self.has_holes, self.has_messages, self.has_stacks, self.is_timed) = (false, false, false, false);
        let mut expected = rows.first().map_or(0, |row| row.record_id);
        for row in rows {
            let call = self.calls[row.call as usize];
            self.state.push(state_of(&call, row));
            let of_p2p = call.is_p2p || call.is_message;
            let last = &mut before[call.group as usize];
            // The marker of a P2P batch says is_p2p False; it is known by the messages of its number right before it.
            let is_apart = of_p2p || (call.is_marker && last.of_p2p && last.p2p_seq == row.p2p_seq);
            self.of_p2p.push(is_apart);
            (last.of_p2p, last.p2p_seq) = (of_p2p, row.p2p_seq);
            if !is_apart {
                if row.collective_seq < last.collective_seq {
                    return Err(NotMine);
                }
                last.collective_seq = row.collective_seq;
            }
            counts[call.group as usize] += 1;
            self.has_messages |= call.is_message;
            self.has_holes |= row.record_id != expected;
            expected = row.record_id.wrapping_add(1);
            for moment in [row.created_ns, row.completed_ns] {
                if moment > 0 {
                    self.first_ns = self.first_ns.min(moment);
                    self.last_ns = self.last_ns.max(moment);
                }
            }
            self.is_timed |= row.started_ns > 0;
            let said = &dump.calls[row.call as usize];
            self.is_timed |= said.state == 1;
            self.has_stacks |= said.stack != NO_FRAMES;
        }
        if self.last_ns == 0 {
            self.first_ns = 0;
        }
        self.sort_by_group(dump, &counts);
        Ok(())
    }

    fn sort_by_group(&mut self, dump: &Dump, counts: &[u32]) {
        self.ends.clear();
        let mut total = 0;
        for count in counts {
            self.ends.push(total);
            total += count;
        }
        self.by_group.clear();
        self.by_group.resize(dump.rows.len(), 0);
        for (index, row) in dump.rows.iter().enumerate() {
            let end = &mut self.ends[self.calls[row.call as usize].group as usize];
            self.by_group[*end as usize] = index as u32;
            *end += 1;
        }
    }

    /// The newest op of a group reads `completed` while its rank is still blocked inside the enqueue.
    fn mark_entering(&mut self, dump: &Dump, group: usize) {
        let rows = self.rows_of(group);
        let Some((&newest, earlier)) = rows.split_last() else { return };
        let said = dump.call(&dump.rows[newest as usize]);
        let Some(status) = dump.status_of(said.pg_id) else { return };
        let is_gloo = self.call(&dump.rows[newest as usize]).is_gloo;
        if said.retired || is_gloo || ![COMPLETED, ABORTED].contains(&self.state[newest as usize]) {
            return;
        }
        let own = counter(dump, newest);
        let before = earlier.last().map_or(own.saturating_sub(1).max(0), |&row| counter(dump, row));
        if status.last_enqueued.max(0) == before && before != own {
            self.state[newest as usize] = ENTERING;
        }
    }

    /// Messages of a batch have no events of their own: the marker behind them carries their state.
    fn give_batches_their_state(&mut self, dump: &Dump, group: usize) {
        let mut batch: Vec<u32> = Vec::new();
        let start = if group == 0 { 0 } else { self.ends[group - 1] };
        for at in start..self.ends[group] {
            let index = self.by_group[at as usize];
            if !self.of_p2p[index as usize] {
                continue;
            }
            let row = &dump.rows[index as usize];
            let is_same = batch.first().is_some_and(|&first| dump.rows[first as usize].p2p_seq == row.p2p_seq);
            if !is_same {
                batch.clear();
            }
            if self.calls[row.call as usize].is_message {
                batch.push(index);
            } else {
                let state = self.state[index as usize];
                batch.drain(..).for_each(|message| self.state[message as usize] = state);
            }
        }
    }
}

/// What the row says, but for ops that ended only because their communicator was torn down.
#[inline]
fn state_of(call: &CallFacts, row: &Row) -> u8 {
    let took = row.completed_ns.wrapping_sub(row.created_ns);
    let is_late = row.completed_ns > 0 && call.has_timeout && took > call.timeout_ns;
    if call.state == COMPLETED && is_late && !call.retired {
        ABORTED
    } else {
        call.state
    }
}

/// The number by which pg_status would name this row.
fn counter(dump: &Dump, row: u32) -> i64 {
    let row = &dump.rows[row as usize];
    if dump.call(row).is_p2p {
        row.p2p_seq
    } else {
        row.collective_seq
    }
}
