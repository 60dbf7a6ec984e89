//! What is kept of one dump, as a packed record: the port of `summary.py`.

use std::collections::{HashMap, HashSet};

use crate::columns::{Call, Declared, Dump, Row, Status};
use crate::messages::Facts;
use crate::packing::{put_i64, put_ints, put_tokens, put_u32, put_u64, put_u8, NOTHING, NO_KEY};
use crate::tables::{Kind, Tables};
use crate::tokens::mix;
use crate::track::{Slot, Tracks, RECENT, RECENT_MESSAGES};

const RECENT_CALLS: usize = 256;
const RECENT_VOLUMES: usize = 256;
/// Of a group's name that is a number.
const MAX_DIGITS: usize = 18;
/// Bytes of a group's head behind its name, description and members.
const GROUP_REST: usize = 32;

/// Writes the record of the rank that wrote `dump`, laid out as in `forkpoint.model.records`.
pub fn put_record(out: &mut Vec<u8>, dump: &Dump, facts: &Facts, tables: &mut Tables, rank: i64) {
    dump.stacks.iter().for_each(|&stack| tables.say_stack(stack));
    dump.signatures.iter().for_each(|&signature| tables.say_signature(signature));
    dump.signatures.iter().for_each(|&signature| tables.say_message(signature));
    let mut body = Vec::with_capacity(2048);
    let mut tracks = Tracks::new(dump, facts, tables);
    let groups = put_groups(&mut body, &mut tracks);
    let channels = put_channels(&mut body, &mut tracks, rank);
    let threads = tracks.threads;
    put_head(out, dump, facts, tables);
    put_u32(out, groups);
    put_u32(out, channels);
    put_recent(out, dump, facts, tables, threads.len() as u8);
    threads.iter().for_each(|&thread| put_u64(out, tables.text_key(thread)));
    out.extend_from_slice(&body);
}

fn put_head(out: &mut Vec<u8>, dump: &Dump, facts: &Facts, tables: &mut Tables) {
    put_u64(out, tables.text_key(dump.schema));
    let lib = match dump.signatures.first() {
        Some(&signature) => tables.known_signature(signature).lib,
        None => tables.part_of_text(b""),
    };
    put_u64(out, tables.text_key(lib));
    let script = dump.stacks.iter().find_map(|&stack| tables.known_stack(stack).script);
    put_u64(out, script.map_or(NO_KEY, |text| tables.text_key(text)));
    put_u64(out, NO_KEY); // a dump that is cut is read in Python
    let world = stated_world(dump, tables).or_else(|| guessed_world(dump));
    put_u64(out, members_key(tables, world));
    put_i64(out, facts.first_ns);
    put_i64(out, facts.last_ns);
    put_u32(out, dump.rows.len() as u32);
}

/// Only the default group says the world, and only once it was used.
fn stated_world(dump: &Dump, tables: &Tables) -> Option<u32> {
    let is_default =
        |group: &&Declared| tables.text_bytes(group.desc) == b"default_pg" || tables.text_bytes(group.name) == b"0";
    dump.declared.iter().find(is_default).and_then(|group| group.members)
}

/// With gloo, whose groups have no names: the group made last, where the first is the only one in use.
fn guessed_world(dump: &Dump) -> Option<u32> {
    let is_first = |pg_id: i64| pg_id == 0;
    let only_first = dump.status.iter().all(|status| is_first(status.pg_id))
        && dump.rows.iter().all(|row| is_first(dump.call(row).pg_id));
    dump.unnamed.filter(|_| only_first)
}

fn members_key(tables: &Tables, members: Option<u32>) -> u64 {
    members.map_or(NO_KEY, |id| tables.known_members(id).key)
}

