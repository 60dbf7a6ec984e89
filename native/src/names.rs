//! The names of operations, as recorders write them.

const MAX_DIGITS: usize = 9;

/// "nccl:recv 1<-0" -> lib `nccl`, op `recv`, peers (0, 1): always (source, destination).
#[derive(Debug, PartialEq, Eq)]
pub struct OpName<'a> {
    pub lib: &'a [u8],
    pub op: &'a [u8],
    pub peers: Option<(i64, i64)>,
}

pub fn split_name(name: &[u8]) -> OpName<'_> {
    let colon = name.iter().position(|&byte| byte == b':');
    let (lib, op) = colon.map_or((&name[..0], name), |at| (&name[..at], &name[at + 1..]));
    match message(op) {
        Some(peers) => OpName { lib, op: &op[..4], peers },
        None => OpName { lib, op, peers: None },
    }
}

/// The peers of "send 0->1", "recv 1<-0" or "recv 1<-?" (which has none); None for another op.
fn message(op: &[u8]) -> Option<Option<(i64, i64)>> {
    let rest = op.strip_prefix(b"send ").or_else(|| op.strip_prefix(b"recv "))?;
    let (own, rest) = number(rest)?;
    let (to_other, rest) = match rest {
        [b'-', b'>', rest @ ..] => (true, rest),
        [b'<', b'-', rest @ ..] => (false, rest),
        _ => return None,
    };
    if rest == b"?" {
        return Some(None);
    }
    let (other, rest) = number(rest)?;
    rest.is_empty().then_some(Some(if to_other { (own, other) } else { (other, own) }))
}

/// The number that a text begins with, and the rest.
#[inline]
pub fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let (mut value, mut digits) = (0, 0);
    while let Some(digit @ b'0'..=b'9') = text.get(digits) {
        value = value * 10 + i64::from(digit - b'0');
        digits += 1;
        if digits > MAX_DIGITS {
            return None;
        }
    }
    (digits > 0).then(|| (value, &text[digits..]))
}

#[cfg(test)]
mod tests {
    use super::{split_name, OpName};

    fn name(lib: &'static str, op: &'static str, peers: Option<(i64, i64)>) -> OpName<'static> {
        OpName { lib: lib.as_bytes(), op: op.as_bytes(), peers }
    }

    #[test]
    fn names_are_split_as_python_does() {
        assert_eq!(split_name(b"nccl:all_reduce"), name("nccl", "all_reduce", None));
        assert_eq!(split_name(b"barrier"), name("", "barrier", None));
        assert_eq!(split_name(b"a:b:c"), name("a", "b:c", None));
        assert_eq!(split_name(b"nccl:send 0->1"), name("nccl", "send", Some((0, 1))));
        assert_eq!(split_name(b"nccl:recv 1<-0"), name("nccl", "recv", Some((0, 1))));
        assert_eq!(split_name(b"nccl2:recv 3<-?"), name("nccl2", "recv", None));
    }

    #[test]
    fn near_messages_are_ops_of_their_own() {
        for op in ["send 0->1 ", "send 0=>1", "send ->1", "send 1234567890->1", "send 0->", "sendx 0->1"] {
            assert_eq!(split_name(op.as_bytes()).op, op.as_bytes());
        }
    }
}
