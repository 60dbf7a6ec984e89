//! The bytes of a pickle as PyTorch writes it: protocol 2, every container filled in one go, texts and frames memoised.
//!
//! Anything else that pickle allows is [`NotMine`]. Each container costs of a budget, as in the Python reader.

use crate::tables::Tables;
use crate::{NotMine, Taken};

pub const MAX_BYTES: usize = 64 << 20;
const MAX_TEXT: usize = 16 << 20;
const SPARE_CONTAINERS: usize = 100_000;
/// Of values that nobody asks for.
const MAX_DEPTH: usize = 8;
const UNKNOWN: u32 = u32::MAX;
const NO_FIELD: u8 = u8::MAX;

pub mod op {
    pub const PROTO: u8 = 0x80;
    pub const STOP: u8 = b'.';
    pub const MARK: u8 = b'(';
    pub const EMPTY_DICT: u8 = b'}';
    pub const SETITEMS: u8 = b'u';
    pub const EMPTY_LIST: u8 = b']';
    pub const APPENDS: u8 = b'e';
    pub const TUPLE2: u8 = 0x86;
    pub const NONE: u8 = b'N';
    pub const TRUE: u8 = 0x88;
    pub const FALSE: u8 = 0x89;
    pub const BININT1: u8 = b'K';
    pub const BININT2: u8 = b'M';
    pub const BININT: u8 = b'J';
    pub const LONG1: u8 = 0x8a;
    pub const BINFLOAT: u8 = b'G';
    pub const BINUNICODE: u8 = b'X';
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';
    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
}

#[derive(Clone, Copy)]
enum Memo {
    /// Where it stands, its number in the tables once it has one, and the field of an entry that it names, likewise.
    Text { at: u32, length: u32, id: u32, field: u8 },
    /// A frame's number in the tables.
    Frame(u32),
    /// A value that nobody asked for.
    Other,
}

/// A text in the file.
#[derive(Clone, Copy)]
pub struct Text {
    at: u32,
    length: u32,
    id: u32,
    place: u32,
}

/// An item of a list of frames.
pub enum FrameItem {
    /// A frame's number in the tables.
    Known(u32),
    /// The frame's dict begins here.
    Written,
}

