//! A whole dump: what stands beside its entries, and the entries.

use crate::columns::{Declared, Dump, Status};
use crate::entry::Entry;
use crate::reader::{op, Reader};
use crate::tables::{text_budget, Tables};
use crate::templates::Templates;
use crate::{NotMine, Taken};

const MAX_RANK: i64 = 1 << 31;
const MAX_DIGITS: usize = 18;

/// Working memory, kept between dumps.
pub struct Scratch {
    pub entry: Entry,
    pub templates: Templates,
}

/// Reads a dump into `dump`, whatever was in it before.
pub fn read_dump(data: &[u8], dump: &mut Dump, tables: &mut Tables, scratch: &mut Scratch) -> Taken<()> {
    dump.clear();
    tables.begin(data.len());
    let mut reader = Reader::new(data)?;
    reader.expect(op::PROTO)?;
    reader.expect(2)?;
    reader.begin_dict()?;
    let mut seen = Vec::new();
    let (mut has_schema, mut has_entries) = (false, false);
    while !reader.accept(op::SETITEMS) {
        let key = reader.text()?;
        let key = reader.bytes(key);
        if seen.contains(&key) || seen.len() == MAX_TOP_KEYS {
            return Err(NotMine);
        }
        seen.push(key);
        match key {
            b"version" => {
                dump.schema = reader.known_text(tables)?;
                has_schema = true;
            }
            b"comm_lib_version" | b"nccl_version" => {
                reader.known_text(tables)?;
            }
            b"pg_config" => read_groups(&mut reader, dump, tables)?,
            b"pg_status" => read_status(&mut reader, dump)?,
            b"rank" => dump.rank = Some(read_rank(&mut reader)?),
            b"entries" => {
                scratch.templates.read_entries(&mut reader, &mut scratch.entry, dump, tables)?;
                has_entries = true;
            }
            _ => reader.skip(0)?,
        }
    }
    reader.put_other()?;
    reader.expect(op::STOP)?;
    if reader.pos != data.len() || !has_schema || !has_entries {
        return Err(NotMine);
    }
    dump.finish(tables, text_budget(data.len()))
}

const MAX_TOP_KEYS: usize = 32;

fn read_rank(reader: &mut Reader<'_>) -> Taken<i64> {
    let rank = reader.integer()?;
    if (0..MAX_RANK).contains(&rank) {
        Ok(rank)
    } else {
        Err(NotMine)
    }
}

/// `pg_config`: {name: {name, desc, ranks}}.
fn read_groups(reader: &mut Reader<'_>, dump: &mut Dump, tables: &mut Tables) -> Taken<()> {
    let mut keys = Vec::new();
    reader.begin_dict()?;
    while !reader.accept(op::SETITEMS) {
        keys.push(reader.known_text(tables)?);
        let (mut name, mut desc, mut ranks) = (None, None, None);
        reader.begin_dict()?;
        while !reader.accept(op::SETITEMS) {
            let key = reader.text()?;
            let place = match reader.bytes(key) {
                b"name" => &mut name,
                b"desc" => &mut desc,
                b"ranks" => &mut ranks,
                _ => return Err(NotMine),
            };
            if place.replace(reader.known_text(tables)?).is_some() {
                return Err(NotMine);
            }
        }
        let (Some(name), Some(desc), Some(ranks)) = (name, desc, ranks) else { return Err(NotMine) };
        // gloo registers its groups before they have a name: the ranks under "" are those of any of them.
        let members = tables.members(ranks)?;
        if tables.text_bytes(name).is_empty() {
            dump.unnamed = members;
            dump.declared.push(Declared { name, desc, members: None });
        } else {
            dump.declared.push(Declared { name, desc, members });
        }
    }
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(NotMine);
    }
    Ok(())
}

/// `pg_status`: {pg_id as text: counters}.
fn read_status(reader: &mut Reader<'_>, dump: &mut Dump) -> Taken<()> {
    reader.begin_dict()?;
    while !reader.accept(op::SETITEMS) {
        let key = reader.text()?;
        let pg_id = decimal(reader.bytes(key))?;
        let (mut enqueued, mut started, mut completed) = (None, None, None);
        reader.begin_dict()?;
        while !reader.accept(op::SETITEMS) {
            let key = reader.text()?;
            let place = match reader.bytes(key) {
                b"last_enqueued_collective" => &mut enqueued,
                b"last_started_collective" => &mut started,
                b"last_completed_collective" => &mut completed,
                _ => return Err(NotMine),
            };
            if place.replace(reader.integer()?).is_some() {
                return Err(NotMine);
            }
        }
        let (Some(last_enqueued), Some(_), Some(last_completed)) = (enqueued, started, completed) else {
            return Err(NotMine);
        };
        dump.status.push(Status { pg_id, last_enqueued, last_completed });
    }
    dump.status.sort_unstable_by_key(|status| status.pg_id);
    if dump.status.windows(2).any(|pair| pair[0].pg_id == pair[1].pg_id) {
        return Err(NotMine);
    }
    Ok(())
}

fn decimal(text: &[u8]) -> Taken<i64> {
    if text.is_empty() || text.len() > MAX_DIGITS || !text.iter().all(u8::is_ascii_digit) {
        return Err(NotMine);
    }
    Ok(text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
}
