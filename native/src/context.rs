//! What reads dumps one after another and remembers what they share.

use crate::columns::Dump;
use crate::entry::Entry;
use crate::header::{read_dump, Scratch};
use crate::messages::Facts;
use crate::packing::{put_optional_i64, put_u32, put_u64};
use crate::record::put_record;
use crate::tables::Tables;
use crate::templates::Templates;
use crate::{NotMine, Taken};

pub struct Context {
    tables: Tables,
    dump: Dump,
    facts: Facts,
    scratch: Scratch,
    /// The last call's answer.
    out: Vec<u8>,
    has_dump: bool,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            dump: Dump::default(),
            facts: Facts::default(),
            scratch: Scratch { entry: Entry::default(), templates: Templates::new() },
            out: Vec::new(),
            has_dump: false,
        }
    }
}

impl Context {
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Reads a dump and says what claiming a rank needs: the ranks that it names, its groups' members, its entries.
    pub fn decode(&mut self, data: &[u8]) -> Taken<()> {
        self.out.clear();
        self.has_dump = false;
        ask_for_room(data.len())?;
        read_dump(data, &mut self.dump, &mut self.tables, &mut self.scratch)?;
        self.facts.look_at(&self.dump, &self.tables)?;
        self.has_dump = true;
        put_optional_i64(&mut self.out, self.dump.rank);
        put_optional_i64(&mut self.out, self.dump.rank_in_messages(&self.tables));
        let members = self.dump.declared.iter().filter_map(|group| group.members);
        put_u32(&mut self.out, members.clone().count() as u32);
        members.for_each(|id| put_u64(&mut self.out, self.tables.known_members(id).key));
        put_u32(&mut self.out, self.dump.rows.len() as u32);
        Ok(())
    }

    /// The record of the dump that was decoded last, as this rank's.
    pub fn summarise(&mut self, rank: i64) -> Taken<()> {
        self.out.clear();
        if !self.has_dump {
            return Err(NotMine);
        }
        put_record(&mut self.out, &self.dump, &self.facts, &mut self.tables, rank);
        Ok(())
    }

    /// The table entries that are new since the last time.
    pub fn new_tables(&mut self) {
        self.tables.take_fresh(&mut self.out);
    }
}

/// What the largest dumps take beyond eight bytes for each of their own: their text, and what is kept between dumps.
const ROOM: usize = 64 << 20;

/// Rust ends the process where memory cannot be had, so it is asked for before anything depends on it. What is not used
/// costs nothing.
fn ask_for_room(dump_size: usize) -> Taken<()> {
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(8 * dump_size + ROOM).map_err(|_| NotMine)?;
    std::hint::black_box(&mut room);
    Ok(())
}
