//! The list of entries. An entry that repeats a known one in all but its numbers is not read opcode by opcode.
//!
//! PyTorch writes the keys of every entry in the same order, and what came before as references to the memo. So an
//! entry without definitions is a template: bytes that stay, with numbers between them. A program repeats itself: once
//! an iteration is recognised, the one before it says which template comes next, and comparing bytes is all that is
//! left to do.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::columns::Dump;
use crate::entry::{row, Entry, COUNTERS, CREATED_NS, SKIPPED};
use crate::interner::{hash, secret_seed, AlreadyHashed};
use crate::mould::Moulds;
use crate::reader::{op, Reader};
use crate::tables::Tables;
use crate::Taken;

const MAX_TEMPLATES: usize = 4096;
const NOBODY: u32 = u32::MAX;
/// In `Segment::then`: the entry is over.
const END: u8 = 255;

/// Bytes that stay, and the number behind them.
#[derive(Clone, Copy)]
struct Segment {
    at: u32,
    length: u32,
    then: u8,
}

struct Template {
    /// Its range in `Templates::segments`.
    first: u32,
    last: u32,
    call: u32,
    containers: u32,
    /// The templates that came after it, the latest first.
    followers: [u32; 2],
    /// Where it came last, in `Templates::history`.
    seen_at: u32,
}

/// The templates of one file.
#[derive(Default)]
pub struct Templates {
    segments: Vec<Segment>,
    templates: Vec<Template>,
    /// One for each template.
    moulds: Moulds,
    found: HashMap<u64, u32, BuildHasherDefault<AlreadyHashed>>,
    /// The template of each entry so far; NOBODY for one without.
    history: Vec<u32>,
    /// Where in the history the rank was when it last did what it seems to be doing again.
    again: usize,
    seed: u64,
    /// The numbers of the entry that was matched last: where they begin and end, and which they are.
    numbers: Vec<(usize, usize, usize)>,
}

impl Templates {
    pub fn new() -> Self {
        Self { seed: secret_seed(), ..Self::default() }
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.templates.clear();
        self.moulds.clear();
        self.found.clear();
        self.history.clear();
        self.again = usize::MAX;
    }

    /// Reads a whole list of entries into the dump's rows.
    pub fn read_entries(
        &mut self,
        reader: &mut Reader<'_>,
        entry: &mut Entry,
        dump: &mut Dump,
        tables: &mut Tables,
    ) -> Taken<()> {
        self.clear();
        reader.begin_list()?;
        let mut counters = [0i64; COUNTERS];
        while !reader.accept(op::APPENDS) {
            if let Some(template) = self.predict(reader, &mut counters)? {
                dump.rows.push(row(&counters, self.templates[template as usize].call));
                continue;
            }
            let (began, definitions, containers) = (reader.pos, reader.definitions, reader.containers_left());
            entry.read(reader, tables)?;
            let key = (definitions == reader.definitions).then(|| self.hash(reader.data, began, reader.pos, entry));
            let template = key.and_then(|key| self.find(key, reader.data, began, reader.pos, entry));
            let call = match template {
                Some(template) => self.templates[template as usize].call,
                None => {
                    let call = entry.call(dump, tables)?;
                    dump.add_call(call)
                }
            };
            dump.rows.push(row(&entry.counters, call));
            let cost = containers - reader.containers_left();
            let now = match (template, key) {
                (None, Some(key)) => self.add(key, reader, began, entry, (call, cost)),
                (known, _) => known.unwrap_or(NOBODY),
            };
            self.remember(now);
        }
        Ok(())
    }

    /// Reads the entry here if it is what came next the last time, or else what followed its predecessor before.
    #[inline]
    fn predict(&mut self, reader: &mut Reader<'_>, counters: &mut [i64; COUNTERS]) -> Taken<Option<u32>> {
        let expected = self.history.get(self.again).copied().unwrap_or(NOBODY);
        if self.take(expected, reader, counters)? {
            self.history.push(expected);
            self.again += 1;
            return Ok(Some(expected));
        }
        let before = self.history.last().and_then(|&before| self.templates.get(before as usize));
        let Some(&Template { followers, .. }) = before else { return Ok(None) };
        for follower in followers {
            if follower != expected && self.take(follower, reader, counters)? {
                self.remember(follower);
                return Ok(Some(follower));
            }
        }
        Ok(None)
    }

