//! One entry of a dump, read opcode by opcode.

use crate::columns::{Call, Dump, Row, NO_FRAMES};
use crate::reader::{op, FrameItem, Reader};
use crate::signature::Sizes;
use crate::tables::Tables;
use crate::{NotMine, Taken};

/// Numbers that differ in every entry, in the order of `Entry::counters`.
pub const RECORD_ID: usize = 0;
pub const COLLECTIVE_SEQ: usize = 1;
pub const P2P_SEQ: usize = 2;
pub const OP_ID: usize = 3;
pub const CREATED_NS: usize = 4;
pub const STARTED_NS: usize = 5;
pub const COMPLETED_NS: usize = 6;
pub const COUNTERS: usize = 7;
/// A number that no column needs.
pub const SKIPPED: usize = 7;

/// The fields of an entry. What stands before `COUNTERS` is a counter.
mod field {
    pub const FRAMES: usize = 8;
    pub const PG_ID: usize = 9;
    pub const PROCESS_GROUP: usize = 10;
    pub const THREAD_NAME: usize = 11;
    pub const PROFILING_NAME: usize = 12;
    pub const INPUT_SIZES: usize = 13;
    pub const INPUT_DTYPES: usize = 14;
    pub const OUTPUT_SIZES: usize = 15;
    pub const OUTPUT_DTYPES: usize = 16;
    pub const STATE: usize = 17;
    pub const RETIRED: usize = 18;
    pub const TIMEOUT_MS: usize = 19;
    pub const IS_P2P: usize = 20;
    pub const UNKNOWN: usize = 21;
}

/// Today's entries have 22.
const MAX_FIELDS: usize = 64;
/// Lengths of an entry's tensors: what is kept of each takes more bytes than the file does.
const MAX_LENGTHS: usize = 1 << 20;

/// Without these the Python reader has rules for older versions of PyTorch.
const REQUIRED: u32 = 1 << COLLECTIVE_SEQ
    | 1 << P2P_SEQ
    | 1 << CREATED_NS
    | 1 << field::PG_ID
    | 1 << field::PROCESS_GROUP
    | 1 << field::PROFILING_NAME
    | 1 << field::STATE
    | 1 << field::RETIRED
    | 1 << field::IS_P2P;

/// What was read of the current entry. Kept between entries for its memory.
#[derive(Default)]
pub struct Entry {
    pub counters: [i64; COUNTERS],
    /// Numbers that another entry of the same call may have otherwise: where they begin and end, and which they are.
    pub numbers: Vec<(usize, usize, usize)>,
    pub input_sizes: Sizes,
    pub input_dtypes: Vec<u32>,
    pub output_sizes: Sizes,
    pub output_dtypes: Vec<u32>,
    pub signature_key: Vec<u8>,
    frames: Vec<u8>,
    has_frames: bool,
    pg_id: i64,
    group: (u32, u32),
    thread: Option<u32>,
    name: u32,
    state: u8,
    retired: bool,
    timeout_ms: i64,
    is_p2p: bool,
}

impl Entry {
    fn clear(&mut self) {
        self.counters = [0; COUNTERS];
        self.numbers.clear();
        self.input_sizes.clear();
        self.input_dtypes.clear();
        self.output_sizes.clear();
        self.output_dtypes.clear();
        self.frames.clear();
        self.has_frames = false;
        self.thread = None;
        self.timeout_ms = 0;
    }

    /// Reads the entry that begins here. It must end before the next one, or before the end of the list.
    pub fn read(&mut self, reader: &mut Reader<'_>, tables: &mut Tables) -> Taken<()> {
        self.clear();
        reader.begin_dict()?;
        let (mut seen, mut fields) = (0u32, 0);
        while !reader.accept(op::SETITEMS) {
            fields += 1;
            if fields > MAX_FIELDS {
                return Err(NotMine);
            }
            let field = usize::from(reader.field(|key| field_of(key).map(|field| field as u8))?);
            if field != field::UNKNOWN && seen & 1 << field != 0 {
                return Err(NotMine);
            }
            seen |= 1 << field;
            self.read_field(field, reader, tables)?;
        }
        let is_whole = matches!(reader.peek()?, op::EMPTY_DICT | op::APPENDS);
        // A time before 1970 would make differences overflow.
        if !is_whole || seen & REQUIRED != REQUIRED || self.counters[CREATED_NS] < 0 || self.pg_id < 0 {
            return Err(NotMine);
        }
        Ok(())
    }