pub struct Reader<'a> {
    pub data: &'a [u8],
    pub pos: usize,
    memo: Vec<Memo>,
    containers_left: usize,
    /// Texts written out and memo places filled so far: bytes around them mean something only where they stand.
    pub definitions: usize,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Taken<Self> {
        if data.len() > MAX_BYTES {
            return Err(NotMine);
        }
        let containers_left = data.len() / 4 + SPARE_CONTAINERS;
        Ok(Self { data, pos: 0, memo: Vec::with_capacity(512), containers_left, definitions: 0 })
    }

    #[inline]
    pub fn peek(&self) -> Taken<u8> {
        self.data.get(self.pos).copied().ok_or(NotMine)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Taken<[u8; N]> {
        let raw = self.data.get(self.pos..self.pos + N).ok_or(NotMine)?;
        self.pos += N;
        raw.try_into().map_err(|_| NotMine)
    }

    #[inline]
    pub fn next(&mut self) -> Taken<u8> {
        let [byte] = self.take()?;
        Ok(byte)
    }

    #[inline]
    pub fn expect(&mut self, opcode: u8) -> Taken<()> {
        if self.next()? == opcode {
            Ok(())
        } else {
            Err(NotMine)
        }
    }

    /// Whether the next opcode is this one; then it is taken.
    #[inline]
    pub fn accept(&mut self, opcode: u8) -> bool {
        let found = self.data.get(self.pos) == Some(&opcode);
        self.pos += usize::from(found);
        found
    }

    pub fn spend_containers(&mut self, count: usize) -> Taken<()> {
        self.containers_left = self.containers_left.checked_sub(count).ok_or(NotMine)?;
        Ok(())
    }

    pub fn containers_left(&self) -> usize {
        self.containers_left
    }

    pub fn begin_dict(&mut self) -> Taken<()> {
        self.spend_containers(1)?;
        self.expect(op::EMPTY_DICT)?;
        self.expect(op::MARK)
    }

    pub fn begin_list(&mut self) -> Taken<()> {
        self.spend_containers(1)?;
        self.expect(op::EMPTY_LIST)?;
        self.expect(op::MARK)
    }

    #[inline]
    pub fn integer(&mut self) -> Taken<i64> {
        match self.next()? {
            op::BININT1 => self.next().map(i64::from),
            op::BININT2 => self.take().map(u16::from_le_bytes).map(i64::from),
            op::BININT => self.take().map(i32::from_le_bytes).map(i64::from),
            op::LONG1 => {
                self.expect(8)?;
                self.take().map(i64::from_le_bytes)
            }
            _ => Err(NotMine),
        }
    }

    /// An integer, or None as 0.
    #[inline]
    pub fn integer_or_none(&mut self) -> Taken<i64> {
        if self.accept(op::NONE) {
            return Ok(0);
        }
        self.integer()
    }

    pub fn flag(&mut self) -> Taken<bool> {
        match self.next()? {
            op::TRUE => Ok(true),
            op::FALSE => Ok(false),
            _ => Err(NotMine),
        }
    }

    pub fn text(&mut self) -> Taken<Text> {
        match self.next()? {
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.take()?);
                let at = self.pos;
                if length as usize > MAX_TEXT || length as usize > self.data.len() - at {
                    return Err(NotMine);
                }
                self.pos += length as usize;
                self.definitions += 1;
                let memo = Memo::Text { at: at as u32, length, id: UNKNOWN, field: NO_FIELD };
                let place = self.put(memo)?.unwrap_or(UNKNOWN);
                Ok(Text { at: at as u32, length, id: UNKNOWN, place })
            }
            opcode => match self.refer(opcode)? {
                (place, Memo::Text { at, length, id, .. }) => Ok(Text { at, length, id, place }),
                _ => Err(NotMine),
            },
        }
    }

    /// The field that a key names, by `find`. A key that came before is not looked at again.
    pub fn field(&mut self, find: impl FnOnce(&[u8]) -> Taken<u8>) -> Taken<u8> {
        if let Some(&[op::BINGET, place]) = self.data.get(self.pos..self.pos + 2) {
            if let Some(&Memo::Text { field, .. }) = self.memo.get(usize::from(place)) {
                if field != NO_FIELD {
                    self.pos += 2;
                    return Ok(field);
                }
            }
        }
        let key = self.text()?;
        let found = find(self.bytes(key))?;
        if let Some(Memo::Text { field, .. }) = self.memo.get_mut(key.place as usize) {
            *field = found;
        }
        Ok(found)
    }

    /// The value behind BINGET or LONG_BINGET, whose opcode has been taken.
    fn refer(&mut self, opcode: u8) -> Taken<(u32, Memo)> {
        let place = match opcode {
            op::BINGET => u32::from(self.next()?),
            op::LONG_BINGET => u32::from_le_bytes(self.take()?),
            _ => return Err(NotMine),
        };
        let memo = self.memo.get(place as usize).ok_or(NotMine)?;
        Ok((place, *memo))
    }

    /// The value that was read last goes into the memo, if the file says so. Places are numbered without gaps.
    fn put(&mut self, memo: Memo) -> Taken<Option<u32>> {
        let place = match self.data.get(self.pos) {
            Some(&op::BINPUT) => {
                self.pos += 1;
                u32::from(self.next()?)
            }
            Some(&op::LONG_BINPUT) => {
                self.pos += 1;
                u32::from_le_bytes(self.take()?)
            }
            _ => return Ok(None),
        };
        if place as usize != self.memo.len() {
            return Err(NotMine);
        }
        self.definitions += 1;
        self.memo.push(memo);
        Ok(Some(place))
    }

    pub fn put_frame(&mut self, frame: u32) -> Taken<()> {
        self.put(Memo::Frame(frame)).map(|_| ())
    }

    pub fn put_other(&mut self) -> Taken<()> {
        self.put(Memo::Other).map(|_| ())
    }

    pub fn bytes(&self, text: Text) -> &'a [u8] {
        &self.data[text.at as usize..text.at as usize + text.length as usize]
    }

    /// The text's number in the tables. A text that came before is not looked at again.
    pub fn known(&mut self, text: Text, tables: &mut Tables) -> Taken<u32> {
        if text.id != UNKNOWN {
            return Ok(text.id);
        }
        let known = tables.text(self.bytes(text))?;
        if let Some(Memo::Text { id, .. }) = self.memo.get_mut(text.place as usize) {
            *id = known;
        }
        Ok(known)
    }

    pub fn known_text(&mut self, tables: &mut Tables) -> Taken<u32> {
        let text = self.text()?;
        self.known(text, tables)
    }

    /// Frames of a list up to its end, or to one that is written out; each is four bytes.
    pub fn known_frames(&mut self, frames: &mut Vec<u8>) {
        loop {
            let (place, length) = match self.data.get(self.pos..self.pos + 5) {
                Some(&[op::BINGET, place, ..]) => (usize::from(place), 2),
                Some(&[op::LONG_BINGET, a, b, c, d]) => (u32::from_le_bytes([a, b, c, d]) as usize, 5),
                _ => return,
            };
            let Some(&Memo::Frame(frame)) = self.memo.get(place) else { return };
            frames.extend_from_slice(&frame.to_le_bytes());
            self.pos += length;
        }
    }

    /// The next frame of a list; None at its end.
    #[inline]
    pub fn frame_item(&mut self) -> Taken<Option<FrameItem>> {
        match self.peek()? {
            op::APPENDS => {
                self.pos += 1;
                Ok(None)
            }
            op::EMPTY_DICT => Ok(Some(FrameItem::Written)),
            opcode => {
                self.pos += 1;
                match self.refer(opcode)? {
                    (_, Memo::Frame(frame)) => Ok(Some(FrameItem::Known(frame))),
                    _ => Err(NotMine),
                }
            }
        }
    }

    /// Whether a value stands here whose bytes say all of it, and which ends without a container's end.
    pub fn is_plain_number(&self) -> bool {
        matches!(
            self.data.get(self.pos),
            Some(
                &(op::NONE | op::TRUE | op::FALSE | op::BINFLOAT | op::BININT1 | op::BININT2 | op::BININT | op::LONG1)
            )
        )
    }

    pub fn skip_number(&mut self) -> Taken<()> {
        match self.peek()? {
            op::NONE | op::TRUE | op::FALSE => {
                self.pos += 1;
                Ok(())
            }
            op::BINFLOAT => self.take::<9>().map(|_| ()),
            _ => self.integer().map(|_| ()),
        }
    }

    /// A value that nobody asks for.
    pub fn skip(&mut self, depth: usize) -> Taken<()> {
        if depth == MAX_DEPTH {
            return Err(NotMine);
        }
        match self.peek()? {
            op::EMPTY_DICT => {
                self.begin_dict()?;
                while !self.accept(op::SETITEMS) {
                    self.text()?;
                    self.skip(depth + 1)?;
                }
                self.put_other()
            }
            op::EMPTY_LIST => {
                self.begin_list()?;
                while !self.accept(op::APPENDS) {
                    self.skip(depth + 1)?;
                }
                self.put_other()
            }
            op::BINUNICODE => self.text().map(|_| ()),
            opcode @ (op::BINGET | op::LONG_BINGET) => {
                self.pos += 1;
                self.refer(opcode).map(|_| ())
            }
            _ => self.skip_number(),
        }
    }
}