/// Writes all groups and says how many they are.
fn put_groups(out: &mut Vec<u8>, tracks: &mut Tracks<'_>) -> u32 {
    let dump = tracks.dump;
    let mut collective = Vec::new();
    let mut slots = Vec::new();
    for (index, group) in dump.groups.iter().enumerate() {
        let all = tracks.facts.rows_of(index);
        collective.clear();
        collective.extend(all.iter().copied().filter(|&row| !tracks.facts.of_p2p[row as usize]));
        put_group_name(out, tracks.tables, group);
        let head = out.len();
        out.extend_from_slice(&[0; GROUP_REST]);
        let mut shape = NO_KEY;
        if !collective.is_empty() {
            make_slots(&mut slots, tracks, &collective);
            shape = tracks.put(out, &slots, &collective, slots[0].seq <= 1, RECENT);
        }
        let own = out.len() - head - GROUP_REST;
        put_volumes(out, tracks.dump, tracks.facts, tracks.tables, &collective);
        let volumes = out.len() - head - GROUP_REST - own;
        let newest = all.last().map(|&row| dump.call(&dump.rows[row as usize]));
        let status = newest.and_then(|call| dump.status_of(call.pg_id));
        // Messages count on the same counters.
        let status = status.filter(|_| collective.len() == all.len());
        let rest = group_rest(shape, status, own, volumes);
        out[head..head + GROUP_REST].copy_from_slice(&rest);
    }
    // A split group's description is missing from pg_config, so a name is enough to know a group by.
    let used: HashSet<u32> = dump.groups.iter().map(|group| group.name).collect();
    let is_idle = |group: &&Declared| group.members.is_some() && !used.contains(&group.name);
    let idle: Vec<&Declared> = dump.declared.iter().filter(is_idle).collect();
    let counters = counters_of_idle(dump, tracks.tables, &idle);
    for group in &idle {
        put_group_name(out, tracks.tables, group);
        out.extend_from_slice(&group_rest(NO_KEY, counters.get(&group.name).copied(), 0, 0));
    }
    (dump.groups.len() + idle.len()) as u32
}

/// Counters of groups without entries, by name: both number groups in the order of creation. That is checked on groups of
/// which entries give both numbers; where it does not hold, nothing is told.
fn counters_of_idle(dump: &Dump, tables: &Tables, idle: &[&Declared]) -> HashMap<u32, Status> {
    if dump.status.is_empty() || idle.is_empty() {
        return HashMap::new();
    }
    let mut known: HashMap<i64, u32> = HashMap::new();
    let mut before = None;
    for call in dump.rows.iter().map(|row| dump.call(row)) {
        if before.replace((call.pg_id, call.group)) != Some((call.pg_id, call.group)) {
            known.insert(call.pg_id, dump.groups[call.group as usize].name);
        }
    }
    let rest: Vec<Status> = dump.status.iter().filter(|status| !known.contains_key(&status.pg_id)).copied().collect();
    if rest.is_empty() || rest.len() != idle.len() {
        return HashMap::new();
    }
    let mut named = Vec::with_capacity(idle.len());
    for group in idle {
        let Some(number) = number_of(tables.text_bytes(group.name)) else { return HashMap::new() };
        named.push((number, group.name));
    }
    named.sort_unstable();
    let mut in_order: Vec<(i64, i64)> =
        rest.iter().zip(&named).map(|(status, &(number, _))| (status.pg_id, number)).collect();
    for (&pg_id, &name) in &known {
        let Some(number) = number_of(tables.text_bytes(name)) else { return HashMap::new() };
        in_order.push((pg_id, number));
    }
    in_order.sort_unstable();
    if in_order.windows(2).any(|pair| pair[0].1 >= pair[1].1) {
        return HashMap::new();
    }
    named.iter().zip(&rest).map(|(&(_, name), &status)| (name, status)).collect()
}