    fn read_field(&mut self, field: usize, reader: &mut Reader<'_>, tables: &mut Tables) -> Taken<()> {
        match field {
            counter if counter < COUNTERS => {
                let began = reader.pos;
                self.counters[counter] = reader.integer_or_none()?;
                self.numbers.push((began, reader.pos, counter));
            }
            field::FRAMES => self.read_frames(reader, tables)?,
            field::PG_ID => self.pg_id = reader.integer()?,
            field::PROCESS_GROUP => {
                self.group = (reader.known_text(tables)?, reader.known_text(tables)?);
                reader.spend_containers(1)?;
                reader.expect(op::TUPLE2)?;
            }
            field::THREAD_NAME => self.thread = Some(reader.known_text(tables)?),
            field::PROFILING_NAME => self.name = reader.known_text(tables)?,
            field::INPUT_SIZES => read_sizes(&mut self.input_sizes, reader)?,
            field::INPUT_DTYPES => read_texts(&mut self.input_dtypes, reader, tables)?,
            field::OUTPUT_SIZES => read_sizes(&mut self.output_sizes, reader)?,
            field::OUTPUT_DTYPES => read_texts(&mut self.output_dtypes, reader, tables)?,
            field::STATE => {
                let text = reader.text()?;
                self.state = state_of(reader.bytes(text));
            }
            field::RETIRED => self.retired = reader.flag()?,
            field::TIMEOUT_MS => self.timeout_ms = reader.integer()?,
            field::IS_P2P => self.is_p2p = reader.flag()?,
            _ if reader.is_plain_number() => {
                let began = reader.pos;
                reader.skip_number()?;
                self.numbers.push((began, reader.pos, SKIPPED));
            }
            _ => reader.skip(0)?,
        }
        Ok(())
    }

    fn read_frames(&mut self, reader: &mut Reader<'_>, tables: &mut Tables) -> Taken<()> {
        self.has_frames = true;
        reader.begin_list()?;
        reader.known_frames(&mut self.frames);
        while let Some(item) = reader.frame_item()? {
            let frame = match item {
                FrameItem::Known(frame) => frame,
                FrameItem::Written => read_frame(reader, tables)?,
            };
            self.frames.extend_from_slice(&frame.to_le_bytes());
            reader.known_frames(&mut self.frames);
        }
        Ok(())
    }

    /// The call of the entry that was read last.
    pub fn call(&mut self, dump: &mut Dump, tables: &mut Tables) -> Taken<Call> {
        let thread = match self.thread {
            Some(thread) => thread,
            None => tables.text(b"")?,
        };
        Ok(Call {
            group: dump.group(self.group.0, self.group.1),
            signature: tables.signature(self.name, self)?,
            thread,
            stack: if self.has_frames { tables.stack(&self.frames)? } else { NO_FRAMES },
            pg_id: self.pg_id,
            timeout_ms: self.timeout_ms,
            is_p2p: self.is_p2p,
            state: self.state,
            retired: self.retired,
        })
    }

    /// Equal for equal signatures and no others.
    pub fn write_signature_key(&mut self, name: u32) {
        let key = &mut self.signature_key;
        key.clear();
        key.extend_from_slice(&name.to_le_bytes());
        for (sizes, dtypes) in [(&self.input_sizes, &self.input_dtypes), (&self.output_sizes, &self.output_dtypes)] {
            key.extend_from_slice(&(sizes.lengths.len() as u32).to_le_bytes());
            sizes.lengths.iter().for_each(|length| key.extend_from_slice(&length.to_le_bytes()));
            key.extend_from_slice(&(dtypes.len() as u32).to_le_bytes());
            dtypes.iter().for_each(|dtype| key.extend_from_slice(&dtype.to_le_bytes()));
        }
    }
}

