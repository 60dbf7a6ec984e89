//! What many ranks share, over all dumps that one context reads: each value once, and the entries of it that are new.

use std::collections::{HashMap, HashSet};

use crate::blake2b::digest;
use crate::entry::Entry;
use crate::interner::{secret_seed, Interner, Numbering};
use crate::packing::{put_i64, put_text, put_u32, put_u64, put_u8};
use crate::ranks::Ranks;
use crate::signature::{Side, Signature};
use crate::tokens::{match_token, message_token, stack_token};
use crate::{NotMine, Taken};

/// Of one group: the Python side believes no longer array.
const MAX_RANKS: usize = 1 << 20;

/// Bytes of text that a dump's stacks, signatures and groups may hold beyond one for each of its own: the Python reader has
/// the same rule, and the reasons.
const SPARE_TEXT: usize = 32 << 20;

/// The kinds of table entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Text = 1,
    Members = 2,
    Signature = 3,
    Call = 4,
    Stack = 5,
    Block = 6,
    Shape = 7,
    Calls = 8,
}

/// A signature with all that a summary asks about it.
pub struct KnownSignature {
    pub key: u64,
    pub matching: u64,
    pub message: u64,
    pub lib: u32,
    pub peers: Option<(i64, i64)>,
    pub is_send: bool,
    pub is_marker: bool,
    pub is_gloo: bool,
    pub is_all_to_all: bool,
    pub sent: i64,
    pub received: i64,
    /// Bytes of the texts it holds.
    pub text: usize,
    packed: Vec<u8>,
    said: bool,
    said_message: bool,
}

pub struct KnownStack {
    pub token: u64,
    /// The outermost frame's file, if that frame is a module: what was started.
    pub script: Option<u32>,
    /// Bytes of the texts it holds.
    pub text: usize,
    said: bool,
}

pub struct Members {
    pub key: u64,
    pub ranks: Ranks,
}

pub struct Tables {
    texts: Interner,
    text_keys: Vec<Option<u64>>,
    frames: Interner,
    stacks: Interner,
    known_stacks: Vec<KnownStack>,
    signatures: Interner,
    known_signatures: Vec<KnownSignature>,
    members: Vec<Members>,
    members_of_text: HashMap<u32, Option<u32>>,
    calls: HashMap<u64, Vec<u8>>,
    said: HashSet<(Kind, u64)>,
    pub numbering: Numbering,
    /// Entries that nobody has asked for yet.
    fresh: Vec<u8>,
    /// What new stacks and signatures of the dump that is read may still hold.
    text_left: usize,
}

impl Default for Tables {
    fn default() -> Self {
        let seed = secret_seed();
        Self {
            texts: Interner::new(seed),
            text_keys: Vec::new(),
            frames: Interner::new(seed),
            stacks: Interner::new(seed),
            known_stacks: Vec::new(),
            signatures: Interner::new(seed),
            known_signatures: Vec::new(),
            members: Vec::new(),
            members_of_text: HashMap::new(),
            calls: HashMap::new(),
            said: HashSet::new(),
            numbering: Numbering::new(seed),
            fresh: Vec::new(),
            text_left: 0,
        }
    }
}

/// How much text a dump of this size may hold.
pub fn text_budget(dump_size: usize) -> usize {
    dump_size + SPARE_TEXT
}

impl Tables {
    /// A dump of this size is read next.
    pub fn begin(&mut self, dump_size: usize) {
        self.text_left = text_budget(dump_size);
    }

    /// Moves the new entries to `out`.
    pub fn take_fresh(&mut self, out: &mut Vec<u8>) {
        out.clear();
        std::mem::swap(out, &mut self.fresh);
    }

    pub fn text(&mut self, raw: &[u8]) -> Taken<u32> {
        let valid = || std::str::from_utf8(raw).map(|_| ()).map_err(|_| NotMine);
        let (id, is_new) = self.texts.intern(raw, valid)?;
        if is_new {
            self.text_keys.push(None);
        }
        Ok(id)
    }

    /// A piece of a text that is known to be UTF-8, or words of our own.
    pub fn part_of_text(&mut self, raw: &[u8]) -> u32 {
        let (id, is_new) = always(&mut self.texts, raw);
        if is_new {
            self.text_keys.push(None);
        }
        id
    }

    pub fn text_bytes(&self, id: u32) -> &[u8] {
        self.texts.get(id)
    }