/// A group's name, where it is a number.
fn number_of(name: &[u8]) -> Option<i64> {
    if name.is_empty() || name.len() > MAX_DIGITS || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(name.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}

fn put_group_name(out: &mut Vec<u8>, tables: &mut Tables, group: &Declared) {
    put_u64(out, tables.text_key(group.name));
    put_u64(out, tables.text_key(group.desc));
    put_u64(out, members_key(tables, group.members));
}

/// The fixed part of a group behind its name: shape, counters, and how many bytes follow.
fn group_rest(shape: u64, status: Option<Status>, own: usize, volumes: usize) -> [u8; GROUP_REST] {
    let mut rest = [0u8; GROUP_REST];
    let enqueued = status.map_or(NOTHING, |status| status.last_enqueued);
    let completed = status.map_or(NOTHING, |status| status.last_completed);
    rest[..8].copy_from_slice(&shape.to_le_bytes());
    rest[8..16].copy_from_slice(&enqueued.to_le_bytes());
    rest[16..24].copy_from_slice(&completed.to_le_bytes());
    rest[24..28].copy_from_slice(&(own as u32).to_le_bytes());
    rest[28..].copy_from_slice(&(volumes as u32).to_le_bytes());
    rest
}

/// Slots of one group: rows of one number (a coalesced group and its closing marker) are one slot.
fn make_slots(slots: &mut Vec<Slot>, tracks: &mut Tracks<'_>, rows: &[u32]) {
    slots.clear();
    for (at, &index) in rows.iter().enumerate() {
        let row = &tracks.dump.rows[index as usize];
        if let Some(slot) = slots.last_mut() {
            if slot.seq == row.collective_seq {
                slot.last = at as u32;
                continue;
            }
        }
        let call = tracks.facts.call(row);
        slots.push(Slot {
            seq: row.collective_seq,
            matching: call.matching,
            stack: call.stack,
            epoch: 0,
            created_ns: row.created_ns,
            first: at as u32,
            last: at as u32,
        });
    }
    for slot in slots.iter_mut().filter(|slot| slot.first < slot.last) {
        slot.matching = coalesced(tracks, &rows[slot.first as usize..=slot.last as usize]);
    }
}

/// The token of calls that were coalesced into one.
fn coalesced(tracks: &mut Tracks<'_>, rows: &[u32]) -> u64 {
    let calls = || rows.iter().map(|&row| tracks.facts.call(&tracks.dump.rows[row as usize]));
    let token = calls().zip(0u64..).fold(0u64, |sum, (call, at)| sum.wrapping_add(mix(call.matching, at)));
    let keys: Vec<u64> = calls().map(|call| tracks.tables.known_signature(call.signature).key).collect();
    tracks.tables.say_call(token, &keys);
    token
}

/// Elements sent and received in all_to_all, whose sizes may differ by rank; nothing where there was none.
fn put_volumes(out: &mut Vec<u8>, dump: &Dump, facts: &Facts, tables: &Tables, collective: &[u32]) {
    let row_of = |&row: &u32| &dump.rows[row as usize];
    let newest = collective.iter().rev().map(row_of).filter(|row| facts.call(row).is_all_to_all);
    let mut rows: Vec<&Row> = newest.take(RECENT_VOLUMES).collect();
    rows.reverse();
    if rows.is_empty() {
        return;
    }
    let signature = |row: &&Row| tables.known_signature(facts.call(row).signature);
    put_ints(out, rows.iter().map(|row| row.collective_seq));
    put_ints(out, rows.iter().map(|row| signature(row).sent));
    put_ints(out, rows.iter().map(|row| signature(row).received));
}

/// (group, source, destination) as global ranks.
type Channel = (u32, i64, i64);

/// Writes all channels and says how many they are.
fn put_channels(out: &mut Vec<u8>, tracks: &mut Tracks<'_>, rank: i64) -> u32 {
    let channels = by_channel(tracks, rank);
    let mut slots = Vec::new();
    let mut own = Vec::new();
    for ((group, source, destination), rows) in &channels {
        slots.clear();
        slots.extend(rows.iter().zip(0u32..).map(|(&index, at)| {
            let row = &tracks.dump.rows[index as usize];
            let call = tracks.facts.call(row);
            Slot {
                seq: i64::from(at) + 1,
                matching: tracks.tables.known_signature(call.signature).message,
                stack: call.stack,
                epoch: row.collective_seq,
                created_ns: row.created_ns,
                first: at,
                last: at,
            }
        }));
        own.clear();
        let from_start = has_first_message(tracks.dump, tracks.facts, *group);
        let shape = tracks.put(&mut own, &slots, rows, from_start, RECENT_MESSAGES);
        put_u32(out, *group);
        put_i64(out, *source);
        put_i64(out, *destination);
        put_u64(out, shape);
        put_u32(out, own.len() as u32);
        out.extend_from_slice(&own);
    }
    channels.len() as u32
}

/// Rows of each channel in the order of issue, channels in the order of their first message.
fn by_channel(tracks: &Tracks<'_>, rank: i64) -> Vec<(Channel, Vec<u32>)> {
    let (dump, facts) = (tracks.dump, tracks.facts);
    if !facts.has_messages {
        return Vec::new();
    }
    let channel_of: Vec<Option<Channel>> = dump.calls.iter().map(|call| channel(tracks, call, rank)).collect();
    let mut places: HashMap<Channel, usize> = HashMap::new();
    let mut channels: Vec<(Channel, Vec<u32>)> = Vec::new();
    let mut place_of: Vec<Option<usize>> = vec![None; dump.calls.len()];
    for (row, index) in dump.rows.iter().zip(0u32..) {
        let Some(channel) = channel_of[row.call as usize] else { continue };
        let place = *place_of[row.call as usize].get_or_insert_with(|| {
            *places.entry(channel).or_insert_with(|| {
                channels.push((channel, Vec::new()));
                channels.len() - 1
            })
        });
        channels[place].1.push(index);
    }
    channels
}

/// The channel of a call, if it is a message of this rank.
fn channel(tracks: &Tracks<'_>, call: &Call, rank: i64) -> Option<Channel> {
    let (mut source, mut destination) = tracks.tables.known_signature(call.signature).peers?;
    if let Some(members) = tracks.dump.groups[call.group as usize].members {
        let ranks = &tracks.tables.known_members(members).ranks;
        if let (Some(from), Some(to)) = (ranks.get(source), ranks.get(destination)) {
            (source, destination) = (from, to);
        }
    }
    (rank == source || rank == destination).then_some((call.group, source, destination))
}

/// The ring buffer still holds this group's first message, so that messages can be counted from one.
fn has_first_message(dump: &Dump, facts: &Facts, group: u32) -> bool {
    let is_message = |&&row: &&u32| facts.call(&dump.rows[row as usize]).is_message;
    let Some(&first) = facts.rows_of(group as usize).iter().find(is_message) else { return false };
    // The first P2P number alone is not enough: earlier members of the same batch may have been evicted.
    dump.rows[0].record_id == 0 || (dump.rows[first as usize].p2p_seq == 1 && first > 0)
}

/// The end of the head: the last calls over all groups, if they are all there, and what stands between their numbers.
fn put_recent(out: &mut Vec<u8>, dump: &Dump, facts: &Facts, tables: &mut Tables, threads: u8) {
    let is_known = !facts.has_holes && facts.has_done;
    let first = if is_known { dump.rows.len().saturating_sub(RECENT_CALLS) } else { dump.rows.len() };
    let recent = &dump.rows[first..];
    let mut payload = Vec::with_capacity(2048);
    put_ints(&mut payload, recent.iter().map(|row| i64::from(facts.call(row).group)));
    put_tokens(&mut payload, recent.iter().map(|row| facts.call(row).matching), &mut tables.numbering);
    put_tokens(&mut payload, recent.iter().map(|row| facts.call(row).stack), &mut tables.numbering);
    let from_start = dump.rows.first().is_some_and(|row| row.record_id == 0);
    put_u32(out, recent.len() as u32);
    let is_partial = facts.has_holes || !(from_start || facts.has_done);
    let is_guess = stated_world(dump, tables).is_none() && guessed_world(dump).is_some();
    let flags = [from_start, facts.has_stacks, facts.is_timed, is_partial, is_guess, !dump.status.is_empty()];
    put_u8(out, flags.iter().zip(0..).fold(0, |all, (&flag, bit)| all | u8::from(flag) << bit));
    put_u8(out, threads);
    put_i64(out, recent.first().map_or(0, |row| row.record_id));
    put_u64(out, if recent.is_empty() { NO_KEY } else { tables.say_by_content(Kind::Calls, &payload) });
}
