//! One dump, decoded: a row per entry, and what rows repeat in tables beside them.

use std::collections::{HashMap, HashSet};

use crate::tables::Tables;
use crate::{NotMine, Taken};

/// In `Call::stack`: the entry has no frames at all.
pub const NO_FRAMES: u32 = u32::MAX;

/// What differs in every entry.
#[derive(Clone, Copy, Default)]
pub struct Row {
    pub record_id: i64,
    pub collective_seq: i64,
    pub p2p_seq: i64,
    pub created_ns: i64,
    pub started_ns: i64,
    pub completed_ns: i64,
    /// Index into `Dump::calls`.
    pub call: u32,
}

/// What an entry says about the call itself, which often repeats.
#[derive(Clone, Copy)]
pub struct Call {
    /// Index into `Dump::groups`.
    pub group: u32,
    /// Numbers in the tables.
    pub signature: u32,
    pub thread: u32,
    pub stack: u32,
    pub pg_id: i64,
    pub timeout_ms: i64,
    pub is_p2p: bool,
    /// 0 scheduled, 1 started, 2 completed.
    pub state: u8,
    pub retired: bool,
}

/// A group as `pg_config` declares it: numbers in the tables.
#[derive(Clone, Copy)]
pub struct Declared {
    pub name: u32,
    pub desc: u32,
    pub members: Option<u32>,
}

/// A group's counters in `pg_status`.
#[derive(Clone, Copy)]
pub struct Status {
    pub pg_id: i64,
    pub last_enqueued: i64,
    pub last_completed: i64,
}

#[derive(Default)]
pub struct Dump {
    pub schema: u32,
    pub rank: Option<i64>,
    pub declared: Vec<Declared>,
    /// Members of the group that was made last, where groups have no names.
    pub unnamed: Option<u32>,
    /// Ascending by pg_id.
    pub status: Vec<Status>,
    pub rows: Vec<Row>,
    /// In the order of their first rows.
    pub calls: Vec<Call>,
    /// Which calls still have rows.
    kept: Vec<bool>,
    /// Distinct (name, desc) of the entries, with the members that `pg_config` gives them.
    pub groups: Vec<Declared>,
    pub signatures: Vec<u32>,
    pub stacks: Vec<u32>,
    group_of: HashMap<(u32, u32), u32>,
    signatures_seen: Seen,
    stacks_seen: Seen,
}

/// Which numbers came in this dump, without clearing a flag for each between dumps.
#[derive(Default)]
struct Seen {
    round: u32,
    in_round: Vec<u32>,
}

impl Seen {
    /// Whether it is the first time in this round.
    fn is_first(&mut self, id: u32) -> bool {
        let id = id as usize;
        if id >= self.in_round.len() {
            self.in_round.resize(id + 1, 0);
        }
        std::mem::replace(&mut self.in_round[id], self.round) != self.round
    }
}

impl Dump {
    pub fn clear(&mut self) {
        self.rank = None;
        self.declared.clear();
        self.unnamed = None;
        self.status.clear();
        self.rows.clear();
        self.calls.clear();
        self.groups.clear();
        self.signatures.clear();
        self.stacks.clear();
        self.group_of.clear();
        self.signatures_seen.round += 1;
        self.stacks_seen.round += 1;
    }

    pub fn group(&mut self, name: u32, desc: u32) -> u32 {
        let is_same = |group: &Declared| group.name == name && group.desc == desc;
        if let Some(index) = self.groups.iter().take(FEW).position(is_same) {
            return index as u32;
        }
        let next = self.groups.len() as u32;
        let index = *self.group_of.entry((name, desc)).or_insert(next);
        if index == next {
            self.groups.push(Declared { name, desc, members: None });
        }
        index
    }

    pub fn add_call(&mut self, call: Call) -> u32 {
        if self.signatures_seen.is_first(call.signature) {
            self.signatures.push(call.signature);
        }
        if call.stack != NO_FRAMES && self.stacks_seen.is_first(call.stack) {
            self.stacks.push(call.stack);
        }
        self.calls.push(call);
        self.calls.len() as u32 - 1
    }

    pub fn call(&self, row: &Row) -> &Call {
        &self.calls[row.call as usize]
    }

    pub fn status_of(&self, pg_id: i64) -> Option<Status> {
        let at = self.status.binary_search_by_key(&pg_id, |status| status.pg_id).ok()?;
        Some(self.status[at])
    }