    /// The text's key; the first time, the text itself goes out.
    pub fn text_key(&mut self, id: u32) -> u64 {
        if let Some(key) = self.text_keys[id as usize] {
            return key;
        }
        let raw = self.texts.get(id);
        let key = digest(raw);
        if self.said.insert((Kind::Text, key)) {
            put_entry(&mut self.fresh, Kind::Text, key, raw);
        }
        self.text_keys[id as usize] = Some(key);
        key
    }

    pub fn frame(&mut self, name: u32, filename: u32, line: i32) -> u32 {
        let mut raw = [0u8; 12];
        raw[..4].copy_from_slice(&name.to_le_bytes());
        raw[4..8].copy_from_slice(&filename.to_le_bytes());
        raw[8..].copy_from_slice(&line.to_le_bytes());
        always(&mut self.frames, &raw).0
    }

    /// The stack made of these frames (each four bytes of `raw`), innermost first.
    pub fn stack(&mut self, raw: &[u8]) -> Taken<u32> {
        let Self { frames, texts, text_left, .. } = self;
        let size_of = |frame: &[u8]| {
            let (name, filename, _) = parts_of_frame(frames.get(number(frame, 0)));
            texts.get(name).len() + texts.get(filename).len()
        };
        let mut text = 0usize;
        let admit = || {
            text = raw.chunks_exact(4).map(size_of).sum();
            *text_left = text_left.checked_sub(text).ok_or(NotMine)?;
            Ok(())
        };
        let (id, is_new) = self.stacks.intern(raw, admit)?;
        if is_new {
            let frames: Vec<_> = self.stack_frames(id).collect();
            let token = stack_token(
                frames.iter().map(|&(name, file, line)| (self.texts.get(name), self.texts.get(file), i64::from(line))),
            );
            let outer = frames.last().filter(|(name, ..)| self.texts.get(*name) == b"<module>");
            let script = outer.map(|&(_, filename, _)| filename);
            self.known_stacks.push(KnownStack { token, script, text, said: frames.is_empty() });
        }
        Ok(id)
    }

