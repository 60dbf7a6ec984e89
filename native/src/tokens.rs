//! Signatures and stacks as 64-bit tokens: the definitions of `forkpoint.model.op`, number for number.

use crate::blake2b::digest;
use crate::signature::Signature;

pub const NO_STACK: u64 = 0;
pub const CPP_STACK: u64 = 1;
/// Sizes legitimately differ by rank: splits, and buffers that only the root has.
const SIZES_FREE: [&[u8]; 7] =
    [b"all_to_all", b"all_to_all_single", b"all_to_allv", b"gather", b"gather_single", b"scatter", b"_broadcast_oop"];

/// What members of a group must agree on.
pub fn match_token(signature: &Signature<'_>) -> u64 {
    let mut text = Joined::new(signature.lib);
    text.add(signature.op);
    if let Some((source, destination)) = signature.peers {
        text.add(format!("{source}->{destination}").as_bytes());
    }
    if !SIZES_FREE.contains(&signature.op) {
        let (inputs, outputs) = (signature.inputs.elements, signature.outputs.elements);
        if signature.op == b"all_gather" && outputs.windows(2).any(|pair| pair[0] != pair[1]) {
            text.add(b"per-peer");
        } else {
            text.add_numbers(inputs);
            text.add(b"->");
        }
        text.add_numbers(outputs);
    }
    let dtypes = if signature.op == b"scatter" { &signature.outputs.dtypes } else { &signature.inputs.dtypes };
    dtypes.iter().for_each(|dtype| text.add(dtype));
    digest(&text.0)
}

/// What sender and receiver of a message must agree on.
pub fn message_token(signature: &Signature<'_>) -> u64 {
    let (inputs, outputs) = (&signature.inputs, &signature.outputs);
    let mut text = Joined::new(b"p2p");
    text.add_numbers(if inputs.elements.is_empty() { outputs.elements } else { inputs.elements });
    let dtypes = if inputs.dtypes.is_empty() { &outputs.dtypes } else { &inputs.dtypes };
    dtypes.iter().for_each(|dtype| text.add(dtype));
    digest(&text.0)
}

/// Parts with a separator between them.
struct Joined(Vec<u8>);

impl Joined {
    fn new(first: &[u8]) -> Self {
        Self(first.to_vec())
    }

    fn add(&mut self, part: &[u8]) {
        self.0.push(0x1f);
        self.0.extend_from_slice(part);
    }

    fn add_numbers(&mut self, numbers: &[i64]) {
        numbers.iter().for_each(|number| self.add(number.to_string().as_bytes()));
    }
}

/// Frames as (name, filename, line), innermost first.
pub fn stack_token<'a>(frames: impl Iterator<Item = (&'a [u8], &'a [u8], i64)>) -> u64 {
    let mut text = Vec::new();
    for (name, filename, line) in frames {
        if !text.is_empty() {
            text.push(0x1e);
        }
        text.extend_from_slice(name);
        text.push(0x1f);
        text.extend_from_slice(filename);
        text.push(0x1f);
        text.extend_from_slice(line.to_string().as_bytes());
    }
    if text.is_empty() {
        return CPP_STACK;
    }
    digest(&text)
}

/// A token bound to its position, so that a sum of them identifies a run whatever order it is summed in.
#[inline]
pub fn mix(token: u64, seq: u64) -> u64 {
    splitmix(token ^ splitmix(seq))
}

#[inline]
pub fn splitmix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::{match_token, message_token, mix, stack_token, CPP_STACK};
    use crate::signature::{Side, Signature};

    fn side<'a>(elements: &'a [i64], dtypes: &[&'a [u8]]) -> Side<'a> {
        Side { lengths: &[], elements, dtypes: dtypes.to_vec() }
    }

    fn signature<'a>(op: &'a [u8], peers: Option<(i64, i64)>, inputs: Side<'a>, outputs: Side<'a>) -> Signature<'a> {
        Signature { lib: b"nccl", op, peers, inputs, outputs }
    }

    /// The expected numbers are those of `forkpoint.model.op`.
    #[test]
    fn match_tokens_are_those_of_python() {
        assert_eq!(
            match_token(&signature(b"all_reduce", None, side(&[12], &[b"Float"]), side(&[12], &[b"Float"]))),
            0xbd66_43c8_be8d_40d0
        );
        assert_eq!(
            match_token(&signature(b"send", Some((0, 1)), side(&[5], &[b"Float"]), side(&[5], &[b"Float"]))),
            0x3399_bb92_9ab2_026a
        );
        assert_eq!(
            match_token(&signature(b"all_gather", None, side(&[2], &[b"Float"]), side(&[2, 3], &[b"Float", b"Float"]))),
            0x50b7_e61d_689d_e5d9
        );
        assert_eq!(
            match_token(&signature(b"all_gather", None, side(&[2], &[b"Float"]), side(&[2, 2], &[b"Float", b"Float"]))),
            0x3d9b_8eaf_eb66_8042
        );
        assert_eq!(
            match_token(&signature(b"scatter", None, side(&[], &[]), side(&[2], &[b"Half"]))),
            0xf719_8686_480a_2f23
        );
        assert_eq!(
            match_token(&signature(b"all_to_all", None, side(&[9], &[b"Float"]), side(&[2], &[b"Float"]))),
            0xde79_1a4a_9198_f79c
        );
    }

    #[test]
    fn message_tokens_are_those_of_python() {
        assert_eq!(
            message_token(&signature(b"send", Some((0, 1)), side(&[5], &[b"Float"]), side(&[5], &[b"Float"]))),
            0x4741_338c_c36b_7e6d
        );
        assert_eq!(
            message_token(&signature(b"scatter", None, side(&[], &[]), side(&[2], &[b"Half"]))),
            0x2652_f130_38b0_38c0
        );
    }

    #[test]
    fn stack_tokens_are_those_of_python() {
        let frames: [(&[u8], &[u8], i64); 2] = [(b"f", b"/a.py", 3), (b"<module>", b"/b.py", -1)];
        assert_eq!(stack_token(frames.into_iter()), 0x6475_fd6e_ebfc_8563);
        assert_eq!(stack_token(std::iter::empty()), CPP_STACK);
    }

    #[test]
    fn mixed_tokens_are_those_of_python() {
        assert_eq!(mix(7, -3i64 as u64), 0x4108_8588_c902_91b0);
    }
}