    /// Header and entries together.
    pub fn finish(&mut self, tables: &Tables, text_budget: usize) -> Taken<()> {
        if self.text(tables) > text_budget || self.groups.len() + self.declared.len() > MAX_GROUPS {
            return Err(NotMine);
        }
        if self.has_many_threads() {
            return Err(NotMine);
        }
        for group in &mut self.groups {
            let same = || self.declared.iter().filter(|declared| declared.name == group.name);
            let exact = same().find(|declared| declared.desc == group.desc).or_else(|| same().next());
            group.members = exact.and_then(|declared| declared.members);
        }
        self.keep_last_generation(tables)
    }

    /// Bytes of text in all that repeats texts, whether or not a dump before had it: the order of dumps is no matter.
    fn text(&self, tables: &Tables) -> usize {
        let of_stacks = self.stacks.iter().map(|&id| tables.known_stack(id).text);
        let of_signatures = self.signatures.iter().map(|&id| tables.known_signature(id).text);
        let named = self.groups.iter().chain(&self.declared);
        let of_groups = named.map(|group| tables.text_bytes(group.name).len() + tables.text_bytes(group.desc).len());
        of_stacks.chain(of_signatures).chain(of_groups).sum()
    }

    fn has_many_threads(&self) -> bool {
        let threads = self.calls.iter().map(|call| call.thread);
        self.calls.len() > MAX_THREADS && threads.collect::<HashSet<_>>().len() > MAX_THREADS
    }

    /// Leaves out ops of groups that were made again later. `pg_id` counts the groups that the process made.
    fn keep_last_generation(&mut self, tables: &Tables) -> Taken<()> {
        let mut newest = vec![-1i64; self.groups.len()];
        for call in &self.calls {
            let known = &mut newest[call.group as usize];
            *known = call.pg_id.max(*known);
        }
        let made_again = |call: &&Call| call.pg_id != newest[call.group as usize];
        self.kept.clear();
        if !self.calls.iter().any(|call| made_again(&call)) {
            self.kept.resize(self.calls.len(), true);
            return Ok(());
        }
        let is_default = |group: u32| tables.text_bytes(self.groups[group as usize].desc) == b"default_pg";
        let again = self.calls.iter().filter(made_again).map(|call| call.group).filter(|&group| is_default(group));
        // With the default group every other was taken down, too.
        let oldest = again.map(|group| newest[group as usize]).max().unwrap_or(i64::MIN);
        let is_newest = |call: &Call| call.pg_id == newest[call.group as usize] && call.pg_id >= oldest;
        self.kept.extend(self.calls.iter().map(is_newest));
        self.rows.retain(|row| self.kept[row.call as usize]);
        let mut has_rows = vec![false; self.groups.len()];
        for row in &self.rows {
            has_rows[self.calls[row.call as usize].group as usize] = true;
        }
        if has_rows.contains(&false) {
            return Err(NotMine);
        }
        Ok(())
    }

    /// The rank that messages name: a send names its source, a receive its destination, as a group rank.
    pub fn rank_in_messages(&self, tables: &Tables) -> Option<i64> {
        if !self.signatures.iter().any(|&id| tables.known_signature(id).peers.is_some()) {
            return None;
        }
        let mut first_call: HashMap<u32, &Call> = HashMap::new();
        for (call, _) in self.calls.iter().zip(&self.kept).filter(|(_, kept)| **kept) {
            first_call.entry(call.signature).or_insert(call);
        }
        let first_of_all = self.rows.first().map(|row| self.call(row));
        for id in &self.signatures {
            let signature = tables.known_signature(*id);
            let Some((source, destination)) = signature.peers else { continue };
            // A signature that only an older generation had is looked up at the first row, as the Python reader does.
            let call = first_call.get(id).copied().or(first_of_all)?;
            let own = if signature.is_send { source } else { destination };
            let members = self.groups[call.group as usize].members;
            if let Some(rank) = members.and_then(|id| tables.known_members(id).ranks.get(own)) {
                return Some(rank);
            }
        }
        None
    }
}

/// Groups that are looked through rather than looked up.
const FEW: usize = 8;
/// The Python packer has a rule for more.
const MAX_THREADS: usize = 254;
/// Declared, and named by entries. The Python reader refuses more.
const MAX_GROUPS: usize = 8192;