    fn stack_frames(&self, id: u32) -> impl ExactSizeIterator<Item = (u32, u32, i32)> + '_ {
        let frames = self.stacks.get(id).chunks_exact(4);
        frames.map(|raw| parts_of_frame(self.frames.get(number(raw, 0))))
    }

    pub fn known_stack(&self, id: u32) -> &KnownStack {
        &self.known_stacks[id as usize]
    }

    pub fn say_stack(&mut self, id: u32) {
        if std::mem::replace(&mut self.known_stacks[id as usize].said, true) {
            return;
        }
        let token = self.known_stacks[id as usize].token;
        if !self.said.insert((Kind::Stack, token)) {
            return;
        }
        let mut payload = Vec::new();
        put_u32(&mut payload, self.stack_frames(id).len() as u32);
        for (name, filename, line) in self.stack_frames(id) {
            put_text(&mut payload, self.texts.get(name));
            put_text(&mut payload, self.texts.get(filename));
            put_i64(&mut payload, i64::from(line));
        }
        put_entry(&mut self.fresh, Kind::Stack, token, &payload);
    }

    /// The signature of an entry that was read into `entry`.
    pub fn signature(&mut self, name: u32, entry: &mut Entry) -> Taken<u32> {
        let (sent, received) = (entry.input_sizes.total()?, entry.output_sizes.total()?);
        entry.write_signature_key(name);
        let Self { texts, text_left, .. } = self;
        let mut text = 0usize;
        let admit = || {
            let dtypes = entry.input_dtypes.iter().chain(&entry.output_dtypes);
            text = texts.get(name).len() + dtypes.map(|&id| texts.get(id).len()).sum::<usize>();
            *text_left = text_left.checked_sub(text).ok_or(NotMine)?;
            Ok(())
        };
        let (id, is_new) = self.signatures.intern(&entry.signature_key, admit)?;
        if is_new {
            let known = KnownSignature { text, ..self.know(name, entry, (sent, received)) };
            self.known_signatures.push(known);
        }
        Ok(id)
    }

    fn know(&mut self, name: u32, entry: &Entry, (sent, received): (i64, i64)) -> KnownSignature {
        let dtypes = |ids: &[u32]| ids.iter().map(|&id| self.texts.get(id)).collect();
        let (inputs, outputs) = (&entry.input_sizes, &entry.output_sizes);
        let signature = Signature::new(
            self.texts.get(name),
            Side { lengths: &inputs.lengths, elements: &inputs.elements, dtypes: dtypes(&entry.input_dtypes) },
            Side { lengths: &outputs.lengths, elements: &outputs.elements, dtypes: dtypes(&entry.output_dtypes) },
        );
        let packed = signature.packed();
        let lib = signature.lib.to_vec();
        let known = KnownSignature {
            key: digest(&packed),
            matching: match_token(&signature),
            message: message_token(&signature),
            lib: 0,
            peers: signature.peers,
            is_send: signature.op == b"send",
            is_marker: signature.is_marker(),
            is_gloo: signature.lib == b"gloo",
            is_all_to_all: signature.is_all_to_all(),
            sent,
            received,
            text: 0,
            packed,
            said: false,
            said_message: false,
        };
        KnownSignature { lib: self.part_of_text(&lib), ..known }
    }

    pub fn known_signature(&self, id: u32) -> &KnownSignature {
        &self.known_signatures[id as usize]
    }

    pub fn say_signature(&mut self, id: u32) {
        let known = &mut self.known_signatures[id as usize];
        if std::mem::replace(&mut known.said, true) {
            return;
        }
        let (key, matching, packed) = (known.key, known.matching, std::mem::take(&mut known.packed));
        if self.said.insert((Kind::Signature, key)) {
            put_entry(&mut self.fresh, Kind::Signature, key, &packed);
        }
        self.say_call(matching, &[key]);
    }

    pub fn say_message(&mut self, id: u32) {
        let known = &mut self.known_signatures[id as usize];
        if !std::mem::replace(&mut known.said_message, true) {
            let (key, message) = (known.key, known.message);
            self.say_call(message, &[key]);
        }
    }

    /// An example of the calls behind a token. Of several the smallest is kept, so that the order of dumps is no matter.
    pub fn say_call(&mut self, token: u64, signatures: &[u64]) {
        let mut payload = Vec::with_capacity(4 + 8 * signatures.len());
        put_u32(&mut payload, signatures.len() as u32);
        signatures.iter().for_each(|&key| put_u64(&mut payload, key));
        if self.calls.get(&token).is_some_and(|kept| *kept <= payload) {
            return;
        }
        put_entry(&mut self.fresh, Kind::Call, token, &payload);
        self.calls.insert(token, payload);
    }

    /// The ranks that a text lists; None for an empty list.
    pub fn members(&mut self, text: u32) -> Taken<Option<u32>> {
        if let Some(&known) = self.members_of_text.get(&text) {
            return Ok(known);
        }
        let raw = self.texts.get(text);
        let ranks = if raw.is_empty() { Ranks::NONE } else { Ranks::parse(raw).ok_or(NotMine)? };
        if ranks.len() > MAX_RANKS {
            return Err(NotMine);
        }
        let known = (ranks.len() > 0).then(|| self.say_members(ranks));
        self.members_of_text.insert(text, known);
        Ok(known)
    }

    fn say_members(&mut self, ranks: Ranks) -> u32 {
        let mut payload = Vec::new();
        ranks.put(&mut payload);
        let key = self.say_by_content(Kind::Members, &payload);
        self.members.push(Members { key, ranks });
        self.members.len() as u32 - 1
    }

    pub fn known_members(&self, id: u32) -> &Members {
        &self.members[id as usize]
    }

    /// An entry whose key is the digest of its payload.
    pub fn say_by_content(&mut self, kind: Kind, payload: &[u8]) -> u64 {
        let key = digest(payload);
        if self.said.insert((kind, key)) {
            put_entry(&mut self.fresh, kind, key, payload);
        }
        key
    }

    /// Whether nobody has heard of this block; then its payload must follow with `say_block`.
    pub fn is_new_block(&mut self, key: u64) -> bool {
        self.said.insert((Kind::Block, key))
    }

    pub fn say_block(&mut self, key: u64, payload: &[u8]) {
        put_entry(&mut self.fresh, Kind::Block, key, payload);
    }
}

fn number(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

/// Name, filename and line.
fn parts_of_frame(raw: &[u8]) -> (u32, u32, i32) {
    (number(raw, 0), number(raw, 4), number(raw, 8) as i32)
}

fn always(interner: &mut Interner, raw: &[u8]) -> (u32, bool) {
    let found: Result<_, std::convert::Infallible> = interner.intern(raw, || Ok(()));
    match found {
        Ok(found) => found,
        Err(never) => match never {},
    }
}

fn put_entry(out: &mut Vec<u8>, kind: Kind, key: u64, payload: &[u8]) {
    put_u8(out, kind as u8);
    put_u64(out, key);
    put_text(out, payload);
}
