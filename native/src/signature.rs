//! What was called, as recorded.

use crate::names::split_name;
use crate::packing::{put_i64, put_text, put_u32, put_u8};
use crate::{NotMine, Taken};

/// Tensors on one side of a call.
pub struct Side<'a> {
    /// For each tensor its number of dimensions, then their lengths.
    pub lengths: &'a [i64],
    /// For each tensor its number of elements.
    pub elements: &'a [i64],
    pub dtypes: Vec<&'a [u8]>,
}

pub struct Signature<'a> {
    pub lib: &'a [u8],
    pub op: &'a [u8],
    /// (source, destination) as group ranks, for send and recv.
    pub peers: Option<(i64, i64)>,
    pub inputs: Side<'a>,
    pub outputs: Side<'a>,
}

impl<'a> Signature<'a> {
    pub fn new(name: &'a [u8], inputs: Side<'a>, outputs: Side<'a>) -> Self {
        let name = split_name(name);
        Self { lib: name.lib, op: name.op, peers: name.peers, inputs, outputs }
    }

    /// The closing entry of a coalesced group: it carries the group's state and no sizes.
    pub fn is_marker(&self) -> bool {
        self.op == b"coalesced" || (self.op.ends_with(b"_coalesced") && self.inputs.elements.is_empty())
    }

    pub fn is_all_to_all(&self) -> bool {
        [&b"all_to_all"[..], b"all_to_all_single", b"all_to_allv"].contains(&self.op)
    }

    /// The payload of a table entry.
    pub fn packed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, self.lib);
        put_text(&mut out, self.op);
        put_u8(&mut out, u8::from(self.peers.is_some()));
        if let Some((source, destination)) = self.peers {
            put_i64(&mut out, source);
            put_i64(&mut out, destination);
        }
        put_side(&mut out, &self.inputs);
        put_side(&mut out, &self.outputs);
        out
    }
}

fn put_side(out: &mut Vec<u8>, side: &Side<'_>) {
    put_u32(out, side.elements.len() as u32);
    let mut lengths = side.lengths;
    while let Some((&dimensions, rest)) = lengths.split_first() {
        let (size, rest) = rest.split_at(dimensions as usize);
        put_u32(out, dimensions as u32);
        size.iter().for_each(|&length| put_i64(out, length));
        lengths = rest;
    }
    put_u32(out, side.dtypes.len() as u32);
    side.dtypes.iter().for_each(|dtype| put_text(out, dtype));
}

/// Sizes of tensors while an entry is read.
#[derive(Default)]
pub struct Sizes {
    pub lengths: Vec<i64>,
    pub elements: Vec<i64>,
}

impl Sizes {
    pub fn clear(&mut self) {
        self.lengths.clear();
        self.elements.clear();
    }

    /// Begins a tensor; its lengths follow, then `end`.
    pub fn begin(&mut self) -> usize {
        self.lengths.push(0);
        self.lengths.len() - 1
    }

    /// Counts the tensor's elements. Sizes that are impossible are for the Python reader to refuse.
    pub fn end(&mut self, began: usize) -> Taken<()> {
        let size = &self.lengths[began + 1..];
        let elements = size.iter().try_fold(1i64, |product, &length| {
            if length < 0 {
                return Err(NotMine);
            }
            product.checked_mul(length).ok_or(NotMine)
        })?;
        self.lengths[began] = (self.lengths.len() - began - 1) as i64;
        self.elements.push(elements);
        Ok(())
    }

    pub fn total(&self) -> Taken<i64> {
        self.elements.iter().try_fold(0i64, |sum, &elements| sum.checked_add(elements)).ok_or(NotMine)
    }
}
