//! Names as recorders write them: operations and lists of ranks as text.

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

fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > MAX_DIGITS {
        return None;
    }
    let value = text[..digits].iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    Some((value, &text[digits..]))
}

/// The ranks in "[0, 1, 2]"; None when the text is no such list.
pub fn parse_ranks(text: &[u8]) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    let mut rest = without_spaces(text.strip_prefix(b"[")?);
    if rest == b"]" {
        return Some(ranks);
    }
    loop {
        let (rank, after) = number(rest)?;
        ranks.push(u32::try_from(rank).ok()?);
        match without_spaces(after) {
            b"]" => return Some(ranks),
            [b',', after @ ..] => rest = without_spaces(after),
            _ => return None,
        }
    }
}

fn without_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    &text[spaces..]
}

#[cfg(test)]
mod tests {
    use super::{parse_ranks, split_name, OpName};

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

    #[test]
    fn lists_of_ranks_are_read_as_python_does() {
        assert_eq!(parse_ranks(b"[0, 1, 2]"), Some(vec![0, 1, 2]));
        assert_eq!(parse_ranks(b"[ 7 ,8]"), Some(vec![7, 8]));
        assert_eq!(parse_ranks(b"[]"), Some(vec![]));
        assert_eq!(parse_ranks(b"[ ]"), Some(vec![]));
        for text in ["", "[", "[0", "[0,]", "[,0]", "[0 1]", " [0]", "[0]x", "[-1]", "[1234567890]", "[0\t]"] {
            assert_eq!(parse_ranks(text.as_bytes()), None, "{text}");
        }
    }
}