/// The row of an entry with these counters.
#[inline]
pub fn row(counters: &[i64; COUNTERS], call: u32) -> Row {
    Row {
        record_id: counters[RECORD_ID],
        collective_seq: counters[COLLECTIVE_SEQ],
        p2p_seq: counters[P2P_SEQ],
        created_ns: counters[CREATED_NS],
        started_ns: counters[STARTED_NS],
        completed_ns: counters[COMPLETED_NS],
        call,
    }
}

fn field_of(key: &[u8]) -> Taken<usize> {
    Ok(match key {
        b"record_id" => RECORD_ID,
        b"collective_seq_id" => COLLECTIVE_SEQ,
        b"p2p_seq_id" => P2P_SEQ,
        b"op_id" => OP_ID,
        b"time_created_ns" => CREATED_NS,
        b"time_discovered_started_ns" => STARTED_NS,
        b"time_discovered_completed_ns" => COMPLETED_NS,
        b"frames" => field::FRAMES,
        b"pg_id" => field::PG_ID,
        b"process_group" => field::PROCESS_GROUP,
        b"thread_name" => field::THREAD_NAME,
        b"profiling_name" => field::PROFILING_NAME,
        b"input_sizes" => field::INPUT_SIZES,
        b"input_dtypes" => field::INPUT_DTYPES,
        b"output_sizes" => field::OUTPUT_SIZES,
        b"output_dtypes" => field::OUTPUT_DTYPES,
        b"state" => field::STATE,
        b"retired" => field::RETIRED,
        b"timeout_ms" => field::TIMEOUT_MS,
        b"is_p2p" => field::IS_P2P,
        b"seq_id" | b"time_created_us" => return Err(NotMine),
        _ => field::UNKNOWN,
    })
}

fn state_of(text: &[u8]) -> u8 {
    match text {
        b"started" => 1,
        b"completed" => 2,
        _ => 0,
    }
}

fn read_frame(reader: &mut Reader<'_>, tables: &mut Tables) -> Taken<u32> {
    let (mut name, mut filename, mut line) = (None, None, None);
    reader.begin_dict()?;
    while !reader.accept(op::SETITEMS) {
        let key = reader.text()?;
        let is_twice = match reader.bytes(key) {
            b"name" => name.replace(reader.known_text(tables)?).is_some(),
            b"filename" => filename.replace(reader.known_text(tables)?).is_some(),
            b"line" => line.replace(i32::try_from(reader.integer()?).map_err(|_| NotMine)?).is_some(),
            _ => true,
        };
        if is_twice {
            return Err(NotMine);
        }
    }
    let (Some(name), Some(filename), Some(line)) = (name, filename, line) else { return Err(NotMine) };
    let frame = tables.frame(name, filename, line);
    reader.put_frame(frame)?;
    Ok(frame)
}

fn read_sizes(sizes: &mut Sizes, reader: &mut Reader<'_>) -> Taken<()> {
    reader.begin_list()?;
    while !reader.accept(op::APPENDS) {
        reader.begin_list()?;
        let began = sizes.begin();
        while !reader.accept(op::APPENDS) {
            sizes.lengths.push(reader.integer()?);
        }
        if sizes.lengths.len() > MAX_LENGTHS {
            return Err(NotMine);
        }
        sizes.end(began)?;
    }
    Ok(())
}

fn read_texts(texts: &mut Vec<u32>, reader: &mut Reader<'_>, tables: &mut Tables) -> Taken<()> {
    reader.begin_list()?;
    while !reader.accept(op::APPENDS) {
        texts.push(reader.known_text(tables)?);
    }
    Ok(())
}