    /// Whether the entry here is of this template; then it is read.
    #[inline]
    fn take(&mut self, index: u32, reader: &mut Reader<'_>, counters: &mut [i64; COUNTERS]) -> Taken<bool> {
        let Some(template) = self.templates.get(index as usize) else { return Ok(false) };
        let cost = template.containers as usize;
        let began = reader.pos;
        let fits = match self.moulds.fit(index as usize, &reader.data[began..], counters) {
            Some(length) => {
                reader.pos += length;
                true
            }
            None => self.matches(index, reader, counters),
        };
        let is_whole = fits && matches!(reader.peek(), Ok(op::EMPTY_DICT | op::APPENDS)) && counters[CREATED_NS] >= 0;
        if is_whole {
            reader.spend_containers(cost)?;
        } else {
            reader.pos = began;
        }
        Ok(is_whole)
    }

    /// Takes the entry here if it is the template but for its numbers, however wide they are.
    fn matches(&mut self, index: u32, reader: &mut Reader<'_>, counters: &mut [i64; COUNTERS]) -> bool {
        let template = &self.templates[index as usize];
        let began = reader.pos;
        *counters = [0; COUNTERS];
        self.numbers.clear();
        for segment in &self.segments[template.first as usize..template.last as usize] {
            let (at, length) = (segment.at as usize, segment.length as usize);
            if reader.data.get(reader.pos..reader.pos + length) != Some(&reader.data[at..at + length]) {
                return false;
            }
            reader.pos += length;
            let number_at = reader.pos;
            let which = usize::from(segment.then);
            let is_read = match which {
                SKIPPED => reader.skip_number(),
                counter if counter < COUNTERS => reader.integer_or_none().map(|number| counters[counter] = number),
                _ => break,
            };
            if is_read.is_err() {
                return false;
            }
            self.numbers.push((number_at, reader.pos, which));
        }
        self.moulds.set(index as usize, &reader.data[..reader.pos], began, &self.numbers);
        true
    }

    /// An entry came that was not foreseen: what followed its template the last time may follow again.
    fn remember(&mut self, now: u32) {
        let before = self.history.last().copied().unwrap_or(NOBODY);
        if let Some(template) = self.templates.get_mut(before as usize) {
            if template.followers[0] != now {
                template.followers = [now, template.followers[0]];
            }
        }
        let at = self.history.len() as u32;
        self.again = match self.templates.get_mut(now as usize) {
            Some(template) => std::mem::replace(&mut template.seen_at, at).saturating_add(1) as usize,
            None => usize::MAX,
        };
        self.history.push(now);
    }

    /// The template of an entry that was read from these bytes, if it is known.
    fn find(&self, key: u64, data: &[u8], began: usize, ended: usize, entry: &Entry) -> Option<u32> {
        let known = *self.found.get(&key)?;
        let template = &self.templates[known as usize];
        let segments = &self.segments[template.first as usize..template.last as usize];
        let is_same = segments.len() == entry.numbers.len() + 1
            && segments.iter().zip(stretches(began, ended, entry)).all(|(segment, (from, to, then))| {
                let at = segment.at as usize;
                segment.then == then && data[at..at + segment.length as usize] == data[from..to]
            });
        is_same.then_some(known)
    }

    fn hash(&self, data: &[u8], began: usize, ended: usize, entry: &Entry) -> u64 {
        stretches(began, ended, entry).fold(self.seed, |seed, (from, to, _)| hash(seed, &data[from..to]))
    }

    fn add(&mut self, key: u64, reader: &Reader<'_>, began: usize, entry: &Entry, (call, cost): (u32, usize)) -> u32 {
        if self.templates.len() == MAX_TEMPLATES {
            return NOBODY;
        }
        let index = self.templates.len() as u32;
        self.found.insert(key, index);
        let first = self.segments.len() as u32;
        let segment =
            |(from, to, then): (usize, usize, u8)| Segment { at: from as u32, length: (to - from) as u32, then };
        self.segments.extend(stretches(began, reader.pos, entry).map(segment));
        let (last, containers) = (self.segments.len() as u32, cost as u32);
        self.templates.push(Template { first, last, call, containers, followers: [NOBODY; 2], seen_at: NOBODY });
        self.moulds.add(&reader.data[..reader.pos], began, &entry.numbers);
        index
    }
}

/// From where to where an entry's bytes stay, and which number comes then.
fn stretches(began: usize, ended: usize, entry: &Entry) -> impl Iterator<Item = (usize, usize, u8)> + '_ {
    let numbers = entry.numbers.iter().map(|&(from, to, which)| (from, to, which as u8));
    numbers.chain([(ended, ended, END)]).scan(began, |at, (from, to, then)| {
        let stretch = (*at, from, then);
        *at = to;
        Some(stretch)
    })
}
